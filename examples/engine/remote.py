"""The engine's verification step, done by the sampling service."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from engine.verifier import EmittedToken, Params, Step, TopEntry, Verified
from sampler_client import DraftBlock, LogprobsMode, RequestResult, SamplingParams, Session, Status
from sampler_client import Step as ServiceStep


class RequestFailed(RuntimeError):
    """The service could not decide on one request of a step; the engine never sends it a reason for that."""


class RemoteVerifier:
    """A `Verifier` over a session of the client: one stream for all steps, which is the service's hot path."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def verify(self, step: Step) -> Sequence[Verified]:
        """Results of the step's requests, in their order.

        Raises SamplerError where the step is refused or the service is gone, RequestFailed where a request has no
        result.
        """
        return [_verified(r, result) for r, result in enumerate(self._session.verify(_for_service(step)).requests)]


def _for_service(step: Step) -> ServiceStep:
    return ServiceStep(
        target_logits=step.target_logits,
        draft_lengths=step.draft_lengths.tolist(),
        draft_token_ids=step.draft_token_ids,
        # Raw: the service divides them by the temperature itself.
        draft_blocks=[] if step.draft_logits is None else [DraftBlock(step.draft_logits)],
        params=[_sampling_params(step.params)],
        seeds=step.seeds.tolist(),
        positions=step.positions.tolist(),
    )


@cache
def _sampling_params(params: Params) -> SamplingParams:
    """The same object for the same parameters: a session sends an object that it has sent before as a number."""
    return SamplingParams(temperature=params.temperature, top_logprobs=params.top_logprobs)


def _verified(index: int, result: RequestResult) -> Verified:
    if result.status != Status.OK:
        raise RequestFailed(f"request {index}: {result.status.name}, row {result.bad_row}")
    told = result.logprobs[LogprobsMode.RAW_LOGPROBS]
    ranks = np.zeros(len(told.values), np.int32) if told.ranks is None else told.ranks
    tokens = tuple(
        EmittedToken(token_id, logprob, rank, tuple(TopEntry(*pair) for pair in top.pairs()))
        for token_id, logprob, rank, top in zip(
            result.token_ids.tolist(), told.values.tolist(), ranks.tolist(), told.top, strict=True
        )
    )
    return Verified(tokens, result.num_accepted)
