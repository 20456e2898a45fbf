"""The command `serve` and its companions: addresses, locks, health, reflection, settings, the step file."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from sampler_client.cli import main as client_main
from sampler_client.v1 import sampler_pb2 as pb
from sampler_service.cli import main
from sampler_service.config import Settings
from sampler_service.limits import Limits
from sampler_service.listen import CannotListen, bind_all
from sampler_service.server import channel_arguments
from sampler_service.servicer import SERVICE
from tests.service.serving import (
    CALL_SECONDS,
    ROOT,
    START_SECONDS,
    VERIFY,
    ServerProcess,
    call,
    command,
    environment,
    server_process,
    small_step,
    unary_request,
)

STEP_FILE = """\
{"vocab_size": 4, "requests": [{"target_logits": [["-inf", -2.3, -0.5, -1.2], [0, "-inf", "-inf", "-inf"], \
[-0.36, -2.3, -2.3, -2.3]], "draft_logits": [[-2.3, -1.6, -1.2, -0.9], [-1.6, -1.2, -0.9, -2.3]], \
"draft_token_ids": [2, 1], "params": {"seed": 7, "top_logprobs": 3, "logprob_token_ids": [0, 3]}}]}
{"vocab_size": 4, "requests": [{"target_logits": [["nan", 0, 0, 0]], "draft_token_ids": [], "params": {"seed": 1}}]}
{"vocab_size": 4, "requests": [{"target_logits": [[0, 0, 0, 0]], "draft_token_ids": [], "params": {"top_p": 3}}]}
{"vocab_size": 4, "requests": [{"target_logits": [[0, 0, 0, 0]], "draft_token_ids": [1], "params": {}}]}
{"vocab_size": 4, "requests": [
"""


@dataclass
class Binder:
    """Stands for a gRPC server that can bind anything."""

    bound: list[str] = field(default_factory=list)

    def add_insecure_port(self, address: str) -> int:
        self.bound.append(address)
        return 4711


def said(*arguments: str) -> Result:
    """What a command that ends by itself does, without a process of its own."""
    return CliRunner().invoke(main, arguments)


def configured(*arguments: str, **env: str) -> Result:
    """What `serve --print-config` prints, without a process of its own."""
    return CliRunner().invoke(main, ["serve", "--print-config", *arguments], env=env)


def ran(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env={**environment(), **env},
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )


def socket_path(server: ServerProcess) -> Path:
    return Path(server.address.removeprefix("unix:"))


def test_health_of_the_server_and_of_the_service(channel: grpc.Channel, served: ServerProcess) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    for name in ("", "sampler.v1.SamplerService"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=CALL_SECONDS)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    probe = said("health", "--address", served.address)
    assert (probe.exit_code, probe.stdout) == (0, "SERVING\n")


def test_health_of_nobody(tmp_path: Path) -> None:
    probe = said("health", "--address", f"unix:{tmp_path}/nobody", "--timeout", "2")
    assert (probe.exit_code, probe.stdout) == (1, "UNREACHABLE\n")


def test_reflection_tells_the_contract(channel: grpc.Channel) -> None:
    database = ProtoReflectionDescriptorDatabase(channel)
    assert SERVICE.full_name in database.get_services()
    assert database.FindFileContainingSymbol(SERVICE.full_name).name == pb.DESCRIPTOR.name


def test_info(served: ServerProcess) -> None:
    told = json.loads(said("info", "--address", served.address).stdout)
    assert told["backend"] == "cpu"
    assert told["limits"]["max_receive_message_bytes"] == 8 << 20
    assert "standard" in told["methods"]
    assert told["planes"] == ["bytes"]


def test_only_the_owner_can_connect(served: ServerProcess) -> None:
    assert stat.S_IMODE(socket_path(served).stat().st_mode) == 0o600


def test_a_new_directory_is_the_owners_alone(tmp_path: Path) -> None:
    with server_process("--listen", f"unix:{tmp_path}/new/s") as server:
        assert stat.S_IMODE(socket_path(server).parent.stat().st_mode) == 0o700
        assert server.end() == 0
        assert not socket_path(server).exists()


def test_a_second_server_on_the_socket_is_refused_and_the_first_goes_on(
    served: ServerProcess, channel: grpc.Channel
) -> None:
    second = ran("serve", "--listen", served.address)
    assert second.returncode == 1
    assert f"another server is listening on {served.address}" in second.stderr
    call(channel, VERIFY, unary_request(small_step()))


def test_a_socket_left_behind_is_taken_over(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"
    with server_process("--listen", address) as first:
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(CALL_SECONDS)
        assert socket_path(first).exists()
    with server_process("--listen", address) as second, grpc.insecure_channel(address) as channel:
        call(channel, VERIFY, unary_request(small_step()))
        assert second.end() == 0


def test_port_zero_is_told_and_a_taken_port_is_refused(tmp_path: Path) -> None:
    with server_process("--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/s", addresses=2) as server:
        host, _, port = server.address.rpartition(":")
        assert (host, server.addresses[1]) == ("127.0.0.1", f"unix:{tmp_path}/s")
        assert int(port) > 0
        with grpc.insecure_channel(server.address) as channel:
            call(channel, VERIFY, unary_request(small_step()))
        second = ran("serve", "--listen", server.address)
        assert second.returncode == 1
        assert f"cannot listen on {server.address}: another process is listening there" in second.stderr


@pytest.mark.parametrize("held", [socket.AF_INET, socket.AF_INET6])
def test_localhost_is_every_loopback_interface_or_none(held: socket.AddressFamily) -> None:
    """Clients of a name with two addresses would be spread over two servers."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6")
    with socket.create_server(("127.0.0.1" if held is socket.AF_INET else "::1", 0), family=held) as other:
        server = grpc.server(ThreadPoolExecutor(1), options=channel_arguments(Limits(), keepalive_seconds=30.0))
        with pytest.raises(CannotListen, match="another process is listening there"):
            bind_all(server, [f"localhost:{other.getsockname()[1]}"], allow_remote=False)
        server.stop(0)


def test_localhost_has_one_port_on_both_interfaces() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6")
    binder = Binder()
    listeners = bind_all(binder, ["localhost:0"], allow_remote=False)
    assert (binder.bound, listeners.addresses) == (["127.0.0.1:0", "[::1]:4711"], ["localhost:4711"])


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("unix:/" + "x" * 107, "at most 107"),
        ("0.0.0.0:0", "--allow-remote"),
        ("example.org:50051", "--allow-remote"),
        ("127.0.0.1", "is no address"),
        ("127.0.0.1:99999", "is no address"),
        ("::1:0", "is no address"),
        ("unix:/proc/nothing/s", "cannot use the directory"),
        ("unix:", "names no file"),
        ("unix:/", "names no file"),
        ("unix:///", "names no file"),
        ("unix:/tmp/a\0b", "names no file"),
    ],
)
def test_addresses_that_cannot_be_served(address: str, text: str) -> None:
    binder = Binder()
    with pytest.raises(CannotListen, match=text):
        bind_all(binder, [address], allow_remote=False)
    assert not binder.bound


def test_other_hosts_are_served_if_told(tmp_path: Path) -> None:
    binder = Binder()
    listeners = bind_all(binder, ["0.0.0.0:0", f"unix:{tmp_path}/s"], allow_remote=True)
    assert (binder.bound, listeners.addresses) == (
        ["0.0.0.0:0", f"unix:{tmp_path}/s"],
        ["0.0.0.0:4711", f"unix:{tmp_path}/s"],
    )
    listeners.close()


def test_all_addresses_or_none(tmp_path: Path) -> None:
    with pytest.raises(CannotListen):
        bind_all(Binder(), [f"unix:{tmp_path}/s", "8.8.8.8:1"], allow_remote=False)
    # The lock of the first is free again.
    bind_all(Binder(), [f"unix:{tmp_path}/s"], allow_remote=False).close()


def test_a_file_in_the_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("precious")
    with pytest.raises(CannotListen, match="is no socket"):
        bind_all(Binder(), [f"unix:{tmp_path}/s"], allow_remote=False)
    assert (tmp_path / "s").read_text() == "precious"


def test_a_directory_open_to_everybody_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(CannotListen, match="mode 0700"):
        bind_all(Binder(), [f"unix:{tmp_path}/s"], allow_remote=False)
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_well(tmp_path: Path, number: signal.Signals) -> None:
    with server_process("--listen", f"unix:{tmp_path}/s") as server:
        server.process.send_signal(number)
        assert server.process.wait(CALL_SECONDS) == 0


def test_in_process_and_over_the_wire_print_the_same_bytes(
    served: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(STEP_FILE)
    here = said("verify", str(path))
    status = client_main(["verify", "--address", served.address, str(path)])
    assert (here.exit_code, here.stdout) == (status, capsys.readouterr().out)
    assert status == 1
    lines = [json.loads(line) for line in here.stdout.splitlines()]
    assert lines[0]["requests"][0]["token_ids"] == [2, 0]
    assert lines[1]["requests"][0]["status"] == "INVALID_LOGITS"
    assert [line["error"]["reason"] for line in lines[2:4]] == ["PARAMETER_OUT_OF_RANGE", "SHAPE_MISMATCH"]


def test_an_answered_file_ends_with_0_and_a_missing_one_with_2(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(line + "\n" for line in STEP_FILE.splitlines()[:2]))
    assert said("verify", str(path)).exit_code == 0
    assert said("verify", str(tmp_path / "missing.json")).exit_code == 2
    assert said("verify").exit_code == 2


def test_settings_come_from_flags_then_environment_then_file(tmp_path: Path) -> None:
    config = tmp_path / "sampler.toml"
    config.write_text('max_streams = 3\nmax_read_ahead = 4\nlog_level = "error"\nlisten = ["127.0.0.1:1"]\n')
    env = {"SAMPLER_MAX_STREAMS": "6", "SAMPLER_MAX_READ_AHEAD": "7", "SAMPLER_DRAIN_SECONDS": "1.5"}
    result = configured("--config", str(config), "--max-streams", "5", **env)
    printed = result.stdout.splitlines()
    assert result.exit_code == 0
    assert "max_streams = 5  # flag" in printed
    assert "max_read_ahead = 7  # environment" in printed
    assert "drain_seconds = 1.5  # environment" in printed
    assert f'log_level = "error"  # {config}' in printed
    assert f'listen = ["127.0.0.1:1"]  # {config}' in printed
    assert 'backend = "auto"  # default' in printed


def test_lists_in_the_environment_are_split_at_commas() -> None:
    result = configured(SAMPLER_LISTEN="unix:/a, 127.0.0.1:0")
    assert 'listen = ["unix:/a", "127.0.0.1:0"]  # environment' in result.stdout.splitlines()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_strems = 3", "max_strems"),
        ("max_streams = 0", "max_streams"),
        ("max_streams = 4294967296", "max_streams"),
        ("max_queued_steps = 4294967296", "max_queued_steps"),
        ('backend = "tpu"', "backend"),
        ("max_streams = ", "cannot read"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "sampler.toml"
    config.write_text(text)
    result = configured("--config", str(config))
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_printed_settings_are_a_config_file(tmp_path: Path) -> None:
    config = tmp_path / "sampler.toml"
    config.write_text(configured("--max-streams", "9").stdout)
    assert f"max_streams = 9  # {config}" in configured("--config", str(config)).stdout.splitlines()


def test_help_explains_every_setting() -> None:
    text = " ".join(CliRunner().invoke(main, ["serve", "--help"]).stdout.split())
    for name, setting in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        assert setting.description
        assert setting.description in text
        assert f"[SAMPLER_{name.upper()}]" in text


def test_doctor_says_what_it_found() -> None:
    result = said("doctor")
    assert result.exit_code == 0, result.stdout
    for subject in ("python", "torch", "backend", "/dev/shm", "socket"):
        assert f" {subject} " in result.stdout


def test_the_port_is_not_shared() -> None:
    # SO_REUSEPORT would let this bind beside the server.
    with server_process("--listen", "127.0.0.1:0") as server, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        host, _, port = server.address.rpartition(":")
        with pytest.raises(OSError, match=os.strerror(98)):
            other.bind((host, int(port)))
