"""Stretches of equal training rounds against the same rounds one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import ClassVar

import pytest

from hetsched_core.measures.metrics import measure
from hetsched_core.policies.allox import Allox
from hetsched_core.policies.hare.offline import Hare
from hetsched_core.policy import Policy, PolicyInfo
from hetsched_core.records.runlog import RunLog, RunRecord, each
from hetsched_core.simulate import (
    Incident,
    JobCrashed,
    NodeBack,
    NodeDrained,
    NodeLost,
    SimulationSettings,
    simulate,
    tasks,
)
from hetsched_core.simulate.events import Event
from hetsched_core.simulate.heap import EventHeap
from hetsched_core.types import (
    ExecutionModel,
    Placed,
    Plan,
    Snapshot,
    Speeds,
    Submission,
    TaskBlock,
    TaskItem,
    TaskSequence,
    TaskShape,
    TaskTimes,
    Trigger,
)
from tests.hetsched_core.simulate.timetable import Step, timetable
from tests.hetsched_core.worlds import cluster_of, linear_speeds, submission

CLUSTER = cluster_of(a=("v100", 2), b=("k80", 1), c=("v100", 1))


def world(rng: Random) -> tuple[list[Submission], Speeds, list[Incident]]:
    """Draw jobs of many rounds, and what befalls them."""
    # Each job has times of its own: in ties, rounding would decide what comes first.
    profiles = {
        f"m{n}": {
            "v100": TaskTimes(rng.uniform(1.0, 4.0), rng.choice((0.0, rng.uniform(0.1, 1.0)))),
            "k80": TaskTimes(rng.uniform(2.0, 8.0), rng.choice((0.0, rng.uniform(0.1, 1.0)))),
        }
        for n in range(5)
    }
    speeds = linear_speeds(
        CLUSTER, {name: {"v100": 1.0, "k80": 1.0} for name in profiles}, tasks=profiles
    )
    jobs = []
    for n in range(rng.randint(1, 5)):
        shape = TaskShape(rng.randint(1, 4), rng.randint(1, 120))
        begin_s = rng.choice((0.0, rng.uniform(0.0, 200.0)))
        cancel_s = begin_s + rng.uniform(0.0, 300.0) if rng.random() < 0.2 else None
        samples = 8.0 * shape.scale * (shape.rounds or 1)
        jobs.append(
            submission(
                f"j{n}",
                samples,
                submit_s=begin_s,
                profile=f"m{n}",
                tasks=shape,
                cancel_s=cancel_s,
                cpus_per_gpu=rng.choice((0.0, 0.0, 0.0, 1.0)),
            )
        )
    incidents: list[Incident] = []
    for _ in range(rng.choice((0, 0, 1, 2))):
        at_s, node = rng.uniform(0.0, 300.0), rng.choice("abc")
        closes = rng.choice((NodeLost, NodeDrained))
        incidents += [closes(at_s, node), NodeBack(at_s + rng.uniform(0.0, 60.0), node)]
    if rng.random() < 0.3:
        incidents.append(JobCrashed(rng.uniform(0.0, 200.0), "j0"))
    return jobs, speeds, incidents


def row(run: RunRecord) -> tuple[object, ...]:
    return (run.job, run.copy, run.configuration, run.ended_by, run.times, run.purpose)


def same(one: RunLog, other: RunLog) -> None:
    """Hold two logs to each other: every task, what each job got, and every measure."""
    ours, theirs = (
        sorted(each(log.runs), key=lambda r: (r.copy, r.since_s)) for log in (one, other)
    )
    assert [row(r) for r in ours] == [row(r) for r in theirs]
    for name in ("since_s", "freed_s", "productive_s", "samples"):
        assert [getattr(r, name) for r in ours] == pytest.approx(
            [getattr(r, name) for r in theirs], abs=1e-6
        )
    for mine, yours in zip(one.jobs, other.jobs, strict=True):
        assert (mine.job.id, mine.end_state) == (yours.job.id, yours.end_state)
        assert mine.end_s == pytest.approx(yours.end_s, abs=1e-6)
        assert mine.wait_s == pytest.approx(yours.wait_s, abs=1e-6)
        assert mine.samples == pytest.approx(yours.samples)
    # Whether a round began unnoticed depends on whether anything else happened just then.
    ours_, theirs_ = ([p.triggers - {Trigger.ROUND} for p in log.plans] for log in (one, other))
    assert ours_ == theirs_
    assert [p.at_s for p in one.plans] == pytest.approx([p.at_s for p in other.plans], abs=1e-6)


@dataclass
class Repeated:
    """A policy whose plans are kept with what it saw, and made again in the same order.

    Rounding decides ties between jobs, so that the same policy might plan otherwise the next time.
    """

    info: ClassVar[PolicyInfo]
    policy: Policy
    seen: list[tuple[Snapshot, Plan]] = field(default_factory=list)
    again: int | None = None

    def plan(self, snapshot: Snapshot) -> Plan:
        if self.again is None:
            self.seen.append((snapshot, self.policy.plan(snapshot)))
            return self.seen[-1][1]
        before, plan = self.seen[self.again]
        self.again += 1
        assert shown(snapshot) == shown(before)
        return plan


def shown(snapshot: Snapshot) -> dict[str, object]:
    """What a policy is told of the jobs."""
    return {
        view.id: (
            view.progress,
            [(r.copy, r.number, r.budget, near(r.since_s), near(r.samples)) for r in view.runs],
            *map(near, (view.samples_done, view.wait_s, view.first_start_s)),
            [(gpu_type, near(gpu_s)) for gpu_type, gpu_s in sorted(view.attained_gpu_s)],
        )
        for view in snapshot.by_submission()
    }


def near(value: float | None) -> object:
    return pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("policy", [Hare(), Allox()], ids=["hare", "allox"])
# No multiple of what a task takes, so that nothing but rounding decides what comes first.
@pytest.mark.parametrize("decision_s", [0.0, 7.0137])
def test_stretches_are_what_their_rounds_would_be_one_by_one(
    policy: Policy, decision_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated = 0
    moments: list[float] = []
    due = EventHeap.due

    def watched(heap: EventHeap[Event], now: float) -> Iterator[Event]:
        moments.append(now)
        return due(heap, now)

    monkeypatch.setattr(EventHeap, "due", watched)
    for seed in range(40):
        jobs, speeds, incidents = world(Random(seed))
        settings = SimulationSettings(decision_s=decision_s, switch=0.5, round_s=37.137)
        kept = type("Kept", (Repeated,), {"info": policy.info})(policy)
        ahead = simulate(jobs, CLUSTER, kept, speeds, settings, incidents=incidents)
        assert moments == sorted(moments), "time went back"
        moments.clear()
        kept.again = 0
        with monkeypatch.context() as patch:
            patch.setattr(tasks, "LEAST_STRETCH", 10**9)
            single = simulate(jobs, CLUSTER, kept, speeds, settings, incidents=incidents)
        moments.clear()
        assert kept.again == len(kept.seen)
        same(ahead, single)
        one, other = (
            replace(measure(log, speeds), wall_s=0.0, plan_s=None) for log in (ahead, single)
        )
        for name in one.__dataclass_fields__:
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-6), name
        assert all(run.times == 1 for run in single.runs)
        repeated += sum(run.times - 1 for run in ahead.runs)
    assert repeated > 1_000


def alone(rounds: int, scale: int = 3) -> RunLog:
    """Run one job whose tasks take turns on one GPU."""
    cluster = cluster_of(a=("v100", 1))
    times = {"m": {"v100": TaskTimes(4.0, 1.0)}}
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}}, tasks=times)
    job = submission("j", 8.0 * scale * rounds, tasks=TaskShape(scale, rounds))
    return simulate([job], cluster, Allox(), speeds, SimulationSettings(round_s=3600.0))


def test_hundreds_of_thousands_of_equal_rounds_are_a_few_records() -> None:
    few, many = alone(20), alone(500_000)
    assert len(many.runs) == len(few.runs) < 20
    assert sum(1 for run in many.runs if run.times > 1) == 3
    assert sum(run.times for run in many.runs) == 1_500_000
    # A round lasts for three tasks and the last one's synchronisation.
    assert many.jobs[0].end_s == pytest.approx(500_000 * 13.0)
    assert many.jobs[0].wait_s == pytest.approx(500_000 * 1.0)
    assert sum(run.times * run.productive_s for run in many.runs) == pytest.approx(6e6)


def test_no_stretch_begins_on_a_node_that_takes_no_work_though_the_plan_still_says_so() -> None:
    """Drained at 82, in the 11th round of 5 s; the plan that knows of it takes effect at 112."""
    times = {"m": {"v100": TaskTimes(4.0, 1.0)}}
    cluster = cluster_of(a=("v100", 1))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}}, tasks=times)

    def rounds(first: int, times: int) -> Step:
        block = TaskBlock((TaskItem("j", first),), times)
        return Step({"j": Placed(())}, sequences=(TaskSequence("a", 0, (block,)),))

    steps = {0.0: rounds(0, 50), 112.0: Step(), 180.0: rounds(11, 39)}
    policy = timetable(steps, on=frozenset(), model=ExecutionModel.TASKS)
    job = submission("j", 400.0, tasks=TaskShape(1, 50))
    incidents = (NodeDrained(82.0, "a"), NodeBack(150.0, "a"))
    log = simulate(
        [job], cluster, policy, speeds, SimulationSettings(decision_s=30.0), incidents=incidents
    )
    begun = sorted(run.since_s for run in each(log.runs))
    assert begun[:11] == pytest.approx([30.0 + 5.0 * n for n in range(11)])
    assert begun[11] == 180.0
    assert log.jobs[0].end_s == pytest.approx(180.0 + 39 * 5.0)
