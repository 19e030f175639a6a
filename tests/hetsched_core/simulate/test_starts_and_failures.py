"""What starts, stops, crashes and lost nodes cost, against times computed by hand.

Unless said otherwise a GPU does 1 sample/s.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hetsched_core.errors import InputError
from hetsched_core.policy import make_policy
from hetsched_core.runlog import RunEnd
from hetsched_core.simulate import JobCrashed, NodeBack, NodeDrained, NodeLost
from hetsched_core.types import EndState, Snapshot, Trigger
from tests.hetsched_core.simulate.runs import ends, held, productive, record, run
from tests.hetsched_core.simulate.timetable import timetable
from tests.hetsched_core.worlds import cluster_of, placed, submission


def test_a_job_alone_takes_its_samples_over_its_speed() -> None:
    log = run([submission("j", 100.0, (2,), submit_s=5.0)])
    assert ends(log) == {"j": 55.0}
    assert productive(log) == [(50.0, 100.0, RunEnd.COMPLETED)]
    assert record(log).wait_s == 0.0
    assert record(log).restarts == 0


def test_every_start_but_the_first_costs_time_without_progress() -> None:
    log = run(
        [submission("j", 100.0)], timetable({0.0: {"j": placed(a=1)}, 40.0: {"j": placed(b=1)}})
    )
    assert held(log) == [("a:1", 0.0, 40.0), ("b:1", 40.0, 110.0)]
    assert productive(log) == [
        (40.0, 40.0, RunEnd.MOVED),
        (60.0, 60.0, RunEnd.COMPLETED),
    ]
    assert (record(log).restarts, record(log).preemptions) == (1, 0)


def test_the_same_configuration_going_on_is_no_restart() -> None:
    steps = {float(s): {"j": placed(a=1)} for s in (0, 40, 60)}
    log = run([submission("j", 100.0)], timetable(steps))
    assert held(log) == [("a:1", 0.0, 100.0)]
    assert record(log).restarts == 0


def test_a_preempted_job_waits_and_goes_on_from_where_it_was() -> None:
    steps = {0.0: {"j": placed(a=1)}, 40.0: {}, 60.0: {"j": placed(a=1)}}
    log = run([submission("j", 100.0)], timetable(steps))
    assert held(log) == [("a:1", 0.0, 40.0), ("a:1", 60.0, 130.0)]
    assert record(log).wait_s == 20.0
    assert (record(log).restarts, record(log).preemptions) == (1, 1)


def test_a_run_that_is_stopped_in_its_restart_cost_has_done_nothing() -> None:
    steps = {0.0: {"j": placed(a=1)}, 40.0: {"j": placed(b=1)}, 45.0: {"j": placed(a=1)}}
    log = run([submission("j", 100.0)], timetable(steps))
    assert productive(log)[1] == (0.0, 0.0, RunEnd.MOVED)
    assert ends(log) == {"j": 45.0 + 10.0 + 60.0}


def test_a_stopped_run_keeps_its_gpus_for_the_grace_time_and_makes_no_progress() -> None:
    steps = {
        0.0: {"j": placed(a=4)},
        40.0: {"k": placed(a=4)},
        60.0: {"j": placed(b=4), "k": placed(a=4)},
    }
    jobs = [submission("j", 400.0, (4,)), submission("k", 80.0, (4,))]
    log = run(jobs, timetable(steps), grace_s=15.0)
    assert held(log) == [("a:4", 0.0, 55.0), ("b:4", 60.0, 130.0)]
    assert held(log, "k") == [("a:4", 55.0, 75.0)]
    assert productive(log)[0] == (40.0, 160.0, RunEnd.PREEMPTED)
    assert record(log).wait_s == 5.0
    assert record(log, "k").wait_s == 55.0


def test_a_job_that_moves_starts_when_it_has_left() -> None:
    steps = {0.0: {"j": placed(a=1)}, 40.0: {"j": placed(b=1)}}
    log = run([submission("j", 100.0)], timetable(steps), grace_s=15.0)
    assert held(log) == [("a:1", 0.0, 55.0), ("b:1", 55.0, 125.0)]


def test_a_slower_configuration_slows_the_job_down() -> None:
    steps = {0.0: {"j": placed(a=2)}, 10.0: {"j": placed(a=1, b=1)}}
    log = run([submission("j", 60.0, (2,))], timetable(steps), several_nodes=0.5)
    assert ends(log) == {"j": 10.0 + 10.0 + 40.0}


@pytest.mark.parametrize(
    ("checkpoint_s", "kept"), [(30.0, 60.0), (70.0, 70.0), (100.0, 0.0), (math.inf, 0.0)]
)
def test_a_crash_loses_the_work_since_the_last_periodic_checkpoint(
    checkpoint_s: float, kept: float
) -> None:
    log = run(
        [submission("j", 200.0, (2,))],
        timetable({0.0: {"j": placed(a=2)}}),
        incidents=(JobCrashed(70.0, "j"),),
        checkpoint_s=checkpoint_s,
    )
    assert productive(log)[0] == (kept, 2 * kept, RunEnd.CRASHED)
    assert ends(log) == {"j": 70.0 + 10.0 + (200.0 - 2 * kept) / 2}
    assert (record(log).restarts, record(log).preemptions) == (1, 0)


def test_checkpoints_count_from_the_start_of_each_run() -> None:
    """A planned stop saves everything, so the next run's first checkpoint is a period later."""
    steps = {0.0: {"j": placed(a=1)}, 40.0: {"j": placed(b=1)}}
    log = run(
        [submission("j", 100.0)],
        timetable(steps),
        incidents=(JobCrashed(75.0, "j"),),
        checkpoint_s=30.0,
    )
    assert [r.samples for r in log.runs] == [40.0, 0.0, 60.0]
    assert ends(log) == {"j": 75.0 + 10.0 + 60.0}


def test_a_crash_before_any_progress_loses_nothing() -> None:
    steps = {0.0: {"j": placed(a=1)}, 40.0: {"j": placed(b=1)}}
    log = run([submission("j", 100.0)], timetable(steps), incidents=(JobCrashed(45.0, "j"),))
    assert ends(log) == {"j": 45.0 + 10.0 + 60.0}


def test_a_crash_of_a_job_that_runs_nowhere_changes_nothing() -> None:
    incidents = (JobCrashed(3.0, "j"), JobCrashed(20.0, "j"))
    log = run([submission("j", 10.0, submit_s=5.0)], incidents=incidents)
    assert ends(log) == {"j": 15.0}


def test_a_crash_of_a_job_that_nobody_submitted_is_refused() -> None:
    with pytest.raises(InputError, match="never heard of"):
        run([submission("j", 10.0)], incidents=(JobCrashed(20.0, "never heard of"),))


def test_a_job_that_comes_to_an_idle_cluster_at_the_start_of_a_round_is_in_it() -> None:
    late = [submission("j", 20.0), submission("k", 20.0, submit_s=60.0)]
    log = run(late, make_policy("gavel"), round_s=30.0)
    assert ends(log) == {"j": 20.0, "k": 80.0}


def test_a_long_outage_is_waited_for() -> None:
    log = run(
        [submission("j", 3000.0)],
        make_policy("las"),
        round_s=1.0,
        incidents=(
            NodeLost(10.0, "a"),
            NodeLost(10.0, "b"),
            NodeBack(2500.0, "a"),
            NodeBack(2500.0, "b"),
        ),
    )
    assert record(log).end_state is EndState.COMPLETED


def test_a_size_that_nobody_told_is_not_told() -> None:
    seen: list[Snapshot] = []
    untold = submission("j", 10.0)
    untold = replace(untold, job=replace(untold.job, total_samples=None))
    run([untold], timetable({0.0: {"j": placed(a=1)}}, seen=seen))
    assert [s.jobs["j"].job.total_samples for s in seen] == [None] * len(seen)


def test_a_job_that_can_never_run_is_never_run_though_it_is_cancelled() -> None:
    log = run([submission("j", 10.0), submission("k", 10.0, (500,), cancel_s=5.0)])
    assert record(log, "k").end_state is EndState.NEVER


def test_a_lost_node_sends_its_jobs_elsewhere() -> None:
    jobs = [submission("j", 100.0), submission("k", 100.0, (4,))]
    log = run(jobs, incidents=(NodeLost(50.0, "a"),), checkpoint_s=30.0)
    assert held(log) == [("a:1", 0.0, 50.0), ("b:1", 50.0, 130.0)]
    assert held(log, "k") == [("b:4", 0.0, 25.0)]
    assert productive(log)[1] == (30.0, 30.0, RunEnd.NODE_LOST)


def test_a_gang_loses_all_its_gpus_with_one_node() -> None:
    log = run(
        [submission("j", 600.0, (6,))],
        incidents=(NodeLost(50.0, "a"), NodeBack(80.0, "a")),
        checkpoint_s=30.0,
    )
    assert held(log) == [("a:4+b:2", 0.0, 50.0), ("a:4+b:2", 80.0, 160.0)]
    assert record(log).wait_s == 30.0


def test_a_drained_node_keeps_what_runs_and_takes_nothing_new_until_it_is_back() -> None:
    log = run(
        [submission("j", 100.0, (4,)), submission("k", 40.0, (4,), submit_s=10.0)],
        cluster=cluster_of(a=("v100", 8)),
        incidents=(NodeDrained(5.0, "a"), NodeBack(18.0, "a")),
    )
    assert held(log) == [("a:4", 0.0, 25.0)]
    assert held(log, "k") == [("a:4", 18.0, 28.0)]


def test_nothing_starts_on_a_node_that_was_drained_after_the_plan_was_made() -> None:
    """The old job leaves the node at 42; the plan that knows of its drain takes effect at 43."""
    steps = {0.0: {"old": placed(a=4)}, 10.0: {"new": placed(a=4)}, 43.0: {"new": placed(b=4)}}
    log = run(
        [submission("old", 1000.0, (4,), cancel_s=95.0), submission("new", 40.0, (4,))],
        timetable(steps, on=frozenset({Trigger.ARRIVAL})),
        incidents=(NodeDrained(41.0, "a"),),
        grace_s=30.0,
        decision_s=2.0,
    )
    assert held(log, "old") == [("a:4", 2.0, 42.0)]
    assert held(log, "new") == [("b:4", 43.0, 53.0)]


@pytest.mark.parametrize("grace_s", [0.0, 30.0])
def test_a_job_that_crashes_on_a_drained_node_goes_elsewhere_at_once(grace_s: float) -> None:
    log = run(
        [submission("j", 100.0)],
        incidents=(NodeDrained(10.0, "a"), JobCrashed(50.0, "j")),
        checkpoint_s=30.0,
        grace_s=grace_s,
    )
    assert held(log) == [("a:1", 0.0, 50.0), ("b:1", 50.0, 130.0)]


def test_a_node_that_is_lost_while_a_run_leaves_it_takes_that_run_along() -> None:
    steps = {0.0: {"j": placed(a=1)}, 40.0: {"j": placed(b=1)}}
    log = run(
        [submission("j", 100.0)],
        timetable(steps),
        incidents=(NodeLost(50.0, "a"),),
        grace_s=30.0,
        checkpoint_s=30.0,
    )
    assert held(log) == [("a:1", 0.0, 50.0), ("b:1", 50.0, 130.0)]
    assert productive(log)[0] == (30.0, 30.0, RunEnd.NODE_LOST)
