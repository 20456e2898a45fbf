"""The demo's command line."""

import argparse
from collections.abc import Callable, Sequence

SAMPLING_TEMPERATURE = 0.8
SMALLEST_TEMPERATURE = 1e-5


def parse_options(arguments: Sequence[str] | None, num_prompts: int) -> argparse.Namespace:
    """Options of `arguments`, or of the process where None; `num_prompts` is how many prompts the text offers."""
    parser = argparse.ArgumentParser(
        prog="demo.py",
        description="Train two small language models on text that Python ships, decode prompts speculatively with the "
        "sampling service, and check that the output is what the larger model alone would have given. Exit status: 0 "
        "every check holds, 1 one failed, 2 usage, 3 no service, or it refused a step.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--tokens", type=_within(1, 4096), default=32, help="new tokens for each prompt")
    add("--prompts", type=_within(1, num_prompts), default=8, help=f"prompts decoded together, up to {num_prompts}")
    add("--draft-length", type=_within(0, 128), default=4, help="draft tokens of each request in a step")
    add("--temperature", type=_temperature, default=SAMPLING_TEMPERATURE, help="of the run whose tokens are listed")
    add("--top", type=_within(0, 256), default=3, help="most likely tokens listed beside each token")
    add("--seed", type=_within(0, 2**63), default=0, help="of the first prompt; the second has the next one, and so on")
    add("--samples", type=_within(100, 10**6), default=1024, help="seeds of each prompt in the check of the next token")
    add("--address", help="unix:/path or host:port of a running service; without it, one is started for the demo")
    add("--json", action="store_true", help="print one JSON value instead of text")
    return parser.parse_args(arguments)


def _within(low: int, high: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not in {low} to {high}")
        return value

    return whole_number


def _temperature(text: str) -> float:
    value = float(text)
    if value != 0 and not SMALLEST_TEMPERATURE <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{value:g} is neither 0 nor at least {SMALLEST_TEMPERATURE:g}")
    return value
