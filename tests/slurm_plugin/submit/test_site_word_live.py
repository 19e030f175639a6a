"""Shares, QOS and limits over several jobs, as a real slurmctld keeps them, in what is placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.types import Placed, Reason, ReasonCode, Waiting
from slurm_plugin.backend import (
    Enter,
    Hold,
    JobState,
    Leave,
    SlurmBackend,
    SlurmState,
    open_backend,
)
from slurm_plugin.backend.with_commands import CommandsBackend
from slurm_plugin.daemon import Daemon
from slurm_plugin.testbed import (
    FakeNode,
    Installation,
    Partition,
    Testbed,
    fake_nodes,
    usual_site,
)
from tests.slurm_plugin.clusters import under_limits
from tests.slurm_plugin.jobs import end_all, pending, running
from tests.slurm_plugin.live import SETTINGS, daemon_of, drive
from tests.slurm_plugin.submit.asking import sbatch, shown

pytestmark = pytest.mark.slurm

ONE = ("--gpus=1", "--wrap=sleep 600")


@pytest.fixture(scope="module")
def shared(installation: Installation, testbed: Testbed) -> Iterator[Testbed]:
    """Two nodes of 12 GPUs, accounts with shares of 3 and 1, a QOS that goes first, and limits.

    Sixteen more of 64 GPUs in a partition of their own, one of two GPU types, and scavengers.
    """
    del testbed
    wide = tuple(FakeNode(f"w{at}", "a100", 4) for at in range(16))
    nodes = (*fake_nodes(2), *wide, FakeNode("m0", "a100", 2, (("v100", 4),)))
    gpu = Partition("gpu", "n[0-1]", default=True)
    parts = (gpu, Partition("wide", "w[0-15]"), Partition("mixed", "m0"))
    site = usual_site(nodes, parts)
    preempts = ("PreemptType=preempt/qos", "PreemptMode=REQUEUE")
    site = replace(site, settings=(*site.settings, *preempts, "ScronParameters=enable"))
    tell = (
        "add account big fairshare=3",
        "add account small fairshare=1",
        "add user root account=big,small",
        "add qos scavenger",
        "add qos high Priority=1000 Preempt=scavenger",
        "add qos capped GrpTRES=gres/gpu=3",
        "add qos few MaxJobsPerUser=2",
        "add qos raised GrpTRES=gres/gpu=2",
        "add qos one-of-a-type MaxTRESPerUser=gres/gpu:a100=1",
        "modify user root set qos=normal,high,scavenger,capped,few,raised,one-of-a-type",
    )
    with under_limits(installation, site, *tell) as cluster:
        yield cluster


@pytest.fixture
def asked(shared: Testbed) -> Iterator[SlurmBackend]:
    """Slurm's commands, which ask the cluster that the environment names; jobs are gone after."""
    yield open_backend("commands")
    end_all(shared)


def release_together(daemon: Daemon, shared: Testbed, jobs: Sequence[str]) -> None:
    """Let held jobs go once all are known: on a busy machine some are read in another cycle."""
    drive(daemon, lambda: daemon.world.managed.keys() >= {*jobs}, 60)
    shared.command("scontrol", "release", ",".join(jobs))


def test_accounts_that_both_have_work_hold_gpus_by_their_shares(
    asked: SlurmBackend, shared: Testbed
) -> None:
    site = asked.site()
    assert site.shares is not None
    assert site.shares.tree is not None
    assert (site.shares.tree.shares["big", ""], site.shares.tree.shares["small", ""]) == (3, 1)
    daemon = daemon_of(asked)
    # All jobs of one account are submitted before those of the other.
    jobs = [
        sbatch(shared, "--hold", f"--account={account}", *ONE)
        for account in ("small", "big")
        for _ in range(12)
    ]
    release_together(daemon, shared, jobs)

    def held() -> Counter[str]:
        state = asked.read().jobs
        return Counter(state[job].account for job in jobs if running(state[job]))

    drive(daemon, lambda: held().total() == 12, 60)
    assert held() == {"big": 9, "small": 3}


def test_one_account_alone_has_every_gpu_and_one_that_comes_late_has_its_due(
    asked: SlurmBackend, shared: Testbed
) -> None:
    # In its own order the later of equal jobs would wait.
    daemon = daemon_of(asked, "srtf", settings=replace(SETTINGS, round_s=4.0))

    def submit(account: str) -> None:
        for _ in range(14):
            sbatch(shared, f"--account={account}", "--gpu-set=1", "--can-checkpoint", *ONE)

    def held() -> Counter[str]:
        jobs = asked.read().jobs.values()
        return Counter(job.account for job in jobs if running(job))

    submit("small")
    drive(daemon, lambda: held() == {"small": 12}, 60)
    submit("big")
    drive(daemon, lambda: held()["big"] >= 9 and held().total() == 12, 90)


def test_a_qos_of_a_higher_priority_goes_first(asked: SlurmBackend, shared: Testbed) -> None:
    daemon = daemon_of(asked)
    four = ("--hold", "--gpus=4", "-N1", "--wrap=sleep 600")
    normal = [sbatch(shared, *four) for _ in range(4)]
    high = [sbatch(shared, "--qos=high", *four) for _ in range(2)]
    release_together(daemon, shared, (*normal, *high))

    def are_running() -> list[str]:
        state = asked.read().jobs
        return [job for job in (*normal, *high) if running(state[job])]

    drive(daemon, lambda: len(are_running()) == 3, 60)
    assert are_running() == [normal[0], *high]


def test_scavengers_fill_what_is_idle_and_give_way_to_a_burst_in_the_next_plan(
    asked: SlurmBackend, shared: Testbed
) -> None:
    daemon = daemon_of(asked, settings=replace(SETTINGS, partitions=frozenset({"wide"})))
    low = ("--partition=wide", "--qos=scavenger", "--wrap=sleep 600")
    saves = ("--gpu-set=1", "--can-checkpoint")
    # Every second one is stopped for nothing else, and begins anew.
    scavengers = [sbatch(shared, *(ONE[:1] if at % 2 else saves), *low) for at in range(100)]

    def run(jobs: list[str]) -> int:
        state = asked.read().jobs
        return sum(running(state[job]) for job in jobs)

    drive(daemon, lambda: run(scavengers) == 64, 120)
    high = ("--partition=wide", "--qos=high", "--gpus=4", "-N1", "--wrap=sleep 600")
    burst = [sbatch(shared, *high) for _ in range(10)]
    # The first plan that knows them all has a place for each.
    drive(daemon, lambda: all(job in daemon.plan.entries for job in burst))
    assert all(isinstance(daemon.plan.entries[job], Placed) for job in burst)
    drive(daemon, lambda: run(burst) == len(burst))
    drive(daemon, lambda: run(scavengers) == 24, 60)
    # Nothing is lost: the others wait again, or have never run.
    state = asked.read().jobs
    assert all(running(state[job]) or pending(state[job]) for job in scavengers)
    assert sum(state[job].restarts for job in scavengers) == 40


@pytest.mark.parametrize(
    ("qos", "limit", "most"),
    [("capped", "QOS capped: GrpTRES, of 3 GPUs", 3), ("few", "of user root, of 2 jobs", 2)],
)
def test_nothing_is_placed_beyond_a_limit_and_others_have_the_gpus(
    asked: SlurmBackend, shared: Testbed, qos: str, limit: str, most: int
) -> None:
    daemon = daemon_of(asked)
    under = [sbatch(shared, f"--qos={qos}", *ONE) for _ in range(5)]
    others = [sbatch(shared, *ONE) for _ in range(12 - most)]

    def hold(jobs: list[str]) -> list[str]:
        state = asked.read().jobs
        return [job for job in jobs if running(state[job])]

    reports = drive(daemon, lambda: len(hold(others)) + len(hold(under)) == 12, 60)
    assert hold(under) == under[:most]
    entered = {
        change.job for report in reports for change in report.changes if isinstance(change, Enter)
    }
    assert entered == {*under[:most], *others}
    entry = daemon.plan.entries[under[-1]]
    assert isinstance(entry, Waiting)
    assert entry.reason.code is ReasonCode.QUOTA
    # Once Slurm has looked at it, its own word is told.
    assert entry.reason.detail.endswith(limit) or entry.reason.detail.startswith("QOS")
    if entry.reason.detail.endswith(limit):
        assert entry.reason.behind == tuple(under[:most])


def test_licences_go_to_the_next_as_soon_as_they_are_free_and_nothing_is_placed_without(
    asked: SlurmBackend, shared: Testbed
) -> None:
    daemon, cad = daemon_of(asked), "--licenses=cad:1"
    jobs = [sbatch(shared, cad, *(ONE if at % 2 else ONE[1:])) for at in range(6)]

    def held() -> set[str]:
        state = asked.read().jobs
        return {job for job in jobs if running(state[job])}

    reports = drive(daemon, lambda: len(held()) == 2, 60)
    first = held()
    waits = next(job for job in jobs[1::2] if job not in first)
    drive(daemon, lambda: waits in daemon.world.jobs, 20)
    shared.command("scontrol", "suspend", min(first))
    assert "Used=2" in shared.command("scontrol", "show", "licenses")
    reports += drive(daemon, lambda: daemon.world.jobs[waits].blocked is not None, 20)
    blocked = daemon.world.jobs[waits].blocked
    assert blocked is not None
    assert blocked == Reason(ReasonCode.LICENSES, detail="it asks for 1 of cad, and 0 are free")
    for job in first:
        shared.command("scancel", job)
    reports += drive(daemon, lambda: len(held()) == 2, 20)
    changes = [change for report in reports for change in report.changes]
    assert {type(change) for change in changes if not isinstance(change, Hold)} == {Enter}
    assert len({change.job for change in changes if isinstance(change, Enter)}) == 4


class Unknowing(CommandsBackend):
    """Slurm's commands, which tell no constraint: something of which a daemon does not know."""

    def read(self) -> SlurmState:
        """Return what there is."""
        state = super().read()
        jobs = {job: replace(each, constraint="") for job, each in state.jobs.items()}
        return replace(state, jobs=jobs)


def test_one_that_slurm_does_not_start_gives_way_and_those_behind_it_keep_their_places(
    asked: SlurmBackend, shared: Testbed
) -> None:
    daemon = daemon_of(Unknowing(), settings=replace(SETTINGS, partitions=frozenset({"wide"})))
    wide = ("--partition=wide", "--wrap=sleep 600")
    # Slurm takes this of no job that names its nodes, and says so by no word of its own.
    apart = ("-C", "[ib*1&nvme*1]", "--qos=high", "-N2", "--gpus-per-node=1")
    odd = [sbatch(shared, *apart, *wide) for _ in range(2)]
    good = [sbatch(shared, "--gpus=1", *wide) for _ in range(60)]

    def settled() -> bool:
        state, known = asked.read().jobs, daemon.world.managed
        tried = all(job in known and known[job].kept_back.failures for job in odd)
        return tried and all(running(state[job]) for job in good)

    reports = drive(daemon, settled, 120)
    left = {c.job for report in reports for c in report.changes if isinstance(c, Leave)}
    # A Slurm that is slow has not yet come to some of those behind; it is never most of them.
    assert {*odd} <= left <= {*odd, *good}
    assert len(left) < len(good) / 3


class Late(CommandsBackend):
    """Slurm's commands, which tell no partition's word of a job before it has been placed."""

    def read(self) -> SlurmState:
        """Return what there is."""
        state = super().read()
        jobs = {
            job: replace(each, reason="ReqNodeNotAvail")
            if not each.entered and each.reason.startswith("Partition")
            else each
            for job, each in state.jobs.items()
        }
        return replace(state, jobs=jobs)


def test_a_partition_that_allows_nothing_for_a_moment_twice_shuts_no_kind_out_of_its_nodes(
    asked: SlurmBackend, shared: Testbed
) -> None:
    daemon = daemon_of(Late(), settings=replace(SETTINGS, partitions=frozenset({"wide"})))
    ask = ("--partition=wide", "--gpus=4", "-N1", "--wrap=sleep 600")
    known = daemon.world.managed

    def allow(nodes: str) -> None:
        shared.command("scontrol", "update", "partitionname=wide", f"maxnodes={nodes}")

    def submitted_in_vain(jobs: int) -> list[str]:
        allow("0")
        new = [sbatch(shared, *ask) for _ in range(jobs)]
        drive(daemon, lambda: all(j in known and known[j].kept_back.failures for j in new), 60)
        return new

    def run(jobs: list[str]) -> bool:
        state = asked.read().jobs
        return all(running(state[job]) for job in jobs)

    shared.command("scancel", *submitted_in_vain(3))
    # These keep the nodes of the three.
    fill = [sbatch(shared, *ask, "--time=7", f"--nodelist=w{at}") for at in range(3)]
    allow("UNLIMITED")
    drive(daemon, lambda: run(fill), 30)
    between = sbatch(shared, *ask)
    drive(daemon, lambda: between in known and any(r.begun for r in known[between].runs), 90)
    shared.command("scancel", between)
    late = submitted_in_vain(13)
    shared.command("scancel", *fill)
    allow("UNLIMITED")
    drive(daemon, lambda: run(late), 90)


def test_a_limit_that_is_raised_counts_soon(asked: SlurmBackend, shared: Testbed) -> None:
    daemon = daemon_of(asked)
    under = [sbatch(shared, "--qos=raised", *ONE) for _ in range(6)]

    def held() -> int:
        state = asked.read().jobs
        return sum(running(state[job]) for job in under)

    drive(daemon, lambda: held() == 2, 60)
    shared.command("sacctmgr", "-i", "modify", "qos", "raised", "set", "GrpTRES=gres/gpu=5")
    drive(daemon, lambda: held() == 5, 90)


def test_under_a_limit_on_one_gpu_type_jobs_of_any_type_have_the_others(
    asked: SlurmBackend, shared: Testbed
) -> None:
    daemon = daemon_of(asked, settings=replace(SETTINGS, partitions=frozenset({"mixed"})))
    ask = ("--partition=mixed", "--qos=one-of-a-type", *ONE)
    under = [sbatch(shared, *ask) for _ in range(5)]

    def held() -> Counter[str]:
        state = asked.read().jobs
        return Counter(state[job].gpu_types[0] for job in under if running(state[job]))

    drive(daemon, lambda: held() == {"a100": 1, "v100": 4}, 60)


def test_jobs_of_two_partitions_of_which_one_refuses_them_go_to_the_other(
    asked: SlurmBackend, shared: Testbed
) -> None:
    both = replace(SETTINGS, partitions=frozenset({"gpu", "wide"}))
    daemon = daemon_of(asked, settings=both)
    shared.command("scontrol", "update", "partitionname=gpu", "maxtime=5")
    jobs = [sbatch(shared, "--partition=gpu,wide", "--time=60", *ONE) for _ in range(24)]

    def run() -> bool:
        state = asked.read().jobs
        return all(running(state[job]) for job in jobs)

    try:
        drive(daemon, run, 60)
    finally:
        shared.command("scontrol", "update", "partitionname=gpu", "maxtime=unlimited")


def test_of_jobs_of_a_scrontab_which_slurm_lets_nobody_change_that_is_told(
    asked: SlurmBackend, shared: Testbed, tmp_path: Path
) -> None:
    daemon, table = daemon_of(asked), tmp_path / "crontab"
    lines = (f"#SCRON {asks}\n#SCRON -o /dev/null\n* * * * * true\n" for asks in ("-G1", "-n1"))
    table.write_text("".join(lines))
    shared.command("scrontab", str(table))
    try:
        both = [each.id for each in asked.read().jobs.values() if each.cron]
        reports = drive(daemon, lambda: all(job in daemon.world.jobs for job in both), 70)
        told = [daemon.world.jobs[job].blocked for job in both]
        assert ["what a scrontab starts" in str(why) for why in told] == [True, True]
        reports += [daemon.cycle() for _ in range(4)]
        assert not any(isinstance(c, Enter) for report in reports for c in report.changes)
    finally:
        shared.command("scrontab", "-r")


def test_a_job_with_a_deadline_and_a_least_time_has_its_whole_time_limit(
    asked: SlurmBackend, shared: Testbed
) -> None:
    daemon = daemon_of(asked)
    job = sbatch(shared, "--deadline=now+2hours", "--time=30", "--time-min=5", *ONE)
    drive(daemon, lambda: running(asked.read().jobs[job]), 60)
    assert shown(shared, job)["TimeLimit"] == "00:30:00"
    # What cannot end in time any more Slurm cancels, placed or not.
    others = [sbatch(shared, *ONE) for _ in range(11)]
    drive(daemon, lambda: all(running(asked.read().jobs[each]) for each in others), 60)
    late = sbatch(shared, "--deadline=now+65seconds", "--time=1", *ONE)
    drive(daemon, lambda: asked.read().jobs[late].state is JobState.ENDED, 60)
    assert shown(shared, late)["JobState"] == "DEADLINE"
