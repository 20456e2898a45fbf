import pytest

from engine.options import parse_options


def test_the_defaults_are_the_demo() -> None:
    options = parse_options([], 10)
    assert (options.prompts, options.draft_length, options.temperature, options.top) == (8, 4, 0.8, 3)
    assert options.address is None
    assert not options.json


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompts", "11"], "11 is not in 1 to 10"),
        (["--tokens", "0"], "0 is not in 1 to"),
        (["--draft-length", "129"], "129 is not in 0 to 128"),
        (["--temperature", "1e-6"], "neither 0 nor at least"),
        (["--temperature", "nan"], "neither 0 nor at least"),
        (["--temperature", "-1"], "neither 0 nor at least"),
    ],
)
def test_a_value_out_of_range_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse_options(arguments, 10)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_help_explains_each_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--help"], 10)
    out = capsys.readouterr().out
    for option in ("--tokens", "--prompts", "--draft-length", "--temperature", "--top", "--address", "--json"):
        assert option in out
