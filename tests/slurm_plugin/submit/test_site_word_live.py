"""Shares, QOS and limits over several jobs, as a real slurmctld keeps them, in what is placed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.types import Reason, ReasonCode, Waiting
from slurm_plugin.backend import (
    Enter,
    GpuLimit,
    Hold,
    Leave,
    RefusedError,
    SlurmBackend,
    open_backend,
)
from slurm_plugin.backend.limits import read_limits
from slurm_plugin.testbed import (
    FakeNode,
    Installation,
    Partition,
    Testbed,
    TestbedError,
    fake_nodes,
    usual_site,
)
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.clusters import under_limits
from tests.slurm_plugin.daemon.test_daemon_live import SETTINGS, daemon_of, drive
from tests.slurm_plugin.jobs import await_job, deadline, end_all, pending, running
from tests.slurm_plugin.submit.asking import sbatch, shown

pytestmark = pytest.mark.slurm

ONE = ("--gpus=1", "--wrap=sleep 600")


@pytest.fixture(scope="module")
def shared(installation: Installation, testbed: Testbed) -> Iterator[Testbed]:
    """Two nodes of 12 GPUs, accounts with shares of 3 and 1, a QOS that goes first, a limit.

    Two more of 8 GPUs without features, in a partition of their own.
    """
    del testbed
    nodes = (*fake_nodes(2), *(FakeNode(f"w{at}", "a100", 4) for at in range(2)))
    parts = (
        Partition("gpu", "n[0-1]", default=True),
        Partition("wide", "w[0-1]", max_time="1:00:00"),
    )
    site = usual_site(nodes, parts)
    preempts = ("PreemptType=preempt/qos", "PreemptMode=REQUEUE")
    site = replace(site, settings=(*site.settings, *preempts))
    tell = (
        "add account big fairshare=3",
        "add account small fairshare=1",
        "add user root account=big,small",
        "add qos scavenger",
        "add qos high Priority=1000 Preempt=scavenger",
        "add qos capped GrpTRES=gres/gpu=3",
        "add qos small MaxTRESPerJob=gres/gpu=4",
        "add qos strict MaxTRESPerJob=gres/gpu=4",
        "modify qos strict set Flags=DenyOnLimit",
        "add qos each MaxTRESPerUser=gres/gpu=3",
        "add qos typed MaxTRESPerJob=gres/gpu:v100=1",
        "modify user root set qos=normal,high,scavenger,capped,small,strict,each,typed",
    )
    with under_limits(installation, site, *tell) as cluster:
        yield cluster


@pytest.fixture
def asked(shared: Testbed) -> Iterator[SlurmBackend]:
    """Slurm's commands, which ask the cluster that the environment names; jobs are gone after."""
    yield open_backend("commands")
    end_all(shared)


def test_accounts_that_both_have_work_hold_gpus_by_their_shares(
    asked: SlurmBackend, shared: Testbed
) -> None:
    site = asked.site()
    assert site.shares is not None
    assert site.shares.tree is not None
    assert (site.shares.tree.shares["big", ""], site.shares.tree.shares["small", ""]) == (3, 1)
    daemon = daemon_of(asked)
    # All jobs of one account are submitted before those of the other. They are held until all are
    # known: on a busy machine some are looked up in another cycle.
    jobs = [
        sbatch(shared, "--hold", f"--account={account}", *ONE)
        for account in ("small", "big")
        for _ in range(12)
    ]
    drive(daemon, lambda: daemon.world.managed.keys() >= {*jobs}, 60)
    shared.command("scontrol", "release", ",".join(jobs))

    def held() -> Counter[str]:
        state = asked.read().jobs
        return Counter(state[job].account for job in jobs if running(state[job]))

    drive(daemon, lambda: held().total() == 12, 60)
    assert held() == {"big": 9, "small": 3}


def test_scavengers_fill_what_is_idle_and_give_way_to_a_burst_within_seconds(
    asked: SlurmBackend, shared: Testbed
) -> None:
    daemon = daemon_of(asked)
    low = ("--qos=scavenger", "--wrap=sleep 600")
    saves = ("--gpu-set=1", "--can-checkpoint")
    # Every second one is stopped for nothing else, and begins anew.
    scavengers = [sbatch(shared, *(ONE[:1] if at % 2 else saves), *low) for at in range(20)]

    def run(jobs: list[str]) -> int:
        state = asked.read().jobs
        return sum(running(state[job]) for job in jobs)

    drive(daemon, lambda: run(scavengers) == 12, 60)
    high = ("--qos=high", "--gpus=4", "-N1", "--wrap=sleep 600")
    burst = [sbatch(shared, *high) for _ in range(2)]
    # Told to go, they end at once here.
    drive(daemon, lambda: run(burst) == len(burst), SETTINGS.grace_s + 5.0)
    drive(daemon, lambda: run(scavengers) == 4, 60)
    # Nothing is lost: the others wait again, or have never run.
    state = asked.read().jobs
    assert all(running(state[job]) or pending(state[job]) for job in scavengers)
    assert sum(state[job].restarts for job in scavengers) == 8


def test_nothing_is_placed_beyond_a_limit_and_others_have_the_gpus(
    asked: SlurmBackend, shared: Testbed
) -> None:
    limit, most = "QOS capped: GrpTRES, of 3 GPUs", 3
    daemon = daemon_of(asked)
    under = [sbatch(shared, "--qos=capped", *ONE) for _ in range(5)]
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


def test_one_that_slurm_does_not_start_gives_way_and_those_behind_it_keep_their_places(
    asked: SlurmBackend, shared: Testbed
) -> None:
    daemon = daemon_of(asked, settings=replace(SETTINGS, partitions=frozenset({"wide"})))
    wide = ("--partition=wide", "--wrap=sleep 600")
    # Slurm takes this of no job that names its nodes, and says so by no word of its own.
    apart = ("-C", "[ib*1&nvme*1]", "--qos=high", "-N2", "--gpus-per-node=1")
    odd = [sbatch(shared, *apart, *wide) for _ in range(2)]
    good = [sbatch(shared, "--gpus=1", *wide) for _ in range(4)]

    def settled() -> bool:
        state, known = asked.read().jobs, daemon.world.managed
        tried = all(job in known and known[job].failures for job in odd)
        return tried and all(running(state[job]) for job in good)

    reports = drive(daemon, settled, 120)
    left = {c.job for report in reports for c in report.changes if isinstance(c, Leave)}
    assert left == {*odd}


def test_a_job_with_a_deadline_and_a_least_time_has_its_whole_time_limit(
    asked: SlurmBackend, shared: Testbed
) -> None:
    daemon = daemon_of(asked)
    job = sbatch(shared, "--deadline=now+2hours", "--time=30", "--time-min=5", *ONE)
    drive(daemon, lambda: running(asked.read().jobs[job]), 60)
    assert shown(shared, job)["TimeLimit"] == "00:30:00"


def account(cluster: Testbed, *words: str) -> None:
    cluster.command("sacctmgr", "--immediate", *words)


def test_the_user_that_the_hold_denies_needs_an_association_and_it_is_said_which(
    asked: SlurmBackend, shared: Testbed
) -> None:
    hold = Hold("hetsched", ("n0", "n1"), 60)
    account(shared, "delete", "user", "daemon")
    try:
        with pytest.raises(RefusedError, match="sacctmgr add user daemon account=ACCOUNT"):
            asked.apply(hold)
    finally:
        account(shared, "add", "user", "daemon", "account=root")
    wait_until(lambda: not refuses(asked, hold), "slurmctld to know it", 60)


def refuses(backend: SlurmBackend, hold: Hold) -> bool:
    """Whether Slurm will not hold the nodes."""
    try:
        backend.apply(hold)
    except RefusedError:
        return True
    return False


def test_the_limits_are_read_as_they_were_set(asked: SlurmBackend, shared: Testbed) -> None:
    limits = read_limits()
    assert limits is not None
    words = ("--hold", "--wrap=true")
    ids = [sbatch(shared, f"--qos={name}", *words) for name in ("small", "each")]
    ids.append(sbatch(shared, *words))
    jobs = asked.read().jobs
    small, each, plain = (jobs[job] for job in ids)
    assert (small.qos, each.qos, plain.qos) == ("small", "each", "normal")
    assert limits.of(small) == GpuLimit(4, "QOS small: MaxTRESPerJob")
    assert limits.of(each) == GpuLimit(3, "QOS each: MaxTRESPerUser")
    assert limits.of(plain) is None


def test_a_job_runs_with_the_greatest_count_that_its_qos_allows_or_waits_and_says_why(
    asked: SlurmBackend, shared: Testbed
) -> None:
    daemon = daemon_of(asked)
    # Of three counts fifo takes the middle one: 6 without the limit, 2 with it.
    words = ("--gpu-set=2,6,8", "--wrap=sleep 600")
    small = [sbatch(shared, "--qos=small", *asks, *words) for asks in ((), ("--gpus=8",))]
    none = sbatch(shared, "--qos=small", "--gpu-set=6,8", "--wrap=sleep 600")
    free = sbatch(shared, *words)
    reports = drive(daemon, lambda: running(asked.read().jobs[free]), 30)
    warned = {words for report in reports for words in report.warnings}
    for job in small:
        why = f"job={job}: its counts 6,8 are left out: QOS small: MaxTRESPerJob allows 4 GPUs"
        assert why in warned
        assert await_job(asked, job, running).gpus == 2
    jobs = asked.read().jobs
    assert jobs[free].gpus == 6
    blocked = daemon.world.jobs[none].blocked
    assert blocked is not None
    assert blocked.code is ReasonCode.QUOTA
    assert "QOS small: MaxTRESPerJob allows 4 GPUs, its least count is 6" in str(blocked)
    assert (pending(jobs[none]), jobs[none].pinned) == (True, ())


def test_a_job_that_slurm_keeps_back_for_a_limit_is_not_placed_again_and_again(
    asked: SlurmBackend, shared: Testbed
) -> None:
    daemon = daemon_of(asked)
    asks = ("--gpu-set=2", "--wrap=sleep 600")
    # Beyond a limit on one type, which others keep to.
    kept = {sbatch(shared, "--qos=typed", "--gpu-types=v100", *asks): "QOSMaxGRESPerJob"}
    other = sbatch(shared, "--qos=typed", "--gpu-types=a100", *asks)
    calls: dict[str, list[type]] = {job: [] for job in kept}
    after, latest = 0, deadline(60)
    # Slurm says of what is placed why it does not start; then it gives its place back.
    while after < 5:
        report = daemon.cycle()
        assert report.violations == ()
        for change in report.changes:
            if change.job in calls:
                calls[change.job].append(type(change))
        after += all(Leave in types for types in calls.values())
        assert time.monotonic() < latest, calls
        time.sleep(0.3)
    assert list(calls.values()) == [[Enter, Leave]]
    assert await_job(asked, other, running).nodes == ("n0",)
    jobs = asked.read().jobs
    for job, named in kept.items():
        blocked = daemon.world.jobs[job].blocked
        assert blocked is not None
        assert (blocked.code, blocked.detail) == (ReasonCode.QUOTA, named)
        assert (pending(jobs[job]), jobs[job].pinned, jobs[job].entered) == (True, (), False)


def test_where_the_qos_denies_slurm_refuses_a_default_count_beyond_it(
    asked: SlurmBackend, shared: Testbed
) -> None:
    with pytest.raises(TestbedError, match="QOSMaxGRESPerJob"):
        sbatch(shared, "--qos=strict", "--gpu-set=2,8", "--gpus=8", "--wrap=sleep 600")
    daemon = daemon_of(asked)
    job = sbatch(shared, "--qos=strict", "--gpu-set=2,8", "--wrap=sleep 600")
    drive(daemon, lambda: running(asked.read().jobs[job]), 30)
    assert asked.read().jobs[job].gpus == 2


def test_without_slurmdbd_the_limits_are_not_known(
    shared: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shared.layout.slurm_conf.read_text()
    port = f"AccountingStoragePort={shared.layout.database_daemon_port}"
    assert port in text
    elsewhere = tmp_path / "slurm.conf"
    elsewhere.write_text(text.replace(port, "AccountingStoragePort=1"))
    monkeypatch.setenv("SLURM_CONF", str(elsewhere))
    assert read_limits() is None
    # The rest of what the site has set is still told.
    site = open_backend("commands").site()
    assert (site.limits, site.longest_s) == (None, {"gpu": None, "wide": 3600.0})


def test_where_slurm_enforces_no_limits_there_are_none(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(testbed.layout.slurm_conf))
    limits = read_limits()
    assert limits is not None
    assert (limits.qos, limits.associations) == ({}, {})
