"""What systemd is told of the daemon (sd_notify(3)): it is ready, alive, reloading, stopping."""

from __future__ import annotations

import os
import socket


def notify(*states: str) -> None:
    """Send states, such as READY=1, to the service manager; without one, do nothing.

    A datagram that nobody takes is no reason to stop scheduling.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel:
            channel.sendto("\n".join(states).encode(), address)
    except OSError:
        pass
