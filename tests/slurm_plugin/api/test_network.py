"""Questions from other hosts: real credentials of munge, good and forged."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hetsched_core.errors import HetschedError, InputError
from slurm_plugin.api.answers import Peer
from slurm_plugin.api.bounded_threads import PATIENCE_S
from slurm_plugin.api.client import ask
from slurm_plugin.api.credentials import LARGEST, CredentialError, content_of, credential_of
from slurm_plugin.api.network import answer_of, parts_of
from slurm_plugin.api.server import MOST_OF_ONE_HOST, MOST_OF_ONE_USER, NetworkServer
from slurm_plugin.testbed import Installation
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.jobs import SLACK

pytestmark = pytest.mark.slurm

NOBODY = 65534


def munged(installation: Installation, folder: Path) -> Path:
    """Start a munged with a key of its own; return its socket."""
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o400)
    files = [f"--{name}={folder}/{name.partition('-')[0]}" for name in ("key-file", "pid-file")]
    files += [f"--log-file={folder}/log", f"--seed-file={folder}/seed"]
    munged = str(installation.program("munged"))
    words = [munged, "--force", f"--socket={folder}/socket", *files]
    subprocess.run(words, check=True, env=os.environ | installation.environment())
    return folder / "socket"


@pytest.fixture
def realm(
    installation: Installation, short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The folder of munge's daemons: `ours`, which is asked unless a test says otherwise."""
    monkeypatch.setenv("PATH", installation.environment()["PATH"])
    monkeypatch.setenv("HETSCHED_MUNGE_SOCKET", str(munged(installation, short_folder / "ours")))
    yield short_folder
    for pid in short_folder.glob("*/pid"):
        os.kill(int(pid.read_text()), signal.SIGTERM)
    wait_until(lambda: not any(short_folder.glob("*/pid")), "the end of munged", 60)


def echo(request: Mapping[str, object], peer: Peer) -> dict[str, Any]:
    if request.get("ask") == "fail":
        raise InputError("that cannot be answered")
    if request.get("ask") == "much":
        return {"much": "x" * int(str(request["bytes"]))}
    return {"request": dict(request), "user": peer.user, "admin": peer.admin}


@pytest.fixture
def where(realm: Path, free: str) -> Iterator[Path]:
    """HOST:PORT of a server that tells what it was asked, and by whom."""
    assert realm.is_dir()
    server = NetworkServer(free, echo)
    yield Path(free)
    server.close()


def connected(where: Path) -> socket.socket:
    host, _, port = str(where).partition(":")
    return socket.create_connection((host, int(port)), 60)


def raw(where: Path, line: bytes) -> list[bytes]:
    """Send a line, and return those that are answered."""
    with connected(where) as channel:
        channel.sendall(line + b"\n")
        with channel.makefile("rb") as reader:
            return reader.read().splitlines(keepends=True)


def as_nobody(code: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# Each imports all it needs before it gives root's rights up: Python itself may be root's alone.
ASK = f"""
import encodings.idna, os, sys
from pathlib import Path
from slurm_plugin.api.client import ask
os.setuid({NOBODY})
said = ask(Path(sys.argv[1]), "status", user="root", uid="0")
print(said["user"], said["admin"])
"""

READ = f"""
import os, sys
from slurm_plugin.api.credentials import content_of
os.setuid({NOBODY})
try:
    content_of(sys.argv[1].encode())
except Exception as error:
    print(error)
"""

IMPOSTOR = f"""
import os, socket
from slurm_plugin.api.network import parts_of
os.setuid({NOBODY})
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    channel, _ = server.accept()
    asked = channel.recv(65536)
    for part in parts_of(b'{{"user": "the daemon"}}', asked, 0):
        channel.sendall(part)
    channel.close()
"""


def test_munge_says_who_asks_whatever_the_question_claims(where: Path) -> None:
    said = ask(where, "why", job="12")
    assert said == {"request": {"ask": "why", "job": "12"}, "user": "root", "admin": True}
    other = as_nobody(ASK, where)
    assert other.stdout == "nobody False\n", other.stderr
    with pytest.raises(HetschedError, match="that cannot be answered"):
        ask(where, "fail")


def test_a_credential_that_is_forged_altered_or_read_before_is_not_believed(
    where: Path, realm: Path, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = credential_of(b'{"ask": "status"}')
    middle = len(good) // 2
    altered = good[:middle] + (b"A" if good[middle : middle + 1] != b"A" else b"B")
    altered += good[middle + 1 :]
    ours = os.environ["HETSCHED_MUNGE_SOCKET"]
    monkeypatch.setenv("HETSCHED_MUNGE_SOCKET", str(munged(installation, realm / "theirs")))
    forged = credential_of(b'{"ask": "status"}')
    monkeypatch.setenv("HETSCHED_MUNGE_SOCKET", ours)
    for line, words in (
        (forged, "Invalid credential"),
        (altered, "Invalid credential"),
        (b'{"ask": "status", "user": "root"}', "it is no credential of munge"),
        (b"", "it is no credential of munge"),
        (b"MUNGE:none", "munge: "),
        (b"MUNGE:" + b"A" * 20_000, "more than 16384 bytes"),
    ):
        [said] = raw(where, line)
        assert "does not know who asks" in json.loads(said)["error"]
        assert words in json.loads(said)["error"]
    assert raw(where, good)[0].startswith(b"MUNGE:")
    [said] = raw(where, good)
    assert "Replayed credential" in json.loads(said)["error"]
    assert ask(where, "status")["user"] == "root"


def test_nobody_else_can_read_an_answer(where: Path) -> None:
    asked = credential_of(b'{"ask": "status"}')
    [part] = raw(where, asked)
    assert "Unauthorized credential" in as_nobody(READ, part.decode()).stdout
    assert b'"user":"root"' in content_of(part)[1]


@pytest.mark.parametrize("many", [LARGEST - 20, LARGEST, 5 * LARGEST])
def test_an_answer_of_many_parts_comes_whole(where: Path, many: int) -> None:
    assert ask(where, "much", bytes=str(many)) == {"much": "x" * many}


@pytest.mark.usefixtures("realm")
@pytest.mark.parametrize("trusted", ["", "nobody", str(NOBODY)])
def test_another_user_who_answers_in_the_daemon_s_place_is_not_believed(
    trusted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [sys.executable, "-c", IMPOSTOR]
    monkeypatch.setenv("HETSCHED_DAEMON_USER", trusted)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as impostor:
        try:
            assert impostor.stdout is not None
            where = Path(f"127.0.0.1:{int(impostor.stdout.readline())}")
            if trusted:
                assert ask(where, "status") == {"user": "the daemon"}
            else:
                with pytest.raises(HetschedError, match=r"is of user nobody, and not of .*root"):
                    ask(where, "status")
        finally:
            impostor.kill()


@pytest.mark.usefixtures("realm")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"user": "the daemon"}', "is no hetschedd"),
        (b"1", "is no hetschedd"),
        (b"[" * 100_000, "is no hetschedd"),
        (b"MUNGE:none", "munge: "),
        (b'{"error": "all is \\u001b[1mwell"}', r"^all is \?\[1mwell$"),
        (b'{"error": {}}', "is no hetschedd"),
        (b"", "too many questions at once"),
    ],
)
def test_a_plain_line_is_never_an_answer(line: bytes, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            channel, _ = server.accept()
            with channel:
                channel.recv(65536)
                channel.sendall(line)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(HetschedError, match=words):
            ask(Path(f"127.0.0.1:{server.getsockname()[1]}"), "status")


def test_a_user_has_so_many_places_on_all_hosts(realm: Path, free: str) -> None:
    go_on, heard = threading.Event(), threading.Semaphore(0)

    def waiting(request: Mapping[str, object], peer: Peer) -> dict[str, Any]:
        if peer.user == "root" and request["ask"] == "wait":
            heard.release()
            go_on.wait(60)
        return {"user": peer.user}

    server = NetworkServer(free, waiting)
    askers = [threading.Thread(target=ask, args=(Path(free), "wait")) for _ in range(16)]
    try:
        for asker in askers:
            asker.start()
        for _ in range(MOST_OF_ONE_USER):
            assert heard.acquire(timeout=60)
        with pytest.raises(HetschedError, match="too many questions at once"):
            ask(Path(free), "status")
        code = ASK.replace(', said["admin"]', "")
        assert as_nobody(code, free).stdout == "nobody\n"
    finally:
        go_on.set()
        for asker in askers:
            asker.join(60)
        server.close()
    assert realm.is_dir()


@pytest.mark.usefixtures("realm")
def test_parts_of_another_answer_or_not_all_of_them_are_none() -> None:
    question, other = credential_of(b"one"), credential_of(b"two")
    users = frozenset({0})

    def read(lines: list[bytes]) -> bytes:
        return answer_of(lines, question, "here", users)

    answer = b"a" * LARGEST + b"b"
    assert read(list(parts_of(answer, question, 0))) == answer
    for lines, words in (
        (list(parts_of(answer, other, 0)), "no answer to this question"),
        (list(parts_of(answer, question, 0))[1:], "no answer to this question"),
        (list(parts_of(answer, question, 0))[:1], "ended after 1 of 2 parts"),
        ([credential_of(b"a credential of root for something else")], "no answer"),
        ([next(parts_of(answer, question, 0)), b'{"error": "munge: gone"}'], "munge: gone"),
    ):
        with pytest.raises(HetschedError, match=words):
            read(lines)


def test_whoever_says_nothing_or_drips_is_cut_off_and_keeps_nobody_from_an_answer(
    where: Path,
) -> None:
    slow = [connected(where) for _ in range(MOST_OF_ONE_HOST - 1)]
    begun = time.monotonic()
    assert ask(where, "status")["user"] == "root"
    dripping = slow[0]

    def cut_off() -> bool:
        try:
            dripping.sendall(b"M")
        except OSError:
            return True
        return False

    wait_until(cut_off, "the end of a connection that drips", 12 * PATIENCE_S)
    assert time.monotonic() - begun < SLACK * 2 * PATIENCE_S
    for channel in slow:
        channel.close()


def test_a_daemon_s_user_that_is_not_there_is_named(
    where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HETSCHED_DAEMON_USER", "nosuch")
    with pytest.raises(HetschedError, match="HETSCHED_DAEMON_USER = 'nosuch': there is no such"):
        ask(where, "status")
    monkeypatch.setenv("HETSCHED_DAEMON_USER", "12345")
    assert ask(where, "status")["user"] == "root"


def test_without_munge_the_asker_is_told(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HETSCHED_MUNGE_SOCKET", "/nonexistent/socket")
    with pytest.raises(CredentialError, match=r"munge: .*/nonexistent/socket"):
        ask(where, "status")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CredentialError, match="munge is not there; munge has to be installed"):
        ask(where, "status")


def test_an_address_that_cannot_be_had_is_named(where: Path) -> None:
    for address, words in (
        (str(where), f"no answers at {where}: Address already in use"),
        ("here", "'here' is no HOST:PORT"),
        ("a..b:9753", "no answers at a..b:9753: "),
        ("nowhere.invalid:9753", "no answers at nowhere.invalid:9753: "),
    ):
        with pytest.raises(InputError, match=words):
            NetworkServer(address, echo)
