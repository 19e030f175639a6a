"""HLAS in the replay: TCC Fig. 12, partial rounds, ageing, and what it may not know."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest

from hetsched_core.policies.hare.hlas import Hlas
from hetsched_core.policies.hare.hlas_p import HlasP
from hetsched_core.policies.hare.queues import Queues, Thresholds
from hetsched_core.policy import Policy, PolicyInfo, make_policy
from hetsched_core.runlog import RunLog
from hetsched_core.simulate import Settings, simulate
from hetsched_core.types import (
    Cluster,
    JobView,
    Knowledge,
    Node,
    Plan,
    Snapshot,
    Submission,
    TaskShape,
    TaskTimes,
)
from tests.hetsched_core.worlds import linear_speeds, submission

ONE = Cluster((Node("n0", "k80", 1),))
UNIT = {"m": {"k80": TaskTimes(1.0, 0.0)}}


def job(name: str, rounds: int, scale: int = 1, at: float = 0.0) -> Submission:
    return submission(name, float(rounds * scale), submit_s=at, tasks=TaskShape(scale, rounds))


def run(policy: Policy, jobs: list[Submission], cluster: Cluster = ONE) -> RunLog:
    speeds = linear_speeds(cluster, {"m": dict.fromkeys(cluster.gpu_types, 1.0)}, tasks=UNIT)
    return simulate(jobs, cluster, policy, speeds, Settings(restart_cost_s=0.0, switch=0.0))


def order(log: RunLog) -> list[str]:
    return [r.job for r in sorted(log.runs, key=lambda r: r.since_s)]


def ends(log: RunLog) -> dict[str, float | None]:
    return {record.job.id: record.end_s for record in log.jobs}


THREE = [job("J1", 2), job("J2", 3), job("J3", 4)]


@dataclass(frozen=True)
class Foretold(HlasP):
    """HLAS-P that is told at the start how many rounds J3 runs at least."""

    def note_round(self, snapshot: Snapshot, queues: Queues, view: JobView) -> None:
        if view.id == "J3" and queues.rounds["J3"] == 0:
            queues.predicted["J3"] = 3
        elif queues.rounds[view.id] >= queues.predicted.get(view.id, 0):
            queues.predicted.pop(view.id, None)


def test_fig_12a_nothing_is_known() -> None:
    log = run(Hlas(queues=4, first_threshold_s=1.0, threshold_factor=2.0), THREE)
    assert order(log) == ["J1", "J2", "J3", "J1", "J2", "J3", "J2", "J3", "J3"]
    assert ends(log) == {"J1": 4.0, "J2": 7.0, "J3": 9.0}


def test_fig_12c_one_job_is_known_to_run_three_rounds_at_least() -> None:
    log = run(Foretold(queues=4, first_threshold_s=1.0, threshold_factor=2.0), THREE)
    assert order(log) == ["J1", "J2", "J1", "J2", "J2", "J3", "J3", "J3", "J3"]
    assert ends(log) == {"J1": 3.0, "J2": 5.0, "J3": 9.0}


def test_r7_a_single_queue_goes_round_robin_too() -> None:
    assert ends(run(Hlas(queues=1), THREE)) == {"J1": 4.0, "J2": 7.0, "J3": 9.0}


def test_r8_in_a_single_queue_the_predicted_job_goes_first() -> None:
    assert ends(run(Foretold(queues=1), THREE)) == {"J3": 6.0, "J1": 7.0, "J2": 9.0}


def test_a_job_leaves_a_queue_when_its_size_exceeds_the_threshold() -> None:
    four = Thresholds(4, 60.0, 4.0)
    assert [four.level(s) for s in (0, 60, 60.1, 240, 241, 960, 961, 1e9)] == [
        *(0, 0, 1, 1, 2, 2, 3, 3)
    ]


def test_what_is_left_of_a_round_is_served_before_other_jobs() -> None:
    """One group of two GPUs, a round of three tasks: two at once, then one; the other job waits."""
    cluster = Cluster((Node("a", "k80", 2),))
    log = run(Hlas(groups=1), [job("A", 1, scale=3), job("B", 1, scale=2)], cluster)
    assert [(r.job, r.since_s) for r in sorted(log.runs, key=lambda r: (r.since_s, r.job))] == [
        *(("A", 0.0), ("A", 0.0), ("A", 1.0)),
        *(("B", 2.0), ("B", 2.0)),
    ]


def test_a_group_is_idle_only_when_none_of_its_gpus_works() -> None:
    """One group of two GPUs, of which A's task has one when B comes: B waits beside an idle GPU."""
    cluster = Cluster((Node("n0", "k80", 2),))
    log = run(Hlas(groups=1), [job("A", 2), job("B", 1, scale=2, at=0.5)], cluster)
    begun = sorted((r.since_s, r.job) for r in log.runs)
    assert begun == [(0.0, "A"), (1.0, "B"), (1.0, "B"), (2.0, "A")]


def test_groups_serve_different_jobs_at_a_time() -> None:
    cluster = Cluster((Node("a", "k80", 4),))
    log = run(Hlas(groups=2), [job("A", 1, scale=2), job("B", 1, scale=2)], cluster)
    where = defaultdict(set)
    for r in log.runs:
        where[r.job].add(r.copy)
    assert {r.since_s for r in log.runs} == {0.0}
    assert len(where["A"] | where["B"]) == 4


def longest_wait(log: RunLog) -> float:
    """The longest that any job's next task has to wait after its last."""
    at: dict[str, float] = {r.job.id: r.job.submit_s for r in log.jobs}
    longest = 0.0
    for r in sorted(log.runs, key=lambda r: r.since_s):
        longest = max(longest, r.since_s - at[r.job])
        at[r.job] = r.freed_s
    return longest


def test_with_ageing_the_wait_is_bounded_where_it_is_not_without() -> None:
    """A job of the second queue, and new ones of one second every second."""
    jobs = [job("long", 6), *(job(f"s{n:03d}", 1, at=float(n)) for n in range(1, 200))]
    settings = {"queues": 3, "first_threshold_s": 1.0, "threshold_factor": 2.0}
    starved = run(make_policy("hlas", {k: str(v) for k, v in settings.items()}), jobs)
    aged = run(
        make_policy("hlas", {k: str(v) for k, v in settings.items()} | {"ageing_s": "10"}), jobs
    )
    assert longest_wait(starved) > 150.0
    # Those who aged before it go first, and no more than one arrives a second.
    assert longest_wait(aged) <= 30.0
    assert (ends(aged)["long"] or 1e9) < (ends(starved)["long"] or 0.0)


@dataclass(frozen=True)
class Peeking(Hlas):
    """An HLAS that reads everything about sizes that it can find."""

    seen: set[object] = field(default_factory=set)
    info: ClassVar[PolicyInfo] = replace(Hlas.info, name="peeking")

    def plan(self, snapshot: Snapshot) -> Plan:
        for each in snapshot.jobs.values():
            shape = each.job.tasks
            self.seen.update({each.job.total_samples, each.job.time_limit_s})
            self.seen.add(shape.rounds if shape else None)
        self.seen.add(getattr(snapshot, "future", None))
        return super().plan(snapshot)


@pytest.mark.parametrize("name", ["hlas", "hlas-p", "hlas-l"])
def test_a_policy_that_reads_sizes_finds_none(name: str) -> None:
    assert make_policy(name).info.knows == frozenset()
    peeking = Peeking()
    run(peeking, THREE)
    assert peeking.seen == {None}
    knowing: set[object] = set()
    told = type("Told", (Peeking,), {"info": replace(Peeking.info, knows=frozenset(Knowledge))})
    run(told(seen=knowing), THREE)
    assert {2, 3, 4} <= knowing
