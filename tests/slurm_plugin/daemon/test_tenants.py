"""Jobs that share no node with other users keep those off it, and nothing else."""

from dataclasses import replace

import pytest

from hetsched_core.types import Reason, ReasonCode
from slurm_plugin.backend import Enter, JobState, Leave, SlurmBackend, SlurmJob, SlurmSite
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    RIGID,
    SETTINGS,
    Clock,
    daemon_of,
    node,
    placed,
    running,
    state,
)
from tests.slurm_plugin.daemon.test_daemon_live import daemon_of as live_daemon
from tests.slurm_plugin.daemon.test_daemon_live import drive, started
from tests.slurm_plugin.jobs import Submitter
from tests.slurm_plugin.submit.asking import as_user

ANN, BOB = (replace(RIGID, id=number, user=user) for number, user in (("1", "ann"), ("2", "bob")))
OWN = "user"


@pytest.mark.parametrize(
    ("there", "comes", "goes_to"),
    [
        (ANN, BOB, {"n0"}),
        (replace(ANN, exclusive=OWN), BOB, {"n1"}),
        (ANN, replace(BOB, exclusive=OWN), {"n1"}),
        (replace(ANN, exclusive=OWN), replace(ANN, id="3"), {"n0"}),
        (replace(ANN, exclusive=OWN, state=JobState.ENDED), BOB, {"n0"}),
    ],
)
@pytest.mark.parametrize("gpus", [0, 1])
def test_a_job_goes_where_slurm_starts_it(
    there: SlurmJob, comes: SlurmJob, goes_to: set[str], gpus: int
) -> None:
    # n1 has less room, and is taken only where n0 is not to be had.
    nodes = (node("n0", used=1), replace(node("n1", used=1), cpus_used=8))
    others = replace(running(there, "n0"), reservation="")
    if there.state is JobState.ENDED:
        others = replace(others, state=JobState.ENDED)
    backend = FakeBackend(state(others, replace(comes, gpus=gpus), nodes=nodes))
    daemon_of(backend, Clock()).cycle()
    placed = [call for call in backend.calls if isinstance(call, Enter)]
    assert {name for call in placed for name in call.nodes} == goes_to


def test_one_that_fits_nowhere_for_others_is_told_so_and_keeps_no_job_waiting() -> None:
    alone = replace(BOB, exclusive=OWN, submit_s=1.0)
    backend = FakeBackend(
        state(running(ANN, "n0"), alone, replace(ANN, id="3"), nodes=(node("n0", used=1),))
    )
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert [call.job for call in backend.calls if isinstance(call, Enter)] == ["3"]
    said = "jobs of other users are on them, and they or it share no node"
    assert daemon.world.jobs["2"].blocked == Reason(ReasonCode.CLOSED, detail=said)


@pytest.mark.parametrize("exclusive", ["", OWN])
def test_two_that_share_no_node_enter_none_in_one_cycle(exclusive: str) -> None:
    both = replace(ANN, exclusive=exclusive), BOB
    backend = FakeBackend(state(*both, nodes=(node("n0"),)))
    daemon_of(backend, Clock()).cycle()
    entered = [call.job for call in backend.calls if isinstance(call, Enter)]
    assert len(entered) == (1 if exclusive else 2)


@pytest.mark.parametrize("exclusive", ["", "node"])
def test_a_job_without_gpus_enters_no_node_that_one_has_just_taken_for_itself(
    exclusive: str,
) -> None:
    alone, small = replace(ANN, exclusive=exclusive), replace(BOB, gpus=0, cpus=1)
    backend = FakeBackend(state(alone, small, nodes=(node("n0"),)))
    daemon_of(backend, Clock()).cycle()
    entered = {call.job for call in backend.calls if isinstance(call, Enter)}
    assert entered == ({"1"} if exclusive else {"1", "2"})


CAPPED = SlurmSite(30.0, {"cap": None, "open": None}, cpus_per_node={"cap": 8})
CAPPED_NODE = replace(node("n0"), partitions=frozenset({"cap", "open"}))


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_partition_has_no_more_cpus_of_a_node_than_it_may_and_others_have_the_rest(
    gpus: int,
) -> None:
    there = replace(
        running(ANN, "n0"), partition="cap", partitions=("cap",), cpus=4, reservation=""
    )
    asks = replace(BOB, gpus=gpus, cpus=4, submit_s=1.0)
    capped = [
        replace(asks, id=f"{n}", partition="cap", partitions=("cap",), priority=9)
        for n in range(10, 16)
    ]
    either = replace(asks, id="20", partition="cap", partitions=("cap", "open"))
    free = replace(asks, id="21", partition="open", partitions=("open",))
    nodes = (replace(CAPPED_NODE, cpus_used=4),)
    backend = FakeBackend(state(there, *capped, either, free, nodes=nodes), where=CAPPED)
    clock, settings = Clock(), replace(SETTINGS, partitions=frozenset({"cap", "open"}))
    daemon = daemon_of(backend, clock, settings=settings)
    daemon.cycle()
    if gpus:
        # What a policy has planned beyond it is seen in the next cycle.
        first, *rest = capped
        backend.state = state(there, placed(first, "n0"), *rest, either, free, nodes=nodes)
        clock.now += 1
        daemon.cycle()
        closed = "jobs of its partition have the CPUs there that MaxCPUsPerNode leaves to them"
        blocked = {job: view.blocked for job, view in daemon.world.jobs.items() if view.blocked}
        said = Reason(ReasonCode.CLOSED, detail=closed)
        assert blocked == dict.fromkeys([each.id for each in rest], said)
    entered = {call.job for call in backend.calls if isinstance(call, Enter)}
    assert entered == {"10", "20", "21"}


def test_what_has_left_a_partition_s_cpus_lets_the_next_in() -> None:
    job = replace(RIGID, partition="cap", partitions=("cap",), cpus=8, gpus=0)
    there, comes = replace(running(job, "n0"), id="1", reservation=""), replace(job, id="2")
    backend = FakeBackend(state(there, comes, nodes=(CAPPED_NODE,)), where=CAPPED)
    clock = Clock()
    daemon = daemon_of(backend, clock, settings=replace(SETTINGS, partitions=frozenset({"cap"})))
    daemon.cycle()
    assert not any(isinstance(call, Enter) for call in backend.calls)
    backend.state = state(replace(there, state=JobState.ENDED), comes, nodes=(CAPPED_NODE,))
    clock.now += 1
    daemon.cycle()
    assert [call.job for call in backend.calls if isinstance(call, Enter)] == ["2"]


SHORT = SlurmSite(30.0, {"gpu": None}, licenses={"cad": 2})


@pytest.mark.parametrize("gpus", [0, 1])
def test_licences_are_counted_and_free_again_when_those_who_have_them_end(gpus: int) -> None:
    asks = replace(RIGID, gpus=gpus, cpus=1, licenses=(("cad", 1),), reason="Licenses")
    there = replace(running(asks, "n0", gpus=gpus), id="1", reservation="")
    jobs = [replace(asks, id=f"{n}") for n in (2, 3)]
    many, unknown = replace(asks, id="4", licenses=(("cad", 2),)), (("fem", 9),)
    other = replace(asks, id="5", licenses=unknown)
    backend = FakeBackend(state(there, *jobs, many, other), where=SHORT)
    daemon = daemon_of(backend, Clock())
    daemon.cycle()

    def entered() -> set[str]:
        calls, backend.calls = backend.calls, []
        return {call.job for call in calls if isinstance(call, Enter)}

    assert entered() == {"2", "5"}
    if gpus:
        said = "it asks for 2 of cad, and 1 are free"
        assert daemon.world.jobs["4"].blocked == Reason(ReasonCode.LICENSES, detail=said)
    # One that is placed has its own, whatever Slurm has last said of it.
    for said in ("None", "Licenses"):
        here = replace(placed(jobs[0], "n0"), reason=said)
        backend.state = state(there, here, jobs[1], many)
        daemon.cycle()
        assert not any(isinstance(call, Leave) for call in backend.calls)
        assert entered() == set()
    ended = replace(there, state=JobState.ENDED)
    backend.state = state(ended, placed(jobs[0], "n0"), jobs[1], many)
    daemon.cycle()
    assert entered() == {"3"}


def test_one_that_was_placed_and_lost_its_licence_to_another_gives_its_place_back() -> None:
    asks = replace(RIGID, licenses=(("cad", 2),))
    backend = FakeBackend(state(asks), where=SHORT)
    clock = Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    other = replace(running(asks, "n0"), id="1", reservation="")
    here = replace(placed(asks, "n0"), reason="Licenses")
    backend.state = state(here, other)
    daemon.cycle()
    assert [call.job for call in backend.calls if isinstance(call, Leave)] == ["5"]
    backend.state = state(replace(asks, reason="Licenses"), replace(other, state=JobState.ENDED))
    backend.calls.clear()
    clock.now += 1
    daemon.cycle()
    assert [call.job for call in backend.calls if isinstance(call, Enter)] == ["5"]


@pytest.mark.slurm
def test_slurm_starts_what_is_placed_beside_jobs_that_share_no_node_with_other_users(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    daemon = live_daemon(backend, "steady")
    drive(daemon, lambda: daemon.world.cluster is not None, 20)
    words = ("--parsable", "--output=/dev/null", "--exclusive=user", "--gpus=1")
    job = as_user(testbed, "bin", "sbatch", *words, "--wrap=sleep 600").stdout.strip()
    drive(daemon, lambda: backend.read().jobs[job].state is JobState.RUNNING, 20)
    (taken,) = backend.read().jobs[job].nodes
    rest = (each for each in backend.read().nodes if each.name != taken)
    idle = sum(count for each in rest for _, count in each.gpus)
    others = [submitter.submit("--gpu-set=4", "--gpus=4", seconds=600) for _ in range(idle // 4)]
    drive(daemon, started(submitter, others), 20)
    waits = submitter.submit("--gpu-set=1", "--gpus=1", seconds=600)
    drive(daemon, lambda: waits in daemon.world.jobs, 20)
    reason = daemon.world.jobs[waits].blocked
    assert not backend.read().jobs[waits].entered
    assert reason is None or reason.code is ReasonCode.CLOSED
    testbed.command("scancel", job)
