"""HLAS on a real Slurm: jobs of unknown length take turns in slots, by requeue with checkpoint."""

import time
from dataclasses import replace

import pytest

from hetsched_core.policy import make_policy
from hetsched_core.store import IN_MEMORY, Store
from hetsched_core.store import Mode as StoreMode
from slurm_plugin.backend import SlurmBackend
from slurm_plugin.daemon import Daemon, Mode
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.daemon.test_daemon_live import (
    SETTINGS,
    accounted_runs,
    check_runs,
    drive,
    ended,
    started,
)
from tests.slurm_plugin.jobs import Submitter

pytestmark = pytest.mark.slurm

SCRIPT = """\
#!/bin/bash
#HETSCHED --gpu-set=4 --can-checkpoint
#SBATCH --open-mode=append
job={folder}/$SLURM_JOB_ID
done=$(cat $job.saved 2>/dev/null || echo 0)
trap 'echo $done >$job.saved; exit 0' TERM
echo "$SLURM_JOB_NODELIST $SLURM_GPUS_ON_NODE ${{SLURM_RESTART_COUNT:-0}} $HETSCHED_NONCE $done"
while [ $done -lt {steps} ]; do sleep 0.1; echo $((done += 1)) >>$job.steps; done
echo $done >$job.saved
"""
"""A step is counted and noted down by one command, so that no signal comes in between.

What is done is saved at the end, too: what ends in the moment that it is stopped is queued again.
"""

LONG, SHORT = 60, 3
SLOTS = {"first_threshold_s": "1", "threshold_factor": "2"}


def submit(submitter: Submitter, steps: int) -> str:
    """Submit a job of so many steps of 0.1 s, which tells nobody how many."""
    script = submitter.folder / "steps.sh"
    script.write_text(SCRIPT.format(folder=submitter.folder, steps=steps))
    out = f"--output={submitter.folder}/%j.out", f"--error={submitter.folder}/%j.err"
    return submitter.cluster.command("sbatch", "--parsable", *out, script).strip()


def test_short_jobs_of_unknown_length_overtake_long_ones_and_all_work_is_done_once(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    """Eight run at a time; twelve that are long come first."""
    with Store.open(IN_MEMORY, StoreMode.WRITE) as store:
        daemon = Daemon(
            backend,
            make_policy("hlas-slots", SLOTS),
            replace(SETTINGS, round_s=3.0),
            mode=Mode.ENFORCE,
            clock=time.time,
            sleep=time.sleep,
            store=store,
        )
        daemon.cycle()
        steps = {submit(submitter, LONG): LONG for _ in range(12)}
        drive(daemon, started(submitter, list(steps)[:8]), timeout_s=60)
        steps |= {submit(submitter, SHORT): SHORT for _ in range(8)}
        drive(daemon, ended(backend, list(steps)), timeout_s=240)
        decisions = [decision.document for _, decision in store.decisions()]
    # None is lost, and each run is where a decision put it, with Slurm's records agreeing.
    check_runs(testbed, submitter, dict.fromkeys(steps, "4"), decisions)
    for job, count in steps.items():
        done = (submitter.folder / f"{job}.steps").read_text().split()
        assert done == [str(step) for step in range(1, count + 1)]
    rows = accounted_runs(testbed, list(steps))
    assert sum(len(runs) - 1 for runs in rows.values()) >= 8
    ends = {job: runs[-1].end for job, runs in rows.items()}
    pairs = [
        ends[short] < ends[long]
        for short in steps
        for long in steps
        if steps[short] == SHORT and steps[long] == LONG
    ]
    # In the order of submission a short job would be before no more than the last four.
    assert sum(pairs) > 0.7 * len(pairs)
