"""What jobs may read of their moves: whole, bounded, and nobody else's."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.types import Configuration, Purpose
from job_wrappers import moves as reading
from job_wrappers.allocation import Allocation
from slurm_plugin.daemon.moves import MOST_MOVES, SCHEMA, Account, Move, SpoolFolder, account_of
from slurm_plugin.daemon.spool import checked

ROOT = Path(__file__).resolve().parents[3]
ME = Account(os.getuid(), os.getgid())
NOBODY = Account(65534, 65534)
OTHER = Account(65533, 65533)
MOVE = Move(
    1e9, 2, Configuration.of({"n0": 2}), Configuration.of({"n1": 4}), Purpose.RUN, "it pays"
)


def folder(path: Path) -> SpoolFolder:
    return SpoolFolder(path, {"me": ME, "nobody": NOBODY, "other": OTHER}.get)


def job(nonce: str = "abcdefgh") -> Allocation:
    return Allocation("7", 2, "n1", 1, 4, nonce, "n1")


def test_what_the_daemon_writes_the_job_reads(tmp_path: Path) -> None:
    spool = folder(tmp_path)
    spool.note("me", "7", "abcdefgh", MOVE)
    spool.note("me", "7", "abcdefgh", Move(2e9, 3, None, MOVE.after, Purpose.PROFILE, "x" * 999))
    first, second = reading.read_moves(tmp_path, job())
    assert (first.at_s, first.run, first.before, first.after) == (1e9, 2, "n0:2", "n1:4")
    assert (first.purpose, first.reason) == ("run", "it pays")
    assert (second.before, second.purpose, len(second.reason)) == ("", "profile", 300)
    assert SCHEMA == reading.SCHEMA


def test_a_directory_that_was_tidied_away_is_made_anew(tmp_path: Path) -> None:
    spool = folder(tmp_path)
    spool.note("me", "7", "abcdefgh", MOVE)
    shutil.rmtree(tmp_path / "moves")
    spool.note("me", "7", "abcdefgh", MOVE)
    assert len(reading.read_moves(tmp_path, job())) == 1


def test_the_latest_are_kept_and_those_of_a_job_that_had_the_id_before_are_not(
    tmp_path: Path,
) -> None:
    spool = folder(tmp_path)
    for number in range(MOST_MOVES + 5):
        spool.note("me", "7", "abcdefgh", Move(1e9, number, None, None, Purpose.RUN, ""))
    found = reading.read_moves(tmp_path, job())
    assert [move.run for move in found] == list(range(5, MOST_MOVES + 5))
    spool.note("me", "7", "12345678", MOVE)
    assert len(reading.read_moves(tmp_path, job("12345678"))) == 1


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", ".", "7\n", "x" * 65])
def test_a_job_with_an_odd_id_gets_no_file(tmp_path: Path, name: str) -> None:
    folder(tmp_path).note("me", name, "abcdefgh", MOVE)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_job_without_a_nonce_gets_no_file_since_others_could_find_it(tmp_path: Path) -> None:
    folder(tmp_path).note("me", "7", "", MOVE)
    assert list(tmp_path.glob("moves/*/*.json")) == []


def test_users_whom_nobody_knows_get_nothing(tmp_path: Path) -> None:
    folder(tmp_path).note("eve", "7", "abcdefgh", MOVE)
    assert list(tmp_path.iterdir()) == []
    assert account_of("no-such-user-here") is None
    assert account_of("root") == Account(0, 0)


def test_a_directory_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "moves").write_text("in the way")
    folder(tmp_path).note("me", "7", "abcdefgh", MOVE)
    assert (tmp_path / "moves").read_text() == "in the way"


NOTE = """
import os, sys
from pathlib import Path
from hetsched_core.types import Purpose
from slurm_plugin.daemon.moves import Account, Move, SpoolFolder
path, uid, umask = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3], 8)
os.umask(umask)
os.chown(path, uid, uid)
os.setgid(uid), os.setgroups([]), os.setuid(uid)
folder = SpoolFolder(path, {"nobody": Account(65534, 65534)}.get)
for number in range(2):
    folder.note("nobody", "7", "abcdefgh", Move(1e9, number, None, None, Purpose.RUN, ""))
"""
"""A daemon of a user and a umask that leaves two moves for a job of nobody's."""


def may(account: Account, code: str, *words: str | Path) -> bool:
    """Whether a command of the shell succeeds for a user."""
    done = subprocess.run(
        ["/bin/sh", "-c", code, "sh", *words],
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        capture_output=True,
    )
    return done.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as two other users")
@pytest.mark.parametrize("umask", ["000", "022", "077"])
@pytest.mark.parametrize("daemon", [0, 65_532])
def test_a_job_reads_its_own_and_changes_nothing_and_others_find_nothing_whoever_the_daemon_is(
    daemon: int, umask: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        spool = Path(name)
        spool.chmod(0o755)
        # What an earlier version left for everybody to read.
        old = spool / "moves" / "65534"
        old.mkdir(parents=True)
        (old / "6.json").write_text("{}")
        for path in (old.parent, old, old / "6.json"):
            path.chmod(0o755)
            os.chown(path, daemon, daemon)
        words = [sys.executable, "-c", NOTE, name, str(daemon), umask]
        subprocess.run(words, check=True, cwd=ROOT)
        (path,) = (path for path in old.iterdir())
        assert not may(OTHER, 'ls "$1"', old.parent)
        assert not may(OTHER, 'ls "$1"', old)
        for guess in ("7.json", "6.json", ".7.part", ".7.json.part"):
            assert not may(OTHER, 'cat "$1"', old / guess)
        # Who has the nonce finds the name.
        read, write, remove = 'cat "$1"', 'echo x >>"$1"', 'mv "$1" "$1.old"'
        assert reading.path_of(spool, job(), 65534) == path
        assert may(NOBODY, read, path)
        for account in (NOBODY, OTHER):
            assert not any(may(account, code, path) for code in (write, remove))
        assert "abcdefgh" not in path.name + path.read_text()
        assert len(json.loads(path.read_text())["moves"]) == 2
        if daemon == 0:
            # Nor does one who is not of the user's group, knowing all.
            assert not may(OTHER, read, path)
            # Their own directory of the spool is theirs alone.
            own = spool / "65534"
            assert (own.stat().st_uid, stat.S_IMODE(own.stat().st_mode)) == (65534, 0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as two other users")
def test_what_the_site_has_made_for_a_user_s_group_stays_as_it_is() -> None:
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        spool = Path(name)
        spool.chmod(0o755)
        made = spool / "moves" / "65534"
        made.mkdir(parents=True)
        os.chown(made.parent, 65_532, 65_532)
        os.chown(made, 65_532, NOBODY.gid)
        made.chmod(0o710)
        words = [sys.executable, "-c", NOTE, name, "65532", "022"]
        subprocess.run(words, check=True, cwd=ROOT)
        (path,) = made.iterdir()
        assert may(NOBODY, 'cat "$1"', path)
        # Though the name is known.
        assert not may(OTHER, 'cat "$1"', path)


def test_a_spool_directory_in_which_others_may_write_is_refused(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with pytest.raises(InputError, match=r"No such file or directory; make it: mkdir -m 755"):
        checked(spool)
    spool.touch()
    with pytest.raises(InputError, match="is not a directory of the daemon's user"):
        checked(spool)
    spool.unlink()
    spool.mkdir()
    assert checked(spool) == spool
    for mode in (0o777, 0o1777, 0o775):
        spool.chmod(mode)
        with pytest.raises(InputError, match="nobody else may write"):
            checked(spool)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_a_spool_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY.uid, NOBODY.gid)
    with pytest.raises(InputError, match="the daemon's user"):
        checked(tmp_path)


def test_the_page_names_every_key(tmp_path: Path) -> None:
    page = (ROOT / "docs/formats/moves.md").read_text()
    spool = folder(tmp_path)
    spool.note("me", "7", "abcdefgh", MOVE)
    (path,) = (tmp_path / "moves" / str(ME.uid)).iterdir()
    written = json.loads(path.read_text())
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert listed == [*written, *written["moves"][0]]
    assert f"latest {MOST_MOVES} decisions" in page
    # Its way to the name of a file is one.
    (command,) = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    found = subprocess.run(
        ["sh", "-c", command],
        env=os.environ
        | {"SPOOL": str(tmp_path), "SLURM_JOB_ID": "7", "HETSCHED_NONCE": "abcdefgh"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(found.stdout) == written
