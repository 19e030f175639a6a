"""Credentials of munge, by which the hosts of a site that runs Slurm tell each other who speaks.

munge's own commands make and read them: the library has no well-kept binding. Their socket is
munge's default one, or that of `HETSCHED_MUNGE_SOCKET`.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Sequence

from hetsched_core.errors import HetschedError

LARGEST = 640 * 1024
"""Bytes that one credential carries at most: munge takes a megabyte, encoded."""

PREFIX = b"MUNGE:"
"""How each of them begins."""

_LATEST_S = 10.0

_AT_ONCE = threading.Semaphore(16)
"""Each of munge's commands is a process with three pipes."""

_STATUS = re.compile(rb"\ASTATUS:\s*(.*?) \(\d+\)$", re.MULTILINE)
_MAKER = re.compile(rb"^UID:.*\((\d+)\)$", re.MULTILINE)
_ERROR = re.compile(rb"Error: (.*)")


class CredentialError(HetschedError):
    """No credential can be made here, or one is not to be believed."""


def credential_of(content: bytes, reader: int | None = None) -> bytes:
    """Return a credential of this process's user that carries a content, in one line of ASCII.

    Args:
        content: 1 to `LARGEST` bytes.
        reader: the uid that may read it; None for everybody.

    Raises:
        CredentialError: munge makes none.
    """
    only = [] if reader is None else [f"--restrict-uid={reader}"]
    return _run("munge", only, content).strip()


def content_of(credential: bytes) -> tuple[int, bytes]:
    """Return the uid of the maker of a credential, and what it carries.

    Raises:
        CredentialError: it is forged, altered, too old, for another reader, or was read before.
    """
    if not credential.startswith(PREFIX):
        raise CredentialError("it is no credential of munge")
    about, _, content = _run("unmunge", ["--keys=STATUS,UID"], credential).partition(b"\n\n")
    maker = _MAKER.search(about)
    if maker is None:
        raise CredentialError("munge does not say whose it is")
    return int(maker[1]), content


def _run(command: str, options: Sequence[str], given: bytes) -> bytes:
    """Return what a command of munge prints."""
    socket = os.environ.get("HETSCHED_MUNGE_SOCKET")
    words = [command, *options, *([f"--socket={socket}"] if socket else [])]
    try:
        with _AT_ONCE:
            done = subprocess.run(words, input=given, capture_output=True, timeout=_LATEST_S)
    except FileNotFoundError:
        raise CredentialError(f"{command} is not there; munge has to be installed") from None
    except OSError as error:
        raise CredentialError(f"{command} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise CredentialError(f"munge has not answered in {_LATEST_S:g} s") from None
    if done.returncode:
        # Of a credential that was good once it says why on stdout.
        status = _STATUS.search(done.stdout) or _ERROR.search(done.stderr)
        what = f"exit status {done.returncode}" if status is None else status[1].decode()
        raise CredentialError(f"munge: {what}")
    return done.stdout
