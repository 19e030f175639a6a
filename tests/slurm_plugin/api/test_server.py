"""The socket: real askers, good and bad."""

import json
import os
import pwd
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hetsched_core.errors import HetschedError, InputError
from slurm_plugin.api.answers import Peer
from slurm_plugin.api.client import ask
from slurm_plugin.api.server import MOST_OF_ONE_USER, AnswerServer
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.jobs import SLACK, deadline


def echo(request: Mapping[str, object], peer: Peer) -> dict[str, Any]:
    if request.get("ask") == "fail":
        raise InputError("that cannot be answered")
    if request.get("ask") == "break":
        raise ValueError("max() arg is empty")
    return {"request": dict(request), "user": peer.user, "admin": peer.admin}


@pytest.fixture
def server(path: Path) -> Iterator[AnswerServer]:
    server = AnswerServer(path, echo)
    yield server
    server.close()


def raw(path: Path, line: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(60)
        channel.connect(str(path))
        channel.sendall(line)
        channel.shutdown(socket.SHUT_WR)
        with channel.makefile("rb") as reader:
            return dict(json.loads(reader.readline()))


@pytest.mark.usefixtures("server")
def test_the_kernel_says_who_asks(path: Path) -> None:
    said = ask(path, "why", job="12")
    assert said["request"] == {"ask": "why", "job": "12"}
    assert said["user"] == pwd.getpwuid(os.geteuid()).pw_name
    assert said["admin"]


def as_nobody(path: Path) -> subprocess.CompletedProcess[str]:
    code = (
        "import os, sys; from pathlib import Path; from slurm_plugin.api.client import ask\n"
        "os.setuid(65534)\n"
        "said = ask(Path(sys.argv[1]), 'status')\n"
        "print(said['user'], said['admin'])"
    )
    words = [sys.executable, "-c", code, str(path)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("server")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as somebody else")
def test_another_user_is_no_admin_and_may_ask(path: Path) -> None:
    said = as_nobody(path)
    assert said.stdout == "nobody False\n", said.stderr


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\n", "one line of JSON"),
        (b"", "one line of JSON"),
        (b"{\n", "one line of JSON"),
        (b"\xff\xfe\n", "one line of JSON"),
        (b"[" * 4000 + b"\n", "one line of JSON"),
        (b"[1]\n", "an object of JSON"),
        (b'{"ask": "' + b"a" * 5000 + b'"}\n', "more than 4096 bytes"),
        (b'{"ask": "fail"}\n', "that cannot be answered"),
        (b'{"ask": "break"}\n', "failed to answer: ValueError: max() arg is empty"),
    ],
)
def test_bad_questions_get_a_sentence_and_the_next_an_answer(
    path: Path, line: bytes, words: str
) -> None:
    assert words in raw(path, line)["error"]
    assert ask(path, "status")["request"] == {"ask": "status"}


FLOOD = """
import socket, sys, os
os.setuid(65534)
held = []
while True:
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(sys.argv[1])
    held.append(channel)
    if len(held) == 129:
        print("held", flush=True)
    if len(held) > 129:
        held.pop(0).close()
"""
"""Another user's process with 129 connections that says nothing, and opens one after the other."""


@pytest.mark.usefixtures("server")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as somebody else")
def test_however_many_connections_one_user_opens_others_are_answered_at_once(path: Path) -> None:
    words = [sys.executable, "-c", FLOOD, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as flood:
        try:
            assert flood.stdout is not None
            assert flood.stdout.readline() == "held\n"
            took_s = []
            for _ in range(20):
                begun = time.monotonic()
                assert ask(path, "status")["user"] == "root"
                took_s.append(time.monotonic() - begun)
        finally:
            flood.kill()
    assert max(took_s) < SLACK * 1.0
    # Whoever has let go is answered again.
    latest = deadline(10)
    while as_nobody(path).returncode and time.monotonic() < latest:
        time.sleep(0.1)
    assert as_nobody(path).returncode == 0


@pytest.mark.usefixtures("server")
def test_one_asker_too_many_is_turned_away_and_some_who_say_nothing_keep_nobody_from_an_answer(
    path: Path,
) -> None:
    silent = [socket.socket(socket.AF_UNIX) for _ in range(MOST_OF_ONE_USER)]
    try:
        for channel in silent:
            channel.connect(str(path))
        with pytest.raises(HetschedError, match="too many questions at once"):
            ask(path, "status")
        for channel in silent[10:]:
            channel.close()

        def answers() -> bool:
            with suppress(HetschedError):
                return bool(ask(path, "status")["request"] == {"ask": "status"})
            return False

        wait_until(answers, "an answer beside ten who say nothing", 10)
    finally:
        for channel in silent:
            channel.close()


def test_a_socket_that_a_killed_daemon_left_is_taken_over_and_a_live_one_is_not(
    path: Path,
) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    first = AnswerServer(path, echo)
    with pytest.raises(InputError, match="another daemon answers"):
        AnswerServer(path, echo)
    assert ask(path, "status")["admin"]
    first.close()
    assert not path.exists()


def test_without_a_daemon_or_a_folder_the_error_says_what_to_do(path: Path) -> None:
    with pytest.raises(HetschedError, match=r"no daemon answers at .*is hetschedd running\?"):
        ask(path, "status")
    with pytest.raises(InputError, match="no socket at"):
        AnswerServer(path / "no" / "folder", echo)
    with pytest.raises(InputError, match=r"no socket at .*: File name too long"):
        AnswerServer(path.with_name("x" * 300), echo)
    with pytest.raises(InputError, match=r"no socket at .*: AF_UNIX path too long"):
        AnswerServer(path.with_name("x" * 200), echo)


def test_who_has_no_slurm_is_told_what_to_do(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HetschedError, match=r"no Slurm on this machine: .*hetsched testbed up"):
        ask(path, "status")
    (tmp_path / "scontrol").touch(0o755)
    with pytest.raises(HetschedError, match=r"or HETSCHED_SOCKET$"):
        ask(path, "status")


def test_the_end_waits_for_answers_that_are_being_made(path: Path) -> None:
    asked, told = threading.Event(), []

    def slow(request: Mapping[str, object], peer: Peer) -> dict[str, Any]:
        asked.set()
        time.sleep(0.5)
        told.append(peer.user)
        return {}

    server = AnswerServer(path, slow)
    asker = threading.Thread(target=ask, args=(path, "status"))
    asker.start()
    assert asked.wait(60)
    server.close()
    assert len(told) == 1
    asker.join()


@pytest.mark.parametrize(("files", "most"), [(1024, 256), (64, 16), (3, 1)])
def test_connections_leave_open_files_to_all_else(files: int, most: int) -> None:
    code = (
        "import resource; from slurm_plugin.api.bounded_threads import at_once; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files})); print(at_once(256))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == most
