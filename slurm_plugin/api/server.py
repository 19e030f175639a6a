"""The socket: one line of JSON in, one line of JSON out, and the asker known by the kernel."""

from __future__ import annotations

import json
import os
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hetsched_core.errors import HetschedError, InputError
from slurm_plugin.api.answers import Peer
from slurm_plugin.api.bounded_threads import PATIENCE_S, BoundedThreads
from slurm_plugin.daemon.spool.moves import user_name

_LONGEST = 4096
"""Bytes of a request."""

_LAST_S = 20.0
"""How long those who are being answered are waited for at the end."""

MOST_OF_ONE_USER = 16
"""How many askers of one user are heard at once; one more is turned away."""

Answers = Callable[[Mapping[str, object], Peer], dict[str, Any]]


class AnswerServer:
    """Answers on a unix socket from a thread of its own, until closed."""

    def __init__(self, path: Path, answers: Answers) -> None:
        """Open the socket, for everybody on this machine.

        Raises:
            InputError: the socket cannot be made there, or another daemon answers on it.
        """
        try:
            _clear(path)
            self._server = _Server(str(path), _Handler)
            path.chmod(0o666)
        except OSError as error:
            raise InputError(f"no socket at {path}: {error.strerror or error}") from None
        self._path = path
        self._server.answers = answers
        threading.Thread(target=self._server.serve_forever, name="answers", daemon=True).start()

    def close(self) -> None:
        """Answer no more, and wait for those whose answers are being made.

        A thread that is in compiled code (a solver, the database) when Python ends aborts it.
        """
        self._server.shutdown()
        self._server.server_close()
        self._path.unlink(missing_ok=True)
        self._server.wait(_LAST_S)


def _clear(path: Path) -> None:
    """Remove a socket that a killed daemon has left."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PATIENCE_S)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
    raise InputError(f"another daemon answers on {path}; give this one a socket of its own")


class _Server(BoundedThreads, socketserver.UnixStreamServer):
    most = 256
    most_of_one = MOST_OF_ONE_USER
    block_on_close = False
    request_queue_size = 128
    answers: Answers

    def client(self, request: Any) -> int:
        """Return the user who asks."""
        return _uid(request)


class _Handler(socketserver.StreamRequestHandler):
    timeout = PATIENCE_S
    server: _Server

    def handle(self) -> None:
        said = self._answer()
        self.wfile.write(json.dumps(said, separators=(",", ":")).encode() + b"\n")

    def _answer(self) -> dict[str, Any]:
        try:
            line = self.rfile.readline(_LONGEST + 1)
            if len(line) > _LONGEST:
                raise InputError(f"a question of more than {_LONGEST} bytes")
            try:
                request = json.loads(line)
            except (ValueError, RecursionError):
                raise InputError("a question is one line of JSON") from None
            if not isinstance(request, dict):
                raise InputError("a question is an object of JSON")
            return self.server.answers(request, _peer(self.connection))
        except HetschedError as error:
            return {"error": str(error)}
        except OSError:
            raise  # who asked has gone, or says nothing
        except Exception as error:
            return {"error": f"the daemon failed to answer: {type(error).__name__}: {error}"}


def _uid(connection: socket.socket) -> int:
    """Ask the kernel who is at the other end."""
    form = "3i"
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(form))
    return int(struct.unpack(form, told)[1])


def _peer(connection: socket.socket) -> Peer:
    uid = _uid(connection)
    return Peer(user_name(uid), admin=uid in (0, os.geteuid()))
