"""Each rule of `check_plan` has a plan that breaks it and no other; the fast check agrees."""

from __future__ import annotations

from dataclasses import replace

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


CLOSED = {"b": {"condition": NodeCondition.DRAINED}}
BLOCKED = Reason(ReasonCode.HELD)


@pytest.mark.parametrize(
    ("snapshot", "entries", "rule"),
    [
        pytest.param(gang(view("j"), view("k")), {"j": NO_ROOM}, "missing", id="no entry"),
        pytest.param(gang(view("j")), {"j": NO_ROOM, "k": NO_ROOM}, "unknown-job", id="not active"),
        pytest.param(
            gang(view("j", blocked=BLOCKED)), {"j": placed(a=1)}, "blocked", id="held job"
        ),
        pytest.param(gang(view("j")), {"j": placed(z=1)}, "unknown-node", id="no such node"),
        pytest.param(
            gang(view("j"), nodes=CLOSED), {"j": placed(b=1)}, "node-closed", id="drained node"
        ),
        pytest.param(
            gang(view("j", held(on(b=2)), counts=(1, 2)), nodes=CLOSED),
            {"j": placed(b=1)},
            "node-closed",
            id="other GPUs of a drained node",
        ),
        pytest.param(
            gang(view("j", held(on(b=1), draining_until_s=9.0)), nodes=CLOSED),
            {"j": placed(b=1)},
            "node-closed",
            id="back to a drained node while still leaving it",
        ),
        pytest.param(
            gang(view("j", gpu_types=frozenset({"k80"}))),
            {"j": placed(a=1)},
            "gpu-type",
            id="a type it does not accept",
        ),
        pytest.param(
            gang(view("j", counts=(3,)), shapes=frozenset({Shape.SINGLE_NODE, Shape.EVEN})),
            {"j": placed(a=1, b=2)},
            "shape",
            id="a shape that cannot be realised",
        ),
        pytest.param(
            gang(view("j", counts=(1, 2))),
            {"j": Placed((Placement(on(a=1)), Placement(on(b=1), copy=1)))},
            "gang",
            id="two placements",
        ),
        pytest.param(gang(view("j")), {"j": Placed(())}, "gang", id="no placement"),
        pytest.param(
            gang(view("j")), {"j": Placed((Placement(on(a=1), copy=1),))}, "gang", id="a copy"
        ),
        pytest.param(
            gang(view("j", counts=(2, 4))), {"j": placed(a=3)}, "requirement", id="count not in set"
        ),
        pytest.param(
            gang(view("j")),
            {"j": Placed((Placement(on(a=1), purpose=Purpose.PROFILE),))},
            "purpose",
            id="a profiling run among the entries",
        ),
        pytest.param(
            gang(view("j", counts=(3,)), view("k", counts=(2,))),
            {"j": placed(a=3), "k": placed(a=2)},
            "capacity",
            id="more GPUs than a node has",
        ),
        pytest.param(
            gang(view("j", counts=(4,)), nodes={"a": {"foreign_gpus": 1}}),
            {"j": placed(a=4)},
            "capacity",
            id="GPUs of foreign jobs",
        ),
        pytest.param(
            gang(view("j", counts=(4,), cpus_per_gpu=4.5)),
            {"j": placed(a=4)},
            "capacity",
            id="more CPUs than a node has",
        ),
        pytest.param(
            gang(view("j", counts=(2,), cpus_per_gpu=4.0), nodes={"a": {"foreign_cpus": 9.0}}),
            {"j": placed(a=2)},
            "capacity",
            id="CPUs of foreign jobs",
        ),
        pytest.param(
            gang(view("j", counts=(4,), memory_mb_per_gpu=251.0)),
            {"j": placed(a=4)},
            "capacity",
            id="more memory than a node has",
        ),
        pytest.param(
            gang(view("j", memory_mb_per_gpu=50.0), nodes={"a": {"foreign_memory_mb": 951.0}}),
            {"j": placed(a=1)},
            "capacity",
            id="memory of foreign jobs",
        ),
        pytest.param(
            gang(view("j", cpus_per_gpu=5.0), view("k", cpus_per_gpu=4.0)),
            {"j": placed(c=1), "k": placed(d=1)},
            "capacity",
            id="CPUs that two nodes of a host share",
        ),
    ],
)
def test_each_rule_of_a_gang_plan_is_broken_alone(
    snapshot: Snapshot, entries: dict[str, Entry], rule: str
) -> None:
    assert rules(snapshot, plan_of(entries)) == [rule]


def limited(*runs: Run, **limits: object) -> JobView:
    """A job that may run on some nodes only, or on so many."""
    found = view("j", *runs, counts=(2, 4))
    return replace(found, job=replace(found.job, **limits))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "where", "rule"),
    [
        ({"nodes": frozenset({"a"})}, on(b=4), "job-nodes"),
        ({"nodes": frozenset({"a"})}, on(a=2, b=2), "job-nodes"),
        ({"closed": frozenset({"b"})}, on(b=4), "closed"),
        ({"max_nodes": 1}, on(a=2, b=2), "node-count"),
        ({"min_nodes": 2}, on(a=4), "node-count"),
        ({"min_nodes": 2}, on(a=3, b=1), "node-count"),
        ({"min_nodes": 2, "max_nodes": 2}, on(a=2, b=2), None),
        ({"nodes": frozenset({"a", "b"}), "closed": frozenset({"a"})}, on(b=4), None),
    ],
)
def test_a_job_is_on_its_own_nodes_and_on_as_many_as_it_asks_for(
    limits: dict[str, object], where: Configuration, rule: str | None
) -> None:
    plan = plan_of({"j": Placed((Placement(where),))})
    assert rules(gang(limited(**limits)), plan) == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        ({"nodes": frozenset({"a"})}, None),
        ({"max_nodes": 1}, None),
        ({"min_nodes": 3}, None),
        ({"closed": frozenset({"b"})}, "closed"),
    ],
)
def test_a_run_stays_against_its_users_edit_and_not_against_a_window(
    limits: dict[str, object], rule: str | None
) -> None:
    plan = plan_of({"j": placed(a=2, b=2)})
    snapshot = gang(limited(held(on(a=2, b=2)), **limits))
    assert rules(snapshot, plan) == ([rule] if rule else [])


def test_the_check_of_the_changes_sees_a_job_that_would_begin_anew_off_its_nodes() -> None:
    checker = PlanChecker(ExecutionModel.GANG)
    plan = plan_of({"j": placed(b=4)})
    mine = frozenset({"a"})
    assert checker.check(gang(limited(held(on(b=4)), nodes=mine)), plan) == ()
    ended = limited(nodes=mine)
    later = gang(ended, previous=plan, changed=frozenset("j"), nodes_changed=False)
    found = checker.check(later, plan.revise({}))
    assert [violation.rule for violation in found] == ["job-nodes"]


@pytest.mark.parametrize(
    ("most", "broken"), [(None, []), (2, []), (1, ["node-count"])], ids=["any", "two", "one"]
)
def test_copies_are_on_no_more_nodes_than_the_job_may_be(
    most: int | None, broken: list[str]
) -> None:
    plan = plan_of({"j": copies(on(a=4), on(b=4))})
    assert rules(gang(limited(max_nodes=most)), plan, ExecutionModel.COPIES) == broken


@pytest.mark.parametrize("condition", [NodeCondition.DRAINED, NodeCondition.DOWN])
def test_a_gang_may_stay_where_it_runs_on_a_closed_node_and_nothing_starts_there(
    condition: NodeCondition,
) -> None:
    closed = {"b": {"condition": condition}}
    snapshot = gang(view("j", held(on(b=1))), view("k"), nodes=closed)
    assert rules(snapshot, plan_of({"j": placed(b=1), "k": placed(a=1)})) == []
    assert rules(snapshot, plan_of({"j": placed(b=1), "k": placed(b=1)})) == ["node-closed"]


ODD = (
    # More than others leave, of a type and a count that it does not accept, and held.
    view("j", held(on(c=4)), counts=(2,), gpu_types=frozenset({"v100"}), blocked=BLOCKED),
    view("k", counts=(1, 2), submit_s=1.0),
    view("l", counts=(1, 2), submit_s=2.0),
)


def test_what_runs_is_a_fact_and_what_starts_has_the_rest() -> None:
    snapshot = gang(*ODD, nodes={"c": {"foreign_gpus": 3}, "a": {"foreign_gpus": 2}})
    stays: dict[str, Entry] = {"j": placed(c=4), "k": NO_ROOM, "l": NO_ROOM}
    assert rules(snapshot, plan_of(stays)) == []
    (beside,) = check_plan(snapshot, plan_of(stays | {"k": placed(c=1)}), ExecutionModel.GANG)
    assert (beside.rule, beside.jobs) == ("capacity", ("k",))
    more = plan_of(stays | {"k": placed(a=2), "l": placed(a=1)})
    (beyond,) = check_plan(snapshot, more, ExecutionModel.GANG)
    # Who was submitted first starts.
    assert (beyond.rule, beyond.jobs) == ("capacity", ("l",))


def test_the_check_of_the_changes_sees_that_a_run_has_become_a_start() -> None:
    checker = PlanChecker(ExecutionModel.GANG)
    crowded = {"c": {"foreign_gpus": 3}}
    plan = plan_of({"j": placed(c=4)})
    runs = view("j", held(on(c=4)), counts=(4,))
    assert checker.check(gang(runs, nodes=crowded), plan) == ()
    ended = view("j", counts=(4,))
    later = gang(ended, previous=plan, changed=frozenset("j"), nodes=crowded, nodes_changed=False)
    found = checker.check(later, plan.revise({}))
    assert [violation.rule for violation in found] == ["capacity"]


@pytest.mark.parametrize(
    ("snapshot", "profiles", "rule"),
    [
        pytest.param(gang(view("j")), {"k": profiling(on(a=1))}, "profile", id="not active"),
        pytest.param(gang(view("j")), {"j": profiling(on(a=1), None)}, "profile", id="no end"),
        pytest.param(
            gang(view("j")), {"j": Placement(on(a=1), until_s=9.0)}, "profile", id="purpose run"
        ),
        pytest.param(
            gang(view("j", blocked=BLOCKED)), {"j": profiling(on(a=1))}, "blocked", id="held job"
        ),
        pytest.param(
            gang(view("j"), nodes=CLOSED), {"j": profiling(on(b=1))}, "node-closed", id="drained"
        ),
        pytest.param(gang(view("j")), {"j": profiling(on(a=5))}, "capacity", id="too many GPUs"),
    ],
)
def test_each_rule_of_a_profiling_run_is_broken_alone(
    snapshot: Snapshot, profiles: dict[str, Placement], rule: str
) -> None:
    assert rules(snapshot, plan_of({"j": NO_ROOM}, profiles=profiles)) == [rule]


def test_profiling_takes_gpus_beside_what_the_entries_take() -> None:
    snapshot = gang(view("j", counts=(4,)))
    plan = plan_of({"j": placed(a=4)}, profiles={"j": profiling(on(a=1))})
    assert rules(snapshot, plan) == ["capacity"]


def test_two_profiling_runs_of_a_job_need_two_copy_numbers() -> None:
    snapshot = gang(view("j"))
    plan = plan_of({"j": NO_ROOM}, profiles={"j": profiling(on(a=1))})
    twice = replace(plan, profiles=plan.profiles * 2)
    assert rules(snapshot, twice) == ["profile"]


def test_a_job_that_can_have_one_run_has_no_profiling_run_beside_its_own() -> None:
    snapshot = replace(gang(view("j"), view("k")), runs_per_job=1)
    waiting = plan_of({"j": NO_ROOM, "k": placed(c=1)}, profiles={"j": profiling(on(a=1))})
    assert rules(snapshot, waiting) == []
    both = plan_of({"j": placed(b=1), "k": placed(c=1)}, profiles={"j": profiling(on(a=1))})
    assert rules(snapshot, both) == ["runs"]
    assert rules(replace(snapshot, runs_per_job=None), both) == []
    first, second = (profiling(on(**{name: 1})) for name in "ad")
    two = (ProfilePlacement("j", first), ProfilePlacement("j", replace(second, copy=1)))
    assert rules(snapshot, replace(waiting, profiles=two)) == ["runs"]


def copies(*configurations: Configuration) -> Placed:
    return Placed(tuple(Placement(c, copy=n) for n, c in enumerate(configurations)))


@pytest.mark.parametrize(
    ("entry", "broken"),
    [
        pytest.param(copies(on(a=4), on(b=4)), [], id="two whole nodes"),
        pytest.param(Placed(()), ["copies"], id="no copy"),
        pytest.param(copies(on(a=3)), ["copies"], id="part of a node"),
        pytest.param(copies(on(a=4, b=4)), ["copies"], id="one copy on two nodes"),
        pytest.param(
            Placed((Placement(on(a=4)), Placement(on(b=4)))), ["copies"], id="a copy number twice"
        ),
        pytest.param(copies(on(b=4), on(b=4)), ["copies", "capacity"], id="two copies on one node"),
    ],
)
def test_each_rule_of_copies_is_broken_alone(entry: Placed, broken: list[str]) -> None:
    assert rules(gang(view("j")), plan_of({"j": entry}), ExecutionModel.COPIES) == broken


def test_copies_need_not_be_in_the_requirement_set() -> None:
    snapshot = gang(view("j", counts=(1,)))
    assert rules(snapshot, plan_of({"j": copies(on(a=4))}), ExecutionModel.COPIES) == []


def sequence(
    *items: TaskItem, node: str = "a", gpu: int = 0, times: int = 1, blocks: int = 1
) -> TaskSequence:
    return TaskSequence(node, gpu, (TaskBlock(items, times),) * blocks)


def task_rules(
    snapshot: Snapshot, *sequences: TaskSequence, entries: dict[str, Entry] | None = None
) -> list[str]:
    entries = {"j": Placed(())} if entries is None else entries
    return rules(snapshot, plan_of(entries, sequences=sequences), ExecutionModel.TASKS)


def test_a_round_of_tasks_on_two_gpus_keeps_all_rules() -> None:
    snapshot = gang(view("j", tasks=TASKS))
    items = TaskItem("j", 0)
    assert task_rules(snapshot, sequence(items, times=3), sequence(items, gpu=1, times=3)) == []


@pytest.mark.parametrize(
    "sequences",
    [
        pytest.param(
            (sequence(TaskItem("j", 0)), sequence(TaskItem("j", 1))), id="GPU given twice"
        ),
        pytest.param((sequence(TaskItem("j", 0), gpu=4),), id="no such GPU"),
        pytest.param((sequence(TaskItem("j", 0), gpu=-1),), id="negative GPU"),
        pytest.param((sequence(TaskItem("j", 0, tasks=0)),), id="an item of no tasks"),
        pytest.param((sequence(TaskItem("j", 0), times=0),), id="a block of no repetitions"),
        pytest.param((sequence(TaskItem("j", 2), times=2),), id="more rounds than it has"),
        pytest.param((sequence(TaskItem("j", 1, tasks=3)),), id="more tasks than the scale"),
        pytest.param((sequence(TaskItem("j", 0), times=2, blocks=3),), id="a round too often"),
        pytest.param((), id="placed and in no sequence"),
    ],
)
def test_each_rule_of_task_sequences_is_broken_alone(sequences: tuple[TaskSequence, ...]) -> None:
    assert set(task_rules(gang(view("j", tasks=TASKS)), *sequences)) == {"tasks"}


@pytest.mark.parametrize(
    ("snapshot", "entries", "sequences", "rule"),
    [
        pytest.param(
            gang(view("j", tasks=TASKS)),
            {"j": placed(a=1)},
            (sequence(TaskItem("j", 0)),),
            "tasks",
            id="a placement beside the sequences",
        ),
        pytest.param(
            gang(view("j", tasks=TASKS)),
            {"j": NO_ROOM},
            (sequence(TaskItem("j", 0)),),
            "tasks",
            id="a waiting job in a sequence",
        ),
        pytest.param(
            gang(view("j")),
            {"j": Placed(())},
            (sequence(TaskItem("j", 0)),),
            "tasks",
            id="a job without tasks",
        ),
        pytest.param(
            gang(view("j", tasks=TASKS)),
            {"j": Placed(())},
            (sequence(TaskItem("j", 0)), sequence(TaskItem("j", 1), node="z")),
            "unknown-node",
            id="no such node",
        ),
        pytest.param(
            gang(view("j", tasks=TASKS), nodes=CLOSED),
            {"j": Placed(())},
            (sequence(TaskItem("j", 0), node="b"),),
            "node-closed",
            id="drained node",
        ),
        pytest.param(
            gang(view("j", tasks=TASKS, gpu_types=frozenset({"k80"}))),
            {"j": Placed(())},
            (sequence(TaskItem("j", 0)),),
            "gpu-type",
            id="a type it does not accept",
        ),
        pytest.param(
            gang(view("j", tasks=TASKS, progress=TaskProgress(rounds_done=1))),
            {"j": Placed(())},
            (sequence(TaskItem("j", 0)),),
            "tasks",
            id="a round that is done",
        ),
        pytest.param(
            gang(view("j", tasks=TASKS, progress=TaskProgress(tasks_done=1))),
            {"j": Placed(())},
            (sequence(TaskItem("j", 0, tasks=2)),),
            "tasks",
            id="a task that is done",
        ),
        pytest.param(
            gang(view("j", held(on(b=1), budget=1.0), tasks=TASKS, progress=TaskProgress())),
            {"j": Placed(())},
            (sequence(TaskItem("j", 0, tasks=2)),),
            "tasks",
            id="a task that is running",
        ),
        pytest.param(
            gang(view("j", tasks=TASKS, cpus_per_gpu=17.0)),
            {"j": Placed(())},
            (sequence(TaskItem("j", 0)),),
            "capacity",
            id="more CPUs than the node has",
        ),
        pytest.param(
            gang(
                view("j", tasks=TASKS, cpus_per_gpu=2.0, memory_mb_per_gpu=10.0),
                view("k", tasks=TASKS, cpus_per_gpu=1.0, memory_mb_per_gpu=1001.0),
            ),
            {"j": Placed(()), "k": Placed(())},
            (sequence(TaskItem("j", 0), TaskItem("k", 0)),),
            "capacity",
            id="one job needs most CPUs and another most memory",
        ),
    ],
)
def test_task_sequences_keep_to_what_the_jobs_and_nodes_are(
    snapshot: Snapshot, entries: dict[str, Entry], sequences: tuple[TaskSequence, ...], rule: str
) -> None:
    assert task_rules(snapshot, *sequences, entries=entries) == [rule]


def test_task_sequences_belong_to_the_tasks_model_alone() -> None:
    plan = plan_of({"j": placed(a=1)}, sequences=(sequence(TaskItem("j", 0)),))
    assert rules(gang(view("j", tasks=TASKS)), plan) == ["tasks"]


def test_a_long_run_length_form_is_checked_without_unrolling_it() -> None:
    endless = TaskShape(scale=1, rounds=10**9)
    snapshot = gang(view("j", tasks=endless))
    assert task_rules(snapshot, sequence(TaskItem("j", 0), times=10**9)) == []
    one_more = (sequence(TaskItem("j", 0), times=10**9), sequence(TaskItem("j", 7), gpu=1))
    assert task_rules(snapshot, *one_more) == ["tasks"]


def test_the_check_of_the_changes_sees_a_profiling_run_beside_entries_that_did_not_change() -> None:
    checker = PlanChecker(ExecutionModel.GANG)
    plan = plan_of({"j": placed(a=4)})
    assert checker.check(gang(view("j", counts=(4,))), plan) == ()
    more = plan_of({}, profiles={"j": profiling(on(a=1))}).profiles
    later = gang(view("j", counts=(4,)), previous=plan, changed=frozenset(), nodes_changed=False)
    found = checker.check(later, plan.revise({}, profiles=more))
    assert [violation.rule for violation in found] == ["capacity"]
    assert checker.check(later, plan.revise({})) == ()


def test_the_check_of_the_changes_sees_a_job_that_is_blocked_though_its_entry_stays() -> None:
    checker = PlanChecker(ExecutionModel.GANG)
    plan = plan_of({"j": placed(a=4)})
    assert checker.check(gang(view("j", counts=(4,))), plan) == ()
    blocked = view("j", counts=(4,), blocked=BLOCKED)
    later = gang(blocked, previous=plan, changed=frozenset("j"), nodes_changed=False)
    found = checker.check(later, plan.revise({}))
    assert [violation.rule for violation in found] == ["blocked"]


def test_the_check_of_the_changes_sees_a_job_that_would_begin_anew_on_a_closed_node() -> None:
    checker = PlanChecker(ExecutionModel.GANG)
    plan = plan_of({"j": placed(b=4)})
    runs = view("j", held(on(b=4)), counts=(4,))
    assert checker.check(gang(runs, nodes=CLOSED), plan) == ()
    ended = view("j", counts=(4,))
    later = gang(ended, previous=plan, changed=frozenset("j"), nodes=CLOSED, nodes_changed=False)
    found = checker.check(later, plan.revise({}))
    assert [violation.rule for violation in found] == ["node-closed"]


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
    found = view(
        name,
        *runs,
        counts=draw(st.sampled_from([(1, 2, 4), (1, 2, 4), (1, 2, 3, 4, 5, 6), (2,)])),
        gpu_types=draw(st.sampled_from([None] * 9 + [frozenset({"v100"})])),
        cpus_per_gpu=draw(st.sampled_from([0.0, 0.1, 3.3])),
        memory_mb_per_gpu=draw(st.sampled_from([0.0, 100.3, 260.0])),
        blocked=draw(st.sampled_from([None] * 19 + [BLOCKED])),
    )
    job = replace(
        found.job,
        nodes=draw(st.sampled_from([None] * 5 + [frozenset({"a", "b"})])),
        closed=draw(st.sampled_from([frozenset()] * 5 + [frozenset({"b"})])),
        max_nodes=draw(st.sampled_from([None, None, 1])),
    )
    return replace(found, job=job)


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
