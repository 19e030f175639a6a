"""What is remembered of a job's own shape, whatever Slurm shows of it later."""

from dataclasses import replace

import pytest

from hetsched_core.store import IN_MEMORY, Mode, Store
from slurm_plugin.backend import Asked, Enter, Leave, Resources, SlurmJob
from slurm_plugin.daemon.requests import Requests
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    HOLD,
    RIGID,
    WAITING,
    Clock,
    daemon_of,
    left,
    node,
    placed,
    running,
    state,
)

OWN = replace(WAITING, asked=Asked(8, memory_mb_per_node=4000), cpus=8)
SHAPE = Resources((2, 2), 2, "", "gres/gpu:v100:1", "", "")


def types_and_cpus(requests: Requests, seen: SlurmJob) -> tuple[frozenset[str] | None, int]:
    """What a job accepts, and its CPUs by GPU."""
    request = requests.of(seen)
    assert request is not None
    requests.edited(seen, OWN)
    request = requests.of(seen)
    assert request is not None
    return request.gpu_types, request.own.cpus


def test_the_shape_of_a_run_is_not_taken_for_an_edit_of_its_user_s() -> None:
    requests = Requests()
    assert types_and_cpus(requests, OWN) == (None, 8)
    for seen in (placed(OWN, "n0"), running(OWN, "n0")):
        assert types_and_cpus(requests, replace(seen, resources=SHAPE, cpus=16)) == (None, 8)
    assert types_and_cpus(requests, replace(OWN, cpus=4)) == (None, 4)


def test_the_gpus_that_a_job_was_given_are_not_those_that_it_asks_for() -> None:
    # As a daemon sees it first that knows nothing of those before it.
    for seen in (placed(OWN, "n0"), running(OWN, "n0")):
        assert types_and_cpus(Requests(), replace(seen, resources=SHAPE, cpus=16))[0] is None
    # Slurm started it by itself, and its user named the type.
    own = Resources((1, 0), 1, "gres/gpu:v100:1", "", "", "")
    by_itself = replace(running(OWN, "n0"), reservation="")
    assert types_and_cpus(Requests(), by_itself)[0] is None
    assert types_and_cpus(Requests(), replace(by_itself, resources=own))[0] == frozenset({"v100"})


CPUS = replace(RIGID, gpus=0, resources=Resources((1, 1), 1, "", "", "", ""))


@pytest.mark.parametrize("job", [WAITING, RIGID, CPUS], ids=["elastic", "rigid", "no GPUs"])
@pytest.mark.parametrize("named", [(), ("n0", "n1")], ids=["any node", "named"])
@pytest.mark.parametrize("restarts", [0, 1])
def test_the_next_daemon_gives_a_job_its_own_shape_back_also_where_the_hold_has_ended(
    job: SlurmJob, named: tuple[str, ...], restarts: int
) -> None:
    # Slurm lets what waits out of a reservation that has ended, and leaves it as it was placed.
    job = replace(job, pinned=named, restarts=restarts)
    nodes = (node("n0"), node("n1"))
    given = replace(placed(job, "n1"), reservation="")
    if job.mark:
        given = replace(given, resources=SHAPE, asked=Asked(9), time_limit_s=6000.0)
    back = replace(left(WAITING), nodes=named) if job.mark else Leave(job.id, named)
    full = tuple(replace(each, gpus_used=(("v100", 4),), cpus_used=32) for each in nodes)
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        backend = FakeBackend(state(job, nodes=nodes))
        first = daemon_of(backend, Clock())
        first.keep_in(store)
        first.cycle()
        backend = FakeBackend(state(given, nodes=full))
        daemon = daemon_of(backend, Clock())
        daemon.keep_in(store)
        daemon.cycle()
        assert backend.calls == [back]
        backend.calls.clear()
        daemon.let_go()
        assert back in backend.calls
        backend.state = state(job, nodes=full)
        backend.calls.clear()
        daemon.cycle()
        assert backend.calls == []


def test_a_waiting_job_whose_user_names_other_nodes_is_placed_on_those() -> None:
    nodes = tuple(replace(node(name, used=4), cpus_used=32) for name in ("n0", "n1"))
    for job in (RIGID, replace(RIGID, restarts=1), CPUS):
        backend = FakeBackend(state(job, nodes=nodes))
        daemon = daemon_of(backend, Clock())
        daemon.cycle()
        backend.state = state(replace(job, pinned=("n1",)), nodes=nodes)
        daemon.cycle()
        assert backend.calls == []
        backend.state = state(replace(job, pinned=("n1",)), nodes=(node("n0"), node("n1")))
        daemon.cycle()
        back = Leave("5", ("n1",))
        assert backend.calls == [Enter("5", HOLD, ("n1",), back, due=job.restarts > 0)]


def test_a_job_whose_record_cannot_be_read_for_a_moment_keeps_its_own_shape() -> None:
    given = replace(placed(WAITING, "n0"), resources=SHAPE, asked=Asked(9), time_limit_s=6000.0)
    backend = FakeBackend(state(WAITING))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    backend.calls.clear()
    backend.state = replace(state(), unread={"job 1": "it cannot be read"})
    daemon.cycle()
    backend.state = state(given, nodes=(node("n0", used=4),))
    daemon.cycle()
    assert backend.calls == [left(WAITING)]


def test_a_refused_placement_gives_back_the_order_of_the_partitions_too() -> None:
    own = ("elsewhere", "gpu")
    for job in (WAITING, RIGID, CPUS):
        backend = FakeBackend(state(replace(job, partitions=own)))
        daemon_of(backend, Clock()).cycle()
        (change,) = backend.calls
        assert isinstance(change, Enter)
        assert (change.partitions, change.otherwise.partitions) == (("gpu", "elsewhere"), own)


def test_a_job_without_gpus_that_a_daemon_placed_gets_its_own_nodes_from_the_next_one() -> None:
    job = replace(CPUS, pinned=("n0", "n1"), resources=Resources((2, 2), 2, "", "", "", ""))
    nodes = (node("n0"), node("n1"))
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        first = daemon_of(FakeBackend(state(job, nodes=nodes)), Clock())
        first.keep_in(store)
        first.cycle()
        backend = FakeBackend(state(placed(job, "n0", "n1"), nodes=nodes))
        daemon = daemon_of(backend, Clock())
        daemon.keep_in(store)
        daemon.cycle()
        assert backend.calls == [Leave("5", ("n0", "n1"))]
