"""What a client may ask for at most. ``GetServerInfo`` tells every number here."""

from __future__ import annotations

from dataclasses import dataclass

from sampler_kernels.layout import MAX_DRAFT_TOKENS, MAX_TOP_LOGPROBS

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Named as in the message ``Limits`` of the wire, which documents each; 0 is for what is not built."""

    max_receive_message_bytes: int = 256 * MIB
    max_send_message_bytes: int = 256 * MIB
    max_batch_size: int = 4096
    max_draft_length: int = MAX_DRAFT_TOKENS
    # Tile bookkeeping is 32-bit; a million columns is several times the largest vocabulary in use.
    max_vocab_size: int = 1 << 20
    max_top_logprobs: int = MAX_TOP_LOGPROBS
    max_logprob_token_ids: int = 1024
    max_stop_token_ids: int = 1024
    max_logit_bias: int = 16_384
    max_bad_words: int = 4096
    max_bad_word_length: int = 128
    max_history_length: int = 1 << 20
    max_streams: int = 256
    max_read_ahead: int = 8
    max_queued_steps: int = 1024
    max_queued_bytes: int = 4096 * MIB
    max_kept_params: int = 4096
    max_kept_draft_id_maps: int = 16
