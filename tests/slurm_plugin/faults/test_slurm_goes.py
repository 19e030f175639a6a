"""Slurm itself goes away: its controller, its authentication, a node."""

import re
import signal
import time
from datetime import datetime

import pytest

from slurm_plugin.api.client import ask
from slurm_plugin.testbed import Testbed, TestbedError
from tests.slurm_plugin.faults.site import SETS, Site
from tests.slurm_plugin.jobs import await_hold

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def test_slurmctld_is_killed_and_started_again(site: Site) -> None:
    site.begin(30)
    older = set(site.submitted)
    site.await_saved(time.time())
    late = [site.submit(SETS) for _ in range(6)]
    ids = {site.submitted[name].job for name in late}

    def known() -> set[str]:
        return {job["job"] for job in ask(site.folder / "hetschedd.sock", "queue")["jobs"]}

    site.await_that(lambda: ids <= known() or not ids & site.queue(), 30, "the daemon knows them")
    site.cluster.kill_controller()
    site.await_log("event=away")
    site.cluster.start_controller()
    site.await_log("event=back")
    lost = site.lost()
    # Ids of lost jobs are handed out again.
    for _ in range(6):
        site.submit()
    site.await_ends(120)
    verdict = site.verdict(lost)
    assert verdict.wrong == ()
    assert older.isdisjoint(lost)
    for job in lost.values():
        assert f"event=lost job={job} " in site.log
    assert verdict.finished >= len(site.submitted) - len(lost)


SLOW_TO_STOP = """#!/bin/bash
#HETSCHED --gpu-set=4 --can-checkpoint
#SBATCH --output=/dev/null
trap 'touch {folder}/told.$SLURM_JOB_ID; sleep 4; exit 0' TERM
sleep 600 & wait
"""


def test_a_run_of_which_slurmctld_has_forgotten_that_it_was_stopped_goes_on(site: Site) -> None:
    script = site.folder / "slow_to_stop.sh"
    script.write_text(SLOW_TO_STOP.format(folder=site.folder))
    daemon = site.start_daemon()
    await_hold(site.cluster)

    def submit(jobs: int) -> list[str]:
        return [site.cluster.command("sbatch", "--parsable", script).strip() for _ in range(jobs)]

    older = submit(16)
    for job in older:
        site.await_run(job)
    site.save(older[0])
    said = len(site.log)
    submit(4)

    def stopped() -> set[str]:
        """The jobs that Slurm was told to stop, and were told so: one that was not yet goes on."""
        asked = re.findall(r"time=(\S+) .* event=requeue job=(\d+) ", site.log[said:])
        asked_s = {job: datetime.fromisoformat(at).timestamp() for at, job in asked}
        told_s = {file.suffix[1:]: file.stat().st_mtime for file in site.folder.glob("told.*")}
        # What a job was told when it was stopped before is older; the log may be a little late.
        return {job for job, at_s in asked_s.items() if told_s.get(job, 0.0) > at_s - 2}

    site.await_that(lambda: bool(stopped()), 60, "one is stopped")
    # What it has not saved it forgets: to it those runs will have ended by themselves.
    site.cluster.kill_controller()
    daemon.send_signal(signal.SIGSTOP)
    site.cluster.start_controller()

    def runs(least: int) -> set[str]:
        """The jobs that run, or end, and were queued again so often at least."""
        listing = ("squeue", "--noheader", "--states=R,CG", "--Format=JobID:20,RestartCnt:20")
        told = map(str.split, site.cluster.command(*listing).splitlines())
        return {job for job, restarts in told if int(restarts) >= least}

    site.await_that(lambda: stopped().isdisjoint(runs(0)), 60, "the runs have ended")
    # Jobs take turns: others are stopped later, and not all of these run at a time.
    then, again = stopped(), set[str]()

    def have_run_again() -> bool:
        again.update(runs(1))
        return then <= again

    daemon.send_signal(signal.SIGCONT)
    site.await_that(have_run_again, 90, "the jobs that were stopped run again")


def test_jobs_that_were_queued_again_before_slurmctld_was_killed_are_not_told_as_lost(
    site: Site,
) -> None:
    site.start_daemon()
    await_hold(site.cluster)
    jobs = [site.plain_job() for _ in range(4)]
    for job in jobs:
        site.await_run(job)
    site.save(jobs[0])
    said = len(site.log)
    site.cluster.command("scontrol", "requeue", *jobs)
    for job in jobs:
        # The daemon knows each by its later submission.
        site.await_log(f"event=place job={job} ", after=said)
    site.cluster.kill_controller()
    site.await_log("event=away", after=said)
    site.cluster.start_controller()
    site.await_log("event=back", after=said)
    said = len(site.log)
    after = [site.plain_job() for _ in range(2)]
    site.await_log(f"event=place job={after[-1]} ", after=said)
    assert set(jobs) <= site.queue()
    assert "event=lost" not in site.log


def _back(cluster: Testbed, node: str) -> None:
    """Have a node back that may have come back by itself, by registering."""
    try:
        cluster.command("scontrol", "update", f"node={node}", "state=resume")
    except TestbedError:
        assert not _is_down(cluster, node)


def _is_down(cluster: Testbed, node: str) -> bool:
    return "State=DOWN" in cluster.command("scontrol", "show", "node", node)


def _known_down(site: Site, node: str) -> bool:
    """Whether the daemon has seen that a node is down, if it still is."""
    nodes = ask(site.folder / "hetschedd.sock", "nodes")["nodes"]
    down = {each["node"] for each in nodes if each["condition"] == "down"}
    return node in down or not _is_down(site.cluster, node)


def test_a_node_goes_down_and_comes_back_and_munge_stops_for_a_while(site: Site) -> None:
    site.begin(40)
    busy = site.cluster.command("squeue", "-h", "--states=R", "--format=%N").split()
    node = next(name for name in busy if name in {n.name for n in site.cluster.layout.nodes})
    on_it = len(site.cluster.command("squeue", "-h", f"--nodelist={node}", "--format=%i").split())
    site.cluster.command("scontrol", "update", f"node={node}", "state=down", "reason=test")
    try:
        site.await_that(lambda: node not in site.held_nodes(), 60, f"{node} is left")
        site.await_that(
            lambda: _known_down(site, node), 60, f"the daemon knows that {node} is down"
        )
    finally:
        _back(site.cluster, node)
    site.cluster.stop_munge()
    try:
        site.await_log("event=away")
    finally:
        site.cluster.start_munge()
    site.await_log("event=back")
    site.finish()
    unlaunched = site.unlaunched()
    verdict = site.verdict(cancelled=unlaunched)
    assert (verdict.wrong, verdict.finished) == ((), len(site.submitted) - len(unlaunched))
    # What begins in the moment that its node goes down has not set its trap yet.
    assert verdict.killed_runs <= on_it
