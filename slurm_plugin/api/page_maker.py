"""Making the page from what the daemon answers, and serving it: a client's business.

Drawing takes about a second of one CPU, which is why the daemon, whose cycles place jobs, only
answers with figures.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from datetime import tzinfo
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import cattrs

from hetsched_core.errors import HetschedError, InputError
from hetsched_core.records.files import replacing
from hetsched_core.report.live_page import to_html
from hetsched_core.report.live_state import LiveState
from slurm_plugin.api.address import host_and_port
from slurm_plugin.api.bounded_threads import PATIENCE_S, BoundedThreads
from slurm_plugin.api.client import ask

_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
}


class PageMaker:
    """Makes the page, and keeps it for a while; any thread may ask for it."""

    def __init__(
        self,
        path: Path,
        zone: tzinfo,
        every_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to ask the daemon at `path`; a page is made anew after `every_s` seconds."""
        self._path, self._zone, self._every_s, self._clock = path, zone, every_s, clock
        self._state: LiveState | None = None
        self._page, self._made_s = "", float("-inf")
        self._one_at_a_time = threading.Lock()

    def fresh(self) -> str:
        """Return a page of now.

        Raises:
            HetschedError: the daemon does not answer.
        """
        self._state = _asked(self._path)
        return self._html("")

    def page(self) -> str:
        """Return a page that is not too old, and says so if the daemon does not answer."""
        with self._one_at_a_time:
            if self._clock() - self._made_s >= self._every_s:
                try:
                    self._page = self.fresh()
                except HetschedError as error:
                    self._page = self._html(str(error))
                self._made_s = self._clock()
            return self._page

    def _html(self, trouble: str) -> str:
        return to_html(self._state, trouble, self._zone, round(self._every_s))


def _asked(path: Path) -> LiveState:
    said = ask(path, "page")
    try:
        return cattrs.Converter().structure(said["page"], LiveState)
    except (KeyError, cattrs.BaseValidationError):
        raise HetschedError(
            f"the daemon at {path} is of another version of hetsched; restart it, or make the "
            "page with its own"
        ) from None


def write_page(page: str, file: Path) -> None:
    """Write a page, whole or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    with replacing(file) as out:
        out.write(page)


def serve_page(address: str, maker: PageMaker, told: Callable[[str], None]) -> None:
    """Serve the page at HOST:PORT until interrupted; `told` is told where once it is served.

    Raises:
        InputError: this is no address, or it cannot be listened on.
    """
    found = host_and_port(address)
    if found is None:
        raise InputError(f"--serve {address}: expected HOST:PORT, such as 127.0.0.1:9755")
    try:
        server = _Server(found, maker)
    except OSError as error:
        raise InputError(f"nothing can be served at {address}: {error.strerror}") from None
    with server:
        told(address)
        server.serve_forever()


class _Server(BoundedThreads, HTTPServer):
    def __init__(self, address: tuple[str, int], maker: PageMaker) -> None:
        self.maker = maker
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    """Answers with the page, whatever else the request says."""

    server: _Server
    timeout = PATIENCE_S
    server_version, sys_version = "hetsched", ""

    def do_GET(self) -> None:
        self._send(whole=True)

    def do_HEAD(self) -> None:
        self._send(whole=False)

    def _send(self, *, whole: bool) -> None:
        if self.path != "/":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        body = self.server.maker.page().encode()
        self.send_response(HTTPStatus.OK)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if whole:
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing of requests."""
