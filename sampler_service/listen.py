"""Addresses: which are allowed, how a unix socket is kept ours alone, and that nobody else holds the port."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
import stat
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

_MAX_PATH: Final = 107
"""Bytes in the path of a unix socket: the kernel's field holds 108, the last of them 0."""


class CannotListen(Exception):
    """An address that cannot be served, and why."""


class Binds(Protocol):
    """The part of a gRPC server that binds."""

    def add_insecure_port(self, address: str) -> int:
        """Bind an address; the port, or 0 or an error if it cannot be had."""
        ...


@dataclass
class Listeners:
    """Addresses being served. Closing removes our sockets; it must follow the server's own end.

    Attributes:
        addresses: As clients dial them: ``unix:/path`` or ``host:port``, the port always the real one.
    """

    addresses: list[str] = field(default_factory=list)
    _owned: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def add(self, server: Binds, address: str, *, allow_remote: bool) -> None:
        """Bind one more address.

        Args:
            server: Not yet started.
            address: ``unix:/path`` or ``host:port``; port 0 takes a free one.
            allow_remote: Whether other than loopback interfaces are allowed.

        Raises:
            CannotListen: With what is in the way, and what would help.
        """
        path = unix_path(address)
        if path is not None:
            self._owned.enter_context(_own_socket(path))
            with _umask(0o177):
                _bind(server, f"unix:{path}")
            self.addresses.append(f"unix:{path}")
            return
        host, port = host_port(address)
        if not (allow_remote or is_loopback(host)):
            what = f"{address} can be reached from other hosts, and nothing here checks who calls"
            raise CannotListen(f"{what}; listen on 127.0.0.1 or a unix socket, or say --allow-remote")
        # A name may stand for several interfaces, and gRPC is content with any of them: each must be ours, or another
        # server gets some of the calls.
        for interface in _interfaces(host):
            port = _bind(server, f"{interface}:{port}")
        self.addresses.append(f"{host}:{port}")

    def close(self) -> None:
        """Remove the sockets and give up their locks."""
        self._owned.close()


def default_address() -> str:
    """A unix socket in the user's runtime directory, or in one of our own where there is none."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    if os.access(runtime, os.W_OK):
        return f"unix:{runtime}/sampler-service/sampler.sock"
    # Others may have made this one before us; its owner and mode are checked before it is used.
    return f"unix:{tempfile.gettempdir()}/sampler-service-{os.getuid()}/sampler.sock"


def unix_path(address: str) -> Path | None:
    """The absolute path of a unix socket's address; None for an address of another kind.

    Raises:
        CannotListen: A unix socket's address without a path.
    """
    if not address.startswith("unix:"):
        return None
    path = Path(address.removeprefix("unix://") if address.startswith("unix://") else address[5:]).absolute()
    if not path.name or "\0" in address or address in ("unix:", "unix://"):
        raise CannotListen(f"{address!r} names no file; it must be unix:/path")
    return path


def is_loopback(host: str) -> bool:
    """Whether only processes of this host can reach the interface."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@contextlib.contextmanager
def _own_socket(path: Path) -> Iterator[None]:
    """Hold the lock beside a socket's path, with nothing left at the path itself."""
    if len(os.fsencode(path)) > _MAX_PATH:
        raise CannotListen(
            f"{path} has {len(os.fsencode(path))} bytes; the path of a unix socket has at most {_MAX_PATH}"
        )
    _prepare_directory(path.parent)
    lock_path = path.with_name(path.name + ".lock")
    try:
        lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise CannotListen(f"cannot open {lock_path}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Binding over it would take the socket from a server that is alive.
            raise CannotListen(f"another server is listening on unix:{path}; stop it or choose another path") from None
        _remove_socket(path)
        yield
        _remove_socket(path)
    finally:
        # The lock's file stays: whoever removed it could remove one that the next server has just locked.
        os.close(lock)


def _prepare_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        raise CannotListen(f"cannot use the directory {directory}: {error.strerror}") from error
    open_to_others = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
    if open_to_others or status.st_uid not in (os.getuid(), 0):
        what = f"{directory} is not yours, or everybody may rename what lies in it"
        raise CannotListen(f"{what}; use a directory of your own with mode 0700")


def _remove_socket(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise CannotListen(f"{path} exists and is no socket; it is left alone")
        path.unlink()


def host_port(address: str) -> tuple[str, int]:
    """Host and port of a TCP address; an IPv6 host keeps its brackets.

    Raises:
        CannotListen: It is none.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise CannotListen(f"{address} is no address; it must be unix:/path or host:port ([::1]:port for IPv6)")
    return host, int(port)


def _interfaces(host: str) -> list[str]:
    """The interfaces that ``localhost`` stands for here; any other host as it is."""
    if host != "localhost":
        return [host]
    both = (("127.0.0.1", socket.AF_INET, "127.0.0.1"), ("[::1]", socket.AF_INET6, "::1"))
    return [name for name, family, numeric in both if _bind_error(family, numeric, 0) is None] or [host]


def _bind(server: Binds, address: str) -> int:
    with contextlib.suppress(RuntimeError):
        port = server.add_insecure_port(address)
        if port:
            return port
    raise CannotListen(f"cannot listen on {address}: {_cause(address)}")


def _cause(address: str) -> str:
    """Why gRPC could not bind, which it does not say: the same is tried without it."""
    unknown = "it is in use, or not ours to bind"
    if address.startswith("unix:"):
        return unknown
    host, port = host_port(address)
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return error.strerror or unknown
    errors = (_bind_error(family, where[0], port) for family, _, _, _, where in found)
    return next((error for error in errors if error is not None), unknown)


def _bind_error(family: int, host: str | int, port: int) -> str | None:
    """What stands in the way of binding, in the words of the operating system; None if nothing does."""
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        return "another process is listening there" if in_use else error.strerror or str(error)
    return None


@contextlib.contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def bind_all(server: Binds, addresses: Iterable[str], *, allow_remote: bool) -> Listeners:
    """Bind every address, or none.

    Raises:
        CannotListen: For the first address that cannot be had.
    """
    listeners = Listeners()
    try:
        for address in addresses:
            listeners.add(server, address, allow_remote=allow_remote)
    except BaseException:
        listeners.close()
        raise
    return listeners
