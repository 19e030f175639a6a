"""Asking the daemon."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hetsched_core.errors import HetschedError
from slurm_plugin.api.address import host_and_port
from slurm_plugin.api.credentials import credential_of
from slurm_plugin.api.network import answer_of

DEFAULT_SOCKET = "/run/hetsched/hetschedd.sock"

_PATIENCE_S = 30.0

_ANSWERED_S = 120.0
"""How long an answer over the network may take."""

_LONGEST_LINE = 1 << 20
"""Bytes of a line over the network: munge makes no longer credential."""


def ask(where: Path, question: str, **about: str) -> dict[str, Any]:
    """Ask the daemon that listens at `where`, a socket's path or HOST:PORT; return its answer.

    Raises:
        HetschedError: nobody listens there, or the answer is that it cannot be answered.
    """
    request = json.dumps({"ask": question, **about}).encode()
    address = host_and_port(str(where))
    try:
        if address is None:
            line = _over_socket(where, request)
        else:
            line = _over_network(address, str(where), request)
    except (ConnectionResetError, BrokenPipeError):
        line = b""
    except (OSError, UnicodeError) as error:
        words = getattr(error, "strerror", None) or error
        raise HetschedError(
            f"no daemon answers at {where} ({words}); is hetschedd running? "
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


def _over_network(address: tuple[str, int], where: str, request: bytes) -> bytes:
    question, users = credential_of(request), _daemon_users()
    with socket.create_connection(address, _PATIENCE_S) as channel:
        channel.sendall(question + b"\n")
        return answer_of(_lines(channel), question, where, users)


def _lines(channel: socket.socket) -> Iterator[bytes]:
    """Yield what is sent line by line, for so long in all."""
    latest, found = time.monotonic() + _ANSWERED_S, b""
    while piece := channel.recv(_LONGEST_LINE):
        found += piece
        *lines, found = found.split(b"\n")
        yield from lines
        if len(found) > _LONGEST_LINE:
            raise HetschedError("a line of the answer is too long to be one of hetschedd's")
        if (left_s := latest - time.monotonic()) <= 0:
            raise HetschedError(f"no whole answer has come in {_ANSWERED_S:g} s; ask again")
        channel.settimeout(min(_PATIENCE_S, left_s))
    if found:
        yield found


def _daemon_users() -> frozenset[int]:
    """Return the uids under which a daemon is believed: root's, and that of its own user."""
    name = os.environ.get("HETSCHED_DAEMON_USER", "")
    if name.isdecimal():
        return frozenset({0, int(name)})
    try:
        return frozenset({0, pwd.getpwnam(name or "hetsched").pw_uid})
    except KeyError:
        if name:
            raise HetschedError(
                f"HETSCHED_DAEMON_USER = {name!r}: there is no such user here; its number does too"
            ) from None
        return frozenset({0})


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
