"""HLAS in the replay: TCC Fig. 12, partial rounds, and ageing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from random import Random

import pytest

from hetsched_core.contract import check_policy
from hetsched_core.policies.hare.hlas import Hlas, Within
from hetsched_core.policies.hare.hlas_p import Claim, HlasP
from hetsched_core.policies.hare.queues import Queues, Thresholds
from hetsched_core.policy import Policy
from hetsched_core.records.runlog import RunLog
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import Cluster, JobView, Node, Snapshot, Submission, TaskTimes
from tests.hetsched_core.policies.hare.worlds import job, k80s, longest_wait, run
from tests.hetsched_core.policies.worlds import ends, order, task_speeds, watched

THREE = [job("J1", 2), job("J2", 3), job("J3", 4)]


@dataclass(frozen=True)
class Told(HlasP):
    """HLAS-P that is told that J3 runs three rounds at least, and makes of it what it makes."""

    def rounds_left(self, snapshot: Snapshot, queues: Queues, view: JobView) -> float | None:
        return 3.0 - queues.rounds["J3"] if view.id == "J3" else None


@dataclass(frozen=True)
class Foretold(HlasP):
    """HLAS-P with three rounds of J3 predicted, also in a queue that has no end to outlast."""

    def note_round(self, snapshot: Snapshot, queues: Queues, view: JobView) -> None:
        if view.id == "J3" and queues.rounds["J3"] == 0:
            queues.predicted["J3"] = 3
        elif queues.rounds[view.id] >= queues.predicted.get(view.id, 0):
            queues.predicted.pop(view.id, None)


@pytest.mark.parametrize(
    ("policy", "served", "completions"),
    [
        # Fig. 12a: nothing is known.
        (
            Hlas(queues=4, first_threshold_s=1.0, threshold_factor=2.0),
            "J1 J2 J3 J1 J2 J3 J2 J3 J3",
            {"J1": 4.0, "J2": 7.0, "J3": 9.0},
        ),
        # Fig. 12c: J3 is known to run three rounds at least.
        (
            Told(queues=4, first_threshold_s=1.0, threshold_factor=2.0, claim=Claim.EVERY_QUEUE),
            "J1 J2 J1 J2 J2 J3 J3 J3 J3",
            {"J1": 3.0, "J2": 5.0, "J3": 9.0},
        ),
        # With one queue outlasted at a time, J3 is back among the others after two rounds.
        (
            Told(queues=4, first_threshold_s=1.0, threshold_factor=2.0),
            "J1 J2 J1 J2 J3 J3 J2 J3 J3",
            {"J1": 3.0, "J2": 7.0, "J3": 9.0},
        ),
        # R7: a single queue goes round robin too.
        (Hlas(queues=1), "J1 J2 J3 J1 J2 J3 J2 J3 J3", {"J1": 4.0, "J2": 7.0, "J3": 9.0}),
        # R8: in a single queue the predicted job goes first.
        (Foretold(queues=1), "J3 J3 J3 J1 J2 J3 J1 J2 J2", {"J1": 7.0, "J2": 9.0, "J3": 6.0}),
    ],
    ids=["fig 12a", "fig 12c", "fig 12c, one queue at a time", "r7", "r8"],
)
def test_three_jobs_of_2_3_and_4_rounds(
    policy: Policy, served: str, completions: dict[str, float]
) -> None:
    log = run(policy, THREE)
    assert order(log) == served.split()
    assert ends(log) == completions


def test_a_job_leaves_a_queue_when_its_size_exceeds_the_threshold() -> None:
    four = Thresholds(4, 60.0, 4.0)
    sizes = (0, 60, 60.1, 240, 241, 960, 961, 1e9)
    assert [four.level(size_s) for size_s in sizes] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("gpus", "groups", "jobs", "begun"),
    [
        # A round of three tasks on a group of two GPUs: two at once, then one; B waits.
        (2, 1, [job("A", 1, 3), job("B", 1, 2)], "A0 A0 A1 B2 B2"),
        # A's task has one GPU of the group when B comes: B waits beside an idle GPU.
        (2, 1, [job("A", 2), job("B", 1, 2, at=0.5)], "A0 B1 B1 A2"),
        # Groups serve different jobs at a time.
        (4, 2, [job("A", 1, 2), job("B", 1, 2)], "A0 A0 B0 B0"),
    ],
)
def test_a_group_serves_one_job_until_all_of_its_gpus_are_idle_and_begun_rounds_first(
    gpus: int, groups: int, jobs: list[Submission], begun: str
) -> None:
    log = run(Hlas(groups=groups), jobs, k80s(gpus))
    runs = sorted((r.since_s, r.job) for r in log.runs)
    assert " ".join(f"{name}{since_s:g}" for since_s, name in runs) == begun


ONE_EACH, WHOLE = Hlas(groups=1), Hlas(groups=1, within=Within.EARLIEST_FINISH)


def on_group(policy: Policy, jobs: list[Submission], *times: TaskTimes) -> RunLog:
    """Run jobs on GPUs of a type each, a task taking so long on each."""
    cluster = Cluster(tuple(Node(f"n{m}", f"type{m}", 1) for m in range(len(times))))
    each = {"m": {f"type{m}": on for m, on in enumerate(times)}}
    settings = SimulationSettings(restart_cost_s=0.0, switch=0.0)
    return simulate(jobs, cluster, policy, task_speeds(cluster, each), settings)


def test_a_round_is_in_step_as_early_as_any_sharing_out_of_its_tasks() -> None:
    rng = Random(0)
    fewer = 0
    for _ in range(60):
        scale, gpus = rng.randint(1, 5), rng.randint(1, 3)
        times = [TaskTimes(rng.randint(1, 6), rng.randint(0, 3)) for _ in range(gpus)]
        best = min(
            max(n * on.train_s + on.sync_s for n, on in zip(counts, times, strict=True) if n)
            for counts in product(range(scale + 1), repeat=gpus)
            if sum(counts) == scale
        )
        log = on_group(WHOLE, [job("A", 1, scale)], *times)
        assert ends(log) == {"A": best}
        fewer += len({each.configuration for each in log.runs}) < min(scale, gpus)
    # In some a slow GPU was better left idle.
    assert fewer > 5


def test_a_fast_gpu_runs_several_tasks_of_a_round_and_a_slow_one_none() -> None:
    fast, slow = TaskTimes(1.0, 0.0), TaskTimes(3.0, 0.0)
    assert ends(on_group(WHOLE, [job("A", 2, 2)], fast, slow)) == {"A": 4.0}
    assert ends(on_group(ONE_EACH, [job("A", 2, 2)], fast, slow)) == {"A": 6.0}


def test_a_group_goes_on_with_its_round_where_all_of_its_gpus_end_a_task_at_once() -> None:
    """At 2 s both GPUs are idle, two tasks of A are left, and B's is of the same queue."""
    jobs = [job("A", 1, 5), job("B", 1, 1, at=0.5)]
    policy, seen = watched(WHOLE)
    log = on_group(policy, jobs, TaskTimes(1.0, 0.0), TaskTimes(2.0, 0.0))
    assert ends(log) == {"A": 4.0, "B": 5.0}
    assert order(log) == ["A"] * 5 + ["B"]
    # What is given whole waits for no group any more.
    queued = [Queues.read(plan.memory, WHOLE.queues) for _, plan in seen]
    assert not any(queues is None or "A" in queues.level for queues in queued)


def test_tasks_left_are_shared_out_anew_by_when_each_gpu_is_free() -> None:
    """When B comes, one task of A is left: the slow GPU is free at 4 s, the fast one at 6."""
    jobs = [job("A", 1, 4), job("B", 1, 1, at=3.5)]
    log = on_group(WHOLE, jobs, TaskTimes(3.0, 0.0), TaskTimes(4.0, 0.0))
    assert ends(log) == {"A": 8.0, "B": 11.0}


def test_rounds_taken_whole_keep_the_contracts_too() -> None:
    verdict = check_policy(Hlas(within=Within.EARLIEST_FINISH))
    assert verdict.kept, str(verdict)


def test_with_ageing_the_wait_is_bounded_where_it_is_not_without() -> None:
    """A job of the second queue, and new ones of one second every second."""
    jobs = [job("long", 6), *(job(f"s{n:03d}", 1, at=float(n)) for n in range(1, 200))]
    starved, aged = (
        run(Hlas(queues=3, first_threshold_s=1.0, threshold_factor=2.0, ageing_s=ageing_s), jobs)
        for ageing_s in (None, 10.0)
    )
    assert longest_wait(starved) > 150.0
    # Those who aged before it go first, and no more than one arrives a second.
    assert longest_wait(aged) <= 30.0
    assert (ends(aged)["long"] or 1e9) < (ends(starved)["long"] or 0.0)
