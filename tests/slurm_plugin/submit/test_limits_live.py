"""Limits of QOS and accounts on a Slurm that enforces them, with slurmdbd."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched_core.types import ReasonCode
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
from slurm_plugin.testbed import Installation, Testbed, TestbedError, fake_nodes
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.clusters import under_limits
from tests.slurm_plugin.jobs import await_job, deadline, end_all, pending, running
from tests.slurm_plugin.live import daemon_of, drive
from tests.slurm_plugin.submit.asking import sbatch

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def enforcing(installation: Installation, testbed: Testbed) -> Iterator[Testbed]:
    """Two nodes, of four and eight GPUs, under limits; Slurm's commands find it."""
    del testbed
    tell = (
        "add qos small MaxTRESPerJob=gres/gpu=4",
        "add qos strict MaxTRESPerJob=gres/gpu=4",
        "modify qos strict set Flags=DenyOnLimit",
        "add qos each MaxTRESPerUser=gres/gpu=3",
        "add qos typed MaxTRESPerJob=gres/gpu:v100=1",
        "add qos narrow GrpTRES=cpu=1",
        "modify user root set qos=normal,small,strict,each,typed,narrow",
    )
    with under_limits(installation, fake_nodes(2), *tell) as cluster:
        yield cluster


def account(cluster: Testbed, *words: str) -> None:
    cluster.command("sacctmgr", "--immediate", *words)


@pytest.fixture
def asked(enforcing: Testbed) -> Iterator[SlurmBackend]:
    """Slurm's commands, which ask the cluster that the environment names; jobs are gone after."""
    # pyslurm stays with the cluster for which it was loaded first in this process.
    yield open_backend("commands")
    end_all(enforcing)


def test_the_user_that_the_hold_denies_needs_an_association_and_it_is_said_which(
    asked: SlurmBackend, enforcing: Testbed
) -> None:
    hold = Hold("hetsched", ("n0", "n1"), 60)
    account(enforcing, "delete", "user", "daemon")
    try:
        with pytest.raises(RefusedError, match="sacctmgr add user daemon account=ACCOUNT"):
            asked.apply(hold)
    finally:
        account(enforcing, "add", "user", "daemon", "account=root")
    wait_until(lambda: not refuses(asked, hold), "slurmctld to know it", 60)


def refuses(backend: SlurmBackend, hold: Hold) -> bool:
    """Whether Slurm will not hold the nodes."""
    try:
        backend.apply(hold)
    except RefusedError:
        return True
    return False


def test_the_limits_are_read_as_they_were_set(asked: SlurmBackend, enforcing: Testbed) -> None:
    limits = read_limits()
    assert limits is not None
    words = ("--hold", "--wrap=true")
    ids = [sbatch(enforcing, f"--qos={name}", *words) for name in ("small", "each")]
    ids.append(sbatch(enforcing, *words))
    jobs = asked.read().jobs
    small, each, plain = (jobs[job] for job in ids)
    assert (small.qos, each.qos, plain.qos) == ("small", "each", "normal")
    assert limits.of(small) == GpuLimit(4, "QOS small: MaxTRESPerJob")
    assert limits.of(each) == GpuLimit(3, "QOS each: MaxTRESPerUser")
    assert limits.of(plain) is None


def test_a_job_runs_with_the_greatest_count_that_its_qos_allows_or_waits_and_says_why(
    asked: SlurmBackend, enforcing: Testbed
) -> None:
    daemon = daemon_of(asked)
    # Of three counts fifo takes the middle one: 6 without the limit, 2 with it.
    words = ("--gpu-set=2,6,8", "--wrap=sleep 600")
    small = [sbatch(enforcing, "--qos=small", *asks, *words) for asks in ((), ("--gpus=8",))]
    none = sbatch(enforcing, "--qos=small", "--gpu-set=6,8", "--wrap=sleep 600")
    free = sbatch(enforcing, *words)
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


def test_under_a_limit_on_cpus_one_starts_as_soon_as_another_has_ended(
    asked: SlurmBackend, enforcing: Testbed
) -> None:
    daemon = daemon_of(asked)
    asks = ("--qos=narrow", "--gpus=1", "--wrap=sleep 600")
    waiting = {sbatch(enforcing, *asks) for _ in range(3)}

    def one_runs() -> bool:
        """Whether one runs, and the others have met the limit."""
        seen, known = asked.read().jobs, daemon.world.jobs
        others = {job for job in waiting if not running(seen[job])}
        met = {job for job in others if job in known and known[job].blocked}
        return len(met) == len(others) == len(waiting) - 1

    while waiting:
        drive(daemon, one_runs, 20)
        (runs,) = (job for job in waiting if running(asked.read().jobs[job]))
        enforcing.command("scancel", runs)
        waiting.remove(runs)


def test_a_job_that_slurm_keeps_back_for_a_limit_is_not_placed_again_and_again(
    asked: SlurmBackend, enforcing: Testbed
) -> None:
    daemon = daemon_of(asked)
    asks = ("--gpu-set=2", "--wrap=sleep 600")
    # Beyond a limit on one type, which others keep to.
    kept = {sbatch(enforcing, "--qos=typed", "--gpu-types=v100", *asks): "QOSMaxGRESPerJob"}
    other = sbatch(enforcing, "--qos=typed", "--gpu-types=a100", *asks)
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
    asked: SlurmBackend, enforcing: Testbed
) -> None:
    with pytest.raises(TestbedError, match="QOSMaxGRESPerJob"):
        sbatch(enforcing, "--qos=strict", "--gpu-set=2,8", "--gpus=8", "--wrap=sleep 600")
    daemon = daemon_of(asked)
    job = sbatch(enforcing, "--qos=strict", "--gpu-set=2,8", "--wrap=sleep 600")
    drive(daemon, lambda: running(asked.read().jobs[job]), 30)
    assert asked.read().jobs[job].gpus == 2


def test_without_slurmdbd_the_limits_are_not_known(
    enforcing: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = enforcing.layout.slurm_conf.read_text()
    port = f"AccountingStoragePort={enforcing.layout.database_daemon_port}"
    assert port in text
    elsewhere = tmp_path / "slurm.conf"
    elsewhere.write_text(text.replace(port, "AccountingStoragePort=1"))
    monkeypatch.setenv("SLURM_CONF", str(elsewhere))
    assert read_limits() is None
    # The rest of what the site has set is still told.
    site = open_backend("commands").site()
    assert (site.limits, site.longest_s) == (None, {"gpu": 7 * 86_400.0, "short": 3600.0})


def test_where_slurm_enforces_no_limits_there_are_none(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(testbed.layout.slurm_conf))
    limits = read_limits()
    assert limits is not None
    assert (limits.qos, limits.associations) == ({}, {})
