"""Which services a load test may be pointed at."""

from __future__ import annotations

import ipaddress


def is_unix(address: str) -> bool:
    """Whether the address is a unix socket's."""
    return address.startswith(("unix:", "unix-abstract:"))


def is_local(address: str) -> bool:
    """Whether the address can only be a process of this host: a unix socket or a loopback interface."""
    if is_unix(address):
        return True
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
