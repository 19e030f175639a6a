"""Each rule of `check_plan` for copies and tasks has a plan that breaks it and no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hetsched_core.types import (
    Configuration,
    Entry,
    ExecutionModel,
    OfflineSnapshot,
    Placed,
    Placement,
    Run,
    Snapshot,
    TaskBlock,
    TaskItem,
    TaskProgress,
    TaskSequence,
    TaskShape,
)
from tests.hetsched_core.policy.checked import (
    DRAINED,
    K80,
    Case,
    gang,
    one,
    rules,
    two,
)
from tests.hetsched_core.worlds import (
    NO_ROOM,
    held,
    on,
    placed,
    plan_of,
    submission,
    view,
)

TASKS = TaskShape(scale=2, rounds=3)
NO_PLACE = Placed(())


def copies(*configurations: Configuration) -> Placed:
    return Placed(tuple(Placement(c, copy=n) for n, c in enumerate(configurations)))


@pytest.mark.parametrize(
    ("entry", "max_nodes", "broken"),
    [
        # Whole nodes, whatever counts the job accepts.
        (copies(on(a=4), on(b=4)), None, []),
        (copies(on(a=4), on(b=4)), 2, []),
        (copies(on(a=4), on(b=4)), 1, ["node-count"]),
        (Placed(()), None, ["copies"]),
        (copies(on(a=3)), None, ["copies"]),
        (copies(on(a=4, b=4)), None, ["copies"]),
        (Placed((Placement(on(a=4)), Placement(on(b=4)))), None, ["copies"]),
        (copies(on(b=4), on(b=4)), None, ["copies", "capacity"]),
    ],
)
def test_each_rule_of_copies_is_broken_alone(
    entry: Placed, max_nodes: int | None, broken: list[str]
) -> None:
    job = view("j", max_nodes=max_nodes)
    assert rules(gang(job), plan_of({"j": entry}), ExecutionModel.COPIES) == broken


def sequence(
    *items: TaskItem, node: str = "a", gpu: int = 0, times: int = 1, blocks: int = 1
) -> TaskSequence:
    return TaskSequence(node, gpu, (TaskBlock(items, times),) * blocks)


def task_rules(
    snapshot: Snapshot, *sequences: TaskSequence, entries: dict[str, Entry] | None = None
) -> list[str]:
    entries = {"j": Placed(())} if entries is None else entries
    return rules(snapshot, plan_of(entries, sequences=sequences), ExecutionModel.TASKS)


FIRST = sequence(TaskItem("j", 0))
PAIR = sequence(TaskItem("j", 0, tasks=2))


@pytest.mark.parametrize(
    ("sequences", "broken"),
    [
        ((sequence(TaskItem("j", 0), times=3), sequence(TaskItem("j", 0), gpu=1, times=3)), set()),
        ((FIRST, sequence(TaskItem("j", 1))), {"tasks"}),  # a GPU given twice
        ((sequence(TaskItem("j", 0), gpu=4),), {"tasks"}),
        ((sequence(TaskItem("j", 0), gpu=-1),), {"tasks"}),
        ((sequence(TaskItem("j", 0, tasks=0)),), {"tasks"}),
        ((sequence(TaskItem("j", 0), times=0),), {"tasks"}),
        ((sequence(TaskItem("j", 2), times=2),), {"tasks"}),  # more rounds than it has
        ((sequence(TaskItem("j", 1, tasks=3)),), {"tasks"}),  # more tasks than the scale
        ((sequence(TaskItem("j", 0), times=2, blocks=3),), {"tasks"}),  # a round too often
        ((), {"tasks"}),
        ((FIRST, sequence(TaskItem("j", 1), node="z")), {"unknown-node"}),
    ],
)
def test_each_rule_of_task_sequences_is_broken_alone(
    sequences: tuple[TaskSequence, ...], broken: set[str]
) -> None:
    assert set(task_rules(gang(view("j", tasks=TASKS)), *sequences)) == broken


def of_tasks(
    rule: str,
    sequence: TaskSequence,
    *runs: Run,
    entry: Entry = NO_PLACE,
    world: Mapping[str, Any] | None = None,
    **job: Any,
) -> tuple[Case, TaskSequence]:
    return one(rule, entry, *runs, world=world, **({"tasks": TASKS} | job)), sequence


STATES = {
    "a placement beside the sequences": of_tasks("tasks", FIRST, entry=placed(a=1)),
    "a waiting job in a sequence": of_tasks("tasks", FIRST, entry=NO_ROOM),
    "a job without tasks": of_tasks("tasks", FIRST, tasks=None),
    "drained node": of_tasks("node-closed", sequence(TaskItem("j", 0), node="b"), world=DRAINED),
    "a type it does not accept": of_tasks("gpu-type", FIRST, gpu_types=K80),
    "a round that is done": of_tasks("tasks", FIRST, progress=TaskProgress(rounds_done=1)),
    "a task that is done": of_tasks("tasks", PAIR, progress=TaskProgress(tasks_done=1)),
    "a task that is running": of_tasks(
        "tasks", PAIR, held(on(b=1), budget=1.0), progress=TaskProgress()
    ),
    "more CPUs than the node has": of_tasks("capacity", FIRST, cpus_per_gpu=17.0),
    "one job needs most CPUs and another most memory": (
        two(
            "capacity",
            view("j", tasks=TASKS, cpus_per_gpu=2.0, memory_mb_per_gpu=10.0),
            view("k", tasks=TASKS, cpus_per_gpu=1.0, memory_mb_per_gpu=1001.0),
            j=Placed(()),
            k=Placed(()),
        ),
        sequence(TaskItem("j", 0), TaskItem("k", 0)),
    ),
}


@pytest.mark.parametrize(("case", "sequence"), STATES.values(), ids=STATES)
def test_task_sequences_keep_to_what_the_jobs_and_nodes_are(
    case: Case, sequence: TaskSequence
) -> None:
    snapshot, entries, rule = case
    assert task_rules(snapshot, sequence, entries=entries) == [rule]


def test_task_sequences_belong_to_the_tasks_model_alone() -> None:
    plan = plan_of({"j": placed(a=1)}, sequences=(FIRST,))
    assert rules(gang(view("j", tasks=TASKS)), plan) == ["tasks"]


def test_a_long_run_length_form_is_checked_without_unrolling_it() -> None:
    endless = TaskShape(scale=1, rounds=10**9)
    snapshot = gang(view("j", tasks=endless))
    assert task_rules(snapshot, sequence(TaskItem("j", 0), times=10**9)) == []
    one_more = (sequence(TaskItem("j", 0), times=10**9), sequence(TaskItem("j", 7), gpu=1))
    assert task_rules(snapshot, *one_more) == ["tasks"]


@pytest.mark.parametrize(("shown", "tasks", "broken"), [(True, 2, 0), (True, 3, 1), (False, 2, 1)])
def test_a_plan_that_was_shown_the_future_may_hold_tasks_of_jobs_to_come(
    shown: bool, tasks: int, broken: int
) -> None:
    coming = submission("k", 1.0, submit_s=9.0, tasks=TaskShape(scale=2, rounds=1))
    snapshot = gang(view("j", tasks=TASKS))
    if shown:
        snapshot = OfflineSnapshot.of(snapshot, (coming,))
    found = task_rules(snapshot, sequence(TaskItem("j", 0), TaskItem("k", 0, tasks=tasks)))
    assert found == ["tasks"] * broken
