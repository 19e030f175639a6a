"""Jobs that share no node with other users keep those off it, and nothing else."""

from dataclasses import replace

import pytest

from hetsched_core.types import Reason, ReasonCode
from slurm_plugin.backend import JobState, SlurmBackend, SlurmJob, SlurmSite
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    RIGID,
    SETTINGS,
    Site,
    named,
    node,
    placed,
    places,
    running,
)
from tests.slurm_plugin.jobs import Submitter
from tests.slurm_plugin.live import daemon_of as live_daemon
from tests.slurm_plugin.live import drive, started
from tests.slurm_plugin.submit.asking import as_user

ANN, BOB = (replace(RIGID, id=number, user=user) for number, user in (("1", "ann"), ("2", "bob")))
OWN = "user"


@pytest.mark.parametrize(
    ("there", "comes", "goes_to"),
    [
        (ANN, BOB, "n0"),
        (replace(ANN, exclusive=OWN), BOB, "n1"),
        (ANN, replace(BOB, exclusive=OWN), "n1"),
        (replace(ANN, exclusive=OWN), replace(ANN, id="3"), "n0"),
        (replace(ANN, exclusive=OWN, state=JobState.ENDED), BOB, "n0"),
    ],
)
@pytest.mark.parametrize("gpus", [0, 1])
def test_a_job_goes_where_slurm_starts_it(
    there: SlurmJob, comes: SlurmJob, goes_to: str, gpus: int
) -> None:
    # n1 has less room, and is taken only where n0 is not to be had.
    nodes = (node("n0", used=1), replace(node("n1", used=1), cpus_used=8))
    others = replace(running(there, "n0"), reservation="")
    if there.state is JobState.ENDED:
        others = replace(others, state=JobState.ENDED)
    site = Site(others, replace(comes, gpus=gpus), nodes=nodes)
    assert places(site.cycle()) == {comes.id: (goes_to,)}


def test_one_that_fits_nowhere_for_others_is_told_so_and_keeps_no_job_waiting() -> None:
    alone = replace(BOB, exclusive=OWN, submit_s=1.0)
    others = (replace(ANN, id="3"), replace(ANN, id="4", user="eve"))
    site = Site(running(ANN, "n0"), alone, *others, nodes=(node("n0", used=1),))
    assert places(site.cycle()).keys() == {"3", "4"}
    said = "jobs of other users are on them, and they or it share no node"
    assert site.blocked("2") == Reason(ReasonCode.CLOSED, detail=said)


@pytest.mark.parametrize(
    ("exclusive", "gpus", "enter"), [("", 1, 2), (OWN, 1, 1), ("", 0, 2), ("node", 0, 1)]
)
def test_two_that_share_no_node_enter_none_in_one_cycle(
    exclusive: str, gpus: int, enter: int
) -> None:
    site = Site(replace(ANN, exclusive=exclusive), replace(BOB, gpus=gpus, cpus=1))
    assert places(site.cycle()).keys() == {*("1", "2")[:enter]}


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
    site = Site(
        *(there, *capped, either, free),
        nodes=(replace(CAPPED_NODE, cpus_used=4),),
        backend=FakeBackend(where=CAPPED),
        settings=replace(SETTINGS, partitions=frozenset({"cap", "open"})),
    )
    entered = places(site.cycle())
    if gpus:
        # What a policy has planned beyond it is seen in the next cycle.
        first, *rest = capped
        entered |= places(site.see(there, placed(first, "n0"), *rest, either, free))
        closed = "jobs of its partition have the CPUs there that MaxCPUsPerNode leaves to them"
        blocked = {job: view.blocked for job, view in site.world.jobs.items() if view.blocked}
        said = Reason(ReasonCode.CLOSED, detail=closed)
        assert blocked == dict.fromkeys([each.id for each in rest], said)
    assert entered.keys() == {"10", "20", "21"}


def test_what_has_left_a_partition_s_cpus_lets_the_next_in() -> None:
    job = replace(RIGID, partition="cap", partitions=("cap",), cpus=8, gpus=0)
    there, comes = replace(running(job, "n0"), id="1", reservation=""), replace(job, id="2")
    site = Site(
        *(there, comes),
        nodes=(CAPPED_NODE,),
        backend=FakeBackend(where=CAPPED),
        settings=replace(SETTINGS, partitions=frozenset({"cap"})),
    )
    assert places(site.cycle()) == {}
    assert places(site.see(replace(there, state=JobState.ENDED), comes)) == {"2": ("n0",)}


SHORT = SlurmSite(30.0, {"gpu": None}, licenses={"cad": 2})


@pytest.mark.parametrize("gpus", [0, 1])
def test_licences_are_counted_and_free_again_when_those_who_have_them_end(gpus: int) -> None:
    asks = replace(RIGID, gpus=gpus, cpus=1, licenses=(("cad", 1),), reason="Licenses")
    there = replace(running(asks, "n0", gpus=gpus), id="1", reservation="")
    jobs = [replace(asks, id=f"{n}") for n in (2, 3)]
    many, unknown = replace(asks, id="4", licenses=(("cad", 2),)), (("fem", 9),)
    other = replace(asks, id="5", licenses=unknown)
    site = Site(there, *jobs, many, other, backend=FakeBackend(where=SHORT))
    assert places(site.cycle()).keys() == {"2", "5"}
    if gpus:
        said = "it asks for 2 of cad, and 1 are free"
        assert site.blocked("4") == Reason(ReasonCode.LICENSES, detail=said)
    # One that is placed has its own, whatever Slurm has last said of it.
    for said in ("None", "Licenses"):
        here = replace(placed(jobs[0], "n0"), reason=said)
        assert not {"Enter", "Leave"} & dict(named(site.see(there, here, jobs[1], many))).keys()
    ended = replace(there, state=JobState.ENDED)
    assert places(site.see(ended, placed(jobs[0], "n0"), jobs[1], many)).keys() == {"3"}


def test_one_that_was_placed_and_lost_its_licence_to_another_gives_its_place_back() -> None:
    asks = replace(RIGID, licenses=(("cad", 2),))
    site = Site(asks, backend=FakeBackend(where=SHORT))
    site.cycle()
    other = replace(running(asks, "n0"), id="1", reservation="")
    here = replace(placed(asks, "n0"), reason="Licenses")
    assert ("Leave", "5") in named(site.see(here, other))
    ended = replace(other, state=JobState.ENDED)
    assert places(site.see(replace(asks, reason="Licenses"), ended)) == {"5": ("n0",)}


@pytest.mark.slurm
def test_slurm_starts_what_is_placed_beside_jobs_that_share_no_node_with_other_users(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    daemon = live_daemon(backend)
    drive(daemon, lambda: daemon.world.cluster is not None)
    words = ("--parsable", "--output=/dev/null", "--exclusive=user", "--gpus=1")
    job = as_user(testbed, "bin", "sbatch", *words, "--wrap=sleep 600").stdout.strip()
    drive(daemon, lambda: backend.read().jobs[job].state is JobState.RUNNING)
    (taken,) = backend.read().jobs[job].nodes
    rest = (each for each in backend.read().nodes if each.name != taken)
    idle = sum(count for each in rest for _, count in each.gpus)
    others = [submitter.submit("--gpu-set=4", "--gpus=4", seconds=600) for _ in range(idle // 4)]
    drive(daemon, started(submitter, others))
    waits = submitter.submit("--gpu-set=1", "--gpus=1", seconds=600)
    drive(daemon, lambda: waits in daemon.world.jobs)
    reason = daemon.world.jobs[waits].blocked
    assert not backend.read().jobs[waits].entered
    assert reason is None or reason.code is ReasonCode.CLOSED
    testbed.command("scancel", job)
