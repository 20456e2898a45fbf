"""What the server says about itself."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Final

import torch

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels.checks.supported import NOT_BUILT, STEP_FIELDS_NOT_BUILT
from sampler_service import __version__
from sampler_service.codec.tensors import LOGITS
from sampler_service.engine import Engine
from sampler_service.limits import Limits

_METHODS: Final = {
    "standard": pb.METHOD_STANDARD,
    "strict": pb.METHOD_STRICT,
    "block": pb.METHOD_BLOCK,
    "synthetic": pb.METHOD_SYNTHETIC,
    "typical": pb.METHOD_TYPICAL,
    "relaxed": pb.METHOD_RELAXED,
}
_MODES: Final = {
    "raw_logprobs": pb.LOGPROBS_MODE_RAW_LOGPROBS,
    "processed_logprobs": pb.LOGPROBS_MODE_PROCESSED_LOGPROBS,
    "raw_logits": pb.LOGPROBS_MODE_RAW_LOGITS,
    "processed_logits": pb.LOGPROBS_MODE_PROCESSED_LOGITS,
}

_CORE_FEATURES: Final[dict[pb.Feature.ValueType, tuple[str, ...]]] = {
    pb.FEATURE_DRAFT_ID_MAP: (),
    pb.FEATURE_ALLOWED_TOKENS: ("allowed_token_ids", "allowed_token_ids_by_row", "token_bitmask"),
    pb.FEATURE_LOGIT_BIAS: ("logit_bias",),
    pb.FEATURE_MIN_TOKENS: ("min_tokens",),
    pb.FEATURE_PENALTIES: ("repetition_penalty", "frequency_penalty", "presence_penalty"),
    pb.FEATURE_BAD_WORDS: ("bad_words",),
    pb.FEATURE_MIN_P: ("min_p",),
    pb.FEATURE_TOP_K: ("top_k",),
    pb.FEATURE_TOP_P: ("top_p",),
    pb.FEATURE_STOP_TOKENS: ("stop_token_ids",),
    pb.FEATURE_MAX_TOKENS: ("max_tokens",),
    pb.FEATURE_LOGSUMEXP: ("target_logsumexp", "draft_logsumexp"),
    pb.FEATURE_ACCEPTANCE_PROBABILITIES: ("acceptance_probabilities",),
}
"""Feature of the wire -> what the core must have built for it, by the core's names."""


def server_info(engine: Engine, limits: Limits) -> pb.GetServerInfoResponse:
    """The answer to GetServerInfo, the same for every caller of this process."""
    missing = {*NOT_BUILT.get(engine.backend, ()), *STEP_FIELDS_NOT_BUILT.get(engine.backend, {})}
    return pb.GetServerInfoResponse(
        version=__version__,
        backend=engine.backend,
        device=device(engine.device),
        logits_dtypes=LOGITS,
        methods=[number for name, number in _METHODS.items() if f"method {name}" not in missing],
        logprobs_modes=[number for name, number in _MODES.items() if f"logprobs_modes {name}" not in missing],
        features=[
            *(feature for feature, needs in _CORE_FEATURES.items() if missing.isdisjoint(needs)),
            pb.FEATURE_STREAM,
        ],
        planes=[pb.PLANE_BYTES],
        limits=pb.Limits(**asdict(limits)),
    )


def device(where: torch.device) -> pb.Device:
    """The device as its driver or operating system names it."""
    if where.type == "cuda":
        properties = torch.cuda.get_device_properties(where)
        return pb.Device(name=properties.name, uuid=f"GPU-{properties.uuid}", memory_bytes=properties.total_memory)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return pb.Device(name=_cpu_name(), memory_bytes=memory)


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.machine()
