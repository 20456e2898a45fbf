"""``SamplingParams`` -> message. An unchanged set is encoded once in its life."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any
from weakref import WeakKeyDictionary

from sampler_client.codec.columns import extend, unsendable
from sampler_client.params import LogprobsMode, Method, SamplingParams
from sampler_client.v1 import sampler_pb2 as pb

METHODS = {method: pb.Method.Value(f"METHOD_{method.name}") for method in Method}
MODES = {mode: pb.LogprobsMode.Value(f"LOGPROBS_MODE_{mode.name}") for mode in LogprobsMode}

_DEFAULTS = SamplingParams()
_WRAPPED = {"method", "allowed_token_ids", "allowed_token_ids_by_row", "logit_bias", "bad_words", "logprobs_modes"}
_SEQUENCES = {"stop_token_ids", "synthetic_rates", "logprob_token_ids"}
_SCALARS = tuple(field.name for field in fields(SamplingParams) if field.name not in _WRAPPED | _SEQUENCES)

_encoded: WeakKeyDictionary[SamplingParams, bytes] = WeakKeyDictionary()


def encode_params(params: SamplingParams) -> bytes:
    """The field of a ``Step`` that holds the set, serialized; remembered for as long as ``params`` lives.

    Raises:
        InvalidStep: A value that the wire cannot carry: of another type, or an integer beyond 64 bits.
    """
    known = _encoded.get(params)
    if known is None:
        known = _encoded[params] = pb.Step(params=[_message(params)]).SerializeToString()
    return known


def _message(params: SamplingParams) -> pb.SamplingParams:
    message = pb.SamplingParams()
    _set(message, "method", METHODS.get(params.method, params.method))
    for name in _SCALARS:
        value = getattr(params, name)
        if value is not None and value != getattr(_DEFAULTS, name):
            _set(message, name, value)
    for name in sorted(_SEQUENCES):
        extend(getattr(message, name), getattr(params, name), f"params.{name}")
    if params.allowed_token_ids is not None:
        message.allowed_token_ids.SetInParent()
        extend(message.allowed_token_ids.token_ids, params.allowed_token_ids, "params.allowed_token_ids")
    if params.allowed_token_ids_by_row is not None:
        message.allowed_token_ids_by_row.SetInParent()
        _extend_lists(message.allowed_token_ids_by_row, params.allowed_token_ids_by_row, "allowed_token_ids_by_row")
    if params.logit_bias:
        extend(message.logit_bias.token_ids, params.logit_bias.keys(), "params.logit_bias")
        extend(message.logit_bias.values, params.logit_bias.values(), "params.logit_bias")
    if params.bad_words:
        _extend_lists(message.bad_words, params.bad_words, "bad_words")
    if tuple(params.logprobs_modes) != _DEFAULTS.logprobs_modes:
        message.logprobs_modes.SetInParent()
        modes = [MODES.get(mode, mode) for mode in params.logprobs_modes]
        extend(message.logprobs_modes.modes, modes, "params.logprobs_modes")
    return message


def _set(message: pb.SamplingParams, name: str, value: object) -> None:
    try:
        setattr(message, name, value)
    except (TypeError, ValueError) as error:
        raise unsendable(f"params.{name}", value) from error


def _extend_lists(message: Any, lists: Sequence[Sequence[int]], name: str) -> None:  # noqa: ANN401
    for entries in lists:
        extend(message.token_ids, entries, f"params.{name}")
        message.lengths.append(len(entries))
