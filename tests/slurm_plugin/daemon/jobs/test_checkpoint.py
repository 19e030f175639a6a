"""Who may be moved, and what a job is told before it is stopped."""

from dataclasses import replace

import pytest

from hetsched_core.errors import InputError
from slurm_plugin.backend import Recipients
from slurm_plugin.daemon.jobs.checkpoint import CheckpointSignal, may_move, warning_for
from slurm_plugin.daemon.settings import DaemonSettings
from tests.slurm_plugin.daemon.fake_slurm import SETTINGS, WAITING, requested

PLAIN = "sbatch job.sh"
SIGNALS = replace(SETTINGS, checkpoint_signal="USR1", checkpoint_wait_s=9.0)


@pytest.mark.parametrize(
    ("more", "submit_line", "told", "site", "moves"),
    [
        ("", PLAIN, False, SETTINGS, False),
        (',"can-checkpoint":true', PLAIN, False, SETTINGS, True),
        (',"signal":"B:USR1@60"', PLAIN, False, SETTINGS, True),
        ("", "sbatch --signal=USR1 job.sh", False, SETTINGS, True),
        ("", "sbatch -t 5 --signal B:10@5 job.sh", False, SETTINGS, True),
        ("", PLAIN, True, SETTINGS, True),
        ("", PLAIN, False, replace(SETTINGS, move_without_checkpoint=True), True),
    ],
)
def test_the_user_an_option_the_job_itself_or_the_site_says_that_it_may_be_moved(
    more: str, submit_line: str, told: bool, site: DaemonSettings, moves: bool
) -> None:
    assert may_move(requested(WAITING, more), submit_line, told, site) is moves
    never = requested(WAITING, more + ',"no-move":true')
    assert not may_move(never, submit_line, told, site)


@pytest.mark.parametrize(
    ("text", "line", "site", "expected"),
    [
        ("USR1", PLAIN, SETTINGS, CheckpointSignal("USR1", Recipients.STEPS, 60.0)),
        ("B:USR1@20", PLAIN, SETTINGS, CheckpointSignal("USR1", Recipients.SCRIPT, 20.0)),
        ("BR:12@5", PLAIN, SETTINGS, CheckpointSignal("USR2", Recipients.SCRIPT, 5.0)),
        ("R:SIGHUP@600", PLAIN, SETTINGS, CheckpointSignal("HUP", Recipients.STEPS, 60.0)),
        # The command line goes before the script.
        (
            *("USR1", "sbatch --signal=B:USR2@7 job.sh", SETTINGS),
            CheckpointSignal("USR2", Recipients.SCRIPT, 7.0),
        ),
        # Without one of its own a job gets the site's, if there is one.
        ("", PLAIN, SETTINGS, None),
        ("", PLAIN, SIGNALS, CheckpointSignal("USR1", Recipients.ALL, 9.0)),
        ("", PLAIN, replace(SIGNALS, checkpoint_wait_s=0.0), None),
    ],
)
def test_a_signal_goes_where_slurm_would_send_it(
    text: str, line: str, site: DaemonSettings, expected: CheckpointSignal | None
) -> None:
    more = f',"signal":"{text}"' if text else ',"can-checkpoint":true'
    assert warning_for(requested(WAITING, more).mark, line, site) == expected


@pytest.mark.parametrize("text", ["NOSUCH", "0", "9999", "B:", "@60", "KILL;rm"])
def test_a_signal_that_is_none_is_passed_over(text: str) -> None:
    job = requested(WAITING, f',"signal":"{text}"')
    assert warning_for(job.mark, PLAIN, SETTINGS) is None
    assert not may_move(job, PLAIN, told=False, settings=SETTINGS)


@pytest.mark.parametrize("name", ["NOSUCH", "KILL", "STOP"])
def test_a_signal_of_the_site_s_that_no_job_could_save_its_state_on_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"checkpoint_signal = '{name}'"):
        replace(SETTINGS, checkpoint_signal=name)
