"""What a server says about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """The device that runs the steps.

    Attributes:
        name: As the driver or the operating system gives it.
        uuid: The GPU's UUID as nvidia-smi prints it; empty on the CPU.
        memory_bytes: Device memory; the host's on the CPU.
        mps_state: Whether NVIDIA MPS serves the device: ``"absent"``, ``"in_use"``, ``"not_in_use"``, ``"lost"``, or
            ``""`` where there is no NVIDIA GPU to ask.
    """

    name: str
    uuid: str
    memory_bytes: int
    mps_state: str


@dataclass(frozen=True)
class Limits:
    """What a client may ask for at most; 0 where the thing limited is not built.

    Attributes:
        max_receive_message_bytes: Largest message the server receives.
        max_send_message_bytes: Largest message the server sends.
        max_batch_size: Requests in a step (B).
        max_draft_length: Draft tokens of a request (k_r).
        max_vocab_size: Size of target and draft vocabularies (V, V_d).
        max_top_logprobs: Top entries per emitted token and mode.
        max_logprob_token_ids: Ids in ``SamplingParams.logprob_token_ids``.
        max_stop_token_ids: Ids in ``SamplingParams.stop_token_ids``.
        max_logit_bias: Ids in ``SamplingParams.logit_bias``.
        max_bad_words: Words in ``SamplingParams.bad_words``.
        max_bad_word_length: Ids in one bad word.
        max_history_length: Ids in one history of one request.
        max_streams: Streams open at the same time, over all clients.
        max_read_ahead: Steps of one stream that are read but not yet answered.
        max_queued_steps: Steps admitted and not yet finished, over all clients.
        max_sessions: Sessions open at the same time, over all clients.
        default_lease_ms: Lease of a session that does not ask for one.
        min_lease_ms: Shortest lease.
        max_lease_ms: Longest lease.
        max_regions_per_session: Regions of one session.
        max_region_bytes: Size of one region.
        max_events_per_session: Events of one session.
        max_kept_params: Parameter sets kept by one session or stream.
        max_kept_draft_id_maps: Draft id maps kept by one session or stream.
        max_kept_histories: Histories kept by one session or stream.
        max_kept_history_ids: Ids in all histories kept by one session or stream.
        max_queued_bytes: Of the messages of steps admitted and not yet finished, over all clients.
    """

    max_receive_message_bytes: int
    max_send_message_bytes: int
    max_batch_size: int
    max_draft_length: int
    max_vocab_size: int
    max_top_logprobs: int
    max_logprob_token_ids: int
    max_stop_token_ids: int
    max_logit_bias: int
    max_bad_words: int
    max_bad_word_length: int
    max_history_length: int
    max_streams: int
    max_read_ahead: int
    max_queued_steps: int
    max_sessions: int
    default_lease_ms: int
    min_lease_ms: int
    max_lease_ms: int
    max_regions_per_session: int
    max_region_bytes: int
    max_events_per_session: int
    max_kept_params: int
    max_kept_draft_id_maps: int
    max_kept_histories: int
    max_kept_history_ids: int
    max_queued_bytes: int


@dataclass(frozen=True)
class ServerInfo:
    """What a server is and can do. Names are those of the contract's enums in lower case, without their prefix.

    Attributes:
        version: Version of the server, such as 0.1.0.
        backend: ``"cpu"`` or ``"triton"``.
        device: The device that runs the steps.
        logits_dtypes: Such as ``"bfloat16"``.
        methods: Such as ``"standard"``.
        logprobs_modes: Such as ``"raw_logprobs"``.
        features: Such as ``"draft_id_map"``, ``"stream"``, ``"kept_state"``.
        planes: Where tensors may lie, such as ``"bytes"``.
        limits: Every limit in force.
    """

    version: str
    backend: str
    device: Device
    logits_dtypes: tuple[str, ...]
    methods: tuple[str, ...]
    logprobs_modes: tuple[str, ...]
    features: tuple[str, ...]
    planes: tuple[str, ...]
    limits: Limits
