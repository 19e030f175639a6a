"""What jobs may read of their moves: whole, bounded, and nobody else's."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.types import Configuration, Purpose
from job_wrappers import moves as reading
from job_wrappers.allocation import Allocation
from slurm_plugin.daemon.spool.moves import (
    MOST_MOVES,
    SCHEMA,
    Account,
    Move,
    SpoolFolder,
    account_of,
)
from slurm_plugin.daemon.spool.spool import checked

ROOT = Path(__file__).resolve().parents[4]
ME = Account(os.getuid(), os.getgid())
NOBODY = Account(65534, 65534)
OTHER = Account(65533, 65533)
MOVE = Move(
    1e9, 2, Configuration.of({"n0": 2}), Configuration.of({"n1": 4}), Purpose.RUN, "it pays"
)


def note(
    path: Path, *moves: Move, user: str = "me", job: str = "7", nonce: str = "abcdefgh"
) -> None:
    """Leave moves for a job."""
    folder = SpoolFolder(path, {"me": ME}.get)
    for move in moves:
        folder.note(user, job, nonce, move)


def allocation(nonce: str = "abcdefgh") -> Allocation:
    """The job that they are left for."""
    return Allocation("7", 2, "n1", 1, 4, nonce, "n1")


def test_what_the_daemon_writes_the_job_reads(tmp_path: Path) -> None:
    note(tmp_path, MOVE, Move(2e9, 3, None, MOVE.after, Purpose.PROFILE, "x" * 999))
    first, second = reading.read_moves(tmp_path, allocation())
    assert (first.at_s, first.run, first.before, first.after) == (1e9, 2, "n0:2", "n1:4")
    assert (first.purpose, first.reason) == ("run", "it pays")
    assert (second.before, second.purpose, len(second.reason)) == ("", "profile", 300)
    assert SCHEMA == reading.SCHEMA


def test_a_directory_that_was_tidied_away_is_made_anew(tmp_path: Path) -> None:
    spool = SpoolFolder(tmp_path, {"me": ME}.get)
    spool.note("me", "7", "abcdefgh", MOVE)
    shutil.rmtree(tmp_path / "moves")
    spool.note("me", "7", "abcdefgh", MOVE)
    assert len(reading.read_moves(tmp_path, allocation())) == 1


def test_the_latest_are_kept_and_those_of_a_job_that_had_the_id_before_are_not(
    tmp_path: Path,
) -> None:
    many = (Move(1e9, number, None, None, Purpose.RUN, "") for number in range(MOST_MOVES + 5))
    note(tmp_path, *many)
    found = reading.read_moves(tmp_path, allocation())
    assert [move.run for move in found] == list(range(5, MOST_MOVES + 5))
    note(tmp_path, MOVE, nonce="12345678")
    assert len(reading.read_moves(tmp_path, allocation("12345678"))) == 1


@pytest.mark.parametrize("job", ["../../etc/passwd", "a/b", "", ".", "7\n", "x" * 65])
def test_a_job_with_an_odd_id_gets_no_file(tmp_path: Path, job: str) -> None:
    note(tmp_path, MOVE, job=job)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_was_told_of_jobs_that_are_there_or_lately_or_by_others_is_not_removed(
    tmp_path: Path,
) -> None:
    for job in ("7", "8_1", "9_2", "70"):
        note(tmp_path, MOVE, job=job)
    moves = tmp_path / "moves" / str(ME.uid)
    other = moves / "8.txt"
    other.write_text("somebody's")
    (moves / f".8.{'0' * 32}.json.part").write_text("left by one that was killed")
    for path in moves.iterdir():
        os.utime(path, (1e9, 1e9))
    spool = SpoolFolder(tmp_path, {"me": ME}.get)
    spool.tidy((), before_s=1e9)
    assert len(list(moves.iterdir())) == 6
    # Elements that Slurm keeps as one are shown under the id of the first.
    spool.tidy(("7", "9_0"), before_s=2e9)
    left = {path.name.partition(".")[0] for path in moves.iterdir() if path != other}
    assert left == {"7", "9_2"}
    assert other.read_text() == "somebody's"


def test_users_whom_nobody_knows_get_nothing_and_a_job_without_a_nonce_no_file(
    tmp_path: Path,
) -> None:
    note(tmp_path, MOVE, user="eve")
    assert list(tmp_path.iterdir()) == []
    # Others could find it.
    note(tmp_path, MOVE, nonce="")
    assert list(tmp_path.glob("moves/*/*.json")) == []
    assert account_of("no-such-user-here") is None
    assert account_of("root") == Account(0, 0)


def test_a_directory_that_cannot_be_written_is_said_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "moves").write_text("in the way")
    with pytest.raises(NotADirectoryError):
        note(tmp_path, MOVE)
    assert (tmp_path / "moves").read_text() == "in the way"


NOTE = """
import os, sys
from pathlib import Path
from hetsched_core.types import Purpose
from slurm_plugin.daemon.spool.moves import Account, Move, SpoolFolder
path, uid, umask = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3], 8)
os.umask(umask)
os.chown(path, uid, uid)
os.setgid(uid), os.setgroups([]), os.setuid(uid)
folder = SpoolFolder(path, {"nobody": Account(65534, 65534)}.get)
for number in range(2):
    folder.note("nobody", "7", "abcdefgh", Move(1e9, number, None, None, Purpose.RUN, ""))
"""
"""A daemon of a user and a umask that leaves two moves for a job of nobody's."""


def noted(spool: Path, uid: int, umask: str) -> Path:
    """Let such a daemon run; return the file."""
    words = [sys.executable, "-c", NOTE, str(spool), str(uid), umask]
    subprocess.run(words, check=True, cwd=ROOT)
    (path,) = (spool / "moves" / "65534").iterdir()
    return path


@pytest.fixture
def spool(short_folder: Path) -> Path:
    """A directory that other users can enter, which pytest's own cannot be."""
    if os.geteuid() != 0:
        pytest.skip("only root may act as two other users")
    return short_folder


def may(account: Account, code: str, *words: str | Path) -> bool:
    """Whether a command of the shell succeeds for a user."""
    command = ["/bin/sh", "-c", code, "sh", *words]
    who = {"user": account.uid, "group": account.gid, "extra_groups": []}
    return not subprocess.run(command, capture_output=True, **who).returncode  # type: ignore[call-overload]


@pytest.mark.parametrize("umask", ["000", "022", "077"])
@pytest.mark.parametrize("daemon", [0, 65_532])
def test_a_job_reads_its_own_and_changes_nothing_and_others_find_nothing_whoever_the_daemon_is(
    spool: Path, daemon: int, umask: str
) -> None:
    # What an earlier version left for everybody to read.
    old = spool / "moves" / "65534"
    old.mkdir(parents=True)
    (old / "6.json").write_text("{}")
    for path in (old.parent, old, old / "6.json"):
        path.chmod(0o755)
        os.chown(path, daemon, daemon)
    path = noted(spool, daemon, umask)
    for each in (old.parent, old):
        assert not may(OTHER, 'ls "$1"', each)
    for guess in ("7.json", "6.json", ".7.part", ".7.json.part"):
        assert not may(OTHER, 'cat "$1"', old / guess)
    # Who has the nonce finds the name.
    assert reading.path_of(spool, allocation(), 65534) == path
    assert may(NOBODY, 'cat "$1"', path)
    for account in (NOBODY, OTHER):
        assert not may(account, 'echo x >>"$1" || mv "$1" "$1.old"', path)
    assert "abcdefgh" not in path.name + path.read_text()
    assert len(json.loads(path.read_text())["moves"]) == 2
    if daemon == 0:
        # Nor does one who is not of the user's group, knowing all.
        assert not may(OTHER, 'cat "$1"', path)
        # Their own directory of the spool is theirs alone.
        own = spool / "65534"
        assert (own.stat().st_uid, stat.S_IMODE(own.stat().st_mode)) == (65534, 0o700)


def test_what_the_site_has_made_for_a_user_s_group_stays_as_it_is(spool: Path) -> None:
    made = spool / "moves" / "65534"
    made.mkdir(parents=True)
    os.chown(made.parent, 65_532, 65_532)
    os.chown(made, 65_532, NOBODY.gid)
    made.chmod(0o710)
    path = noted(spool, 65_532, "022")
    assert may(NOBODY, 'cat "$1"', path)
    # Though the name is known.
    assert not may(OTHER, 'cat "$1"', path)


def test_a_spool_directory_that_is_none_or_in_which_others_may_write_is_refused(
    tmp_path: Path,
) -> None:
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


def test_a_spool_may_hold_what_it_is_for_and_what_its_file_system_keeps_there(spool: Path) -> None:
    for name in ("moves", "1000", ".snapshot", "lost+found"):
        (spool / name).mkdir()
    assert checked(spool) == spool
    (spool / "notes").touch()
    with pytest.raises(InputError, match="it holds notes"):
        checked(spool)


def test_a_spool_directory_of_somebody_else_is_refused(spool: Path) -> None:
    os.chown(spool, NOBODY.uid, NOBODY.gid)
    with pytest.raises(InputError, match="the daemon's user"):
        checked(spool)


def test_the_page_names_every_key_and_the_way_to_the_name_of_a_file(tmp_path: Path) -> None:
    page = (ROOT / "docs/formats/moves.md").read_text()
    note(tmp_path, MOVE)
    (path,) = (tmp_path / "moves" / str(ME.uid)).iterdir()
    written = json.loads(path.read_text())
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert listed == [*written, *written["moves"][0]]
    assert f"latest {MOST_MOVES} decisions" in page
    (command,) = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    words = {"SPOOL": str(tmp_path), "SLURM_JOB_ID": "7", "HETSCHED_NONCE": "abcdefgh"}
    found = subprocess.check_output(["sh", "-c", command], env=os.environ | words, text=True)
    assert json.loads(found) == written


@pytest.mark.parametrize("folder", ["docs", "sbatch_templates"])
def test_no_script_that_is_shown_gives_a_nonce_to_a_program(folder: str) -> None:
    # printf is the shell's own; all users of a node see the words of a program.
    shown = re.compile(
        r"^(?!.*printf '[^']*' \"\$HETSCHED_NONCE\" \|).*\$\{?HETSCHED_NONCE", re.MULTILINE
    )
    paths = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".sbatch")]
    assert paths
    assert [(path.name, line) for path in paths for line in shown.findall(path.read_text())] == []
