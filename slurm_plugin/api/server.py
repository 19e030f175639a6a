"""The sockets: a question in, an answer out, and who asks known by the kernel or by munge."""

from __future__ import annotations

import json
import os
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hetsched_core.errors import HetschedError, InputError
from slurm_plugin.api.address import host_and_port
from slurm_plugin.api.answers import Peer
from slurm_plugin.api.bounded_threads import PATIENCE_S, BoundedThreads, Places
from slurm_plugin.api.credentials import CredentialError, content_of
from slurm_plugin.api.network import parts_of
from slurm_plugin.daemon.spool.moves import user_name

_LONGEST = 4096
"""Bytes of a request."""

_LONGEST_CREDENTIAL = 16_384
"""Bytes of the credential that carries one: munge encodes three bytes in four."""

_LAST_S = 20.0
"""How long those who are being answered are waited for at the end."""

MOST_OF_ONE_USER = 16
"""How many askers of one user are heard at once; one more is turned away."""

MOST_OF_ONE_HOST = 32
"""The same of one host, on which any users ask."""

_ANSWERED_S = 60.0
"""How long an answer in parts may take to be made and read."""

Answers = Callable[[Mapping[str, object], Peer], dict[str, Any]]


class _Answering:
    """Answers from a thread of its own, until closed."""

    def __init__(self, server: _Server | _NetworkServer, answers: Answers) -> None:
        self._server = server
        server.answers = answers
        threading.Thread(target=server.serve_forever, name="answers", daemon=True).start()

    def close(self) -> None:
        """Answer no more, and wait for those whose answers are being made.

        A thread that is in compiled code (a solver, the database) when Python ends aborts it.
        """
        self._server.shutdown()
        self._server.server_close()
        self._server.wait(_LAST_S)


class AnswerServer(_Answering):
    """Answers on a unix socket; the kernel says who asks."""

    def __init__(self, path: Path, answers: Answers) -> None:
        """Open the socket, for everybody on this machine.

        Raises:
            InputError: the socket cannot be made there, or another daemon answers on it.
        """
        try:
            _clear(path)
            server = _Server(str(path), _Handler)
            path.chmod(0o666)
        except OSError as error:
            raise InputError(f"no socket at {path}: {error.strerror or error}") from None
        self._path = path
        super().__init__(server, answers)

    def close(self) -> None:
        """Answer no more, as everywhere, and remove the socket."""
        try:
            self._path.unlink(missing_ok=True)
        finally:
            super().close()


class NetworkServer(_Answering):
    """Answers on a port, to other hosts too; munge says who asks, and hides the answer from others.

    Root of any host of munge's realm is root here, as it is to Slurm; nobody else sees all.
    """

    def __init__(self, address: str, answers: Answers) -> None:
        """Listen at HOST:PORT.

        Raises:
            InputError: this is no address, or it cannot be listened on.
        """
        found = host_and_port(address)
        if found is None:
            raise InputError(f"{address!r} is no HOST:PORT, such as 127.0.0.1:9753")
        try:
            family = socket.getaddrinfo(*found, type=socket.SOCK_STREAM)[0][0]
            kind = type("_OfFamily", (_NetworkServer,), {"address_family": family})
            server = kind(found, _CredentialHandler)
        except (OSError, UnicodeError) as error:
            words = getattr(error, "strerror", None) or error
            raise InputError(f"no answers at {address}: {words}") from None
        super().__init__(server, answers)


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

    def client(self, request: Any, address: Any) -> int:
        """Return the user who asks."""
        return _uid(request)


class _NetworkServer(BoundedThreads, socketserver.TCPServer):
    most = 64
    most_of_one = MOST_OF_ONE_HOST
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128
    answers: Answers

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Listen; users who ask have places beside those of their hosts."""
        self.askers = Places(self.most, MOST_OF_ONE_USER)
        super().__init__(*args, **kwargs)

    def client(self, request: Any, address: Any) -> str:
        """Return the host that asks."""
        return str(address[0])


class _Handler(socketserver.StreamRequestHandler):
    timeout = PATIENCE_S
    server: _Server | _NetworkServer

    def handle(self) -> None:
        """Answer a line of JSON by another."""
        self._write(self._said(self._line(_LONGEST), _peer(self.connection)))

    def _line(self, most: int) -> bytes:
        """Return the line that is asked, or more than `most` bytes; it may not take long in all."""
        latest = time.monotonic() + PATIENCE_S
        found = b""
        while b"\n" not in found and len(found) <= most:
            self.connection.settimeout(max(0.001, latest - time.monotonic()))
            piece = self.connection.recv(2 * most)
            if not piece:
                break
            found += piece
        self.connection.settimeout(PATIENCE_S)
        return found.partition(b"\n")[0]

    def _write(self, said: Mapping[str, Any]) -> None:
        self.wfile.write(_text(said) + b"\n")

    def _said(self, question: bytes, peer: Peer) -> dict[str, Any]:
        try:
            if len(question) > _LONGEST:
                raise InputError(f"a question of more than {_LONGEST} bytes")
            try:
                request = json.loads(question)
            except (ValueError, RecursionError):
                raise InputError("a question is one line of JSON") from None
            if not isinstance(request, dict):
                raise InputError("a question is an object of JSON")
            return self.server.answers(request, peer)
        except HetschedError as error:
            return {"error": str(error)}
        except OSError:
            raise  # who asked has gone, or says nothing
        except Exception as error:
            return {"error": f"the daemon failed to answer: {type(error).__name__}: {error}"}


class _CredentialHandler(_Handler):
    server: _NetworkServer

    def handle(self) -> None:
        """Answer a credential by others that the asker alone can read."""
        asked = self._line(_LONGEST_CREDENTIAL)
        try:
            if len(asked) > _LONGEST_CREDENTIAL:
                raise CredentialError(f"it has more than {_LONGEST_CREDENTIAL} bytes")
            asker, question = content_of(asked)
        except CredentialError as error:
            self._write({"error": f"the daemon does not know who asks: {error}"})
            return
        if not self.server.askers.take(asker):
            # As on the unix socket.
            return
        try:
            self._answer(asked, asker, question)
        except HetschedError as error:
            self._write({"error": f"the daemon cannot answer: {error}"})
        finally:
            self.server.askers.free(asker)

    def _answer(self, asked: bytes, asker: int, question: bytes) -> None:
        said = self._said(question, Peer(user_name(asker), admin=asker == 0))
        latest = time.monotonic() + _ANSWERED_S
        for part in parts_of(_text(said), asked, asker):
            if time.monotonic() > latest:
                raise TimeoutError
            self.wfile.write(part)


def _text(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said, separators=(",", ":")).encode()


def _uid(connection: socket.socket) -> int:
    """Ask the kernel who is at the other end."""
    form = "3i"
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(form))
    return int(struct.unpack(form, told)[1])


def _peer(connection: socket.socket) -> Peer:
    uid = _uid(connection)
    return Peer(user_name(uid), admin=uid in (0, os.geteuid()))
