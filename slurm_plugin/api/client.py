"""Asking the daemon."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import struct
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from hetsched_core.errors import HetschedError
from slurm_plugin.api.address import host_and_port
from slurm_plugin.api.credentials import credential_of
from slurm_plugin.api.network import answer_of

DEFAULT_SOCKET = "/run/hetsched/hetschedd.sock"

_PATIENCE_S = 30.0

_LONGEST_LINE = 1 << 20
"""Bytes of one credential of an answer, which munge keeps below."""


def ask(where: Path, question: str, **about: str) -> dict[str, Any]:
    """Ask the daemon that listens at `where`, a socket's path or HOST:PORT; return its answer.

    Raises:
        HetschedError: nobody listens there, or the answer is that it cannot be answered.
    """
    request = json.dumps({"ask": question, **about}).encode()
    address = host_and_port(str(where))
    try:
        line = _over_socket(where, request) if address is None else _over_network(address, request)
    except (ConnectionResetError, BrokenPipeError):
        line = b""
    except OSError as error:
        raise HetschedError(
            f"no daemon answers at {where} ({error.strerror or error}); is hetschedd running? "
            f"Another socket: --socket or HETSCHED_SOCKET{_without_slurm()}"
        ) from None
    if not line:
        raise HetschedError(f"the daemon at {where} has too many questions at once; ask again")
    try:
        said = json.loads(line)
    except ValueError:
        raise HetschedError(f"what answers at {where} is no hetschedd") from None
    if "error" in said:
        raise HetschedError(said["error"])
    return dict(said)


def _over_socket(path: Path, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as channel:
        # With a timeout of Python's own it would not wait for its turn where many connect.
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _patience())
        channel.connect(str(path))
        channel.settimeout(_PATIENCE_S)
        channel.sendall(request + b"\n")
        with channel.makefile("rb") as reader:
            return reader.readline()


def _over_network(address: tuple[str, int], request: bytes) -> bytes:
    question = credential_of(request)
    with socket.create_connection(address, _PATIENCE_S) as channel:
        channel.sendall(question + b"\n")
        with channel.makefile("rb") as reader:
            first = reader.readline(_LONGEST_LINE)
            if not first.startswith(b"MUNGE:"):
                # It does not know who asks.
                return first
            lines = chain([first], iter(partial(reader.readline, _LONGEST_LINE), b""))
            where = f"{address[0]}:{address[1]}"
            return answer_of(lines, question, where, _daemon_users())


def _daemon_users() -> frozenset[int]:
    """Return the uids under which a daemon is believed: root's, and that of its own user."""
    try:
        own = pwd.getpwnam(os.environ.get("HETSCHED_DAEMON_USER") or "hetsched").pw_uid
    except KeyError:
        own = 0
    return frozenset({0, own})


def _patience() -> bytes:
    return struct.pack("@ll", int(_PATIENCE_S), 0)


def _without_slurm() -> str:
    """Return what somebody can do who has no Slurm, in words; "" where there is one."""
    if shutil.which("scontrol") is not None:
        return ""
    return (
        ". There is no Slurm on this machine: `hetsched replay` needs none, and `hetsched testbed "
        "up` brings one to try"
    )
