"""Offline Hare in the replay: what it promises is what happens."""

from __future__ import annotations

from random import Random

import pytest

from hetsched_core.policies.hare.offline import Hare
from hetsched_core.policies.hare.schedule import GpuChoice
from hetsched_core.records.runlog import RunLog
from hetsched_core.simulate import JobCrashed, NodeBack, NodeLost, SimulationSettings, simulate
from hetsched_core.simulate.events import Incident
from hetsched_core.types import Cluster, EndState, Node, Plan, Submission, TaskTimes
from tests.hetsched_core.policies.hare import worlds
from tests.hetsched_core.policies.hare.brute import R1, optimum
from tests.hetsched_core.policies.worlds import task_speeds, watched, with_job

ONE = Cluster((Node("a", "v100", 1),))
TWO = Cluster((Node("fast", "v100", 2), Node("slow", "k80", 1)))
TIMES = {
    "m": {"v100": TaskTimes(2.0, 1.0), "k80": TaskTimes(5.0, 1.0)},
    "n": {"v100": TaskTimes(1.0, 0.5), "k80": TaskTimes(2.0, 0.5)},
}


def job(
    name: str, rounds: int, scale: int, profile: str = "m", at: float = 0.0, weight: float = 1.0
) -> Submission:
    return with_job(worlds.job(name, rounds, scale, at, profile), weight=weight)


def run(
    jobs: list[Submission],
    cluster: Cluster = TWO,
    policy: Hare | None = None,
    times: dict[str, dict[str, TaskTimes]] = TIMES,
    incidents: tuple[Incident, ...] = (),
) -> tuple[RunLog, list[Plan]]:
    asked, seen = watched(policy or Hare())
    speeds, settings = task_speeds(cluster, times), SimulationSettings(switch=0.0)
    log = simulate(jobs, cluster, asked, speeds, settings, incidents=incidents)
    return log, [plan for _, plan in seen]


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
        log, (plan,) = run(random_jobs(rng), policy=Hare(gpu_choice=choice))
        found = plan.diagnostics
        # Jobs that come after the first are seen from then on.
        assert found.objective == pytest.approx(weighted_jct_s(log))
        assert found.bound is not None
        assert found.bound <= weighted_jct_s(log) + 1e-6
        assert found.gap == pytest.approx(1.0 - found.bound / weighted_jct_s(log))


def test_r1_is_scheduled_as_well_as_can_be() -> None:
    cluster = Cluster((Node("0", "x", 1), Node("1", "y", 1)))
    times = {
        "a": {"x": TaskTimes(2.0, 1.0), "y": TaskTimes(4.0, 1.0)},
        "b": {"x": TaskTimes(3.0, 0.5), "y": TaskTimes(3.0, 0.5)},
    }
    log, _ = run([job("A", 2, 2, "a"), job("B", 1, 2, "b")], cluster, times=times)
    assert weighted_jct_s(log) == optimum(R1) == 16.5


def test_tasks_of_one_job_fill_the_time_in_which_another_synchronises() -> None:
    """The point of Fig. 1 of HPDC '22; A after A after A, and B then, comes to 14 s."""
    times = {"m": {"v100": TaskTimes(1.0, 1.0)}, "n": {"v100": TaskTimes(1.0, 0.0)}}
    log, _ = run([job("A", 3, 1), job("B", 3, 1, "n")], ONE, times=times)
    busy = sorted((r.since_s, r.freed_s) for r in log.runs)
    assert busy == [(float(s), float(s + 1)) for s in range(6)]
    assert weighted_jct_s(log) == 12.0


@pytest.mark.parametrize(
    ("incidents", "most_plans"),
    [((JobCrashed(3.0, "j0"),), 1), ((NodeLost(3.0, "fast"), NodeBack(9.0, "fast")), 3)],
    ids=["crash", "node"],
)
def test_everything_ends_though_tasks_are_lost(
    incidents: tuple[Incident, ...], most_plans: int
) -> None:
    rng = Random(7)
    for _ in range(10):
        log, plans = run(random_jobs(rng), incidents=incidents)
        assert {r.end_state for r in log.jobs} == {EndState.COMPLETED}
        assert len(plans) <= most_plans


def test_weights_beyond_the_solvers_arithmetic_cost_the_bound_and_no_schedule() -> None:
    rng = Random(0)
    jobs = [
        job(f"j{n}", rng.randint(1, 60), rng.randint(1, 40), weight=10.0 ** rng.uniform(-9.0, 9.0))
        for n in range(8)
    ]
    log, plans = run(jobs)
    assert all(record.end_s is not None for record in log.jobs)
    assert plans[0].diagnostics.objective is not None
