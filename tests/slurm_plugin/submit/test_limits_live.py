"""Limits of QOS and accounts on a Slurm that enforces them, with slurmdbd."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched_core.policy import make_policy
from hetsched_core.types import ReasonCode
from slurm_plugin.backend import GpuLimit, JobState, Park, Place, SlurmBackend, open_backend
from slurm_plugin.backend.limits import read_limits
from slurm_plugin.daemon import Daemon, DaemonSettings, Mode
from slurm_plugin.testbed import Installation, Testbed, TestbedError, fake_nodes
from tests.slurm_plugin.jobs import await_job, deadline, end_all
from tests.slurm_plugin.submit.asking import sbatch

pytestmark = pytest.mark.slurm

SETTINGS = DaemonSettings(partitions=frozenset({"gpu"}))


@pytest.fixture(scope="module")
def enforcing(installation: Installation, testbed: Testbed) -> Iterator[Testbed]:
    """Two nodes, of which one has eight GPUs, under limits; Slurm's commands find it.

    The testbed of all tests is brought up before it, so that its variables are what comes back.
    """
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        cluster = Testbed.create(installation, Path(name) / "slurm", fake_nodes(2))
        with pytest.MonkeyPatch.context() as patch:
            try:
                cluster.up()
                for variable, value in cluster.environment().items():
                    patch.setenv(variable, value)
                account(cluster, "add", "qos", "small", "MaxTRESPerJob=gres/gpu=4")
                account(cluster, "add", "qos", "strict", "MaxTRESPerJob=gres/gpu=4")
                account(cluster, "modify", "qos", "strict", "set", "Flags=DenyOnLimit")
                account(cluster, "add", "qos", "each", "MaxTRESPerUser=gres/gpu=3")
                account(cluster, "add", "qos", "typed", "MaxTRESPerJob=gres/gpu:v100=1")
                account(cluster, "add", "qos", "lab", "MaxTRESPerAccount=gres/gpu=3")
                names = "normal,small,strict,each,typed,lab"
                account(cluster, "modify", "user", "root", "set", f"qos={names}")
                with cluster.layout.slurm_conf.open("a") as conf:
                    conf.write("AccountingStorageEnforce=limits,qos\n")
                cluster.stop_controller()
                cluster.start_controller()
                cluster.await_idle()
                yield cluster
            finally:
                cluster.down()


def account(cluster: Testbed, *words: str) -> None:
    """Tell slurmdbd something."""
    cluster.command("sacctmgr", "--immediate", *words)


@pytest.fixture
def asked(enforcing: Testbed) -> Iterator[SlurmBackend]:
    """Slurm's commands, which ask the cluster that the environment names; jobs are gone after."""
    # pyslurm stays with the cluster for which it was loaded first in this process.
    yield open_backend("commands")
    end_all(enforcing)


def daemon_of(backend: SlurmBackend) -> Daemon:
    """A daemon on the wall clock."""
    return Daemon(
        backend,
        make_policy("fifo"),
        SETTINGS,
        mode=Mode.ENFORCE,
        clock=time.time,
        sleep=time.sleep,
    )


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


@pytest.mark.parametrize("asks", [(), ("--gpus=8",)])
def test_a_job_runs_with_the_greatest_count_that_its_qos_allows(
    asked: SlurmBackend, enforcing: Testbed, asks: tuple[str, ...]
) -> None:
    # Of three counts fifo takes the middle one: 6 without the limit, 2 with it.
    job = sbatch(enforcing, "--qos=small", "--gpu-set=2,6,8", *asks, "--wrap=sleep 600")
    daemon = daemon_of(asked)
    report = daemon.cycle()
    words = f"job={job}: its counts 6,8 are left out: QOS small: MaxTRESPerJob allows 4 GPUs"
    assert words in report.warnings
    seen = await_job(asked, job, lambda job: job.state is JobState.RUNNING)
    assert seen.gpus_per_node * len(seen.nodes) == 2
    free = sbatch(enforcing, "--gpu-set=2,6,8", "--wrap=sleep 600")
    daemon.cycle()
    seen = await_job(asked, free, lambda job: job.state is JobState.RUNNING)
    assert seen.gpus_per_node * len(seen.nodes) == 6


def test_a_job_that_no_count_of_its_set_suits_waits_and_says_why(
    asked: SlurmBackend, enforcing: Testbed
) -> None:
    job = sbatch(enforcing, "--qos=small", "--gpu-set=6,8", "--wrap=sleep 600")
    daemon = daemon_of(asked)
    for _ in range(3):
        daemon.cycle()
    blocked = daemon.world.jobs[job].blocked
    assert blocked is not None
    assert blocked.code is ReasonCode.QUOTA
    assert "QOS small: MaxTRESPerJob allows 4 GPUs, its least count is 6" in str(blocked)
    seen = asked.read().jobs[job]
    assert (seen.state, seen.pinned) == (JobState.PENDING, ())


@pytest.mark.parametrize(
    ("qos", "word"), [("each", "QOSMaxGRESPerUser"), ("lab", "MaxGRESPerAccount")]
)
def test_a_job_beyond_what_all_may_have_leaves_its_gpus_to_others_and_is_not_placed_again_and_again(
    asked: SlurmBackend, enforcing: Testbed, qos: str, word: str
) -> None:
    words = ("--gpu-set=2", "--gpu-types=a100", "--wrap=sleep 600")
    first = sbatch(enforcing, f"--qos={qos}", *words)
    daemon = daemon_of(asked)
    daemon.cycle()
    await_job(asked, first, lambda job: job.state is JobState.RUNNING)
    second = sbatch(enforcing, f"--qos={qos}", *words)
    # There are four a100: the second would keep the last two from it.
    other = sbatch(enforcing, *words)
    calls: list[type] = []
    after, latest = 0, deadline(15)
    # Slurm says of what is placed why it does not start; once it is parked it stays so.
    while after < 5:
        report = daemon.cycle()
        assert report.violations == ()
        calls += [type(change) for change in report.changes if change.job == second]
        after += Park in calls
        assert time.monotonic() < latest, calls
        time.sleep(0.3)
    assert calls == [Place, Park]
    blocked = daemon.world.jobs[second].blocked
    assert blocked is not None
    assert blocked.code is ReasonCode.QUOTA
    assert blocked.detail == word
    await_job(asked, other, lambda job: job.state is JobState.RUNNING)


def test_slurm_holds_a_placed_job_to_a_limit_on_one_gpu_type(
    asked: SlurmBackend, enforcing: Testbed
) -> None:
    words = ("--qos=typed", "--gpu-set=2", "--wrap=sleep 600")
    fast = sbatch(enforcing, *words, "--gpu-types=v100")
    other = sbatch(enforcing, *words, "--gpu-types=a100")
    daemon = daemon_of(asked)
    parked, latest = False, deadline(30)
    while not parked:
        report = daemon.cycle()
        parked = any(isinstance(change, Park) and change.job == fast for change in report.changes)
        assert time.monotonic() < latest
        time.sleep(0.2)
    seen = await_job(asked, other, lambda job: job.state is JobState.RUNNING)
    assert seen.nodes == ("n0",)
    jobs = asked.read().jobs
    assert (jobs[fast].state, jobs[fast].pinned) == (JobState.PENDING, ())
    blocked = daemon.world.jobs[fast].blocked
    assert blocked is not None
    assert blocked.detail == "QOSMaxGRESPerJob"


def test_where_the_qos_denies_slurm_refuses_a_default_count_beyond_it(
    asked: SlurmBackend, enforcing: Testbed
) -> None:
    with pytest.raises(TestbedError, match="QOSMaxGRESPerJob"):
        sbatch(enforcing, "--qos=strict", "--gpu-set=2,8", "--gpus=8", "--wrap=sleep 600")
    job = sbatch(enforcing, "--qos=strict", "--gpu-set=2,8", "--wrap=sleep 600")
    daemon_of(asked).cycle()
    seen = await_job(asked, job, lambda job: job.state is JobState.RUNNING)
    assert seen.gpus_per_node == 2


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
    assert (site.limits, site.longest_s) == (None, {"gpu": None})


def test_where_slurm_enforces_no_limits_there_are_none(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(testbed.layout.slurm_conf))
    limits = read_limits()
    assert limits is not None
    assert (limits.qos, limits.associations) == ({}, {})
