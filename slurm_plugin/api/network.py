"""Questions and answers between hosts: each a line, or several, of munge's credentials.

A question is one credential, which carries a line of JSON and says who asks. An answer comes in
parts, each a credential that the asker alone can read. A part begins with a line of its own: the
digest of the question, the part's number and how many there are. In place of a part there may be a
plain line of JSON with an error: the daemon could not read the question, or make the part.
"""

from __future__ import annotations

import hashlib
import json
import pwd
from collections.abc import Iterable, Iterator

from hetsched_core.cli.table import printable
from hetsched_core.errors import HetschedError, InputError
from slurm_plugin.api.credentials import PREFIX, content_of, credential_of

MOST_BYTES = 128 << 20
"""Of an answer."""

_PART_BYTES = 512 * 1024

_LONGEST_ERROR = 300


def parts_of(answer: bytes, question: bytes, asker: int) -> Iterator[bytes]:
    """Yield the parts of an answer, as lines.

    Raises:
        CredentialError: munge makes none.
        InputError: the answer is longer than `MOST_BYTES`.
    """
    if len(answer) > MOST_BYTES:
        raise InputError(f"the answer has {len(answer)} bytes, more than {MOST_BYTES}")
    pieces = [answer[at : at + _PART_BYTES] for at in range(0, len(answer), _PART_BYTES)]
    for number, piece in enumerate(pieces, start=1):
        head = b"%s %d %d\n" % (_digest_of(question), number, len(pieces))
        yield credential_of(head + piece, asker) + b"\n"


def answer_of(lines: Iterable[bytes], question: bytes, where: str, users: frozenset[int]) -> bytes:
    """Return the answer that the lines of parts carry; b"" where there is no line.

    Args:
        lines: as they come.
        question: the credential that was sent.
        where: the daemon's address, for messages.
        users: the uids that the daemon may have.

    Raises:
        CredentialError: munge does not believe a part.
        HetschedError: it is none to the question, of another user, or not all of it came; or a line
            tells an error.
    """
    found: list[bytes] = []
    many = 0
    for line in lines:
        if not line.startswith(PREFIX):
            raise HetschedError(_plain_error(line, where))
        maker, content = content_of(line)
        if maker not in users:
            raise HetschedError(
                f"what answers at {where} is of user {_name(maker)}, and not of "
                f"{' or '.join(sorted(map(_name, users)))}; HETSCHED_DAEMON_USER names the daemon's"
            )
        head, _, piece = content.partition(b"\n")
        named = head.split()
        if named[:2] != [_digest_of(question), b"%d" % (len(found) + 1)] or len(named) != 3:
            raise HetschedError(f"what {where} answers is no answer to this question; ask again")
        found.append(piece)
        many = int(named[2])
        if len(found) == many:
            return b"".join(found)
    if found:
        raise HetschedError(f"the answer of {where} ended after {len(found)} of {many} parts")
    return b""


def _digest_of(question: bytes) -> bytes:
    """Return what an answer names its question by: the digest of its credential."""
    return hashlib.sha256(question.strip()).hexdigest().encode()


def _plain_error(line: bytes, where: str) -> str:
    """Return the error that a plain line tells. Anybody may have sent it: it is nothing else."""
    try:
        said = json.loads(line)["error"]
    except (ValueError, TypeError, KeyError, RecursionError):
        said = None
    if not isinstance(said, str):
        return f"what answers at {where} is no hetschedd"
    return printable(said)[:_LONGEST_ERROR]


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
