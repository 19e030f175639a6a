"""What every backend keeps to, on a real Slurm."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from hetsched_core.types import NodeCondition
from slurm_plugin.backend import (
    AwayError,
    Cancel,
    Drop,
    Enter,
    GpuLimits,
    Hold,
    HostRequest,
    JobState,
    Leave,
    Recipients,
    RefusedError,
    Requeue,
    Signal,
    SlurmBackend,
    SlurmJob,
    SlurmNode,
    SlurmSite,
    Terms,
    apply_changes,
    open_backend,
)
from slurm_plugin.testbed import NODE_DISK_MB, Testbed
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.jobs import Submitter, Told, await_job, is_back, pending, running
from tests.slurm_plugin.submit.asking import sbatch

PATIENCE_S = 60.0
NAME = "hetsched"
NO_TERMS = Terms()

pytestmark = pytest.mark.parametrize(
    "backend",
    [
        pytest.param("commands", marks=pytest.mark.slurm),
        pytest.param("pyslurm", marks=pytest.mark.pyslurm),
    ],
    indirect=True,
)


@dataclass(frozen=True, slots=True)
class Slurm(Submitter):
    """A cluster, its jobs, and the backend that is held to the contract."""

    backend: SlurmBackend

    def job(self, job: str) -> SlurmJob:
        return self.backend.read().jobs[job]

    def nodes(self) -> dict[str, SlurmNode]:
        return {node.name: node for node in self.backend.read().nodes}

    def tell(self, job: str, *words: str) -> None:
        self.cluster.command("scontrol", "update", f"JobId={job}", *words)

    def place(self, job: str, *nodes: str, gpus: int = 1, terms: Terms = NO_TERMS) -> None:
        """Place a job that waits, so that it is put back if Slurm refuses."""
        seen = self.job(job)
        resources = seen.resources.placed(len(nodes), f"gres/gpu:{gpus}", len(nodes))
        own = Terms(10, seen.asked.cpus_per_task or None)
        leave = Leave(job, resources=seen.resources, terms=own)
        due = seen.restarts > 0
        self.backend.apply(Enter(job, NAME, nodes, leave, resources, terms, due=due))

    def await_running(self, job: str) -> SlurmJob:
        return await_job(self.backend, job, running)

    def await_pending(self, job: str) -> SlurmJob:
        return await_job(self.backend, job, pending)

    def check_runs(self, job: str, *nodes: str, gpus: int) -> None:
        """A job comes to run on these nodes, with so many GPUs on each; nothing else does."""
        seen = self.await_running(job)
        assert (seen.nodes, seen.pinned, seen.gpus) == (nodes, nodes, gpus * len(nodes))
        assert seen.start_s == pytest.approx(time.time(), abs=30)
        # As Slurm itself says.
        told: dict[str, int] = {}
        tell = self.cluster.command
        for line in tell("scontrol", "--details", "show", "job", job).splitlines():
            words = dict(word.split("=", 1) for word in line.split() if "=" in word)
            if "GRES" in words and "Nodes" in words:
                names = tell("scontrol", "show", "hostnames", words["Nodes"]).split()
                told |= dict.fromkeys(names, int(words["GRES"].split(":")[2].split("(")[0]))
        assert told == dict.fromkeys(nodes, gpus)
        used = {name: sum(n for _, n in node.gpus_used) for name, node in self.nodes().items()}
        assert used == {name: gpus if name in nodes else 0 for name in used}

    def used(self, node: str) -> tuple[int, int]:
        """The CPUs and the memory of a node that are in use."""
        seen = self.nodes()[node]
        return seen.cpus_used, seen.memory_used_mb

    def submit_slow(self) -> tuple[str, Path]:
        """Submit a job that ends, once it is told to, when there is a file; return both."""
        seen = self.folder / "seen"
        saving = f"until [ -e {seen} ]; do sleep 0.05; done"
        return self.submit("--gpu-set=1-8", saving=saving), seen

    def await_words(self, job: str, runs: int = 1) -> list[Told]:
        """Return what the runs of a job have told, once so many have."""
        wait_until(lambda: len(self.told(job)) == runs, "a word of the job", PATIENCE_S)
        return self.told(job)


@pytest.fixture
def slurm(backend: SlurmBackend, submitter: Submitter) -> Slurm:
    return Slurm(submitter.cluster, submitter.folder, backend)


@pytest.fixture
def held(slurm: Slurm) -> Iterator[Slurm]:
    """All nodes are held, so that nothing starts that is not placed."""
    slurm.backend.apply(Hold(NAME, tuple(slurm.nodes()), 900))
    yield slurm
    slurm.backend.apply(Drop(NAME))


def test_nodes_are_read_with_their_gpus(slurm: Slurm) -> None:
    read = slurm.nodes()
    for node in slurm.cluster.layout.nodes:
        assert read[node.name].gpus == ((node.gpu_type, node.gpus),)
        assert read[node.name].condition is NodeCondition.UP
        assert (read[node.name].cpus, read[node.name].memory_mb) == (32, 64000)
        assert "gpu" in (read[node.name].partitions or ())


def test_a_running_job_that_asked_for_gpus_in_all_tells_those_on_its_only_node(
    slurm: Slurm,
) -> None:
    seen = slurm.await_running(sbatch(slurm.cluster, "--gpus=3", "--wrap=sleep 600"))
    assert len(seen.nodes) == 1
    assert (seen.gpus, len(seen.gpu_types)) == (3, 1)


def test_gpus_that_slurm_has_split_unevenly_are_told_node_by_node(slurm: Slurm) -> None:
    last = "--wrap=sleep 600"
    slurm.await_running(sbatch(slurm.cluster, "--gpus-per-node=3", "--nodelist=n0", last))
    both = ("--nodes=2", "--nodelist=n0,n1")
    seen = slurm.await_running(sbatch(slurm.cluster, *both, "--gpus=3", last))
    assert (seen.nodes, seen.gpus) == (("n0", "n1"), 3)
    assert seen.gpus_on == (("n0", 1), ("n1", 2))
    by_node = sbatch(slurm.cluster, "--nodes=2", "--nodelist=n2,n3", "--gpus-per-node=1", last)
    assert slurm.await_running(by_node).gpus_on == ()


@pytest.mark.parametrize(("word", "requeues"), [("--requeue", True), ("--no-requeue", False)])
def test_whether_a_job_can_be_queued_again_is_its_user_s_word(
    slurm: Slurm, word: str, requeues: bool
) -> None:
    job = sbatch(slurm.cluster, word, "--gpus=1", "--wrap=sleep 600")
    seen = slurm.await_running(job)
    assert (seen.requeues, seen.batch, seen.configuring) == (requeues, True, False)


def test_the_disk_that_a_job_asks_for_and_that_of_a_node_are_told(slurm: Slurm) -> None:
    assert {node.disk_mb for node in slurm.nodes().values()} == {NODE_DISK_MB}
    job = sbatch(slurm.cluster, "--tmp=700", "--gpus=1", "--wrap=sleep 600")
    assert slurm.job(job).disk_mb == 700


def test_a_job_waits_in_the_shape_in_which_it_was_submitted(held: Slurm) -> None:
    before = time.time()
    job = held.submit("--gpu-set=1,2,4", "--gpus=2", "--time=10", "--job-name=a name")
    seen = await_job(held.backend, job, lambda job: job.reason.startswith("ReqNodeNotAvail"))
    assert (seen.state, seen.nodes, seen.pinned) == (JobState.PENDING, (), ())
    assert (seen.gpus, seen.gpu_types, seen.resources.per_job) == (2, (), "gres/gpu:2")
    assert (seen.user, seen.partition, seen.name) == ("root", "gpu", "a name")
    assert seen.mark.startswith('hetsched/2 {"nonce":"')
    assert seen.time_limit_s == 600
    assert before - 1 <= seen.submit_s <= time.time()
    assert seen.begin_s == seen.submit_s
    assert (seen.restarts, seen.held, seen.start_s, seen.entered) == (0, False, None, False)
    assert "#HETSCHED --gpu-set=1,2,4" in held.backend.script(job)


def test_a_placed_job_runs_there_and_frees_its_gpus_when_its_script_has_ended_for_a_move(
    held: Slurm,
) -> None:
    job, seen_to_drain = held.submit_slow()
    held.place(job, "n1", "n4", gpus=4)
    held.check_runs(job, "n1", "n4", gpus=4)
    held.await_words(job)
    held.backend.apply(Requeue(job))
    draining = held.job(job)
    assert (draining.state, draining.over) == (JobState.COMPLETING, False)
    assert set(draining.nodes) <= {"n1", "n4"}
    assert draining.nodes
    seen_to_drain.touch()
    waiting = held.await_pending(job)
    assert (waiting.restarts, waiting.nodes) == (1, ())
    assert all(not node.gpus_used for node in held.nodes().values())
    held.place(job, "n0", gpus=3)
    held.check_runs(job, "n0", gpus=3)
    told = held.await_words(job, runs=2)
    assert [(run.gpus_per_node, run.restarts) for run in told] == [(4, 0), (3, 1)]
    assert all(run.nonce in waiting.mark for run in told)


def test_a_cancelled_job_is_over_while_its_processes_still_end_and_not_queued_again(
    held: Slurm,
) -> None:
    job, seen_to_end = held.submit_slow()
    held.place(job, "n1", gpus=4)
    held.await_words(job)
    held.backend.apply(Cancel(job))
    ending = await_job(held.backend, job, lambda job: job.state is not JobState.RUNNING)
    assert (ending.state, ending.over, ending.outcome) == (JobState.COMPLETING, True, "")
    assert ending.end_s == pytest.approx(time.time(), abs=30)
    assert ending.nodes == ("n1",)
    # The daemon may have seen it run a moment ago.
    held.backend.apply(Requeue(job))
    assert held.job(job).over
    seen_to_end.touch()
    ended = await_job(held.backend, job, lambda job: job.state is JobState.ENDED)
    assert (ended.over, ended.outcome) == (False, "CANCELLED")
    held.backend.apply(Requeue(job))
    assert held.job(job).state is JobState.ENDED


def test_a_placement_sets_time_cpus_and_memory_and_to_leave_sets_them_back(held: Slurm) -> None:
    asks = ("--gpus=2", "--cpus-per-task=4", "--mem=1000", "--time=10")
    job = held.submit("--gpu-set=1-8", *asks)
    before = held.job(job)
    assert before.asked == HostRequest(cpus_per_task=4, memory_mb_per_node=1000)
    held.place(job, "n1", "n4", gpus=4, terms=Terms(44, 8, 2000))
    seen = held.await_running(job)
    assert (seen.time_limit_s, seen.cpus) == (44 * 60, 16)
    assert [held.used(node) for node in ("n1", "n4", "n0")] == [(8, 2000), (8, 2000), (0, 0)]
    held.backend.apply(Requeue(job))
    held.await_pending(job)
    held.backend.apply(Leave(job, (), before.resources, Terms(10, 4, 1000)))
    after = held.job(job)
    assert (after.time_limit_s, after.asked, after.gpus) == (600, before.asked, 2)
    assert (after.resources.per_job, after.reservation, after.pinned) == ("gres/gpu:2", "", ())
    # What is asked for by GPU follows the GPUs by itself.
    job = held.submit("--gpu-set=1-8", "--gpus=2", "--cpus-per-gpu=3", "--mem-per-gpu=500")
    assert held.job(job).asked == HostRequest(memory_mb_per_gpu=500, cpus_per_gpu=3)
    held.place(job, "n1", gpus=5)
    held.await_running(job)
    assert held.used("n1") == (15, 2500)


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
def test_a_signal_reaches_just_whom_it_is_meant_for(
    held: Slurm, to: Recipients, expected: set[str]
) -> None:
    script, out = held.folder / "listens.sh", held.folder / "listens.out"
    script.write_text(LISTENS)
    job = sbatch(held.cluster, f"--output={out}", script)
    held.place(job, "n0")

    def said() -> set[str]:
        # bash also says that the `sleep` between was ended by the signal.
        lines = out.read_text().splitlines() if out.exists() else []
        return {"ready", "script", "step"} & set(lines)

    wait_until(lambda: bool(said()), "a step", PATIENCE_S)
    held.backend.apply(Signal(job, "USR1", to))
    wait_until(lambda: said() >= expected, str(expected), PATIENCE_S)
    time.sleep(0.3)
    assert said() == expected


def test_an_element_is_signalled_while_slurm_keeps_others_of_its_array_as_one(
    slurm: Slurm,
) -> None:
    script, out = slurm.folder / "listens.sh", slurm.folder / "listens.0"
    script.write_text(LISTENS.replace("--gpu-set=1", "--gpu-set=4"))
    room = sum(node.gpus // 4 for node in slurm.cluster.layout.nodes)
    output = f"--output={slurm.folder}/listens.%a"
    job = sbatch(slurm.cluster, f"--array=0-{room + 1}", "--gpus=4", "--nodes=1", output, script)
    wait_until(lambda: out.exists() and "ready" in out.read_text(), "a step", PATIENCE_S)

    def kept() -> bool:
        seen = slurm.backend.read().jobs.values()
        return any(each.array == job and len(each.unsplit) > 1 for each in seen)

    wait_until(kept, "elements that are one", PATIENCE_S)
    slurm.backend.apply(Signal(f"{job}_0", "USR1", Recipients.SCRIPT))
    wait_until(lambda: "script" in out.read_text(), "the signal", PATIENCE_S)


def test_what_the_site_has_set_is_read(backend: SlurmBackend, testbed: Testbed) -> None:
    conf = testbed.layout.slurm_conf.read_text()
    host, port = re.findall(r"^Slurmctld(?:Host|Port)=(.*)$", conf, re.MULTILINE)
    longest = {"gpu": 604800.0, "short": 3600.0}
    cluster = f"testbed at {host}:{port}"
    site = backend.site()
    assert replace(site, shares=None) == SlurmSite(
        10.0, longest, GpuLimits(), cluster=cluster, licenses={"cad": 2}
    )
    assert site.shares is not None
    assert site.shares.tree is not None
    assert site.shares.tree.shares["root", "root"] == 1
    assert (site.shares.partitions, site.shares.qos) == ({"gpu": 1, "short": 1}, {"normal": 0})
    testbed.command("scontrol", "update", "partition=gpu", "maxtime=90")
    try:
        assert backend.site().longest_s == {"gpu": 5400.0, "short": 3600.0}
    finally:
        testbed.command("scontrol", "update", "partition=gpu", "maxtime=7-00:00:00")


def test_whatever_bytes_a_user_gives_for_a_name_jobs_are_read(slurm: Slurm) -> None:
    seen = slurm.job(slurm.submit("--gpu-set=1", "--job-name=caf\udce9"))
    assert seen.name == "caf\ufffd"
    assert "--job-name" in seen.submit_line


@pytest.mark.parametrize("options", [(), ("State=SpecialExit",)])
def test_a_job_that_its_user_requeues_into_a_hold_waits(
    held: Slurm, options: tuple[str, ...]
) -> None:
    job = held.submit("--gpu-set=1")
    held.place(job, "n0")
    held.await_running(job)
    held.cluster.command("scontrol", "requeuehold", *options, job)
    assert held.await_pending(job).held


def test_elements_that_slurm_has_not_started_are_known_and_split_off_by_their_numbers(
    slurm: Slurm,
) -> None:
    backend = slurm.backend
    room = sum(node.gpus // 4 for node in slurm.cluster.layout.nodes)
    # Of these Slurm keeps the last two as one, under the number of the array.
    last = [room, room + 1]
    words = (f"--array=0-{last[1]}", "--gpus=4", "--nodes=1", "--wrap=sleep 600")
    job = sbatch(slurm.cluster, *words)

    def elements(state: JobState) -> list[SlurmJob]:
        ours = (seen for seen in backend.read().jobs.values() if seen.array == job)
        return sorted((s for s in ours if s.state is state), key=lambda seen: seen.element)

    wait_until(lambda: len(elements(JobState.RUNNING)) == room, "all that fit", PATIENCE_S)
    assert [seen.element for seen in elements(JobState.RUNNING)] == list(range(room))
    (kept,) = elements(JobState.PENDING)
    assert (kept.id, kept.element, kept.unsplit) == (job, last[0], tuple(last))
    # The last one keeps the array's number, and is not element 0, which runs.
    names = [f"{job}_{number}" for number in last]
    for name in names:
        backend.apply(Leave(name))
        assert {seen.id for seen in elements(JobState.PENDING)} <= {job, *names}
    for number, seen in zip(last, elements(JobState.PENDING), strict=True):
        assert (seen.id, seen.element, seen.unsplit) == (f"{job}_{number}", number, ())
    # squeue shows the two as one to a daemon that sees them first now.
    jobs = type(backend)().read().jobs
    assert [jobs[name].resources.per_job for name in names] == ["gres/gpu:4"] * 2


def test_a_job_that_does_not_exist_is_refused(backend: SlurmBackend) -> None:
    for change in (
        Enter("999999", NAME, ("n0",), Leave("999999")),
        Leave("999999"),
        Requeue("999999"),
    ):
        with pytest.raises(RefusedError, match="999999"):
            backend.apply(change)


def test_drained_and_lost_nodes_are_told_apart(slurm: Slurm) -> None:
    tell = slurm.cluster.command
    expected = {
        "n2": NodeCondition.DRAINED,
        "n3": NodeCondition.DOWN,
        "n0": NodeCondition.UP,
    }

    def told_apart() -> bool:
        # A node whose slurmd registers before it is read is up again.
        tell("scontrol", "update", "node=n3", "state=down", "reason=test")
        read = slurm.nodes()
        return {node: read[node].condition for node in expected} == expected

    tell("scontrol", "update", "node=n2", "state=drain", "reason=test")
    try:
        wait_until(told_apart, f"nodes to be read as {expected}", 60)
    finally:
        for node in ("n2", "n3"):
            wait_until(partial(is_back, slurm.cluster, node), f"{node} to be back", 60)


def test_whatever_bytes_an_admin_gives_for_features_and_reasons_nodes_are_read(
    slurm: Slurm,
) -> None:
    tell, before = slurm.cluster.command, slurm.nodes()
    said, own = os.fsdecode(b"caf\xe9"), ",".join(sorted(before["n2"].features))

    def features(names: str) -> None:
        tell("scontrol", "update", "node=n2", f"features={names}", f"activefeatures={names}")

    features(said)
    tell("scontrol", "update", "node=n2", "state=drain", f"reason={said}")
    try:
        state = slurm.backend.read()
    finally:
        features(own)
        wait_until(partial(is_back, slurm.cluster, "n2"), "n2 to be back", 60)
    assert ({node.name for node in state.nodes}, state.unread) == (set(before), {})
    (node,) = (node for node in state.nodes if node.name == "n2")
    assert node.reason == "caf\ufffd"
    assert slurm.nodes()["n2"].features == before["n2"].features


def test_a_controller_that_is_away_is_said_to_be_away_and_found_again(held: Slurm) -> None:
    job = held.submit("--gpu-set=1")
    held.cluster.stop_controller()
    try:
        with pytest.raises(AwayError):
            held.backend.read()
        outcome = apply_changes(held.backend, [Leave(job)], lambda _: None, backoff_s=())
    finally:
        held.cluster.start_controller()
        held.cluster.await_idle()
    assert outcome.put_off == (Leave(job),)
    assert outcome.away
    assert held.job(job).state is JobState.PENDING


def test_munge_that_is_away_is_said_to_be_away_and_found_again(slurm: Slurm) -> None:
    slurm.cluster.stop_munge()
    try:
        with pytest.raises(AwayError):
            slurm.backend.read()
    finally:
        slurm.cluster.start_munge()

    def answers() -> bool:
        with suppress(AwayError):
            return len(slurm.nodes()) == 6
        return False

    wait_until(answers, "an answer", PATIENCE_S)


def test_what_changes_of_a_job_is_seen_though_it_was_read_before(
    held: Slurm, request: pytest.FixtureRequest
) -> None:
    backend = held.backend
    in_all = held.submit("--gpu-set=1,2", "--gpus=2", "--time=5")
    by_node = held.submit("--gpu-set=1", "--gres=gpu:1")
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
        held.tell(job, change)
        before, seen = seen[job], backend.read().jobs
        assert getattr(seen[job], field) != getattr(before, field), change
    fresh = open_backend(request.node.callspec.params["backend"]).read().jobs
    for job in (in_all, by_node):
        # Its reason, its place in the queue and the most nodes Slurm changes by itself.
        own = {name: getattr(seen[job], name) for name in ("reason", "priority", "resources")}
        assert seen[job] == replace(fresh[job], **own)
    # With the first change Slurm forgets its reason, so the second shows in nothing else, and is
    # seen in a moment.
    for gpus in (3, 4):
        held.tell(in_all, f"TresPerJob=gres/gpu:{gpus}")
        assert gpus in {held.job(in_all).gpus for _ in range(8)}
