"""``docs/protocol.md`` holds: its programs run on stubs alone, its bytes are a step, its tables are the code's."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest
from google.protobuf import json_format

from sampler_client.v1 import sampler_pb2 as pb
from sampler_service.codec import guard, params, step
from sampler_service.limits import Limits
from sampler_service.servicer import SERVICE
from tests.docs import tools
from tests.docs.blocks import ROOT, fenced
from tests.docs.test_docs import expect
from tests.service.serving import VERIFY, as_is, call, refused

PAGE = ROOT / "docs" / "protocol.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = [(mark[0] if mark else "", text) for mark, text in fenced(PAGE)]
PROGRAMS = [(text, BLOCKS[i + 1][1]) for i, (language, text) in enumerate(BLOCKS) if language == "python"]
SESSIONLESS = ("GetServerInfo", "Verify", "VerifyStream")


def section(heading: str) -> str:
    return TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return tools.environment(tmp_path_factory.mktemp("bin"))


@pytest.fixture(scope="module")
def folder(env: dict[str, str]) -> Iterator[Path]:
    """With the stubs that the page's command makes, and a service. Not pytest's own: a socket's path is short."""
    with TemporaryDirectory(prefix="protocol-") as name:
        place = Path(name)
        (place / "protos").symlink_to(ROOT / "protos")
        ((_, command),) = [block for block in BLOCKS if block[0] == "sh" and "protoc" in block[1]]
        done = subprocess.run(
            [sys.executable, *shlex.split(command)[1:]], cwd=place, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        with tools.service(place, env):
            yield place


@pytest.fixture(scope="module")
def channel(folder: Path) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"unix:{folder}/sampler.sock") as one:
        yield one


@pytest.mark.parametrize(("program", "shown"), PROGRAMS, ids=["unary", "stream", "error"])
def test_program_needs_stubs_alone(program: str, shown: str, folder: Path, env: dict[str, str]) -> None:
    # Without our packages on the path, so that nothing but the stubs can be used.
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys; sys.modules['sampler_client'] = None\n{program}"],
        cwd=folder,
        env={key: value for key, value in env.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=tools.STARTED_WITHIN_S,
        check=False,
    )
    assert (done.stdout, done.returncode) == (shown, 0), done.stderr


def test_call_of_grpcurl(channel: grpc.Channel) -> None:
    ((_, command),) = [block for block in BLOCKS if block[1].startswith("grpcurl")]
    ((_, shown),) = [block for block in BLOCKS if block[0] == "json"]
    words = shlex.split(re.sub(r"\\\n\s*", "", command))
    assert words[-1] == VERIFY[1:]
    request = json_format.Parse(words[words.index("-d") + 1], pb.VerifyRequest())
    answer = pb.VerifyResponse.FromString(call(channel, VERIFY, request.SerializeToString()))
    expect(json.loads(shown), json_format.MessageToDict(answer, preserving_proto_field_name=True))


def test_bytes_by_hand(channel: grpc.Channel) -> None:
    ((_, dump),) = [block for block in BLOCKS if block[0] == "hex"]
    # The bytes end where two spaces or more follow; what is behind them explains.
    data = bytes.fromhex("".join(line.strip().split("  ")[0] for line in dump.splitlines()))
    message = pb.VerifyRequest.FromString(data)
    assert message.SerializeToString() == data
    assert message.step.params[0].HasField("temperature")
    assert pb.VerifyResponse.FromString(call(channel, VERIFY, data)).result.token_ids == [1]


def test_every_call_is_named_and_what_is_not_built_is_refused(channel: grpc.Channel) -> None:
    table = dict(re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| [\w ]+ \| (.+) \|$", section("The calls"), re.MULTILINE))
    said = {name: does for names, does in table.items() for name in re.findall(r"\w+", names)}
    assert said.keys() == {method.name for method in SERVICE.methods}
    assert {name for name, does in said.items() if does != "not built yet"} == set(SESSIONLESS)
    for name in said.keys() - {*SESSIONLESS}:
        with refused("UNIMPLEMENTED", "NOT_IMPLEMENTED"):
            channel.unary_unary(f"/{SERVICE.full_name}/{name}", as_is, as_is)(b"", timeout=tools.ENDED_WITHIN_S)


def test_what_is_not_built_is_not_built(channel: grpc.Channel) -> None:
    base = pb.Step(
        target_logits=pb.Tensor(shape=[1, 2], inline_bytes=bytes(8)),
        draft_lengths=[0],
        params=[pb.SamplingParams(temperature=0)],
    )
    region = pb.Tensor(shape=[1, 2], region=pb.RegionSlice(region_id=bytes(16)))
    ids = pb.Tensor(dtype=pb.DTYPE_INT32, shape=[1], inline_bytes=b"\1\0\0\0")
    missing = [
        pb.Step(session_id=bytes(32)),
        pb.Step(outputs=pb.OutputRegions()),
        pb.Step(output_token_ids=pb.History(kept_histories=[1], kept_lengths=[0])),
        pb.Step(output_token_ids=pb.History(sparse_token_ids=ids, sparse_counts=ids, sparse_lengths=[1])),
    ]
    steps = [pb.Step(target_logits=region, draft_lengths=[0], params=base.params)]
    for one in missing:
        steps.append(pb.Step())
        steps[-1].CopyFrom(base)
        steps[-1].MergeFrom(one)
    assert call(channel, VERIFY, pb.VerifyRequest(step=base).SerializeToString())
    for one in steps:
        with refused("UNIMPLEMENTED", "NOT_IMPLEMENTED"):
            call(channel, VERIFY, pb.VerifyRequest(step=one).SerializeToString())


def test_fields_of_a_step_are_named() -> None:
    named = {word for code in re.findall(r"`([^`\n]+)`", TEXT) for word in re.findall(r"\w+", code)}
    later = {"session_id", "outputs", "wait_event_id", "signal_event_id", "reply_when"}
    assert {field.name for field in pb.Step.DESCRIPTOR.fields} - later <= named
    assert {field.name for field in pb.StepResult.DESCRIPTOR.fields} - {"backend", "version"} <= named
    assert {field.name for field in pb.LogprobsResult.DESCRIPTOR.fields} - {"mode"} <= named


def test_limits() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (\d+)[^|]*\|", section("Limits"), re.MULTILINE)
    shown = {name: int(value) for names, value in rows for name in re.findall(r"\w+", names)}
    assert shown == asdict(Limits())
    fixed = section("Limits").split("Five bounds")[1]
    assert (guard.MAX_FIELDS, guard.SMALL, step.MAX_FORGET) == (65_536, 64 * 1024, 65_536)
    assert (params._MOST_RATES, params._MOST_ALLOWED_LISTS, Limits().max_batch_size) == (4096, 4, 4096)
    assert [fixed.count(text) for text in ("65,536 fields", "64 KiB", "65,536 ids", "4 * `max_vocab_size`")] == [1] * 4
    assert fixed.count("4,096") == 2
