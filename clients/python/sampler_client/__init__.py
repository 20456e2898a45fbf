"""Client of sampler-service for engines: numpy arrays in, typed results out, no torch."""

from sampler_client.aio import AsyncSamplerClient
from sampler_client.aio_session import AsyncSession
from sampler_client.client import SamplerClient, verify
from sampler_client.errors import (
    Cancelled,
    DeadlineExceeded,
    Denied,
    FailedPrecondition,
    FieldViolation,
    InvalidStep,
    NotFound,
    NotImplementedByServer,
    ResourceExhausted,
    SamplerError,
    ServerFault,
    Unavailable,
)
from sampler_client.info import Device, Limits, ServerInfo
from sampler_client.params import LogprobsMode, Method, SamplingParams
from sampler_client.result import (
    Entries,
    EntriesByToken,
    FinishReason,
    ModeLogprobs,
    RequestLogprobs,
    RequestResult,
    Status,
    StepResult,
    Timing,
)
from sampler_client.retry import NO_RETRIES, RetryPolicy
from sampler_client.session import Session
from sampler_client.step import DraftBlock, History, Step

__version__ = "0.1.0"

__all__ = [
    "NO_RETRIES",
    "AsyncSamplerClient",
    "AsyncSession",
    "Cancelled",
    "DeadlineExceeded",
    "Denied",
    "Device",
    "DraftBlock",
    "Entries",
    "EntriesByToken",
    "FailedPrecondition",
    "FieldViolation",
    "FinishReason",
    "History",
    "InvalidStep",
    "Limits",
    "LogprobsMode",
    "Method",
    "ModeLogprobs",
    "NotFound",
    "NotImplementedByServer",
    "RequestLogprobs",
    "RequestResult",
    "ResourceExhausted",
    "RetryPolicy",
    "SamplerClient",
    "SamplerError",
    "SamplingParams",
    "ServerFault",
    "ServerInfo",
    "Session",
    "Status",
    "Step",
    "StepResult",
    "Timing",
    "Unavailable",
    "verify",
]
