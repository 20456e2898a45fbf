"""The command ``sampler-service``."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TypeVar, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from sampler_service import __version__
from sampler_service.config import PREFIX, BadConfig, Loaded, Settings
from sampler_service.listen import CannotListen, default_address

F = TypeVar("F", bound=Callable[..., None])

_SWITCH_SECONDS: Final = 5e-4
_FAILED: Final = 1
_USAGE: Final = 2

_BACKEND: Final = click.option(
    "--backend",
    type=click.Choice(get_args(Settings.model_fields["backend"].annotation)),
    default="auto",
    show_default=True,
    help=Settings.model_fields["backend"].description,
)
_ADDRESS: Final = click.option(
    "--address",
    metavar="ADDR",
    envvar=f"{PREFIX}ADDRESS",
    default=default_address,
    show_default="the socket in the user's runtime directory",
    help="Where the service listens: unix:/path or host:port.",
)
_TIMEOUT: Final = click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="Longest wait for the answer.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sampler-service")
def main() -> None:
    """The verification step of speculative decoding, as a service."""


def _settings_options(command: F) -> F:
    """An option for each setting, so that names, ranges and help are written down once."""
    for name, field in reversed(Settings.model_fields.items()):
        command = _option(name, field)(command)
    return command


def _option(name: str, field: FieldInfo) -> Callable[[F], F]:
    flag = "--" + name.replace("_", "-")
    default = "" if field.default_factory else f" Default: {str(field.default).lower()}."
    # The default is shown and not given: a flag that nobody typed must not hide the environment and the file.
    shown: dict[str, Any] = {"help": f"{field.description}{default}  [{PREFIX}{name.upper()}]", "default": None}
    kind: Any = field.annotation
    if kind is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, **shown)
    if get_origin(kind) is Literal:
        return click.option(flag, name, type=click.Choice(get_args(kind)), **shown)
    if get_origin(kind) is list:
        return click.option(flag, name, multiple=True, metavar="ADDR", **shown)
    return click.option(flag, name, type=kind, **shown)


@main.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar=f"{PREFIX}CONFIG",
    show_envvar=True,
    help="TOML file of settings, named as the options with underscores.",
)
@click.option("--print-config", is_flag=True, help="Print what holds and where it comes from, and end.")
@_settings_options
def serve(config: Path | None, print_config: bool, **flags: Any) -> None:  # noqa: ANN401  (options of many types)
    """Serve until SIGTERM or SIGINT; what was received by then is answered.

    Settings come from options, else from environment variables (in brackets), else from the file of --config. Once it
    serves, it prints `listening on ADDR` for each address.

    Exit status: 0 ended by a signal, 1 cannot serve, 2 usage or settings.
    """
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in flags.items()}
    try:
        loaded = Loaded({name: value for name, value in given.items() if value not in (None, [])}, config)
    except BadConfig as error:
        _stop(str(error), _USAGE)
    if print_config:
        click.echo(loaded.toml())
        return
    _serve(loaded.settings)


def _serve(settings: Settings) -> None:
    # Loading torch and gRPC takes a second: `--help` and wrong usage need not wait for it.
    import torch  # noqa: PLC0415

    from sampler_kernels import BackendUnavailable  # noqa: PLC0415
    from sampler_service.engine import Engine  # noqa: PLC0415
    from sampler_service.errors import Refusal  # noqa: PLC0415
    from sampler_service.server import serve as run  # noqa: PLC0415

    logging.basicConfig(
        stream=sys.stderr,
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # The device thread runs much Python on a CPU, and the event loop waits for the interpreter as often as a message
    # comes or goes: 0.5 ms each time at most, not Python's 5. 8 streams of small steps: 8 to 13% more steps a second.
    sys.setswitchinterval(_SWITCH_SECONDS)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    try:
        stopped = asyncio.run(run(settings, Engine.of(settings.backend), _announce))
    except (BackendUnavailable, CannotListen, Refusal) as error:
        _stop(str(error), _FAILED)
    if not stopped:
        # Python would wait for native threads that never end, and abort.
        logging.shutdown()
        os._exit(0)


@main.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@_BACKEND
def verify(files: tuple[str, ...], backend: str) -> None:
    """Run step files in this process and print one JSON result for each step. `-` is standard input.

    Exit status: 0 all answered, 1 some step refused, 2 unreadable file or usage.
    """
    from sampler_client.stepfile import verify_files  # noqa: PLC0415
    from sampler_kernels import BackendUnavailable  # noqa: PLC0415
    from sampler_service.engine import Engine  # noqa: PLC0415
    from sampler_service.inprocess import InProcess  # noqa: PLC0415

    try:
        engine = Engine.of(backend)
    except BackendUnavailable as error:
        _stop(str(error), _USAGE)
    sys.exit(int(verify_files(files, InProcess(engine).verify)))


@main.command()
@_ADDRESS
@_TIMEOUT
def health(address: str, timeout: float) -> None:
    """Ask whether the service takes steps. Exit status 0 only if it says SERVING; for probes."""
    from sampler_service.probe import health_status  # noqa: PLC0415

    status = health_status(address, timeout)
    click.echo(status)
    sys.exit(0 if status == "SERVING" else _FAILED)


@main.command()
@_ADDRESS
@_TIMEOUT
def info(address: str, timeout: float) -> None:
    """Print what the service is and can do, as JSON."""
    from sampler_client import SamplerError  # noqa: PLC0415
    from sampler_service.probe import info_of  # noqa: PLC0415

    try:
        click.echo(json.dumps(info_of(address, timeout), indent=2))
    except SamplerError as error:
        _stop(str(error), _FAILED)


@main.command()
def doctor() -> None:
    """Check this machine and say what to do about what is missing. Exit status 1 if something has to be done."""
    from sampler_service.doctor import Verdict, examine  # noqa: PLC0415

    findings = examine()
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        click.echo(f"{finding.verdict.value:<5} {finding.subject:<{width}}  {finding.found}")
        if finding.advice:
            click.echo(f"      {'':<{width}}  -> {finding.advice}")
    sys.exit(_FAILED if any(finding.verdict is Verdict.FAIL for finding in findings) else 0)


def _announce(address: str) -> None:
    # At once: whoever started the server waits for this line, often through a pipe.
    print(f"listening on {address}", flush=True)


def _stop(message: str, status: int) -> NoReturn:
    click.echo(f"sampler-service: {message}", err=True)
    sys.exit(status)
