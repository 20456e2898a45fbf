"""How a refusal is worded: which request, which field, what it was, what it may be."""

from __future__ import annotations

import reprlib

from sampler_kernels.refusal import Reason, StepRefused

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlist = 8


def refusal(
    reason: Reason,
    what: str,
    *,
    field: str | None = None,
    request: int | None = None,
    position: int | None = None,
) -> StepRefused:
    """A :class:`StepRefused` whose message begins with the place it speaks of."""
    places = (("request", request), ("position", position))
    where = ", ".join(f"{name} {index}" for name, index in places if index is not None)
    return StepRefused(reason, f"{where}: {what}" if where else what, field, request, position)


def outside(
    field: str,
    value: object,
    legal: str,
    *,
    part: str = "",
    reason: Reason = Reason.PARAMETER_OUT_OF_RANGE,
    request: int | None = None,
    position: int | None = None,
) -> StepRefused:
    """The refusal of one value that is not among the ``legal`` ones; ``part`` says which part of the field holds it."""
    what = f"{field}{part} is {_SHORT.repr(value)}; it must be {legal}"
    return refusal(reason, what, field=field, request=request, position=position)


def of_request(refused: StepRefused, request: int | None) -> StepRefused:
    """The same refusal, said of a request. Parameter sets are checked before anyone asks who uses them."""
    return refusal(refused.reason, refused.message, field=refused.field, request=request)
