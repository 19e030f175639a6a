"""Nodes with several GPU types on a real Slurm: each job gets GPUs of one type, and of its own."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched_core.types import Configuration
from slurm_plugin.backend import JobState, SlurmBackend, open_backend
from slurm_plugin.testbed import FakeNode, Installation, Testbed, usual_site
from tests.slurm_plugin.clusters import up
from tests.slurm_plugin.gang_jobs import Gangs
from tests.slurm_plugin.jobs import Submitter, await_job, end_all, is_in, pending, running
from tests.slurm_plugin.live import daemon_of, drive

pytestmark = pytest.mark.slurm

LONG_S = 3600.0
"""None of these jobs ends before its test has."""

NODES = (
    FakeNode("n0", "v100", 4, (("t4", 2),)),
    FakeNode("n1", "a100", 2, (("1g.10gb", 4),)),
    FakeNode("n2", "v100", 2),
)


@pytest.fixture(scope="module")
def cluster(installation: Installation) -> Iterator[Testbed]:
    """Nodes of two GPU types, one of them a MIG profile, that Slurm's commands find, and of one."""
    with up(installation, usual_site(NODES)) as found, pytest.MonkeyPatch.context() as patch:
        for variable, value in found.environment().items():
            patch.setenv(variable, value)
        yield found


@pytest.fixture
def submitter(cluster: Testbed, tmp_path: Path) -> Iterator[Submitter]:
    yield Submitter(cluster, tmp_path)
    end_all(cluster)


@pytest.fixture
def backend(cluster: Testbed) -> SlurmBackend:
    return open_backend("commands")


def parts(backend: SlurmBackend, *jobs: str) -> list[dict[str, int]]:
    """The GPUs that jobs hold, by scheduling node."""
    shown = backend.read().jobs
    return [dict(shown[job].gpus_on) for job in jobs]


def asks(cluster: Testbed, job: str) -> dict[str, str]:
    """How a job asks for GPUs now, in Slurm's own words."""
    told = cluster.command("scontrol", "show", "job", "--oneliner", job).split()
    return dict(word.split("=", 1) for word in told if word.startswith("TresPer"))


def all_run(backend: SlurmBackend, *jobs: str) -> bool:
    return is_in(backend, JobState.RUNNING, *jobs)()


@pytest.mark.parametrize("policy", ["fifo", "hops", "steady"])
def test_jobs_get_the_type_that_they_ask_for_or_one_of_those_that_are_there(
    backend: SlurmBackend, submitter: Submitter, policy: str
) -> None:
    # It was there before, and has a type that Slurm chose.
    before = submitter.submit("", "--gpus=1", "--nodelist=n0", seconds=LONG_S)
    await_job(backend, before, running)
    daemon = daemon_of(backend, policy)
    t4 = submitter.submit("", "--gpus=t4:1", "--cpus-per-gpu=2", seconds=LONG_S)
    slice_ = submitter.submit("", "--gres=gpu:1g.10gb:3", seconds=LONG_S)
    whole = submitter.submit("", "--gpus-per-node=a100:2", seconds=LONG_S)
    drive(daemon, lambda: all_run(backend, t4, slice_, whole))
    assert parts(backend, t4, slice_, whole) == [
        {"n0-t4": 1},
        {"n1-1g.10gb": 3},
        {"n1-a100": 2},
    ]
    (first,) = parts(backend, before)
    v100 = 3 if first == {"n0-v100": 1} else 4
    words = "--gpu-set=2,3 --gpu-types=v100"
    some = submitter.submit(words, "--gpus=3", "--nodes=1", seconds=LONG_S)
    others = [
        submitter.submit("", f"--gpus={gpus}", "--nodes=1", seconds=LONG_S) for gpus in (1, 2)
    ]
    drive(daemon, lambda: all_run(backend, some, *others))
    held = Counter[str]()
    for each in parts(backend, some, *others):
        assert len(each) <= 1
        held.update(each)
    for name, gpus in held.items():
        assert gpus <= {"n0-v100": v100, "n0-t4": 1, "n1-1g.10gb": 1}[name]
    drive(daemon, iter([False, True]).__next__)
    held = Counter({view.node.name: view.held_gpus for view in daemon.world.nodes.values()})
    assert sum(held.values()) == 1 + 1 + 3 + 2 + backend.read().jobs[some].gpus + 3
    assert not any(view.foreign_gpus for view in daemon.world.nodes.values())


def test_a_type_that_was_written_is_taken_off_again_when_a_job_leaves(
    backend: SlurmBackend, cluster: Testbed, submitter: Submitter
) -> None:
    daemon = daemon_of(backend)
    ways = (
        ("--gpus=2",),
        ("--gres=gpu:1",),
        ("--ntasks=2", "--gpus-per-task=1", "--cpus-per-task=2"),
    )
    jobs = [submitter.submit("", *words) for words in ways]
    before = [{key: value for key, value in asks(cluster, job).items() if value} for job in jobs]
    drive(daemon, lambda: all_run(backend, *jobs))
    for job in jobs:
        if "n2" not in backend.read().jobs[job].nodes:
            assert len(asks(cluster, job)["TresPerJob"].split(":")) == 3, asks(cluster, job)
    cpus = backend.read().jobs[jobs[2]].cpus
    assert cpus == 4
    cluster.command("scontrol", "requeue", ",".join(jobs))

    for job in jobs:
        await_job(backend, job, pending)
    assert daemon.let_go().away == ""
    for job, own in zip(jobs, before, strict=True):
        shown = {key: value for key, value in asks(cluster, job).items() if value}
        # The CPUs of a task Slurm tells elsewhere now.
        assert shown == {k: v.replace("cpu=2,", "").replace("=", ":") for k, v in own.items()}
    drive(daemon, lambda: all_run(backend, *jobs), 60)
    assert backend.read().jobs[jobs[2]].cpus == 4


def test_an_array_fills_both_types_and_srun_and_jobs_without_gpus_run_beside(
    backend: SlurmBackend, cluster: Testbed, submitter: Submitter
) -> None:
    daemon = daemon_of(backend)
    words = ("--gpus=1", "--nodelist=n0", "--array=0-6", "--output=/dev/null", "--wrap=sleep 600")
    array = cluster.command("sbatch", "--parsable", *words).strip()
    alone = submitter.submit("", "--cpus-per-task=4", "--nodelist=n0")

    def began() -> list[str]:
        shown = backend.read().jobs.values()
        return [each.id for each in shown if each.array == array and running(each)]

    drive(daemon, lambda: len(began()) == 6 and all_run(backend, alone), 60)
    held = Counter[str]()
    for each in parts(backend, *began()):
        held.update(each)
    assert held == {"n0-t4": 2, "n0-v100": 4}
    asked = ("--gpus=1g.10gb:1", "--time=5", "bash", "-c", "echo $SLURM_GPUS_ON_NODE")
    free = ("--gpus=1", "--nodelist=n1", "--time=5", "bash", "-c", "echo $SLURM_GPUS_ON_NODE")
    waiting = [
        subprocess.Popen(["srun", *options], stdout=subprocess.PIPE, text=True)
        for options in (asked, free)
    ]
    drive(daemon, lambda: all(each.poll() is not None for each in waiting), 60)
    assert [each.communicate()[0].strip() for each in waiting] == ["1", "1"]


def test_a_job_that_shares_no_node_and_one_of_all_memory_have_the_host(
    backend: SlurmBackend, submitter: Submitter
) -> None:
    daemon = daemon_of(backend)
    alone = submitter.submit("", "--exclusive", "--gpus=1", "--nodelist=n0")
    memory = submitter.submit("", "--mem=0", "--gpus=1", "--nodelist=n1")
    drive(daemon, lambda: all_run(backend, alone, memory))
    assert parts(backend, alone) == [{"n0-v100": 4, "n0-t4": 2}]
    behind = [submitter.submit("", "--gpus=1", "--nodelist=n0,n1", "--nodes=1") for _ in range(2)]
    other = submitter.submit("", "--gpus=1")
    drive(daemon, lambda: all_run(backend, other))
    assert backend.read().jobs[other].nodes == ("n2",)
    assert [job for job in behind if all_run(backend, job)] == []
    views = daemon.world.nodes
    assert [views[name].held_gpus + views[name].foreign_gpus for name in ("n0-v100", "n0-t4")] == [
        4,
        2,
    ]


def test_a_gang_of_uneven_counts_of_one_type_runs_beside_jobs_of_the_other(
    backend: SlurmBackend, cluster: Testbed, submitter: Submitter, tmp_path: Path
) -> None:
    daemon = daemon_of(backend)
    gangs = Gangs(cluster, tmp_path)
    gang = gangs.submit("6", "--gpu-types=v100", seconds=600)
    other = submitter.submit("", "--gpus=2", "--nodelist=n0")
    whole = Configuration.of({"n0-v100": 4, "n2": 2})

    def runs() -> bool:
        run = daemon.world.managed[gang].run if gang in daemon.world.managed else None
        return run is not None and run.begun and run.configuration == whole

    drive(daemon, lambda: runs() and all_run(backend, other), 60)
    assert parts(backend, other) == [{"n0-t4": 2}]
