"""Who may be moved, and what a job is told before it is stopped."""

from dataclasses import replace

import pytest
from slurm_plugin.daemon.mark import Mark, read_mark

from hetsched_core.errors import InputError
from slurm_plugin.backend import Recipients
from slurm_plugin.daemon import DaemonSettings
from slurm_plugin.daemon.checkpoint import CheckpointSignal, may_move, warning_for

SETTINGS = DaemonSettings(partitions=frozenset({"gpu"}))


def mark(more: str = "") -> Mark:
    """A mark with some more fields."""
    found = read_mark(f'hetsched/1 {{"nonce":"a1","default":1,"gpu-set":"1,2"{more}}}')
    assert found is not None
    return found


def test_a_job_of_which_nobody_says_that_it_can_save_its_state_is_not_moved() -> None:
    assert not may_move(mark(), "sbatch job.sh", told=False, settings=SETTINGS)


@pytest.mark.parametrize(
    ("more", "submit_line", "told"),
    [
        (',"can-checkpoint":true', "sbatch job.sh", False),
        (',"signal":"B:USR1@60"', "sbatch job.sh", False),
        ("", "sbatch --signal=USR1 job.sh", False),
        ("", "sbatch -t 5 --signal B:10@5 job.sh", False),
        ("", "sbatch job.sh", True),
    ],
)
def test_the_user_an_option_or_the_job_itself_may_say_so(
    more: str, submit_line: str, told: bool
) -> None:
    assert may_move(mark(more), submit_line, told, SETTINGS)
    never = mark(more + ',"no-move":true')
    assert not may_move(never, submit_line, told, SETTINGS)


def test_the_site_may_move_jobs_all_the_same_but_for_those_that_say_no() -> None:
    site = replace(SETTINGS, move_without_checkpoint=True)
    assert may_move(mark(), "sbatch job.sh", False, site)
    assert not may_move(mark(',"no-move":true'), "sbatch job.sh", False, site)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("USR1", CheckpointSignal("USR1", Recipients.STEPS, 60.0)),
        ("B:USR1@20", CheckpointSignal("USR1", Recipients.SCRIPT, 20.0)),
        ("BR:12@5", CheckpointSignal("USR2", Recipients.SCRIPT, 5.0)),
        ("R:SIGHUP@600", CheckpointSignal("HUP", Recipients.STEPS, 60.0)),
    ],
)
def test_a_signal_of_the_user_s_goes_where_slurm_would_send_it(
    text: str, expected: CheckpointSignal
) -> None:
    assert warning_for(mark(f',"signal":"{text}"'), "sbatch job.sh", SETTINGS) == expected


def test_the_command_line_goes_before_the_script() -> None:
    found = warning_for(mark(',"signal":"USR1"'), "sbatch --signal=B:USR2@7 job.sh", SETTINGS)
    assert found == CheckpointSignal("USR2", Recipients.SCRIPT, 7.0)


def test_without_a_signal_of_its_own_a_job_gets_the_site_s_if_there_is_one() -> None:
    plain = mark(',"can-checkpoint":true')
    assert warning_for(plain, "sbatch job.sh", SETTINGS) is None
    site = replace(SETTINGS, checkpoint_signal="USR1", checkpoint_wait_s=9.0)
    expected = CheckpointSignal("USR1", Recipients.ALL, 9.0)
    assert warning_for(plain, "sbatch job.sh", site) == expected
    assert warning_for(plain, "sbatch job.sh", replace(site, checkpoint_wait_s=0.0)) is None


@pytest.mark.parametrize("text", ["NOSUCH", "0", "9999", "B:", "@60", "KILL;rm"])
def test_a_signal_that_is_none_is_passed_over(text: str) -> None:
    assert warning_for(mark(f',"signal":"{text}"'), "sbatch job.sh", SETTINGS) is None
    assert not may_move(mark(f',"signal":"{text}"'), "sbatch job.sh", False, SETTINGS)


@pytest.mark.parametrize("name", ["NOSUCH", "KILL", "STOP"])
def test_a_signal_of_the_site_s_that_no_job_could_save_its_state_on_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"checkpoint_signal = '{name}'"):
        replace(SETTINGS, checkpoint_signal=name)
