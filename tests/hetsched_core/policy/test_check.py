"""Each rule of `check_plan` has a plan that breaks it and no other; the fast check agrees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.policy import PlanChecker, check_plan
from hetsched_core.types import (
    Cluster,
    Configuration,
    Entry,
    ExecutionModel,
    JobView,
    Node,
    NodeCondition,
    OfflineSnapshot,
    Placed,
    Placement,
    Plan,
    ProfilePlacement,
    Purpose,
    Reason,
    ReasonCode,
    Run,
    Shape,
    Snapshot,
    TaskBlock,
    TaskItem,
    TaskProgress,
    TaskSequence,
    TaskShape,
)
from tests.hetsched_core.worlds import (
    NO_ROOM,
    held,
    on,
    placed,
    plan_of,
    profiling,
    snapshot_of,
    submission,
    view,
)

# Two types, one host with GPUs of both, CPUs and memory that are counted on some nodes only.
CLUSTER = Cluster(
    (
        Node("a", "v100", 4, cpus=16, memory_mb=1000),
        Node("b", "v100", 4),
        Node("c", "k80", 4, cpus=8, memory_mb=400, host="h"),
        Node("d", "t4", 2, cpus=8, memory_mb=400, host="h"),
    )
)
TASKS = TaskShape(scale=2, rounds=3)
CLOSED = {"b": {"condition": NodeCondition.DRAINED}}
BLOCKED = Reason(ReasonCode.HELD)
NO_PLACE = Placed(())


def rules(snapshot: Snapshot, plan: Plan, model: ExecutionModel = ExecutionModel.GANG) -> list[str]:
    return [violation.rule for violation in check_plan(snapshot, plan, model)]


def gang(*views: JobView, **more: object) -> Snapshot:
    return snapshot_of(CLUSTER, views, **more)  # type: ignore[arg-type]


def test_a_plan_that_keeps_all_rules_breaks_none() -> None:
    snapshot = gang(
        view("wide", counts=(2, 6)),
        view("narrow", counts=(4,), gpu_types=frozenset({"k80"}), cpus_per_gpu=2.0),
        view("queued"),
        view("profiled", counts=(2,)),
    )
    entries: dict[str, Entry] = {
        "wide": placed(a=2, b=4),
        "narrow": placed(c=4),
        "queued": NO_ROOM,
        "profiled": NO_ROOM,
    }
    assert rules(snapshot, plan_of(entries, profiles={"profiled": profiling(on(d=1))})) == []


Case = tuple[Snapshot, dict[str, Entry], str]


def one(
    rule: str, entry: Entry, *runs: Run, world: dict[str, object] | None = None, **job: Any
) -> Case:
    """The rule that an entry of the only job breaks."""
    return gang(view("j", *runs, **job), **world or {}), {"j": entry}, rule  # type: ignore[arg-type]


def two(rule: str, *views: JobView, **entries: Entry) -> Case:
    return gang(*views), entries, rule


DRAINED = {"nodes": CLOSED}
K80 = frozenset({"k80"})
EVEN = {"shapes": frozenset({Shape.SINGLE_NODE, Shape.EVEN})}
GANGS = {
    "no entry": two("missing", view("j"), view("k"), j=NO_ROOM),
    "not active": (gang(view("j")), {"j": NO_ROOM, "k": NO_ROOM}, "unknown-job"),
    "held job": one("blocked", placed(a=1), blocked=BLOCKED),
    "no such node": one("unknown-node", placed(z=1)),
    "drained node": one("node-closed", placed(b=1), world=DRAINED),
    "other GPUs of a drained node": one("node-closed", placed(b=1), held(on(b=2)), world=DRAINED),
    "back to a drained node while still leaving it": one(
        "node-closed", placed(b=1), held(on(b=1), draining_until_s=9.0), world=DRAINED
    ),
    "a type it does not accept": one("gpu-type", placed(a=1), gpu_types=K80),
    "a shape that cannot be realised": one("shape", placed(a=1, b=2), world=EVEN, counts=(3,)),
    "two placements": one("gang", Placed((Placement(on(a=1)), Placement(on(b=1), copy=1)))),
    "no placement": one("gang", Placed(())),
    "a copy": one("gang", Placed((Placement(on(a=1), copy=1),))),
    "count not in set": one("requirement", placed(a=3), counts=(2, 4)),
    "a profiling run among the entries": one(
        "purpose", Placed((Placement(on(a=1), purpose=Purpose.PROFILE),))
    ),
    "more GPUs than a node has": two(
        "capacity", view("j", counts=(3,)), view("k", counts=(2,)), j=placed(a=3), k=placed(a=2)
    ),
    "GPUs of foreign jobs": one(
        "capacity", placed(a=4), world={"nodes": {"a": {"foreign_gpus": 1}}}, counts=(4,)
    ),
    "more CPUs than a node has": one("capacity", placed(a=4), counts=(4,), cpus_per_gpu=4.5),
    "CPUs of foreign jobs": one(
        "capacity", placed(a=1), world={"nodes": {"a": {"foreign_cpus": 9.0}}}, cpus_per_gpu=8.0
    ),
    "more memory than a node has": one(
        "capacity", placed(a=4), counts=(4,), memory_mb_per_gpu=251.0
    ),
    "memory of foreign jobs": one(
        "capacity",
        placed(a=1),
        world={"nodes": {"a": {"foreign_memory_mb": 951.0}}},
        memory_mb_per_gpu=50.0,
    ),
    "CPUs that two nodes of a host share": two(
        "capacity",
        view("j", cpus_per_gpu=5.0),
        view("k", cpus_per_gpu=4.0),
        j=placed(c=1),
        k=placed(d=1),
    ),
}


@pytest.mark.parametrize(("snapshot", "entries", "rule"), GANGS.values(), ids=GANGS)
def test_each_rule_of_a_gang_plan_is_broken_alone(
    snapshot: Snapshot, entries: dict[str, Entry], rule: str
) -> None:
    assert rules(snapshot, plan_of(entries)) == [rule]


A, B = frozenset({"a"}), frozenset({"b"})


@pytest.mark.parametrize(
    ("limits", "where", "runs", "broken"),
    [
        ({"nodes": A}, on(b=4), False, ["job-nodes"]),
        ({"nodes": A}, on(a=2, b=2), False, ["job-nodes"]),
        ({"closed": B}, on(b=4), False, ["closed"]),
        ({"max_nodes": 1}, on(a=2, b=2), False, ["node-count"]),
        ({"min_nodes": 2}, on(a=4), False, ["node-count"]),
        ({"min_nodes": 2}, on(a=3, b=1), False, ["node-count"]),
        ({"min_nodes": 2, "max_nodes": 2}, on(a=2, b=2), False, []),
        ({"nodes": A | B, "closed": A}, on(b=4), False, []),
        # A run stays against its user's edit and not against a window.
        ({"nodes": A}, on(a=2, b=2), True, []),
        ({"max_nodes": 1}, on(a=2, b=2), True, []),
        ({"min_nodes": 3}, on(a=2, b=2), True, []),
        ({"closed": B}, on(a=2, b=2), True, ["closed"]),
    ],
)
def test_a_job_is_on_its_own_nodes_and_on_as_many_as_it_asks_for(
    limits: dict[str, Any], where: Configuration, runs: bool, broken: list[str]
) -> None:
    job = view("j", *([held(where)] if runs else []), counts=(4,), **limits)
    assert rules(gang(job), plan_of({"j": Placed((Placement(where),))})) == broken


@pytest.mark.parametrize("condition", [NodeCondition.DRAINED, NodeCondition.DOWN])
def test_a_gang_may_stay_where_it_runs_on_a_closed_node_and_nothing_starts_there(
    condition: NodeCondition,
) -> None:
    closed = {"b": {"condition": condition}}
    snapshot = gang(view("j", held(on(b=1))), view("k"), nodes=closed)
    assert rules(snapshot, plan_of({"j": placed(b=1), "k": placed(a=1)})) == []
    assert rules(snapshot, plan_of({"j": placed(b=1), "k": placed(b=1)})) == ["node-closed"]


def test_what_runs_is_a_fact_and_what_starts_has_the_rest() -> None:
    # `j` has more than others leave, of a type and a count that it does not accept, and is held.
    odd = view("j", held(on(c=4)), counts=(2,), gpu_types=frozenset({"v100"}), blocked=BLOCKED)
    later = (view(name, counts=(1, 2), submit_s=at) for name, at in (("k", 1.0), ("l", 2.0)))
    snapshot = gang(odd, *later, nodes={"c": {"foreign_gpus": 3}, "a": {"foreign_gpus": 2}})
    stays: dict[str, Entry] = {"j": placed(c=4), "k": NO_ROOM, "l": NO_ROOM}
    assert rules(snapshot, plan_of(stays)) == []
    (beside,) = check_plan(snapshot, plan_of(stays | {"k": placed(c=1)}), ExecutionModel.GANG)
    assert (beside.rule, beside.jobs) == ("capacity", ("k",))
    more = plan_of(stays | {"k": placed(a=2), "l": placed(a=1)})
    (beyond,) = check_plan(snapshot, more, ExecutionModel.GANG)
    # Who was submitted first starts.
    assert (beyond.rule, beyond.jobs) == ("capacity", ("l",))


PROFILES = {
    "not active": ("k", profiling(on(a=1)), {}, {}, ["profile"]),
    "no end": ("j", profiling(on(a=1), None), {}, {}, ["profile"]),
    "purpose run": ("j", Placement(on(a=1), until_s=9.0), {}, {}, ["profile"]),
    "held job": ("j", profiling(on(a=1)), {"blocked": BLOCKED}, {}, ["blocked"]),
    "drained": ("j", profiling(on(b=1)), {}, DRAINED, ["node-closed"]),
    "too many GPUs": ("j", profiling(on(a=5)), {}, {}, ["capacity"]),
}


@pytest.mark.parametrize(
    ("job", "run", "fields", "world", "broken"), PROFILES.values(), ids=PROFILES
)
def test_each_rule_of_a_profiling_run_is_broken_alone(
    job: str,
    run: Placement,
    fields: dict[str, object],
    world: dict[str, object],
    broken: list[str],
) -> None:
    snapshot = gang(view("j", **fields), **world)  # type: ignore[arg-type]
    assert rules(snapshot, plan_of({"j": NO_ROOM}, profiles={job: run})) == broken


def test_a_profiling_run_is_one_more_run_and_needs_a_copy_number_of_its_own() -> None:
    snapshot = gang(view("j"), view("k"))
    one_each = replace(snapshot, runs_per_job=1)
    waiting = plan_of({"j": NO_ROOM, "k": placed(c=1)}, profiles={"j": profiling(on(a=1))})
    assert rules(one_each, waiting) == []
    both = plan_of({"j": placed(b=1), "k": placed(c=1)}, profiles={"j": profiling(on(a=1))})
    assert rules(one_each, both) == ["runs"]
    assert rules(snapshot, both) == []
    assert rules(snapshot, replace(waiting, profiles=waiting.profiles * 2)) == ["profile"]
    first, second = (profiling(on(**{name: 1})) for name in "ad")
    two = (ProfilePlacement("j", first), ProfilePlacement("j", replace(second, copy=1)))
    assert rules(snapshot, replace(waiting, profiles=two)) == []
    assert rules(one_each, replace(waiting, profiles=two)) == ["runs"]


# -- copies and tasks ------------------------------------------------------------------------------


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
    world: dict[str, object] | None = None,
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


# -- the check of the changes ----------------------------------------------------------------------

CROWDED = {"c": {"foreign_gpus": 3}}


@pytest.mark.parametrize(
    ("run", "fields", "where", "nodes", "rule"),
    [
        (held(on(b=4)), {"nodes": A}, on(b=4), {}, "job-nodes"),
        (held(on(c=4)), {}, on(c=4), CROWDED, "capacity"),
        (None, {"blocked": BLOCKED}, on(a=4), {}, "blocked"),
        (held(on(b=4)), {}, on(b=4), CLOSED, "node-closed"),
    ],
    ids=["begins anew off its nodes", "begins anew in a crowd", "blocked", "begins anew, closed"],
)
def test_the_check_of_the_changes_sees_an_entry_that_stays_and_is_right_no_more(
    run: Run | None,
    fields: dict[str, Any],
    where: Configuration,
    nodes: dict[str, dict[str, object]],
    rule: str,
) -> None:
    checker = PlanChecker(ExecutionModel.GANG)
    plan = plan_of({"j": Placed((Placement(where),))})
    before = view("j", *([run] if run else []), counts=(4,), **(fields | {"blocked": None}))
    assert checker.check(gang(before, nodes=nodes), plan) == ()
    after = view("j", counts=(4,), **fields)
    later = gang(after, previous=plan, changed=frozenset("j"), nodes=nodes, nodes_changed=False)
    assert [violation.rule for violation in checker.check(later, plan.revise({}))] == [rule]


def test_the_check_of_the_changes_sees_a_profiling_run_beside_entries_that_did_not_change() -> None:
    checker = PlanChecker(ExecutionModel.GANG)
    plan = plan_of({"j": placed(a=4)})
    assert checker.check(gang(view("j", counts=(4,))), plan) == ()
    more = plan_of({}, profiles={"j": profiling(on(a=1))}).profiles
    later = gang(view("j", counts=(4,)), previous=plan, changed=frozenset(), nodes_changed=False)
    beside = plan.revise({}, profiles=more)
    assert rules(later, beside) == ["capacity"]
    assert [violation.rule for violation in checker.check(later, beside)] == ["capacity"]
    assert checker.check(later, plan.revise({})) == ()


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """An entry for a gang, more often right than wrong."""
    if draw(st.booleans()):
        return NO_ROOM
    pieces = {draw(st.sampled_from("aaaabbc")): draw(st.sampled_from((1, 2, 4)))}
    if draw(st.integers(0, 9)) == 0:
        pieces[draw(st.sampled_from("abz"))] = draw(st.integers(1, 4))
    return Placed((Placement(Configuration.of(pieces)),) if draw(st.integers(0, 29)) else ())


@st.composite
def views(draw: st.DrawFn, name: str) -> JobView:
    runs = draw(st.sampled_from([(), (), (held(on(b=2)),)]))
    return view(
        name,
        *runs,
        counts=draw(st.sampled_from([(1, 2, 4), (1, 2, 4), (1, 2, 3, 4, 5, 6), (2,)])),
        gpu_types=draw(st.sampled_from([None] * 9 + [frozenset({"v100"})])),
        cpus_per_gpu=draw(st.sampled_from([0.0, 0.1, 3.3])),
        memory_mb_per_gpu=draw(st.sampled_from([0.0, 100.3, 260.0])),
        blocked=draw(st.sampled_from([None] * 19 + [BLOCKED])),
        nodes=draw(st.sampled_from([None] * 5 + [A | B])),
        closed=draw(st.sampled_from([frozenset()] * 5 + [B])),
        max_nodes=draw(st.sampled_from([None, None, 1])),
    )


@given(st.data())
def test_the_check_of_the_changes_agrees_with_that_of_the_whole(data: st.DataObject) -> None:
    """Plans right and wrong, revised from the last, while jobs come, change and go."""
    checker = PlanChecker(ExecutionModel.GANG)
    jobs: dict[str, JobView] = {}
    plan = plan_of({})
    was_closed = False
    for _ in range(data.draw(st.integers(4, 12))):
        before = dict(jobs)
        for name in sorted(data.draw(st.sets(st.sampled_from("jklmn"), max_size=2))):
            if name in jobs and data.draw(st.booleans()):
                del jobs[name]
            else:
                jobs[name] = data.draw(views(name))
        closed = data.draw(st.integers(0, 14)) == 0
        snapshot = snapshot_of(
            CLUSTER,
            jobs.values(),
            previous=plan,
            changed=frozenset(n for n in jobs if jobs[n] is not before.get(n)),
            nodes=CLOSED if closed else None,
            nodes_changed=closed is not was_closed,
        )
        was_closed = closed
        fresh = sorted(set(jobs) - set(plan.entries))
        again = sorted(data.draw(st.sets(st.sampled_from("jklmn"), max_size=2)) & set(jobs))
        new = {name: data.draw(entries()) for name in (*fresh, *again)}
        if data.draw(st.integers(0, 19)) == 0:
            new["o"] = NO_ROOM
        if new and data.draw(st.integers(0, 19)) == 0:
            del new[min(new)]
        revised = plan.revise(
            new,
            snapshot.gone if data.draw(st.integers(0, 19)) else (),
            profiles=plan_of({}, profiles={"j": profiling(on(a=1))}).profiles
            if "j" in jobs and data.draw(st.integers(0, 4)) == 0
            else (),
        )
        whole = check_plan(snapshot, revised, ExecutionModel.GANG)
        assert set(checker.check(snapshot, revised)) == set(whole)
        if not whole:
            plan = revised
