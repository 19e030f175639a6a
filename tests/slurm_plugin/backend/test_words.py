"""What stands on a command line, which every user can read, and what does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_plugin.backend import (
    AwayError,
    Depend,
    Enter,
    Leave,
    Recipients,
    RefusedError,
    Resources,
    Signal,
    with_commands,
)
from slurm_plugin.backend.with_commands import change_by_command

NOTES = """\
#!/bin/sh
echo "$@" >>{0}/argued
cat >>{0}/told
echo no such job >&2
exit {1}
"""


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command of that name that only notes what it is given."""
    command = tmp_path / "bin/scontrol"
    command.parent.mkdir()
    command.write_text(NOTES.format(tmp_path, 0))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    return command


def test_where_a_job_is_placed_is_on_no_command_line(scontrol: Path) -> None:
    own = Leave("7_0", ("n[2-3]",))
    change_by_command(
        Enter("7_0", "hetsched", ("n1",), own, Resources((1, 1), 1, "", "gres/gpu:a100:2", "", ""))
    )
    change_by_command(own)
    folder = scontrol.parents[1]
    assert set((folder / "argued").read_text().split()) == set()
    placed, left = (folder / "told").read_text().splitlines()
    assert placed.split() == [
        *("update", "JobId=7_0", "ReqNodeList=n1", "NumNodes=1-1", "NumTasks=1", "TresPerJob="),
        *("TresPerNode=gres/gpu:a100:2", "TresPerSocket=", "TresPerTask="),
        "ReservationName=hetsched",
    ]
    assert left.split() == ["update", "JobId=7_0", "ReservationName=", "ReqNodeList=n[2-3]"]


@pytest.mark.parametrize("odd", ["a b", "a\nupdate JobId=8", "'", '"', "a;b", "$(id)", "a\\"])
def test_what_scontrol_might_read_otherwise_stays_one_word(scontrol: Path, odd: str) -> None:
    change_by_command(Depend("7", odd))
    folder = scontrol.parents[1]
    assert (folder / "argued").read_text() == f"update JobId=7 Dependency={odd}\n"
    assert (folder / "told").read_text() == ""


def test_a_signal_to_a_job_that_is_being_queued_again_is_given_up_and_holds_nothing_up(
    scontrol: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As scancel does then: it goes on trying.
    scancel = scontrol.with_name("scancel")
    scancel.write_text("#!/bin/sh\nexec sleep 600\n")
    scancel.chmod(0o755)
    monkeypatch.setattr(with_commands, "SIGNAL_S", 0.2)
    with pytest.raises(RefusedError, match="scancel has not answered"):
        change_by_command(Signal("7_0", "USR2", Recipients.SCRIPT))


@pytest.mark.parametrize(
    "said",
    [
        "squeue: error while loading shared libraries: libslurmfull.so: cannot open shared object",
        "scontrol: fatal: failed to initialize auth plugin",
        "Protocol authentication error for job 7",
        "Connection reset by peer for job 7",
    ],
)
def test_what_commands_say_while_slurm_is_upgraded_is_no_refusal(scontrol: Path, said: str) -> None:
    """Of what is refused, a job is kept from its place for a minute."""
    scontrol.write_text(f"#!/bin/sh\necho {said!r} >&2\nexit 1\n")
    with pytest.raises(AwayError, match=said):
        change_by_command(Depend("7", ""))


def test_a_command_that_is_gone_for_a_while_does_not_answer(
    scontrol: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{scontrol.parent}")
    change_by_command(Depend("7", ""))
    scontrol.unlink()
    with pytest.raises(AwayError, match="scontrol cannot be run: No such file"):
        change_by_command(Depend("7", ""))


def test_a_refusal_names_what_was_refused(scontrol: Path) -> None:
    scontrol.write_text(NOTES.format(scontrol.parents[1], 1))
    with pytest.raises(RefusedError, match="scontrol update JobId=7 Dependency=: no such job"):
        change_by_command(Depend("7", ""))
