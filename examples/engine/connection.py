"""To a running service, or to one started for the demo."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from engine.remote import RemoteVerifier
from engine.service import running_service
from sampler_client import SamplerClient, ServerInfo

SECONDS_PER_CALL = 120.0
"""Far above what a step takes: a busy machine, or a kernel that is compiled for the step, is no failure of the demo."""


@contextmanager
def connect(address: str | None) -> Iterator[tuple[RemoteVerifier, str]]:
    """A verifier at `address`, or at a service started here where None, and a line that says what it is.

    Raises ServiceFailed where the service does not start, and SamplerError where none answers.
    """
    with ExitStack() as stack:
        started = address is None
        at = stack.enter_context(running_service()) if address is None else address
        client = stack.enter_context(SamplerClient(at, timeout=SECONDS_PER_CALL))
        description = f"{_named(client.server_info())}, {'started for this run' if started else f'at {at}'}"
        yield RemoteVerifier(stack.enter_context(client.session())), description


def _named(info: ServerInfo) -> str:
    return f"sampler-service {info.version}, backend {info.backend} on {info.device.name}"
