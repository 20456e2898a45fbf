"""The command ``sampler-client``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

from sampler_client.channel import DEFAULT_TIMEOUT
from sampler_client.client import SamplerClient
from sampler_client.errors import SamplerError, Unavailable
from sampler_client.stepfile import ExitStatus, verify_files


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status, which for ``verify`` is an :class:`ExitStatus`."""
    options = _parser().parse_args(arguments)
    try:
        with SamplerClient(options.address, timeout=options.timeout) as client:
            return int(_verify(client, options.files) if options.command == "verify" else _info(client))
    except BrokenPipeError:
        # The reader of our output has seen enough. Python would complain once more while it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except KeyboardInterrupt:
        return 128 + 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sampler-client", description="Talks to a sampler service.")
    commands = parser.add_subparsers(dest="command", required=True)
    verify = commands.add_parser(
        "verify",
        help="send step files to the service and print a result for each step",
        description="Sends step files to the service and prints one JSON result per step, in order, one per line.",
        epilog="Exit status: 0 all answered, 1 some step refused, 2 unreadable file or usage, 3 service unreachable.",
    )
    verify.add_argument("files", nargs="+", metavar="FILE", help="step file, or - for standard input")
    info = commands.add_parser(
        "info",
        help="print what the service is and can do",
        description="Prints version, device, methods, features and limits of the service as JSON.",
        epilog="Exit status: 0 answered, 1 refused, 2 usage, 3 service unreachable.",
    )
    for command in (verify, info):
        command.add_argument("--address", required=True, type=_address, metavar="ADDR", help="unix:/path or host:port")
        command.add_argument(
            "--timeout",
            type=_seconds,
            default=DEFAULT_TIMEOUT,
            metavar="SECONDS",
            help="time for each call, retries included (default: %(default)g)",
        )
    return parser


def _address(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("it is empty; expected unix:/path or host:port")
    return text


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time above 0")
    return seconds


def _verify(client: SamplerClient, files: Sequence[str]) -> ExitStatus:
    return verify_files(files, client.verify)


def _info(client: SamplerClient) -> ExitStatus:
    try:
        print(json.dumps(asdict(client.server_info()), indent=2))
    except SamplerError as error:
        print(error, file=sys.stderr)
        return ExitStatus.UNREACHABLE if isinstance(error, Unavailable) else ExitStatus.REFUSED
    return ExitStatus.ANSWERED
