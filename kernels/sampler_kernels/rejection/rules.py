"""Methods that judge one row after the other: which draft tokens of a wave stand.

Each rule is asked about good rows with a draft token below V, and answers [n] bool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sampler_kernels.batch import LossyColumns, MethodCode
from sampler_kernels.draw.reference import Target, sample
from sampler_kernels.elements import load_at
from sampler_kernels.rejection.waves import Bools, Wave
from sampler_kernels.stats.entropy import entropy
from sampler_kernels.topk_logprobs.reference import ranks_of


def greedy(wave: Wave) -> Bools:
    """Stands if it is the argmax."""
    return np.equal(wave.token, wave.rows.argmax(wave.row))


def standard(wave: Wave) -> Bools:
    """Stands with probability min(1, p/q) (Leviathan et al. 2211.17192). Strict: a token with p = 0 never stands."""
    return wave.u * wave.q < wave.p


def strict(wave: Wave) -> Bools:
    """Stands if it is what the row's draw gives; the same draw, made again, is the final token where it is not."""
    u = wave.columns.draw_uniform[wave.row]
    return np.equal(wave.token, sample(Target(wave.rows, wave.row), u, wave.columns.batch.vocab_size))


def synthetic(wave: Wave) -> Bools:
    """Stands at a given rate, whatever the logits say."""
    return wave.u < _lossy(wave).synthetic_rate.numpy()[wave.columns.place[wave.row]]


def typical(wave: Wave) -> Bools:
    """Stands if p > min(epsilon, delta exp(-entropy of p)) (Medusa, Cai et al. 2401.10774). Entropy in nats."""
    lossy = _lossy(wave)
    epsilon, delta = lossy.typical_epsilon.numpy()[wave.request], lossy.typical_delta.numpy()[wave.request]
    return wave.p > np.minimum(epsilon, delta * np.exp(-entropy(wave.rows, wave.row, wave.target)))


def relaxed(wave: Wave) -> Bools:
    """Stands if it ranks within the top n of what is left of the row, ties counted, and within a margin of the best.

    The order is that before temperature; the margin is one of logits divided by it.
    """
    lossy, rows = _lossy(wave), wave.rows
    logit = load_at(rows.rows, wave.row, wave.token).numpy()
    rank = ranks_of(rows.rows, wave.columns.batch.vocab_size, wave.row, rows.group_max(wave.row), logit)
    below = (wave.target.maximum.astype(np.float64) - logit) / rows.temperature[wave.row]
    ranked = rank <= lossy.relaxed_top_n.numpy()[wave.request]
    near = below <= lossy.relaxed_margin.numpy()[wave.request]
    # An infinite margin and a top n beyond V let nothing stand that a mask or filter has dropped.
    return ranked & near & (logit > -np.inf)


RULES: Mapping[MethodCode, Callable[[Wave], Bools]] = {
    MethodCode.GREEDY: greedy,
    MethodCode.STANDARD: standard,
    MethodCode.STRICT: strict,
    MethodCode.SYNTHETIC: synthetic,
    MethodCode.TYPICAL: typical,
    MethodCode.RELAXED: relaxed,
}
"""All methods but block, which judges a request's rows together."""


def _lossy(wave: Wave) -> LossyColumns:
    lossy = wave.columns.batch.lossy
    assert lossy is not None, "a batch with a lossy method has its columns"
    return lossy
