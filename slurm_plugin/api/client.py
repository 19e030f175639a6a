"""Asking the daemon."""

from __future__ import annotations

import json
import shutil
import socket
import struct
from pathlib import Path
from typing import Any

from hetsched_core.errors import HetschedError

DEFAULT_SOCKET = "/run/hetsched/hetschedd.sock"

_PATIENCE_S = 30.0


def ask(path: Path, question: str, **about: str) -> dict[str, Any]:
    """Ask the daemon that listens at `path`, and return its answer.

    Raises:
        HetschedError: nobody listens there, or the answer is that it cannot be answered.
    """
    request = json.dumps({"ask": question, **about}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX) as channel:
            # With a timeout of Python's own it would not wait for its turn where many connect.
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _patience())
            channel.connect(str(path))
            channel.settimeout(_PATIENCE_S)
            channel.sendall(request)
            with channel.makefile("rb") as reader:
                line = reader.readline()
    except (ConnectionResetError, BrokenPipeError):
        line = b""
    except OSError as error:
        raise HetschedError(
            f"no daemon answers at {path} ({error.strerror or error}); is hetschedd running? "
            f"Another socket: --socket or HETSCHED_SOCKET{_without_slurm()}"
        ) from None
    if not line:
        raise HetschedError(f"the daemon at {path} has too many questions at once; ask again")
    try:
        said = json.loads(line)
    except ValueError:
        raise HetschedError(f"what answers at {path} is no hetschedd") from None
    if "error" in said:
        raise HetschedError(said["error"])
    return dict(said)


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
