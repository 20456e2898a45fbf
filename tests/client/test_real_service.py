"""The client against the service itself, on a socket: results, refusals and step files are the same as in-process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sampler_client import (
    AsyncSamplerClient,
    DraftBlock,
    InvalidStep,
    LogprobsMode,
    ResourceExhausted,
    SamplerClient,
    SamplingParams,
    Status,
    Step,
    StepResult,
)

pytest.importorskip("torch", reason="only the client is installed")
pytest.importorskip("sampler_service", reason="only the client is installed")

ROOT = Path(__file__).parents[2]
SECONDS = 120.0


def environment() -> dict[str, str]:
    paths = [str(path) for path in (ROOT, ROOT / "kernels", ROOT / "clients" / "python")]
    inherited = [path for path in [os.environ.get("PYTHONPATH", "")] if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths + inherited)}


def command(module: str, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", module, *arguments]
    return subprocess.run(
        line, input=text, capture_output=True, text=True, timeout=SECONDS, check=False, env=environment()
    )


@pytest.fixture(scope="module")
def real() -> Iterator[str]:
    """Address of a running service."""
    with TemporaryDirectory(prefix="sampler-") as folder:
        address = f"unix:{folder}/s"
        line = [sys.executable, "-m", "sampler_service", "serve", "--backend", "cpu", "--listen", address]
        line += ["--max-receive-mib", "8"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment()) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == f"listening on {address}\n"
            yield address
            process.terminate()
            assert process.wait(SECONDS) == 0


def random_step(seed: int, lengths: list[int], params: SamplingParams, vocab_size: int = 50) -> Step:
    random = np.random.default_rng(seed)
    drafts = sum(lengths)
    return Step(
        target_logits=random.normal(scale=3, size=(drafts + len(lengths), vocab_size)).astype(ml_dtypes.bfloat16),
        draft_lengths=lengths,
        draft_token_ids=random.integers(0, vocab_size, drafts),
        draft_blocks=[DraftBlock(random.normal(scale=3, size=(drafts, vocab_size)).astype(np.float16))],
        params=[params],
        seeds=random.integers(0, 2**63, len(lengths)).tolist(),
        positions=[3] * len(lengths),
    )


def same(first: StepResult, second: StepResult) -> None:
    for one, other in zip(first.requests, second.requests, strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()
        left, right = one.logprobs[LogprobsMode.RAW_LOGPROBS], other.logprobs[LogprobsMode.RAW_LOGPROBS]
        assert left.values.tobytes() == right.values.tobytes()
        assert [entries.pairs() for entries in left.top] == [entries.pairs() for entries in right.top]


def test_known_step(real: str) -> None:
    def rows(*probabilities: list[float]) -> Any:  # noqa: ANN401
        with np.errstate(divide="ignore"):
            return np.log(np.asarray(probabilities, dtype=np.float32))

    step = Step(
        target_logits=rows([0, 0.1, 0.6, 0.3], [1, 0, 0, 0], [0.7, 0.1, 0.1, 0.1]),
        draft_lengths=[2],
        draft_token_ids=[2, 1],
        draft_blocks=[DraftBlock(rows([0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.1]))],
        params=[SamplingParams(top_logprobs=3)],
        seeds=[7],
        positions=[0],
    )
    with SamplerClient(real) as client:
        (request,) = client.verify(step).requests
    assert request.status is Status.OK
    assert (request.token_ids.tolist(), request.num_accepted, request.seed) == ([2, 0], 1, 7)
    logprobs = request.logprobs[LogprobsMode.RAW_LOGPROBS]
    np.testing.assert_allclose(logprobs.values, np.log([0.6, 1.0]), atol=1e-4)  # the contract's bound on logprobs
    assert logprobs.top[0].token_ids.tolist() == [2, 3, 1]  # id 0 has -inf and is left out


def test_unary_stream_and_asyncio_agree(real: str) -> None:
    params = SamplingParams(temperature=0.7, top_logprobs=5)
    steps = [random_step(seed, [seed % 4, 3, 0], params) for seed in range(8)]

    async def over_asyncio() -> list[StepResult]:
        async with AsyncSamplerClient(real) as client, client.session() as session:
            return [
                *await asyncio.gather(*map(session.verify, steps)),
                *await asyncio.gather(*map(client.verify, steps)),
            ]

    with SamplerClient(real) as client, client.session() as session:
        unary = [client.verify(step) for step in steps]
        stream = [future.result(SECONDS) for future in [session.submit(step) for step in steps]]
    awaited = asyncio.run(over_asyncio())
    for first, other in zip(unary * 3, stream + awaited, strict=True):
        same(first, other)


def test_refusals_are_the_same_on_both_paths(real: str) -> None:
    wrong = [
        random_step(0, [2], SamplingParams(temperature=-1.0)),
        Step(target_logits=[[0.0, 1.0]], draft_lengths=[1], draft_token_ids=[0]),
        Step(target_logits=[[0.0, 1.0]] * 2, draft_lengths=[1], draft_token_ids=[9]),
        Step(target_logits=[[0.0, 1.0]], draft_lengths=[0], seeds=[1]),
    ]
    with SamplerClient(real) as client, client.session() as session:
        for step in wrong:
            with pytest.raises(InvalidStep) as unary:
                client.verify(step)
            with pytest.raises(InvalidStep) as stream:
                session.verify(step)
            assert vars(unary.value) == vars(stream.value)
            assert unary.value.reason != unary.value.code
            assert unary.value.fields
        assert client.verify(random_step(1, [1], SamplingParams())).requests[0].status is Status.OK


def test_server_info_and_oversize(real: str) -> None:
    with SamplerClient(real) as client:
        info = client.server_info()
        assert (info.backend, info.limits.max_receive_message_bytes) == ("cpu", 8 << 20)
        assert "standard" in info.methods
        step = Step(target_logits=np.zeros((9, 1 << 18), np.float32), draft_lengths=[0] * 9)
        with pytest.raises(ResourceExhausted):
            client.verify(step)


def test_readme_example(real: str, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "clients" / "python" / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(block.replace("localhost:50051", real), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4
    assert "OK" in printed[0]


FILE = "\n".join(
    [
        json.dumps(
            {
                "vocab_size": 4,
                "dtype": "bfloat16",
                "requests": [
                    {
                        "target_logits": [["-inf", -2.3, -0.51, -1.2], [0, "-inf", -1, 0.5], [0, 0.1, 0.2, 0.3]],
                        "draft_logits": [[0.5, 0.25, 1], [1, 2, 3]],
                        "draft_id_map": [3, 2, 0],
                        "draft_token_ids": [2, 3],
                        "params": {"seed": "18446744073709551615", "top_logprobs": 2, "logprob_token_ids": [0]},
                    },
                    {"target_logits": [[0, 1, 2, "nan"]], "params": {"seed": 1}},
                    {"target_logits": [[3, 2, 1, 0]], "params": {"temperature": 0, "seed": 2, "ranks": False}},
                ],
            }
        ),
        "nonsense",
        '{"vocab_size": 4, "requests": [{"target_logits": [[0, 1, 2, 3]], "params": {"seed": 3, "top_p": 0}}]}',
        '{"vocab_size": 4, "requests": [{"target_logits": [[0, 1, 2, 3], [0, 0, 0, 0]], "draft_token_ids": [4]}]}',
        '{"vocab_size": 4, "requests": []}',
        '{"vocab_size": 0, "requests": [{"target_logits": [[]]}]}',
        '{"vocab_size": 1, "requests": [{"target_logits": [[0]], "params": {"seed": 4, "logprobs_modes": []}}]}',
    ]
)


def test_step_file_prints_the_same_bytes(real: str) -> None:
    there = command("sampler_client", "verify", "--address", real, "-", text=FILE)
    here = command("sampler_service", "verify", "--backend", "cpu", "-", text=FILE)
    assert (there.returncode, there.stderr) == (1, "")
    assert here.returncode == 1
    assert there.stdout == here.stdout
    lines = [json.loads(line) for line in there.stdout.splitlines()]
    assert ["error" in line for line in lines] == [False, True, True, True, True, True, False]
    first = lines[0]["requests"]
    assert [request["status"] for request in first] == ["OK", "INVALID_LOGITS", "OK"]
    assert first[0]["seed"] == "18446744073709551615"
    assert first[1]["bad_row"] == 0
    assert first[2]["token_ids"] == [0]
