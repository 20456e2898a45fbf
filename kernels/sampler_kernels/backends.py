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


class StatsOfBothOperation(Protocol):
    """Target and draft rows in one go."""

    def __call__(
        self, target: RowTable, target_temperature: Tensor, draft: RowTable, draft_temperature: Tensor, *, raw: bool
    ) -> tuple[Any, Any]:
        """What ``stats`` gives of either table; sums at temperature 1, if ``raw``, of the target rows alone."""
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
        stats_of_both: ``stats`` of both tables in fewer launches, where the backend can.
        draw_and_flatten: ``draw`` and then ``flatten`` in fewer launches, where the backend can; gives the results of
            both.
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
    stats_of_both: StatsOfBothOperation | None = None
    draw_and_flatten: Callable[[Batch, Any, Any, Decision], tuple[Tensor, Tensor]] | None = None

    def all_stats(
        self, target: RowTable, target_temperature: Tensor, draft: RowTable, draft_temperature: Tensor, *, raw: bool
    ) -> tuple[Any, Any]:
        """Statistics of both tables, in as few launches as the backend can do with."""
        if self.stats_of_both is not None:
            return self.stats_of_both(target, target_temperature, draft, draft_temperature, raw=raw)
        return self.stats(target, target_temperature, raw=raw), self.stats(draft, draft_temperature, raw=False)

    def emit(self, batch: Batch, target_stats: Any, draft_stats: Any, decision: Decision) -> Tensor:  # noqa: ANN401
        """[N] int32, the emitted tokens in row order, in as few launches as the backend can do with."""
        if self.draw_and_flatten is not None:
            return self.draw_and_flatten(batch, target_stats, draft_stats, decision)[1]
        return self.flatten(batch, decision, self.draw(batch, target_stats, draft_stats, decision))

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
    from sampler_kernels.cut.kernel import cut  # noqa: PLC0415
    from sampler_kernels.draw.kernel import draw, draw_and_flatten  # noqa: PLC0415
    from sampler_kernels.flatten.kernel import flatten  # noqa: PLC0415
    from sampler_kernels.processors.kernel import processors  # noqa: PLC0415
    from sampler_kernels.rejection.kernel import rejection  # noqa: PLC0415
    from sampler_kernels.stats.kernel import stats, stats_of_both  # noqa: PLC0415
    from sampler_kernels.topk_logprobs.kernel import topk_logprobs  # noqa: PLC0415

    return Backend(
        name="triton",
        device=device,
        processors=processors,
        stats=stats,
        rejection=rejection,
        draw=draw,
        flatten=flatten,
        topk_logprobs=topk_logprobs,
        cut=cut,
        stats_of_both=stats_of_both,
        draw_and_flatten=draw_and_flatten,
    )


_LOADERS: dict[str, Callable[[], Backend]] = {"cpu": _cpu, "triton": _triton}
