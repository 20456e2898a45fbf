"""Backends: the operations of a step, by name, loaded when first asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol

import torch
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.outcome import Cut, Decision, TopLogits
from sampler_kernels.rows import RowTable


class BackendUnavailable(RuntimeError):
    """The backend asked for cannot run on this machine, or there is none of that name."""


class StatsOperation(Protocol):
    """One pass over rows of logits. What it returns only the backend's own operations look into."""

    def __call__(self, rows: RowTable, temperature: Tensor, *, raw: bool) -> Any:  # noqa: ANN401
        """Statistics of R rows at their temperatures, [R] float64."""
        ...


class TopkLogprobsOperation(Protocol):
    """Values, ranks, top n and chosen ids of the emitted tokens."""

    def __call__(
        self,
        batch: Batch,
        target_stats: Any,  # noqa: ANN401
        emitted: Tensor,
        *,
        raw: bool,
        top_n: int,
        ranks: bool,
        chosen_ids: Tensor | None,
    ) -> TopLogits:
        """Numbers of N rows for emitted tokens, [N] int32, and chosen ids, [N, c] int32."""
        ...


@dataclass(frozen=True, eq=False)
class Backend:
    """What runs a step.

    Attributes:
        name: ``cpu`` or ``triton``.
        device: Where batches live.
        processors: (batch) -> its target rows with their edits.
        stats: One pass over rows, which also cuts those that are filtered.
        rejection: (batch, target_stats, draft_stats) -> which draft tokens stand.
        draw: (batch, target_stats, draft_stats, decision) -> [B] int32 final tokens.
        flatten: (batch, decision, tokens) -> [N] int32 emitted tokens in row order.
        topk_logprobs: Numbers of the emitted tokens.
        cut: (batch, decision, emitted) -> what stop ids and limits leave of them; asked where a request has either.
    """

    name: str
    device: torch.device
    processors: Callable[[Batch], RowTable]
    stats: StatsOperation
    rejection: Callable[[Batch, Any, Any], Decision]
    draw: Callable[[Batch, Any, Any, Decision], Tensor]
    flatten: Callable[[Batch, Decision, Tensor], Tensor]
    topk_logprobs: TopkLogprobsOperation
    cut: Callable[[Batch, Decision, Tensor], Cut]

    def synchronize(self) -> None:
        """Wait until everything launched so far has run."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def backend(name: str = "auto") -> Backend:
    """The backend of a name.

    Args:
        name: ``cpu``; ``triton`` (an NVIDIA GPU, or the CPU where TRITON_INTERPRET=1); or ``auto``, which is triton
            where torch sees a GPU and triton can be imported, else cpu.

    Raises:
        BackendUnavailable: With what is missing.
    """
    if name == "auto":
        name = "triton" if torch.cuda.is_available() and find_spec("triton") is not None else "cpu"
    if name not in _LOADERS:
        raise BackendUnavailable(f"there is no backend {name!r}; there are auto, {', '.join(_LOADERS)}")
    return _LOADERS[name]()


@cache
def _cpu() -> Backend:
    from sampler_kernels.cut.reference import cut  # noqa: PLC0415
    from sampler_kernels.draw.reference import draw  # noqa: PLC0415
    from sampler_kernels.flatten.reference import flatten  # noqa: PLC0415
    from sampler_kernels.processors.reference import processors  # noqa: PLC0415
    from sampler_kernels.rejection.reference import rejection  # noqa: PLC0415
    from sampler_kernels.stats.supplied import lazy_stats  # noqa: PLC0415
    from sampler_kernels.topk_logprobs.reference import topk_logprobs  # noqa: PLC0415

    cpu = torch.device("cpu")
    return Backend("cpu", cpu, processors, lazy_stats, rejection, draw, flatten, topk_logprobs, cut)


@cache
def _triton() -> Backend:
    try:
        import triton  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError as missing:
        raise BackendUnavailable("backend triton needs the package triton, which cannot be imported") from missing
    interpreted = triton.knobs.runtime.interpret
    if not interpreted and not torch.cuda.is_available():
        raise BackendUnavailable("backend triton needs an NVIDIA GPU that torch can use; there is none (use cpu)")
    device = torch.device("cpu") if interpreted else torch.device("cuda", torch.cuda.current_device())
    from sampler_kernels.draw.kernel import draw  # noqa: PLC0415
    from sampler_kernels.flatten.kernel import flatten  # noqa: PLC0415
    from sampler_kernels.rejection.kernel import rejection  # noqa: PLC0415
    from sampler_kernels.stats.kernel import stats  # noqa: PLC0415
    from sampler_kernels.topk_logprobs.kernel import topk_logprobs  # noqa: PLC0415

    return Backend("triton", device, _unprocessed, stats, rejection, draw, flatten, topk_logprobs, _not_built)


def _unprocessed(batch: Batch) -> RowTable:
    """The target rows as they are: ``checks`` lets nothing pass that this backend would have to edit."""
    return batch.target


def _not_built(*_: object) -> Cut:
    """Never called: ``checks`` lets nothing pass to a backend that lacks what it needs."""
    raise AssertionError("a step was to be cut on a backend that cannot")


_LOADERS: dict[str, Callable[[], Backend]] = {"cpu": _cpu, "triton": _triton}
