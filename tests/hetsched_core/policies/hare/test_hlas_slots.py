"""HLAS in slots: TCC Fig. 12 with whole jobs, its queues against real ones, sizes, ageing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.policies.hare.hlas_slots import HlasSlots
from hetsched_core.policies.hare.queues import Thresholds
from hetsched_core.records.runlog import RunLog
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import Cluster, Node, Submission
from tests.hetsched_core.policies.hare.worlds import k80s, longest_wait
from tests.hetsched_core.policies.worlds import ends, order, watched
from tests.hetsched_core.worlds import linear_speeds, submission

SLOTS = SimulationSettings(round_s=1.0, restart_cost_s=0.0)


def run(policy: HlasSlots, jobs: list[Submission], gpus: int = 1) -> RunLog:
    """Slots of a second on GPUs that do a sample a second."""
    cluster = k80s(gpus)
    return simulate(jobs, cluster, policy, linear_speeds(cluster, {"m": {"k80": 1.0}}), SLOTS)


def test_fig_12a_in_slots_of_whole_jobs() -> None:
    jobs = [submission(f"J{n}", float(n + 1)) for n in (1, 2, 3)]
    log = run(HlasSlots(groups=1, queues=4, first_threshold_s=1.0, threshold_factor=2.0), jobs)
    assert ends(log) == {"J1": 4.0, "J2": 7.0, "J3": 9.0}
    # J3 is alone in the end and keeps its GPU over the last two slots.
    assert order(log) == ["J1", "J2", "J3", "J1", "J2", "J3", "J2", "J3"]


@dataclass
class Queued:
    """A job in the naive queues."""

    name: str
    left: int
    had: int = 0


def naive_ends(slots: list[tuple[int, int]], gpus: int, thresholds: Thresholds) -> dict[str, float]:
    """Return when jobs (arrival, slots needed) of one GPU end, by queues that are lists.

    A GPU is a group, so that a slot is a second of service.
    """
    lines: list[list[Queued]] = [[] for _ in range(thresholds.queues)]
    coming = sorted((at, number, need) for number, (at, need) in enumerate(slots))
    found: dict[str, float] = {}
    served: list[Queued] = []
    entered: list[Queued] = []  # everybody, in the order of the last entry into a queue
    now = 0
    while coming or any(lines) or served:
        again = [job for job in entered if job in served]
        new = [Queued(str(number), need) for at, number, need in coming if at == now]
        coming = [each for each in coming if each[0] != now]
        for job in (*new, *again):
            if job in entered:
                entered.remove(job)
            entered.append(job)
            lines[thresholds.level(job.had)].append(job)
        served = [job for line in lines for job in line][:gpus]
        for line in lines:
            line[:] = [job for job in line if job not in served]
        now += 1
        for job in served:
            job.left, job.had = job.left - 1, job.had + 1
            if not job.left:
                found[job.name] = float(now)
        served = [job for job in served if job.left]
    return found


@given(
    slots=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 6)), min_size=1, max_size=10),
    gpus=st.integers(1, 3),
    queues=st.integers(1, 4),
)
def test_the_line_cut_by_size_is_the_queues_of_the_paper(
    slots: list[tuple[int, int]], gpus: int, queues: int
) -> None:
    jobs = [
        submission(str(number), float(need), submit_s=float(at))
        for number, (at, need) in enumerate(slots)
    ]
    policy = HlasSlots(groups=gpus, queues=queues, first_threshold_s=1.0, threshold_factor=2.0)
    expected = naive_ends(slots, gpus, Thresholds(queues, 1.0, 2.0))
    assert ends(run(policy, jobs, gpus)) == pytest.approx(expected)


def test_the_size_is_the_work_done_whatever_gpus_did_it() -> None:
    """Jobs of one and two GPUs change between a fast and a slow node: 12 samples/s in 2 groups."""
    cluster = Cluster((Node("fast", "v100", 2), Node("slow", "k80", 2)))
    speeds = linear_speeds(cluster, {"m": {"v100": 5.0, "k80": 1.0}})
    jobs = [submission(str(n), 20.0 + 3 * n, (1 + n % 2,), submit_s=0.3 * n) for n in range(8)]
    policy = HlasSlots(groups=2, first_threshold_s=2.0, threshold_factor=2.0)
    asked, seen = watched(policy)
    log = simulate(jobs, cluster, asked, speeds, SLOTS)
    assert len({(r.job, r.configuration.pieces[0][0]) for r in log.runs}) > len(jobs)
    sizes = [
        (policy.size_s(snapshot, view), view.samples_at(snapshot.now))
        for snapshot, _ in seen
        for view in snapshot.jobs.values()
    ]
    assert max(sizes)[0] > 3.0
    assert [size for size, _ in sizes] == pytest.approx([samples / 6.0 for _, samples in sizes])


def test_with_ageing_the_wait_is_bounded_where_it_is_not_without() -> None:
    """A job of the second queue, and new ones of one second every second."""
    jobs = [submission("long", 6.0)]
    jobs += [submission(f"s{n:03d}", 1.0, submit_s=float(n)) for n in range(1, 150)]
    starved, aged = (run(HlasSlots(1, 3, 0.5, 2.0, ageing_s), jobs) for ageing_s in (None, 10.0))
    assert longest_wait(starved) > 100.0
    assert longest_wait(aged) <= 30.0
