"""Offline Hare in the replay: what it promises is what happens."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import ClassVar

import pytest

from hetsched_core.errors import InputError
from hetsched_core.policies.hare.offline import Hare
from hetsched_core.policies.hare.schedule import GpuChoice
from hetsched_core.policy import PolicyInfo, make_policy
from hetsched_core.runlog import RunLog
from hetsched_core.simulate import JobCrashed, NodeBack, NodeLost, Settings, simulate
from hetsched_core.types import (
    Cluster,
    EndState,
    ExecutionModel,
    Node,
    Plan,
    ReasonCode,
    Snapshot,
    Speeds,
    Submission,
    TaskShape,
    TaskTimes,
    Waiting,
)
from tests.hetsched_core.policies.hare.brute import instance_of, optimum
from tests.hetsched_core.policies.hare.test_bound import R1
from tests.hetsched_core.worlds import linear_speeds, snapshot_of, submission, view

TWO = Cluster((Node("fast", "v100", 2), Node("slow", "k80", 1)))
TIMES = {
    "m": {"v100": TaskTimes(2.0, 1.0), "k80": TaskTimes(5.0, 1.0)},
    "n": {"v100": TaskTimes(1.0, 0.5), "k80": TaskTimes(2.0, 0.5)},
}


def speeds_of(cluster: Cluster, times: dict[str, dict[str, TaskTimes]]) -> Speeds:
    return linear_speeds(
        cluster, {p: dict.fromkeys(cluster.gpu_types, 1.0) for p in times}, tasks=times
    )


def job(
    name: str, rounds: int, scale: int, *, profile: str = "m", at: float = 0.0, weight: float = 1.0
) -> Submission:
    made = submission(
        name, float(rounds * scale), profile=profile, submit_s=at, tasks=TaskShape(scale, rounds)
    )
    return replace(made, job=replace(made.job, weight=weight))


@dataclass(frozen=True)
class Watched:
    """A policy that keeps its plans."""

    policy: Hare
    plans: list[Plan] = field(default_factory=list)
    info: ClassVar[PolicyInfo] = Hare.info

    def plan(self, snapshot: Snapshot) -> Plan:
        self.plans.append(self.policy.plan(snapshot))
        return self.plans[-1]


def run(
    jobs: list[Submission], cluster: Cluster = TWO, policy: Hare | None = None, **more: object
) -> tuple[RunLog, list[Plan]]:
    watched = Watched(policy or Hare())
    times = more.pop("times", TIMES)
    truth = speeds_of(cluster, times)  # type: ignore[arg-type]
    settings = Settings(switch=0.0)
    return simulate(jobs, cluster, watched, truth, settings, **more), watched.plans  # type: ignore[arg-type]


def weighted_jct_s(log: RunLog) -> float:
    return sum(r.job.weight * ((r.end_s or 1e99) - r.job.submit_s) for r in log.jobs)


def random_jobs(rng: Random) -> list[Submission]:
    return [
        job(
            f"j{n}",
            rng.randint(1, 6),
            rng.randint(1, 4),
            profile=rng.choice("mn"),
            at=float(rng.randint(0, 20)),
            weight=float(rng.randint(1, 3)),
        )
        for n in range(rng.randint(1, 8))
    ]


@pytest.mark.parametrize("choice", list(GpuChoice))
def test_the_replay_carries_out_the_schedule_to_the_second(choice: GpuChoice) -> None:
    rng = Random(0)
    for _ in range(40):
        jobs = random_jobs(rng)
        log, plans = run(jobs, policy=Hare(gpu_choice=choice))
        assert len(plans) == 1
        found = plans[0].diagnostics
        # Jobs that come after the first are seen from then on.
        assert found.objective == pytest.approx(weighted_jct_s(log))
        assert found.bound is not None
        assert found.objective is not None
        assert found.bound <= weighted_jct_s(log) + 1e-6
        assert found.gap == pytest.approx(1.0 - found.bound / found.objective)


def test_r1_is_scheduled_as_well_as_can_be() -> None:
    cluster = Cluster((Node("0", "x", 1), Node("1", "y", 1)))
    times = {
        "a": {"x": TaskTimes(2.0, 1.0), "y": TaskTimes(4.0, 1.0)},
        "b": {"x": TaskTimes(3.0, 0.5), "y": TaskTimes(3.0, 0.5)},
    }
    jobs = [job("A", 2, 2, profile="a"), job("B", 1, 2, profile="b")]
    log, _ = run(jobs, cluster, times=times)
    assert weighted_jct_s(log) == optimum(R1) == 16.5


def test_a_gpu_waits_for_a_job_to_come_whose_task_is_next() -> None:
    """One GPU: the job of weight 100 comes at 1; the other's task of 20 s would be in its way."""
    cluster = Cluster((Node("a", "v100", 1),))
    times = {"m": {"v100": TaskTimes(20.0, 1.0)}, "n": {"v100": TaskTimes(2.0, 1.0)}}
    jobs = [job("j", 1, 1), job("k", 1, 1, profile="n", at=1.0, weight=100.0)]
    log, plans = run(jobs, cluster, times=times)
    assert {r.job.id: r.end_s for r in log.jobs} == {"k": 4.0, "j": 24.0}
    assert [len(plan.entries) for plan in plans] == [1]


def test_tasks_of_one_job_fill_the_time_in_which_another_synchronises() -> None:
    """The point of Fig. 1 of HPDC '22; A after A after A, and B then, comes to 14 s."""
    cluster = Cluster((Node("a", "v100", 1),))
    times = {"m": {"v100": TaskTimes(1.0, 1.0)}, "n": {"v100": TaskTimes(1.0, 0.0)}}
    log, _ = run([job("A", 3, 1), job("B", 3, 1, profile="n")], cluster, times=times)
    busy = sorted((r.since_s, r.freed_s) for r in log.runs)
    assert busy == [(float(s), float(s + 1)) for s in range(6)]
    assert weighted_jct_s(log) == 12.0


@pytest.mark.parametrize("incident", ["crash", "node"])
def test_everything_ends_though_tasks_are_lost(incident: str) -> None:
    rng = Random(7)
    for _ in range(10):
        jobs = random_jobs(rng)
        happens = {
            "crash": (JobCrashed(3.0, "j0"),),
            "node": (NodeLost(3.0, "fast"), NodeBack(9.0, "fast")),
        }[incident]
        log, plans = run(jobs, incidents=happens)
        assert {r.end_state for r in log.jobs} == {EndState.COMPLETED}
        assert len(plans) <= (1 if incident == "crash" else 3)


def test_a_job_that_runs_nowhere_is_told_so_and_one_that_is_held_its_reason() -> None:
    nowhere = view("x", tasks=TaskShape(1, 1), gpu_types=frozenset({"tpu"}))
    plan = Hare().plan(snapshot_of(TWO, [nowhere], speeds=speeds_of(TWO, TIMES)))
    entry = plan.entries["x"]
    assert isinstance(entry, Waiting)
    assert entry.reason.code is ReasonCode.NEVER_FITS
    assert plan.sequences == ()


def test_it_is_for_replays_and_says_why() -> None:
    info = make_policy("hare").info
    assert info.model is ExecutionModel.TASKS
    assert not info.live
    assert "still to arrive" in info.replay_only


def test_a_single_task_is_scheduled_and_proven_to_be_best() -> None:
    found, diagnostics = Hare().best(instance_of([0], [1], [1], [1], [[1]], [[0]]))
    assert found.complete_s.tolist() == [1.0]
    assert diagnostics.objective == pytest.approx(diagnostics.bound)


@pytest.mark.parametrize("growth", [1.0, 0.5, 1e9])
def test_a_grid_that_cannot_be_is_refused(growth: float) -> None:
    with pytest.raises(InputError, match=r"from 1\.01 to 100"):
        Hare(grid_growth=growth)


def test_weights_beyond_the_solvers_arithmetic_cost_the_bound_and_no_schedule() -> None:
    rng = Random(0)
    jobs = [
        job(f"j{n}", rng.randint(1, 60), rng.randint(1, 40), weight=10.0 ** rng.uniform(-9.0, 9.0))
        for n in range(8)
    ]
    log, plans = run(jobs)
    assert all(record.end_s is not None for record in log.jobs)
    assert plans[0].diagnostics.objective is not None
