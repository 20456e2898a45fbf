"""Questions to a running service: is it well, what is it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sampler_client import SamplerClient


def health_status(address: str, timeout: float) -> str:
    """The name of its health status, or UNREACHABLE."""
    with grpc.insecure_channel(address) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=timeout)
        except grpc.RpcError:
            return "UNREACHABLE"
    name: str = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return name


def info_of(address: str, timeout: float) -> dict[str, Any]:
    """What it says about itself, by the names of the wire.

    Raises:
        SamplerError: It cannot be asked.
    """
    with SamplerClient(address) as client:
        return asdict(client.server_info(timeout=timeout))
