"""What every backend keeps to, on a real Slurm."""

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from hetsched_core.types import NodeCondition
from slurm_plugin.backend import (
    Asked,
    AwayError,
    Cancel,
    Drop,
    Enter,
    GpuLimits,
    Hold,
    JobState,
    Leave,
    Recipients,
    RefusedError,
    Requeue,
    Signal,
    SlurmBackend,
    SlurmJob,
    SlurmSite,
    Terms,
    apply_changes,
    open_backend,
)
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.jobs import Submitter, await_job, is_back, pending, running

NO_TERMS = Terms()

pytestmark = pytest.mark.parametrize(
    "backend",
    [
        pytest.param("commands", marks=pytest.mark.slurm),
        pytest.param("pyslurm", marks=pytest.mark.pyslurm),
    ],
    indirect=True,
)


PATIENCE_S = 60.0

NAME = "hetsched"


@pytest.fixture
def held(backend: SlurmBackend, testbed: Testbed) -> Iterator[None]:
    """All nodes are held, so that nothing starts that is not placed."""
    backend.apply(Hold(NAME, tuple(node.name for node in testbed.layout.nodes), 900))
    yield
    backend.apply(Drop(NAME))


def enter(
    backend: SlurmBackend, job: str, nodes: tuple[str, ...], gpus: int, terms: Terms = NO_TERMS
) -> Enter:
    """What places a job that waits, and puts it back if Slurm refuses."""
    seen = backend.read().jobs[job]
    resources = seen.resources.placed(len(nodes), f"gres/gpu:{gpus}", len(nodes))
    leave = Leave(job, resources=seen.resources, terms=Terms(10, seen.asked.cpus_per_task or None))
    return Enter(job, NAME, nodes, leave, resources, terms, due=seen.restarts > 0)


def gpus_by_node(testbed: Testbed, job: str) -> dict[str, int]:
    """The GPUs that Slurm itself says a job holds on each node."""
    found: dict[str, int] = {}
    for line in testbed.command("scontrol", "--details", "show", "job", job).splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "GRES" in words and "Nodes" in words:
            names = testbed.command("scontrol", "show", "hostnames", words["Nodes"]).split()
            count = int(words["GRES"].split(":")[2].split("(")[0])
            found |= dict.fromkeys(names, count)
    return found


def test_nodes_are_read_with_their_gpus(backend: SlurmBackend, testbed: Testbed) -> None:
    read = {node.name: node for node in backend.read().nodes}
    for node in testbed.layout.nodes:
        assert read[node.name].gpus == ((node.gpu_type, node.gpus),)
        assert read[node.name].condition is NodeCondition.UP
        assert (read[node.name].cpus, read[node.name].memory_mb) == (32, 64000)
        assert "gpu" in (read[node.name].partitions or ())


def test_a_running_job_that_asked_for_gpus_in_all_tells_those_on_its_only_node(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    said = testbed.command("sbatch", "--gpus=3", "--output=/dev/null", "--wrap=sleep 600")
    seen = await_job(backend, said.split()[-1], running)
    assert len(seen.nodes) == 1
    assert (seen.gpus, len(seen.gpu_types)) == (3, 1)


@pytest.mark.usefixtures("held")
def test_a_job_waits_in_the_shape_in_which_it_was_submitted(
    backend: SlurmBackend, submitter: Submitter
) -> None:
    before = time.time()
    job = submitter.submit("--gpu-set=1,2,4", "--gpus=2", "--time=10", "--job-name=a name")
    seen = await_job(backend, job, lambda job: job.reason.startswith("ReqNodeNotAvail"))
    assert (seen.state, seen.nodes, seen.pinned) == (JobState.PENDING, (), ())
    assert (seen.gpus, seen.gpu_types, seen.resources.per_job) == (2, (), "gres/gpu:2")
    assert (seen.user, seen.partition, seen.name) == ("root", "gpu", "a name")
    assert seen.mark.startswith('hetsched/2 {"nonce":"')
    assert seen.time_limit_s == 600
    assert before - 1 <= seen.submit_s <= time.time()
    assert seen.begin_s == seen.submit_s
    assert (seen.restarts, seen.held, seen.start_s, seen.entered) == (0, False, None, False)
    assert "#HETSCHED --gpu-set=1,2,4" in backend.script(job)


def check_runs(
    backend: SlurmBackend, testbed: Testbed, job: str, nodes: tuple[str, ...], gpus: int
) -> None:
    """A job comes to run on these nodes, with so many GPUs on each; nothing else does."""
    seen = await_job(backend, job, running)
    assert (seen.nodes, seen.pinned, seen.gpus) == (nodes, nodes, gpus * len(nodes))
    assert seen.start_s == pytest.approx(time.time(), abs=30)
    assert gpus_by_node(testbed, job) == dict.fromkeys(nodes, gpus)
    used = {node.name: sum(count for _, count in node.gpus_used) for node in backend.read().nodes}
    assert used == {name: gpus if name in nodes else 0 for name in used}


@pytest.mark.usefixtures("held")
def test_a_placed_job_runs_there_and_frees_its_gpus_when_its_script_has_ended_for_a_move(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    seen_to_drain = submitter.folder / "seen"
    saving = f"until [ -e {seen_to_drain} ]; do sleep 0.05; done"
    job = submitter.submit("--gpu-set=1-8", saving=saving)
    backend.apply(enter(backend, job, ("n1", "n4"), 4))
    check_runs(backend, testbed, job, ("n1", "n4"), 4)
    wait_until(lambda: bool(submitter.told(job)), "a word of the job", PATIENCE_S)
    backend.apply(Requeue(job))
    draining = backend.read().jobs[job]
    assert (draining.state, draining.over) == (JobState.COMPLETING, False)
    assert set(draining.nodes) <= {"n1", "n4"}
    assert draining.nodes
    seen_to_drain.touch()
    waiting = await_job(backend, job, pending)
    assert (waiting.restarts, waiting.nodes) == (1, ())
    assert all(not node.gpus_used for node in backend.read().nodes)
    backend.apply(enter(backend, job, ("n0",), 3))
    check_runs(backend, testbed, job, ("n0",), 3)
    wait_until(lambda: len(submitter.told(job)) == 2, "a word of the second run", PATIENCE_S)
    told = submitter.told(job)
    assert [(run.gpus_per_node, run.restarts) for run in told] == [(4, 0), (3, 1)]
    assert all(run.nonce in waiting.mark for run in told)


@pytest.mark.usefixtures("held")
def test_a_cancelled_job_is_over_while_its_processes_still_end_and_not_queued_again(
    backend: SlurmBackend, submitter: Submitter
) -> None:
    seen_to_end = submitter.folder / "seen"
    saving = f"until [ -e {seen_to_end} ]; do sleep 0.05; done"
    job = submitter.submit("--gpu-set=1-8", saving=saving)
    backend.apply(enter(backend, job, ("n1",), 4))
    wait_until(lambda: bool(submitter.told(job)), "a word of the job", PATIENCE_S)
    backend.apply(Cancel(job))
    ending = await_job(backend, job, lambda job: job.state is not JobState.RUNNING)
    assert (ending.state, ending.over, ending.outcome) == (JobState.COMPLETING, True, "")
    assert ending.nodes == ("n1",)
    # The daemon may have seen it run a moment ago.
    backend.apply(Requeue(job))
    assert backend.read().jobs[job].over
    seen_to_end.touch()
    ended = await_job(backend, job, lambda job: job.state is JobState.ENDED)
    assert (ended.over, ended.outcome) == (False, "CANCELLED")
    backend.apply(Requeue(job))
    assert backend.read().jobs[job].state is JobState.ENDED


@pytest.mark.usefixtures("held")
def test_a_placement_sets_time_cpus_and_memory_and_to_leave_sets_them_back(
    backend: SlurmBackend, submitter: Submitter
) -> None:
    asks = ("--gpus=2", "--cpus-per-task=4", "--mem=1000", "--time=10")
    job = submitter.submit("--gpu-set=1-8", *asks)
    before = backend.read().jobs[job]
    assert before.asked == Asked(cpus_per_task=4, memory_mb_per_node=1000)
    backend.apply(enter(backend, job, ("n1", "n4"), 4, Terms(44, 8, 2000)))
    seen = await_job(backend, job, running)
    assert (seen.time_limit_s, seen.cpus) == (44 * 60, 16)
    used = {node.name: (node.cpus_used, node.memory_used_mb) for node in backend.read().nodes}
    assert (used["n1"], used["n4"], used["n0"]) == ((8, 2000), (8, 2000), (0, 0))
    backend.apply(Requeue(job))
    await_job(backend, job, pending)
    backend.apply(Leave(job, (), before.resources, Terms(10, 4, 1000)))
    after = backend.read().jobs[job]
    assert (after.time_limit_s, after.asked, after.gpus) == (600, before.asked, 2)
    assert (after.resources.per_job, after.reservation, after.pinned) == ("gres/gpu:2", "", ())
    # What is asked for by GPU follows the GPUs by itself.
    job = submitter.submit("--gpu-set=1-8", "--gpus=2", "--cpus-per-gpu=3", "--mem-per-gpu=500")
    asked = backend.read().jobs[job].asked
    assert asked == Asked(memory_mb_per_gpu=500, cpus_per_gpu=3)
    backend.apply(enter(backend, job, ("n1",), 5))
    await_job(backend, job, running)
    used = {node.name: (node.cpus_used, node.memory_used_mb) for node in backend.read().nodes}
    assert used["n1"] == (15, 2500)


LISTENS = """\
#!/bin/bash
#HETSCHED --gpu-set=1
trap 'echo script' USR1
srun --overlap bash -c "trap 'echo step' USR1; echo ready; while :; do sleep 0.1; done" &
while :; do sleep 0.1; done
"""


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (Recipients.STEPS, {"ready", "step"}),
        (Recipients.SCRIPT, {"ready", "script"}),
        (Recipients.ALL, {"ready", "script", "step"}),
    ],
)
@pytest.mark.usefixtures("held")
def test_a_signal_reaches_just_whom_it_is_meant_for(
    backend: SlurmBackend,
    submitter: Submitter,
    testbed: Testbed,
    to: Recipients,
    expected: set[str],
) -> None:
    script, out = submitter.folder / "listens.sh", submitter.folder / "listens.out"
    script.write_text(LISTENS)
    job = testbed.command("sbatch", "--parsable", f"--output={out}", script).strip()
    backend.apply(enter(backend, job, ("n0",), 1))

    def said() -> set[str]:
        # bash also says that the `sleep` between was ended by the signal.
        lines = out.read_text().splitlines() if out.exists() else []
        return {"ready", "script", "step"} & set(lines)

    wait_until(lambda: bool(said()), "a step", PATIENCE_S)
    backend.apply(Signal(job, "USR1", to))
    wait_until(lambda: said() >= expected, str(expected), PATIENCE_S)
    time.sleep(0.3)
    assert said() == expected


def test_what_the_site_has_set_is_read(backend: SlurmBackend, testbed: Testbed) -> None:
    (host, port) = re.findall(
        r"^Slurmctld(?:Host|Port)=(.*)$", testbed.layout.slurm_conf.read_text(), re.MULTILINE
    )
    longest = {"gpu": 604800.0, "short": 3600.0}
    assert backend.site() == SlurmSite(
        10.0,
        longest,
        GpuLimits(),
        cluster=f"testbed at {host}:{port}",
    )
    testbed.command("scontrol", "update", "partition=gpu", "maxtime=90")
    try:
        assert backend.site().longest_s == {"gpu": 5400.0, "short": 3600.0}
    finally:
        testbed.command("scontrol", "update", "partition=gpu", "maxtime=7-00:00:00")


def test_whatever_bytes_a_user_gives_for_a_name_jobs_are_read(
    backend: SlurmBackend, submitter: Submitter
) -> None:
    job = submitter.submit("--gpu-set=1", "--job-name=caf\udce9")
    seen = backend.read().jobs[job]
    assert seen.name == "caf\ufffd"
    assert "--job-name" in seen.submit_line


@pytest.mark.parametrize("options", [(), ("State=SpecialExit",)])
@pytest.mark.usefixtures("held")
def test_a_job_that_its_user_requeues_into_a_hold_waits(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed, options: tuple[str, ...]
) -> None:
    job = submitter.submit("--gpu-set=1")
    backend.apply(enter(backend, job, ("n0",), 1))
    await_job(backend, job, running)
    testbed.command("scontrol", "requeuehold", *options, job)
    seen = await_job(backend, job, pending)
    assert seen.held


def test_elements_that_slurm_has_not_started_are_known_and_split_off_by_their_numbers(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    room = sum(node.gpus // 4 for node in testbed.layout.nodes)
    # Of these Slurm keeps the last two as one, under the number of the array.
    last = [room, room + 1]
    words = (f"--array=0-{last[1]}", "--output=/dev/null", "--wrap=sleep 600")
    job = testbed.command("sbatch", "--parsable", "--gpus=4", "--nodes=1", *words).strip()

    def elements(state: JobState) -> list[SlurmJob]:
        ours = (seen for seen in backend.read().jobs.values() if seen.array == job)
        return sorted((s for s in ours if s.state is state), key=lambda seen: seen.element)

    wait_until(lambda: len(elements(JobState.RUNNING)) == room, "all that fit", PATIENCE_S)
    assert [seen.element for seen in elements(JobState.RUNNING)] == list(range(room))
    (kept,) = elements(JobState.PENDING)
    assert (kept.id, kept.element, kept.unsplit) == (job, last[0], tuple(last))
    # The last one keeps the array's number, and is not element 0, which runs.
    for number in last:
        backend.apply(Leave(f"{job}_{number}"))
        assert {seen.id for seen in elements(JobState.PENDING)} <= {
            job,
            *(f"{job}_{each}" for each in last),
        }
    for number, seen in zip(last, elements(JobState.PENDING), strict=True):
        assert (seen.id, seen.element, seen.unsplit) == (f"{job}_{number}", number, ())
    # squeue shows the two as one to a daemon that sees them first now.
    jobs = type(backend)().read().jobs
    assert [jobs[f"{job}_{each}"].resources.per_job for each in last] == ["gres/gpu:4"] * 2


def test_a_job_that_does_not_exist_is_refused(backend: SlurmBackend) -> None:
    for change in (
        Enter("999999", NAME, ("n0",), Leave("999999")),
        Leave("999999"),
        Requeue("999999"),
    ):
        with pytest.raises(RefusedError, match="999999"):
            backend.apply(change)


def test_drained_and_lost_nodes_are_told_apart(backend: SlurmBackend, testbed: Testbed) -> None:
    testbed.command("scontrol", "update", "node=n2", "state=drain", "reason=test")
    testbed.command("scontrol", "update", "node=n3", "state=down", "reason=test")
    try:
        read = {node.name: node.condition for node in backend.read().nodes}
    finally:
        for node in ("n2", "n3"):
            wait_until(lambda node=node: is_back(testbed, node), f"{node} to be back", 60)  # type: ignore[misc]
    assert (read["n2"], read["n3"], read["n0"]) == (
        NodeCondition.DRAINED,
        NodeCondition.DOWN,
        NodeCondition.UP,
    )


@pytest.mark.usefixtures("held")
def test_a_controller_that_is_away_is_said_to_be_away_and_found_again(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    job = submitter.submit("--gpu-set=1")
    testbed.stop_controller()
    try:
        with pytest.raises(AwayError):
            backend.read()
        outcome = apply_changes(backend, [Leave(job)], lambda _: None, backoff_s=())
    finally:
        testbed.start_controller()
        testbed.await_idle()
    assert outcome.put_off == (Leave(job),)
    assert outcome.away
    assert backend.read().jobs[job].state is JobState.PENDING


def test_munge_that_is_away_is_said_to_be_away_and_found_again(
    backend: SlurmBackend, testbed: Testbed
) -> None:
    testbed.stop_munge()
    try:
        with pytest.raises(AwayError):
            backend.read()
    finally:
        testbed.start_munge()

    def answers() -> bool:
        with suppress(AwayError):
            return len(backend.read().nodes) == 6
        return False

    wait_until(answers, "an answer", PATIENCE_S)


@pytest.mark.usefixtures("held")
def test_what_changes_of_a_job_is_seen_though_it_was_read_before(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed, request: pytest.FixtureRequest
) -> None:
    in_all = submitter.submit("--gpu-set=1,2", "--gpus=2", "--time=5")
    by_node = submitter.submit("--gpu-set=1", "--gres=gpu:1")
    seen = backend.read().jobs
    for job, change, field in (
        (by_node, "TresPerNode=gres/gpu:3", "gpus"),
        (by_node, "JobName=b", "name"),
        (by_node, "TimeLimit=7", "time_limit_s"),
        (by_node, "MinMemoryNode=300", "memory_mb"),
        (by_node, "NumCPUs=3", "cpus"),
        (by_node, "NumNodes=2", "resources"),
        (by_node, "ReqNodeList=n1", "pinned"),
        (by_node, "ExcNodeList=n2", "excluded"),
        (by_node, "Priority=7", "priority"),
        (by_node, "AdminComment=x", "mark"),
        (by_node, f"Dependency=afterany:{in_all}", "dependency"),
        (by_node, "StartTime=now+1hour", "begin_s"),
        (in_all, "TimeLimit=7", "time_limit_s"),
    ):
        testbed.command("scontrol", "update", f"JobId={job}", change)
        before, seen = seen[job], backend.read().jobs
        assert getattr(seen[job], field) != getattr(before, field), change
        fresh = open_backend(request.node.callspec.params["backend"]).read().jobs[job]
        # Its reason, its place in the queue and the most nodes Slurm changes by itself.
        own = {name: getattr(seen[job], name) for name in ("reason", "priority", "resources")}
        assert seen[job] == replace(fresh, **own), change
    # With the first change Slurm forgets its reason, so the second shows in nothing else, and is
    # seen in a moment.
    for gpus in (3, 4):
        testbed.command("scontrol", "update", f"JobId={in_all}", f"TresPerJob=gres/gpu:{gpus}")
        assert gpus in {backend.read().jobs[in_all].gpus for _ in range(8)}
