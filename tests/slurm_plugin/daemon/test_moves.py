"""What jobs may read of their moves: whole, bounded, and nobody else's."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
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
    assert reading.read_moves(tmp_path, job()) == []
    assert len(reading.read_moves(tmp_path, job("12345678"))) == 1


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", ".", "7\n", "x" * 65])
def test_a_job_with_an_odd_id_gets_no_file(tmp_path: Path, name: str) -> None:
    folder(tmp_path).note("me", name, "abcdefgh", MOVE)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_users_whom_nobody_knows_get_nothing(tmp_path: Path) -> None:
    folder(tmp_path).note("eve", "7", "abcdefgh", MOVE)
    assert list(tmp_path.iterdir()) == []
    assert account_of("no-such-user-here") is None
    assert account_of("root") == Account(0, 0)


def test_a_directory_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "moves").write_text("in the way")
    folder(tmp_path).note("me", "7", "abcdefgh", MOVE)
    assert (tmp_path / "moves").read_text() == "in the way"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as two other users")
def test_a_user_reads_their_own_and_changes_nothing_and_others_do_not_even_read(
    tmp_path: Path,
) -> None:
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o755)
    spool = folder(tmp_path)
    spool.note("nobody", "7", "abcdefgh", MOVE)
    path = tmp_path / "moves" / "65534" / "7.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640

    def may(account: Account, code: str) -> bool:
        done = subprocess.run(
            ["/bin/sh", "-c", code, "sh", path],
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            capture_output=True,
        )
        return done.returncode == 0

    read, write, remove = 'cat "$1"', 'echo x >>"$1"', 'mv "$1" "$1.old"'
    assert may(NOBODY, read)
    assert not any(may(NOBODY, code) for code in (write, remove))
    assert not any(may(OTHER, code) for code in (read, write, remove))
    # Their own directory of the spool is theirs alone.
    own = tmp_path / "65534"
    assert (own.stat().st_uid, stat.S_IMODE(own.stat().st_mode)) == (65534, 0o700)


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
    written = json.loads((tmp_path / "moves" / str(ME.uid) / "7.json").read_text())
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert listed == [*written, *written["moves"][0]]
    assert f"latest {MOST_MOVES} decisions" in page
