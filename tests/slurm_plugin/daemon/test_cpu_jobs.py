"""Jobs without GPUs pass in Slurm's own order, beside what idle GPUs need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.types import NodeCondition
from slurm_plugin.backend import (
    Asked,
    Enter,
    Leave,
    RefusedError,
    Resources,
    SlurmJob,
    SlurmReservation,
)
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    HOLD,
    RIGID,
    SETTINGS,
    Clock,
    daemon_of,
    node,
    placed,
    running,
    state,
)


def cpu_job(number: int, cpus: int, priority: int = 1, nodes: int = 1, **more: object) -> SlurmJob:
    """A waiting job without GPUs."""
    asks = Resources((nodes, nodes), nodes, "", "", "", "")
    job = replace(RIGID, id=f"{number}", gpus=0, cpus=cpus, priority=priority, resources=asks)
    return replace(job, **more)  # type: ignore[arg-type]


def entered(*jobs: SlurmJob, names: tuple[str, ...] = ("n0",)) -> list[tuple[str, tuple[str, ...]]]:
    """Which jobs enter in one cycle, and where; nodes have 32 CPUs and four idle GPUs."""
    backend = FakeBackend(state(*jobs, nodes=tuple(node(name) for name in names)))
    daemon_of(backend, Clock()).cycle()
    return [(call.job, call.nodes) for call in backend.calls if isinstance(call, Enter)]


def test_they_pass_by_priority_and_not_while_they_are_held_or_wait_for_others() -> None:
    jobs = (
        cpu_job(1, 20, priority=5),
        cpu_job(2, 20, priority=9),
        cpu_job(3, 1, priority=99, held=True),
        cpu_job(4, 1, priority=98, reason="Dependency"),
        cpu_job(6, 1, priority=97, begin_s=2000.0),
        cpu_job(7, 1, priority=96, dependency="afterok:4"),
    )
    assert entered(*jobs) == [("2", ("n0",))]


def test_idle_gpus_keep_the_cpus_and_the_memory_that_jobs_of_gpus_ask_for() -> None:
    # It waits for a node that is down, and asks for 4 CPUs with each GPU.
    waits = replace(RIGID, cpus=4, asked=Asked(4), excluded=("n0",))
    down = node("n1", condition=NodeCondition.DOWN)

    def passes(job: SlurmJob, used: int = 0) -> bool:
        here = replace(node("n0", used=used), cpus_used=4 * used)
        backend = FakeBackend(state(waits, job, nodes=(here, down)))
        daemon_of(backend, Clock()).cycle()
        return bool(backend.calls)

    assert passes(cpu_job(1, 16))
    assert not passes(cpu_job(1, 17))
    # GPUs in use have theirs.
    assert passes(cpu_job(1, 16), used=4)
    assert not passes(cpu_job(1, 17), used=4)
    assert not passes(cpu_job(1, 1, memory_mb=64_001))


def test_a_job_of_gpus_that_needs_most_of_a_node_has_one_that_empties_for_it() -> None:
    # Three GPUs of each node are in use, and some of its 64,000 MiB.
    nodes = [replace(node(f"n{at}", used=3), memory_used_mb=1000 * (3 - at)) for at in range(3)]

    def where(asked_mb: int) -> set[str]:
        waits = replace(RIGID, memory_mb=asked_mb)
        small = [cpu_job(number, 20) for number in range(10, 13)]
        backend = FakeBackend(state(waits, *small, nodes=tuple(nodes)))
        daemon_of(backend, Clock()).cycle()
        starts = [each for each in backend.calls if isinstance(each, Enter)]
        return {name for each in starts if each.job != waits.id for name in each.nodes}

    assert where(16_000) == {"n0", "n1", "n2"}
    assert where(64_000) == {"n0", "n1"}


def test_a_wide_one_keeps_what_there_is_until_its_turn_comes() -> None:
    wide = cpu_job(1, 56, priority=9, nodes=2)
    busy = replace(node("n1"), cpus_used=8)
    backend = FakeBackend(state(wide, cpu_job(2, 4), nodes=(node("n0"), busy)))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == []
    assert entered(wide, cpu_job(2, 4), names=("n0", "n1")) == [("1", ("n0", "n1"))]
    # One for which there is never room stands in nobody's way.
    assert entered(cpu_job(1, 33, priority=9), cpu_job(2, 4)) == [("2", ("n0",))]


def test_they_stay_where_they_may_run_and_out_of_a_window_that_they_would_reach_into() -> None:
    soon = SlurmReservation("upgrade", ("n0",), 1300.0, 1e6, frozenset({"MAINT"}))
    jobs = cpu_job(1, 4, excluded=("n1",)), cpu_job(2, 4, excluded=("n1",), time_limit_s=240.0)
    kept = state(nodes=(node("n0"), node("n1")))
    backend = FakeBackend(replace(kept, jobs={job.id: job for job in jobs}))
    backend.state = replace(backend.state, reservations=(*kept.reservations, soon))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [Enter("2", HOLD, ("n0",), Leave("2"))]


@pytest.mark.parametrize("named", [(), ("n0",)], ids=["any node", "named"])
def test_one_that_slurm_does_not_start_gives_its_place_back_for_a_minute(
    named: tuple[str, ...],
) -> None:
    job = cpu_job(1, 4, pinned=named)
    backend, clock = FakeBackend(state(job)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    assert backend.calls == [Enter("1", HOLD, ("n0",), Leave("1", named))]
    backend.state = state(placed(job, "n0"))
    while len(backend.calls) < 2:
        clock.now += 1
        daemon.cycle()
        assert clock.now < 1100
    assert clock.now - 1000 == pytest.approx(SETTINGS.start_timeout_s, abs=2)
    assert backend.calls[1:] == [Leave("1", named)]
    backend.state, gave_back = state(job), clock.now
    while len(backend.calls) < 3:
        clock.now += 1
        daemon.cycle()
        assert clock.now < 1200
    assert clock.now - gave_back == pytest.approx(60, abs=2)


def test_one_that_slurm_refuses_is_not_asked_for_in_every_cycle_and_lets_others_pass() -> None:
    first, other = cpu_job(1, 20, priority=9), cpu_job(2, 20)
    backend, clock = FakeBackend(state(first, other), errors=[RefusedError("no")]), Clock()
    daemon = daemon_of(backend, clock)
    for _ in range(59):
        daemon.cycle()
        clock.now += 1
    assert [(type(call), call.job) for call in backend.calls[:3]] == [
        (Enter, "1"),
        (Leave, "1"),
        (Enter, "2"),
    ]
    assert not any(call.job == "1" for call in backend.calls[3:])


def test_of_several_partitions_that_of_the_node_is_put_first_and_back_again() -> None:
    own = ("elsewhere", "gpu")
    backend = FakeBackend(state(cpu_job(1, 4, partitions=own)))
    daemon_of(backend, Clock()).cycle()
    back = Leave("1", partitions=own)
    assert backend.calls == [Enter("1", HOLD, ("n0",), back, partitions=("gpu", "elsewhere"))]


def test_what_runs_is_nobody_s_business_and_what_was_queued_again_is_due_at_once() -> None:
    runs = replace(running(cpu_job(1, 4), "n0"), gpus=0, gpu_types=())
    again = cpu_job(2, 4, restarts=1, begin_s=1100.0)
    backend = FakeBackend(state(runs, again, nodes=(replace(node("n0"), cpus_used=4),)))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [Enter("2", HOLD, ("n0",), Leave("2"), due=True)]
    # Slurm keeps it in the reservation, on the node of its last run.
    backend.calls.clear()
    backend.state = state(placed(replace(again, id="3"), "n0"))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    backend.state = state(replace(again, id="3"))
    daemon.cycle()
    assert backend.calls == [Leave("3"), Enter("3", HOLD, ("n0",), Leave("3"), due=True)]
