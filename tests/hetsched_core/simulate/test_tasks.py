"""The floor of tasks against times computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.costs import ExecutorKind
from hetsched_core.errors import InputError
from hetsched_core.records.runlog import RunEnd, RunLog
from hetsched_core.simulate import (
    Incident,
    JobCrashed,
    NodeBack,
    NodeDrained,
    NodeLost,
    SimulationSettings,
    simulate,
)
from hetsched_core.types import (
    Cluster,
    ExecutionModel,
    LossCurve,
    Node,
    Placed,
    Snapshot,
    Submission,
    TaskBlock,
    TaskItem,
    TaskProgress,
    TaskSequence,
    TaskShape,
    TaskTimes,
    Trigger,
)
from tests.hetsched_core.simulate.runs import ends
from tests.hetsched_core.simulate.timetable import Step, timetable
from tests.hetsched_core.worlds import cluster_of, linear_speeds, submission

ONE = cluster_of(a=("v100", 1))
TWO = cluster_of(a=("v100", 2))
# A task trains for 4 s on a v100 and 10 s on a k80, and synchronises for 1 s.
TIMES = {"m": {"v100": TaskTimes(4.0, 1.0), "k80": TaskTimes(10.0, 1.0)}}


def job(
    name: str, scale: int = 1, rounds: int = 1, *, submit_s: float = 0.0, cpus: float = 0.0
) -> Submission:
    """A job of tasks, 8 samples each."""
    return submission(
        name,
        8.0 * scale * rounds,
        submit_s=submit_s,
        cpus_per_gpu=cpus,
        tasks=TaskShape(scale, rounds),
    )


def gpu(number: int, *items: str, node: str = "a", times: int = 1) -> TaskSequence:
    """What a GPU runs one after another, `times` times: "j0" is a task of j's first round."""
    block = TaskBlock(tuple(TaskItem(item[0], int(item[1:])) for item in items), times)
    return TaskSequence(node, number, (block,))


def step(*sequences: TaskSequence) -> Step:
    jobs = {i.job for s in sequences for block in s.blocks for i in block.items}
    return Step({name: Placed(()) for name in jobs}, sequences=sequences)


def run(
    submissions: list[Submission],
    steps: dict[float, Step],
    cluster: Cluster = ONE,
    *,
    incidents: tuple[Incident, ...] = (),
    on: frozenset[Trigger] = frozenset(),
    decision_s: float = 0.0,
    switch_s: float = 0.0,
    seen: list[Snapshot] | None = None,
) -> RunLog:
    speeds = linear_speeds(cluster, {"m": dict.fromkeys(cluster.gpu_types, 1.0)}, tasks=TIMES)
    policy = timetable(steps, on=on, model=ExecutionModel.TASKS, seen=seen)
    settings = SimulationSettings(decision_s=decision_s, switch=switch_s)
    return simulate(submissions, cluster, policy, speeds, settings, incidents=incidents)


def tasks(log: RunLog) -> list[tuple[str, str, float, float]]:
    """(job, node, begin, end) of every task, in order."""
    return sorted(
        ((r.job, r.configuration.pieces[0][0], r.since_s, r.freed_s) for r in log.runs),
        key=lambda row: (row[2], row[0]),
    )


def test_a_task_trains_then_synchronises_while_its_gpu_goes_on() -> None:
    log = run([job("j"), job("k")], {0.0: step(gpu(0, "j0", "k0"))})
    assert tasks(log) == [("j", "a", 0.0, 4.0), ("k", "a", 4.0, 8.0)]
    assert ends(log) == {"j": 5.0, "k": 9.0}


def test_a_round_opens_when_all_tasks_of_the_one_before_are_in_step() -> None:
    """The second task of round 0 runs on a k80: in step at 11."""
    mixed = cluster_of(a=("v100", 1), b=("k80", 1))
    log = run(
        [job("j", scale=2, rounds=2)],
        {0.0: step(gpu(0, "j0", "j1", "j1"), gpu(0, "j0", node="b"))},
        mixed,
    )
    assert tasks(log) == [
        ("j", "a", 0.0, 4.0),
        ("j", "b", 0.0, 10.0),
        ("j", "a", 11.0, 15.0),
        ("j", "a", 15.0, 19.0),
    ]
    assert ends(log) == {"j": 20.0}


def test_every_task_does_its_share_of_the_samples() -> None:
    log = run([job("j", scale=2, rounds=2)], {0.0: step(gpu(0, "j0", "j0", times=2))})
    assert [(r.samples, r.productive_s, r.ended_by) for r in log.runs] == [
        (8.0, 4.0, RunEnd.COMPLETED)
    ] * 4
    assert log.jobs[0].samples == 32.0
    assert log.jobs[0].restarts == 0


def test_a_job_is_shown_with_its_progress_from_its_arrival_on() -> None:
    seen: list[Snapshot] = []
    steps = {float(s): step(gpu(0, "j1")) for s in (6, 10)}
    steps[0.0] = step(gpu(0, "j0", "j0"))
    run([job("j", scale=2, rounds=2)], steps, seen=seen)
    assert [(s.now, s.jobs["j"].progress) for s in seen] == [
        (0.0, TaskProgress()),
        (6.0, TaskProgress(0, 1)),
        (10.0, TaskProgress(1, 0)),
    ]
    assert [len(s.jobs["j"].runs) for s in seen] == [0, 1, 1]


def test_a_job_with_a_loss_curve_reports_its_loss_after_each_round() -> None:
    seen: list[Snapshot] = []
    curve = LossCurve(first=5.0, floor=1.0, half_rounds=1.0)
    steps = {0.0: step(gpu(0, "j0", "j1", "j2")), 11.0: Step()}
    run([replace(job("j", rounds=3), loss=curve)], steps, seen=seen)
    assert [s.jobs["j"].progress for s in seen] == [
        TaskProgress(),
        TaskProgress(2, 0, (1.0 + 4.0 / 2.0, 1.0 + 4.0 / 3.0)),
    ]


def test_a_new_plan_takes_over_each_gpu_at_the_end_of_its_task() -> None:
    steps = {0.0: step(gpu(0, "j0", times=9)), 6.0: step(gpu(0, "k0"))}
    log = run([job("j", rounds=9), job("k")], steps)
    assert tasks(log) == [("j", "a", 0.0, 4.0), ("j", "a", 5.0, 9.0), ("k", "a", 9.0, 13.0)]
    assert ends(log) == {"k": 14.0, "j": None}


def test_a_gpu_that_has_nothing_left_to_do_asks_for_a_plan() -> None:
    steps = {0.0: step(gpu(0, "j0")), 4.0: step(gpu(0, "j1")), 9.0: Step()}
    log = run([job("j", rounds=2)], steps, on=frozenset({Trigger.BUDGET}))
    assert [p.at_s for p in log.plans if Trigger.BUDGET in p.triggers] == [4.0, 9.0]
    assert ends(log) == {"j": 10.0}


def test_tasks_that_began_while_a_plan_was_awaited_are_not_run_again() -> None:
    """Asked at 3, before the second task begins at 4, for the plan of 5 that lists it as well."""
    steps = {
        0.0: step(gpu(0, "j0", "j0")),
        4.5: step(gpu(0, "k0"), gpu(1, "j0", "j1", "j1")),
    }
    jobs = [job("j", scale=2, rounds=2), job("k", submit_s=3.0)]
    log = run(jobs, steps, TWO, on=frozenset({Trigger.ARRIVAL}), decision_s=2.0)
    # Everything is 2 s late at the start: j runs from 2 to 6 and 6 to 10.
    assert [row for row in tasks(log) if row[0] == "j"] == [
        ("j", "a", 2.0, 6.0),
        ("j", "a", 5.0, 9.0),
        ("j", "a", 10.0, 14.0),
        ("j", "a", 14.0, 18.0),
    ]
    assert ends(log) == {"k": 11.0, "j": 19.0}


def test_tasks_of_a_round_that_is_over_fall_away() -> None:
    """The plan asked for at 12 begins with round 0, which is over when it takes effect at 22."""
    steps = {
        0.0: step(gpu(0, "i0", "j0")),
        22.0: step(gpu(0, "j0", "j1", "j2")),
        30.0: step(gpu(0, "j1", "j2")),
        40.0: Step(),
    }
    jobs = [job("i"), job("j", rounds=3), job("k", submit_s=12.0)]
    log = run(jobs, steps, on=frozenset({Trigger.ARRIVAL}), decision_s=10.0)
    assert [row[2] for row in tasks(log)] == [10.0, 14.0, 22.0, 27.0]
    assert ends(log) == {"i": 15.0, "j": 32.0, "k": None}


@pytest.mark.parametrize(
    ("incident", "lost", "end_s"),
    [
        (NodeLost(2.0, "b"), [RunEnd.NODE_LOST], 9.0),
        (JobCrashed(2.0, "j"), [RunEnd.CRASHED, RunEnd.CRASHED], 11.0),
    ],
    ids=["lost node", "crash"],
)
def test_a_lost_task_is_run_again_when_a_plan_says_so(
    incident: Incident, lost: list[RunEnd], end_s: float
) -> None:
    """Two nodes, a task each; the one on the k80 is lost at 2 and run again on the v100."""
    mixed = cluster_of(a=("v100", 1), b=("k80", 1))
    again = gpu(0, *["j0"] * len(lost))
    steps = {0.0: step(gpu(0, "j0"), gpu(0, "j0", node="b")), 2.0: step(again)}
    log = run([job("j", scale=2)], steps, mixed, incidents=(incident,))
    assert [r.ended_by for r in log.runs if r.freed_s == 2.0] == lost
    assert ends(log) == {"j": end_s}
    assert sum(r.samples for r in log.runs) == 16.0


@pytest.mark.parametrize(
    ("closes", "left", "expected"),
    [
        (NodeDrained, ["k0"], [("j", "a", 3.0, 7.0), ("k", "a", 15.0, 19.0)]),
        (
            NodeLost,
            ["j0", "k0"],
            [("j", "a", 3.0, 6.0), ("j", "a", 15.0, 19.0), ("k", "a", 19.0, 23.0)],
        ),
    ],
)
def test_no_task_begins_on_a_node_that_takes_no_work(
    closes: type[NodeLost], left: list[str], expected: list[tuple[str, str, float, float]]
) -> None:
    """The plan in force has k next; the one that knows of the node takes effect at 9."""
    steps = {0.0: step(gpu(0, "j0", "k0")), 9.0: Step(), 15.0: step(gpu(0, *left))}
    incidents = (closes(6.0, "a"), NodeBack(12.0, "a"))
    log = run([job("j"), job("k")], steps, incidents=incidents, decision_s=3.0)
    assert tasks(log) == expected


def test_a_task_waits_for_the_cpus_that_another_plans_task_still_has() -> None:
    """The plan of 2 gives the second GPU to k; j's task holds the host's CPUs until 4."""
    cluster = Cluster((Node("a", "v100", 2, cpus=8),))
    steps = {0.0: step(gpu(0, "j0")), 2.0: step(gpu(1, "k0"))}
    log = run([job("j", cpus=8.0), job("k", cpus=8.0)], steps, cluster)
    assert tasks(log) == [("j", "a", 0.0, 4.0), ("k", "a", 4.0, 8.0)]


def test_a_lost_task_is_next_on_its_gpu_where_no_plan_says_otherwise() -> None:
    """j crashes at 2 and nobody listens: its task begins anew, then k's."""
    steps = {0.0: step(gpu(0, "j0", "k0"))}
    log = run([job("j"), job("k")], steps, on=frozenset(), incidents=(JobCrashed(2.0, "j"),))
    assert tasks(log) == [("j", "a", 0.0, 2.0), ("j", "a", 2.0, 6.0), ("k", "a", 6.0, 10.0)]
    assert ends(log) == {"j": 7.0, "k": 11.0}


def test_a_switch_to_another_job_takes_its_time() -> None:
    """j j k j: half a second before k and before j's last; tasks of one job follow at once."""
    steps = {0.0: step(gpu(0, "j0", "j0", "k0", "j0"))}
    log = run([job("j", scale=3), job("k")], steps, switch_s=0.5)
    assert [row[2:] for row in tasks(log)] == [(0.0, 4.0), (4.0, 8.0), (8.0, 12.5), (12.5, 17.0)]
    assert ends(log) == {"k": 13.5, "j": 18.0}
    assert sum(r.productive_s for r in log.runs) == 16.0


def test_a_round_that_closes_with_no_tasks_of_the_next_in_any_sequence_asks_for_a_plan() -> None:
    """The GPU has k's tasks to do until 12; j is in step at 5."""
    steps = {
        0.0: step(gpu(0, "j0", "k0", "k0")),
        5.0: step(gpu(0, "k0")),
        12.0: Step(),
    }
    log = run([job("j", rounds=2), job("k", scale=2)], steps, on=frozenset({Trigger.BUDGET}))
    assert [p.at_s for p in log.plans if Trigger.BUDGET in p.triggers] == [5.0, 12.0]


def test_a_job_without_training_rounds_is_refused_with_what_it_needs() -> None:
    with pytest.raises(InputError, match="job 'j' has no training rounds"):
        run([submission("j", 8.0)], {})


def test_a_profile_without_task_times_is_refused_with_the_gpu_type() -> None:
    speeds = linear_speeds(ONE, {"m": {"v100": 1.0}})
    policy = timetable({0.0: step(gpu(0, "j0"))}, model=ExecutionModel.TASKS)
    with pytest.raises(InputError, match="'m' has no task times for v100"):
        simulate([job("j")], ONE, policy, speeds)


def test_a_switch_takes_what_the_table_says_of_the_model() -> None:
    """GPU of two jobs: 2.04 ms to ResNet-50, 9.02 s to BERT with a new process."""
    profiles = ("resnet50-cifar100", "bert-base-squad")
    speeds = linear_speeds(
        ONE, {p: {"v100": 1.0} for p in profiles}, tasks=dict.fromkeys(profiles, TIMES["m"])
    )
    jobs = [
        submission(p[0], 8.0 * n, profile=p, tasks=TaskShape(n, 1))
        for p, n in zip(profiles, (2, 1), strict=True)
    ]
    order = {0.0: step(gpu(0, "r0", "b0", "r0"))}
    for settings, expected in (
        (SimulationSettings(), 12.0 + 0.00503 + 0.00204),
        (SimulationSettings(switch=ExecutorKind.PIPESWITCH), 12.0 + 0.01257 + 0.00475),
        (SimulationSettings(switch=ExecutorKind.NEW_PROCESS), 12.0 + 9.01699 + 5.96116),
        (SimulationSettings(switch=3.0), 18.0),
    ):
        policy = timetable(order, on=frozenset(), model=ExecutionModel.TASKS)
        log = simulate(jobs, ONE, policy, speeds, settings)
        assert max(r.freed_s for r in log.runs) == pytest.approx(expected, abs=1e-9)


def test_a_model_that_the_table_does_not_have_takes_the_longest_of_it() -> None:
    assert ExecutorKind.HARE.switch_s("my-lm") == pytest.approx(0.00579)
    assert ExecutorKind.HARE.switch_s("ResNet-50 (batch size 32)") == pytest.approx(0.00204)
    assert ExecutorKind.HARE.switch_s("inceptionv3-cifar100") == pytest.approx(0.00246)
