"""``GetServerInfoResponse`` -> ``ServerInfo``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import DecodeError

from sampler_client.codec.status import unreadable
from sampler_client.info import Device, Limits, ServerInfo
from sampler_client.v1 import sampler_pb2 as pb


def decode_info(data: bytes) -> ServerInfo:
    """A serialized message as plain values. Enum numbers that this client does not know are left out.

    Raises:
        ServerFault: The bytes are no such message.
    """
    try:
        message = pb.GetServerInfoResponse.FromString(data)
    except DecodeError as error:
        raise unreadable(error) from error
    device = message.device
    mps_states = _names(pb.MpsState.DESCRIPTOR, [device.mps_state] if device.mps_state else [])
    return ServerInfo(
        version=message.version,
        backend=message.backend,
        device=Device(device.name, device.uuid, device.memory_bytes, "".join(mps_states)),
        logits_dtypes=_names(pb.Dtype.DESCRIPTOR, message.logits_dtypes),
        methods=_names(pb.Method.DESCRIPTOR, message.methods),
        logprobs_modes=_names(pb.LogprobsMode.DESCRIPTOR, message.logprobs_modes),
        features=_names(pb.Feature.DESCRIPTOR, message.features),
        planes=_names(pb.Plane.DESCRIPTOR, message.planes),
        limits=Limits(**{field.name: getattr(message.limits, field.name) for field in fields(Limits)}),
    )


def _names(enum: EnumDescriptor, numbers: Iterable[int]) -> tuple[str, ...]:
    """Names of enum values, lower case, without the prefix that all share with the zero value."""
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    known = enum.values_by_number
    return tuple(known[number].name.removeprefix(prefix).lower() for number in numbers if number in known)
