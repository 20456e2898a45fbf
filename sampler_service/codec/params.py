"""SamplingParams of the wire as those of the core, decoded once for each distinct message."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Final, TypeVar

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels.params import LogprobsMode, Method, SamplingParams
from sampler_kernels.refusal import Reason as CoreReason
from sampler_service.codec.columns import check_size
from sampler_service.errors import Reason, refuse
from sampler_service.limits import Limits

E = TypeVar("E")

_METHOD: Final[dict[int, Method]] = {
    pb.METHOD_UNSPECIFIED: Method.STANDARD,
    pb.METHOD_STANDARD: Method.STANDARD,
    pb.METHOD_STRICT: Method.STRICT,
    pb.METHOD_BLOCK: Method.BLOCK,
    pb.METHOD_SYNTHETIC: Method.SYNTHETIC,
    pb.METHOD_TYPICAL: Method.TYPICAL,
    pb.METHOD_RELAXED: Method.RELAXED,
}

_MODE: Final[dict[int, LogprobsMode]] = {
    pb.LOGPROBS_MODE_UNSPECIFIED: LogprobsMode.RAW_LOGPROBS,
    pb.LOGPROBS_MODE_RAW_LOGPROBS: LogprobsMode.RAW_LOGPROBS,
    pb.LOGPROBS_MODE_PROCESSED_LOGPROBS: LogprobsMode.PROCESSED_LOGPROBS,
    pb.LOGPROBS_MODE_RAW_LOGITS: LogprobsMode.RAW_LOGITS,
    pb.LOGPROBS_MODE_PROCESSED_LOGITS: LogprobsMode.PROCESSED_LOGITS,
}

_DEFAULTED: Final = tuple(
    field.name for field in pb.SamplingParams.DESCRIPTOR.fields if field.has_presence and field.message_type is None
)
"""Single values whose default is not zero, or depends on others: unset means the core's default."""

_MOST_RATES: Final = 4096
"""Acceptance rates of one set. Those beyond the draft length are legal and not read."""

_MOST_ALLOWED_LISTS: Final = 4
"""Lists of allowed ids of the whole vocabulary that one set may hold: beyond that a bitmask is what is wanted."""

_ZERO_DEFAULT: Final = (
    "top_k",
    "min_p",
    "min_tokens",
    "frequency_penalty",
    "presence_penalty",
    "top_logprobs",
    "acceptance_probabilities",
)


class ParamsDecoder:
    """Decodes parameter sets and remembers the latest small ones.

    The same message gives the same object, so what the core remembers about an object (that it passed its checks)
    holds from step to step.

    Args:
        limits: Bounds on the lists of a set.
    """

    _ENTRIES: Final = 1024
    _MAX_BYTES: Final = 2048

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: OrderedDict[bytes, SamplingParams] = OrderedDict()

    def decode(self, message: pb.SamplingParams, where: str) -> SamplingParams:
        """The parameter set of a message; ``where`` is its path from the step on, such as ``params[1]``.

        Raises:
            Refusal: ENUM_UNKNOWN, SHAPE_MISMATCH, PARAMETER_CONFLICT or LIMIT_EXCEEDED. Ranges are the core's to check.
        """
        if message.ByteSize() > self._MAX_BYTES:
            return _decode(message, where, self._limits)
        # Equal messages may serialise differently; then they are decoded twice, which costs time only.
        key = message.SerializeToString()
        params = self._known.get(key)
        if params is None:
            params = self._known[key] = _decode(message, where, self._limits)
            if len(self._known) > self._ENTRIES:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return params


def _decode(message: pb.SamplingParams, where: str, limits: Limits) -> SamplingParams:
    for field, most in (
        ("stop_token_ids", limits.max_stop_token_ids),
        ("logprob_token_ids", limits.max_logprob_token_ids),
        ("synthetic_rates", _MOST_RATES),
    ):
        check_size(len(getattr(message, field)), f"{where}.{field}", most)
    values: dict[str, object] = {field: getattr(message, field) for field in _ZERO_DEFAULT}
    values |= {field: getattr(message, field) for field in _DEFAULTED if message.HasField(field)}  # type: ignore[arg-type]  # any field
    values["method"] = _enum(_METHOD, message.method, f"{where}.method")
    values["stop_token_ids"] = tuple(message.stop_token_ids)
    values["logprob_token_ids"] = tuple(message.logprob_token_ids)
    values["synthetic_rates"] = tuple(message.synthetic_rates) or None
    if message.HasField("logprobs_modes"):
        field = f"{where}.logprobs_modes.modes"
        modes = (_enum(_MODE, number, f"{field}[{i}]") for i, number in enumerate(message.logprobs_modes.modes))
        values["logprobs_modes"] = tuple(dict.fromkeys(modes))
    if message.HasField("allowed_token_ids"):
        check_size(len(message.allowed_token_ids.token_ids), f"{where}.allowed_token_ids", limits.max_vocab_size)
        values["allowed_token_ids"] = tuple(message.allowed_token_ids.token_ids)
    if message.HasField("allowed_token_ids_by_row"):
        by_row = message.allowed_token_ids_by_row
        field, widest = f"{where}.allowed_token_ids_by_row", limits.max_vocab_size
        check_size(len(by_row.token_ids), f"{field}.token_ids", _MOST_ALLOWED_LISTS * widest)
        rows = _split(by_row.token_ids, by_row.lengths, field, most=limits.max_draft_length + 1, longest=widest)
        values["allowed_token_ids_by_row"] = rows
    if message.HasField("logit_bias"):
        values["logit_bias"] = _bias(message.logit_bias, f"{where}.logit_bias", limits.max_logit_bias)
    if message.HasField("bad_words"):
        field = f"{where}.bad_words"
        most, longest = limits.max_bad_words, limits.max_bad_word_length
        words = _split(message.bad_words.token_ids, message.bad_words.lengths, field, most=most, longest=longest)
        values["bad_words"] = words
    return SamplingParams(**values)  # type: ignore[arg-type]


def _enum(table: dict[int, E], number: int, field: str) -> E:
    try:
        return table[number]
    except KeyError:
        what = f"{field} is {number}, which the contract does not list; it must be in 0..{max(table)}"
        raise refuse(Reason.ENUM_UNKNOWN, what, field=field) from None


def _bias(message: pb.LogitBias, where: str, most: int) -> dict[int, float]:
    ids, values = message.token_ids, message.values
    if len(ids) != len(values):
        what = f"{where} has {len(ids)} token_ids and {len(values)} values; it must have one value for each id"
        raise refuse(CoreReason.SHAPE_MISMATCH, what, field=where)
    check_size(len(ids), where, most)
    bias = dict(zip(ids, values, strict=True))
    if len(bias) != len(ids):
        twice = next(token for token, count in Counter(ids).items() if count > 1)
        what = f"{where}.token_ids names {twice} twice; ids must be distinct"
        raise refuse(CoreReason.PARAMETER_CONFLICT, what, field=f"{where}.token_ids")
    return bias


def _split(
    ids: Sequence[int], lengths: Sequence[int], where: str, *, most: int, longest: int
) -> tuple[tuple[int, ...], ...]:
    """At most ``most`` lists laid end to end, none longer than ``longest``."""
    check_size(len(lengths), f"{where}.lengths", most)
    check_size(max(lengths, default=0), f"a list of {where}", longest)
    if min(lengths, default=1) < 1:
        at = next(i for i, length in enumerate(lengths) if length < 1)
        what = f"{where}.lengths[{at}] is {lengths[at]}; each must be at least 1"
        raise refuse(CoreReason.PARAMETER_OUT_OF_RANGE, what, field=f"{where}.lengths")
    if sum(lengths) != len(ids):
        what = f"{where}.lengths add up to {sum(lengths)}; they must add up to the {len(ids)} token_ids"
        raise refuse(CoreReason.SHAPE_MISMATCH, what, field=f"{where}.lengths")
    flat, lists, first = tuple(ids), [], 0
    for length in lengths:
        lists.append(flat[first : first + length])
        first += length
    return tuple(lists)
