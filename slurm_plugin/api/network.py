"""Questions and answers between hosts: each a line, or several, of munge's credentials.

A question is one credential, which carries a line of JSON and says who asks. An answer comes in
parts, each a credential that the asker alone can read. A part begins with a line of its own: the
digest of the question, the part's number and how many there are. What is wrong with a question's
credential is told in a plain line of JSON, for nobody is known who could read anything else.
"""

from __future__ import annotations

import hashlib
import pwd
from collections.abc import Iterable, Iterator

from hetsched_core.errors import HetschedError
from slurm_plugin.api.credentials import LARGEST, content_of, credential_of

MOST_PARTS = 256
"""128 MiB in all."""


def digest_of(question: bytes) -> bytes:
    """Return what an answer names its question by: the digest of its credential."""
    return hashlib.sha256(question.strip()).hexdigest().encode()


def parts_of(answer: bytes, question: bytes, asker: int) -> Iterator[bytes]:
    """Yield the parts of an answer, as lines.

    Raises:
        CredentialError: munge makes none.
    """
    pieces = [answer[at : at + LARGEST] for at in range(0, len(answer), LARGEST)]
    for number, piece in enumerate(pieces, start=1):
        head = b"%s %d %d\n" % (digest_of(question), number, len(pieces))
        yield credential_of(head + piece, asker) + b"\n"


def answer_of(lines: Iterable[bytes], question: bytes, where: str, users: frozenset[int]) -> bytes:
    """Return the answer that the lines of parts carry.

    Args:
        lines: as they come.
        question: the credential that was sent.
        where: the daemon's address, for messages.
        users: the uids that the daemon may have.

    Raises:
        CredentialError: munge does not believe a part.
        HetschedError: it is none to the question, of another user, or not all of it came.
    """
    found: list[bytes] = []
    total = 0
    for line in lines:
        maker, content = content_of(line)
        if maker not in users:
            raise HetschedError(
                f"what answers at {where} is of user {_name(maker)}, and not of "
                f"{' or '.join(sorted(map(_name, users)))}; HETSCHED_DAEMON_USER names the daemon's"
            )
        head, _, piece = content.partition(b"\n")
        named = head.split()
        total = int(named[-1]) if len(named) == 3 else 0
        if named[:2] != [digest_of(question), b"%d" % (len(found) + 1)] or total > MOST_PARTS:
            raise HetschedError(f"what {where} answers is no answer to this question; ask again")
        found.append(piece)
        if len(found) == total:
            return b"".join(found)
    raise HetschedError(f"the answer of {where} ended after {len(found)} of {total} parts")


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
