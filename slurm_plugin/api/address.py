"""Addresses at which the daemon and its page answer."""

from __future__ import annotations


def host_and_port(address: str) -> tuple[str, int] | None:
    """Read HOST:PORT; None for what is none. An IPv6 address stands in brackets."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host:
        return None
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        return None
    return host.strip("[]"), int(port)
