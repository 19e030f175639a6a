"""HLAS in slots: TCC Fig. 12 with whole jobs, its queues against real ones, sizes, ageing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.policies.hare.hlas_slots import HlasSlots
from hetsched_core.policies.hare.queues import Thresholds
from hetsched_core.policy import Policy, PolicyInfo, make_policy
from hetsched_core.runlog import RunLog
from hetsched_core.simulate import Settings, simulate
from hetsched_core.types import Cluster, Knowledge, Node, Plan, Snapshot, Submission
from tests.hetsched_core.worlds import linear_speeds, submission


def cluster_of(gpus: int) -> Cluster:
    return Cluster((Node("n0", "k80", gpus),))


def run(policy: Policy, jobs: list[Submission], cluster: Cluster | None = None) -> RunLog:
    """Slots of a second on GPUs that do a sample a second."""
    cluster = cluster or cluster_of(1)
    speeds = linear_speeds(cluster, {"m": dict.fromkeys(cluster.gpu_types, 1.0)})
    return simulate(jobs, cluster, policy, speeds, Settings(round_s=1.0, restart_cost_s=0.0))


def ends(log: RunLog) -> dict[str, float | None]:
    return {record.job.id: record.end_s for record in log.jobs}


def test_fig_12a_in_slots_of_whole_jobs() -> None:
    jobs = [submission(f"J{n}", float(n + 1)) for n in (1, 2, 3)]
    policy = HlasSlots(groups=1, queues=4, first_threshold_s=1.0, threshold_factor=2.0)
    log = run(policy, jobs)
    assert ends(log) == {"J1": 4.0, "J2": 7.0, "J3": 9.0}
    # J3 is alone in the end and keeps its GPU over the last two slots.
    order = [r.job for r in sorted(log.runs, key=lambda r: r.since_s)]
    assert order == ["J1", "J2", "J3", "J1", "J2", "J3", "J2", "J3"]


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
    assert ends(run(policy, jobs, cluster_of(gpus))) == pytest.approx(expected)


@dataclass(frozen=True)
class Measuring(HlasSlots):
    """One that notes the size of each job that it sees, beside the samples done by then."""

    seen: list[tuple[float, float]] = field(default_factory=list)
    info: ClassVar[PolicyInfo] = replace(HlasSlots.info, name="measuring")

    def plan(self, snapshot: Snapshot) -> Plan:
        for view in snapshot.jobs.values():
            self.seen.append((self.size_s(snapshot, view), view.samples_at(snapshot.now)))
        return super().plan(snapshot)


def test_the_size_is_the_work_done_whatever_gpus_did_it() -> None:
    """Jobs of one and two GPUs change between a fast and a slow node: 12 samples/s in 2 groups."""
    cluster = Cluster((Node("fast", "v100", 2), Node("slow", "k80", 2)))
    speeds = linear_speeds(cluster, {"m": {"v100": 5.0, "k80": 1.0}})
    jobs = [submission(str(n), 20.0 + 3 * n, (1 + n % 2,), submit_s=0.3 * n) for n in range(8)]
    policy = Measuring(groups=2, first_threshold_s=2.0, threshold_factor=2.0)
    log = simulate(jobs, cluster, policy, speeds, Settings(round_s=1.0, restart_cost_s=0.0))
    assert len({(r.job, r.configuration.pieces[0][0]) for r in log.runs}) > len(jobs)
    assert max(size for size, _ in policy.seen) > 3.0
    for size, samples in policy.seen:
        assert size == pytest.approx(samples / 6.0)


def longest_wait(log: RunLog, job: str) -> float:
    """The longest that a job has to wait for its next slot."""
    runs = sorted((r for r in log.runs if r.job == job), key=lambda r: r.since_s)
    return max(after.since_s - before.freed_s for before, after in pairwise(runs))


def test_with_ageing_the_wait_is_bounded_where_it_is_not_without() -> None:
    """A job of the second queue, and new ones of one second every second."""
    jobs = [submission("long", 6.0)]
    jobs += [submission(f"s{n:03d}", 1.0, submit_s=float(n)) for n in range(1, 150)]
    settings = {"groups": "1", "queues": "3", "first_threshold_s": "0.5", "threshold_factor": "2"}
    starved = run(make_policy("hlas-slots", settings), jobs)
    aged = run(make_policy("hlas-slots", settings | {"ageing_s": "10"}), jobs)
    assert longest_wait(starved, "long") > 100.0
    assert longest_wait(aged, "long") <= 30.0


def test_it_is_told_no_sizes_and_runs_live() -> None:
    info = HlasSlots.info
    assert info.live
    assert Knowledge.TOTAL_SAMPLES not in info.knows
    assert Knowledge.TIME_LIMIT not in info.knows


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("groups", -1),
        ("queues", 0),
        ("queues", 65),
        ("first_threshold_s", 0.0),
        ("threshold_factor", 0.5),
        ("ageing_s", math.inf),
    ],
)
def test_what_makes_no_queues_is_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"hlas-slots.{name}={value}"):
        HlasSlots(**{name: value})  # type: ignore[arg-type]
