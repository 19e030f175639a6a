"""What a policy is told of jobs, speeds and changes, and what it is not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from hetsched_core.simulate import RunMeasurement, SimulationSettings, simulate
from hetsched_core.types import (
    EndState,
    ExecutionModel,
    Knowledge,
    OfflineSnapshot,
    Snapshot,
    Speeds,
    Submission,
    Trigger,
)
from tests.hetsched_core.simulate.runs import FIFO, PAIR, copies, run
from tests.hetsched_core.simulate.timetable import Step, timetable, watched
from tests.hetsched_core.worlds import cluster_of, linear_speeds, on, placed, profiling, submission


@dataclass
class Notes:
    """Estimates of twice the true speed that keep what they are told."""

    given: Speeds
    told: list[RunMeasurement] = field(default_factory=list)

    def speeds(self, now: float) -> Speeds:
        return self.given

    def observe(self, measured: RunMeasurement) -> None:
        self.told.append(measured)


def test_a_run_shows_its_estimate_until_it_has_made_progress_for_a_while() -> None:
    """It starts at 40 for the second time, makes progress from 50 and shows its speed at 80."""
    truth, twice = (linear_speeds(PAIR, {"m": {"v100": s}}) for s in (1.0, 2.0))
    seen: list[Snapshot] = []
    where = {s: {"j": placed(b=1)} for s in (40.0, 45.0, 60.0, 79.0, 80.0, 90.0)}
    policy = timetable({0.0: {"j": placed(a=1)}, **where}, seen=seen)
    simulate(
        [submission("j", 100.0)], PAIR, policy, truth, SimulationSettings(), estimates=Notes(twice)
    )
    shown = [(s.now, run.speed) for s in seen for run in s.jobs["j"].runs]
    assert shown == [
        *((40.0, 1.0), (45.0, 2.0), (60.0, 2.0), (79.0, 2.0)),
        *((80.0, 1.0), (90.0, 1.0)),
    ]
    views = {s.now: s.jobs["j"] for s in seen}
    assert views[79.0].samples_at(79.0) == 40.0 + 2.0 * 29.0
    assert views[80.0].samples_at(80.0) == 40.0 + 30.0


def test_samples_do_not_tell_a_speed_that_has_not_been_seen() -> None:
    """Beside the run a profiling run of 4 samples ends at 4, and the job is looked at again."""
    truth, twice = (linear_speeds(PAIR, {"m": {"v100": s}}) for s in (1.0, 2.0))
    seen: list[Snapshot] = []
    measured = replace(profiling(on(b=1), until_s=50.0), budget=4.0)
    step = Step({"j": placed(a=1)}, {"j": measured})
    steps = {0.0: step, 1.0: step, **{s: Step({"j": placed(a=1)}) for s in (4.0, 29.0, 30.0)}}
    policy = timetable(steps, seen=seen)
    estimates = Notes(twice)
    simulate(
        [submission("j", 100.0)], PAIR, policy, truth, SimulationSettings(), estimates=estimates
    )
    views = {s.now: s.jobs["j"] for s in seen if s.jobs}
    shown = {s: view.runs[0].samples for s, view in views.items() if view.runs}
    assert views[4.0].observed_s == 4.0
    assert (shown[4.0], views[4.0].samples_done) == (8.0, 8.0)
    assert views[29.0].samples_at(29.0) == 58.0
    assert (shown[30.0], views[30.0].samples_done) == (30.0, 30.0)
    assert [m.samples for m in estimates.told] == [4.0, 100.0]


def test_a_run_that_has_done_its_budget_shows_so_and_its_speed() -> None:
    slow, truth = (linear_speeds(PAIR, {"m": {"v100": s}}) for s in (0.5, 1.0))
    seen: list[Snapshot] = []
    steps = {0.0: {"j": copies(a=40.0)}}
    on_budget = frozenset({Trigger.BUDGET})
    policy = timetable(steps, on=on_budget, model=ExecutionModel.COPIES, seen=seen)
    jobs = [submission("j", 80.0, cancel_s=15.0)]
    simulate(jobs, PAIR, policy, truth, SimulationSettings(), estimates=Notes(slow))
    (run_seen,) = seen[1].jobs["j"].runs
    assert (seen[1].now, run_seen.samples, run_seen.speed) == (10.0, 40.0, 4.0)


@pytest.mark.parametrize(
    ("knows", "samples", "limit_s"),
    [
        (frozenset(), None, None),
        (frozenset({Knowledge.TOTAL_SAMPLES}), 10.0, None),
        (frozenset({Knowledge.TIME_LIMIT}), None, 99.0),
        (frozenset(Knowledge), 10.0, 99.0),
    ],
)
def test_a_policy_sees_sizes_and_limits_only_if_it_says_that_it_must(
    knows: frozenset[Knowledge], samples: float | None, limit_s: float | None
) -> None:
    seen: list[Snapshot] = []
    job = submission("j", 10.0)
    job = replace(job, job=replace(job.job, time_limit_s=99.0))
    run([job], timetable({0.0: {"j": placed(a=1)}}, knows=knows, seen=seen))
    assert seen[0].jobs["j"].job.total_samples == samples
    assert seen[0].jobs["j"].job.time_limit_s == limit_s


def test_only_a_policy_that_declares_it_is_shown_the_future() -> None:
    seen: list[Snapshot] = []
    jobs = [submission("j", 10.0), submission("k", 10.0, submit_s=5.0)]
    both = {0.0: {"j": placed(a=1), "k": placed(b=1)}}
    run(jobs, timetable(both, knows=frozenset({Knowledge.FUTURE_ARRIVALS}), seen=seen))
    first, second = seen[:2]
    assert isinstance(first, OfflineSnapshot)
    assert isinstance(second, OfflineSnapshot)
    assert ([s.job.id for s in first.future], [s.job.id for s in second.future]) == (["k"], [])
    seen.clear()
    run(jobs, timetable(both, seen=seen))
    assert not any(isinstance(snapshot, OfflineSnapshot) for snapshot in seen)


def test_a_snapshot_names_what_is_new_and_what_has_gone_since_the_plan_in_force_was_made() -> None:
    seen: list[Snapshot] = []
    arrivals = {"j": (10.0, 0.0), "k": (30.0, 5.0), "l": (5.0, 20.0)}
    jobs = [submission(name, length, submit_s=at) for name, (length, at) in arrivals.items()]
    run(jobs, watched(FIFO, seen))
    named = [(s.now, set(s.changed), set(s.gone), s.nodes_changed) for s in seen]
    assert named[:4] == [
        (0.0, {"j"}, set(), True),
        (5.0, {"j", "k"}, set(), False),
        (10.0, {"k"}, {"j"}, False),
        (20.0, {"l"}, set(), False),
    ]


def unsized(job_id: str, samples: float, **options: float) -> Submission:
    one = submission(job_id, samples, **options)  # type: ignore[arg-type]
    return replace(one, job=replace(one.job, total_samples=None))


def test_run_times_of_jobs_that_told_no_size_stand_for_the_next_ones_of_their_profile() -> None:
    """j runs from 0 to 10; k waits from 2 and runs from 10 to 14; the others do not count."""
    jobs = [
        unsized("j", 10.0),
        unsized("k", 4.0, submit_s=2.0),
        submission("told", 1.0, submit_s=20.0),
        replace(unsized("failed", 9.0, submit_s=30.0), ends_as=EndState.FAILED),
        unsized("withdrawn", 9.0, submit_s=50.0, cancel_s=52.0),
        unsized("last", 1.0, submit_s=60.0),
    ]
    seen: list[Snapshot] = []
    run(jobs, watched(FIFO, seen), cluster=cluster_of(a=("v100", 1)))
    told = {snapshot.now: snapshot.ended.mean_run_s("m") for snapshot in seen}
    assert {now: means for now, means in told.items() if now < 14.0} == {
        0.0: None,
        2.0: None,
        10.0: 10.0,
    }
    assert told[20.0] == told[60.0] == 7.0
