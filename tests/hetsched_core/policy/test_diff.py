"""From a plan to the next actions, phase by phase."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.contract.logs import over_allocated
from hetsched_core.contract.settle import carry_out, let_drain, runs_of, unlike
from hetsched_core.policy import Action, Grant, RunKey, Start, Stop, StopCause, check_plan, diff
from hetsched_core.types import (
    Cluster,
    Configuration,
    Entry,
    ExecutionModel,
    JobView,
    Node,
    NodeCondition,
    Placed,
    Placement,
    Plan,
    Purpose,
    Run,
    Snapshot,
)
from tests.hetsched_core.worlds import (
    NO_ROOM,
    cluster_of,
    held,
    on,
    placed,
    plan_of,
    profiling,
    snapshot_of,
    view,
)

TWO = cluster_of(a=("v100", 4), b=("v100", 4))


def key(job: str, copy: int = 0, purpose: Purpose = Purpose.RUN) -> RunKey:
    return RunKey(job, purpose, copy)


def state(*views: JobView, **more: object) -> Snapshot:
    return snapshot_of(TWO, views, **more)  # type: ignore[arg-type]


def draining(configuration: Configuration) -> Run:
    return held(configuration, draining_until_s=30.0)


STAYS = held(on(a=2))
LEAVES = draining(on(a=2))
AGAIN = Start(key("j"), Placement(on(a=2)), ready=False, after=(key("j"),))
OTHER_SPLIT = Start(key("j"), Placement(on(a=2, b=1)), ready=False, after=(key("j"),))


@pytest.mark.parametrize(
    ("runs", "entry", "actions"),
    [
        ((), placed(a=2), (Start(key("j"), Placement(on(a=2)), ready=True),)),
        ((STAYS,), placed(a=2), ()),
        ((replace(STAYS, progress_from_s=99.0),), placed(a=2), ()),
        ((STAYS,), NO_ROOM, (Stop(key("j"), StopCause.PREEMPT),)),
        ((held(on(b=2)),), placed(a=2), (Stop(key("j"), StopCause.MOVE), AGAIN)),
        ((held(on(a=1, b=2)),), placed(a=2, b=1), (Stop(key("j"), StopCause.MOVE), OTHER_SPLIT)),
        ((LEAVES,), NO_ROOM, ()),
        ((LEAVES,), placed(a=2), (AGAIN,)),
        # The daemon may look at a state that is newer than the plan.
        ((), None, ()),
    ],
    ids=[
        *("starts", "runs on", "is starting", "is preempted", "moves", "moves by a GPU"),
        *("is stopped once", "starts anew when it has left", "without an entry"),
    ],
)
def test_a_job_is_brought_to_where_the_plan_wants_it(
    runs: tuple[Run, ...], entry: Entry | None, actions: tuple[Action, ...]
) -> None:
    plan = plan_of({"j": entry} if entry else {})
    assert diff(state(view("j", *runs), now=10.0), plan) == actions


def test_a_start_waits_for_the_runs_that_leave_its_nodes() -> None:
    snapshot = state(
        view("one", held(on(a=3))),
        view("two", draining(on(a=1))),
        view("new"),
        view("b", held(on(b=1))),
    )
    entries: dict[str, Entry] = {"one": NO_ROOM, "two": NO_ROOM, "new": placed(a=4), "b": NO_ROOM}
    assert diff(snapshot, plan_of(entries)) == (
        Stop(key("b"), StopCause.PREEMPT),
        Stop(key("one"), StopCause.PREEMPT),
        Start(key("new"), Placement(on(a=4)), ready=False, after=(key("one"), key("two"))),
    )


def test_starts_take_what_is_free_in_the_order_of_submission() -> None:
    snapshot = state(
        view("old", draining(on(a=2))),
        view("late", submit_s=3.0),
        view("early", submit_s=1.0),
        view("mid", submit_s=2.0),
    )
    entries: dict[str, Entry] = {
        "old": NO_ROOM,
        **dict.fromkeys(("late", "early", "mid"), placed(a=1)),
    }
    starts = [
        (a.key.job, a.ready) for a in diff(snapshot, plan_of(entries)) if isinstance(a, Start)
    ]
    assert starts == [("early", True), ("mid", True), ("late", False)]


def is_ready(snapshot: Snapshot, plan: Plan) -> bool:
    (start,) = diff(snapshot, plan)
    assert isinstance(start, Start)
    return start.ready


@pytest.mark.parametrize(
    ("fields", "ready"),
    [
        ({}, True),
        ({"foreign_gpus": 1}, False),
        ({"condition": NodeCondition.DRAINED}, False),
        ({"condition": NodeCondition.DOWN}, False),
    ],
)
def test_nothing_starts_on_gpus_that_are_not_to_be_had(
    fields: dict[str, object], ready: bool
) -> None:
    snapshot = state(view("j"), nodes={"a": fields})
    assert is_ready(snapshot, plan_of({"j": placed(a=4)})) is ready


@pytest.mark.parametrize(
    ("leaving", "entry", "cpus", "memory_mb", "host_mb", "ready"),
    [
        (2, placed(a=2), 2.0, 50.0, 200, True),
        (2, placed(a=2), 2.1, 50.0, 200, False),
        (2, placed(a=2), 2.0, 50.1, 200, False),
        # On two nodes of a host it needs the CPUs of both; memory is not counted there.
        (1, placed(a=2, b=2), 2.0, 50.0, 0, False),
        (2, placed(a=2, b=2), 1.0, 50.0, 0, True),
    ],
)
def test_a_start_waits_for_cpus_and_memory_that_its_host_shares(
    leaving: int, entry: Entry, cpus: float, memory_mb: float, host_mb: int, ready: bool
) -> None:
    pair = Cluster(
        tuple(Node(n, t, 4, 8, host_mb, host="h") for n, t in (("a", "v100"), ("b", "k80")))
    )
    old = view("old", draining(on(b=leaving)), cpus_per_gpu=2.0, memory_mb_per_gpu=50.0)
    new = view("new", cpus_per_gpu=cpus, memory_mb_per_gpu=memory_mb)
    plan = plan_of({"old": NO_ROOM, "new": entry})
    assert is_ready(snapshot_of(pair, (old, new)), plan) is ready


def test_a_start_leaves_the_next_what_is_left_of_cpus_and_memory() -> None:
    host = Cluster((Node("a", "v100", 4, cpus=8, memory_mb=400),))
    entries = dict.fromkeys("jk", placed(a=1))
    cases: tuple[tuple[dict[str, Any], list[bool]], ...] = (
        ({"cpus_per_gpu": 4.0, "memory_mb_per_gpu": 200.0}, [True, True]),
        ({"cpus_per_gpu": 5.0}, [True, False]),
        ({"memory_mb_per_gpu": 201.0}, [True, False]),
    )
    for needs, ready in cases:
        actions = diff(snapshot_of(host, [view(n, **needs) for n in "jk"]), plan_of(entries))
        assert [start.ready for start in actions if isinstance(start, Start)] == ready


def test_a_changed_budget_is_granted_to_the_run_that_goes_on() -> None:
    snapshot = state(view("j", held(on(a=4), copy=1, budget=10.0), held(on(b=4), copy=2)))
    entry = Placed((Placement(on(a=4), copy=1, budget=25.0), Placement(on(b=4), copy=2)))
    assert diff(snapshot, plan_of({"j": entry})) == (Grant(key("j", 1), 25.0),)


def test_copies_start_stop_and_stay_one_by_one() -> None:
    three = cluster_of(a=("v100", 4), b=("v100", 4), c=("k80", 2))
    snapshot = snapshot_of(three, [view("j", held(on(a=4)), held(on(b=4), copy=1))])
    entry = Placed((Placement(on(a=4)), Placement(on(c=2), copy=2, budget=5.0)))
    assert diff(snapshot, plan_of({"j": entry})) == (
        Stop(key("j", 1), StopCause.MOVE),
        Start(key("j", 2), entry.placements[1], ready=True),
    )


def test_a_profiling_run_starts_beside_the_jobs_own_and_ends_with_the_plan() -> None:
    runs = view("j", held(on(a=2)))
    measured = profiling(on(b=1))
    plan = plan_of({"j": placed(a=2)}, profiles={"j": measured})
    assert diff(state(runs), plan) == (
        Start(key("j", purpose=Purpose.PROFILE), measured, ready=True),
    )
    both = view("j", held(on(a=2)), held(on(b=1), number=1, purpose=Purpose.PROFILE))
    assert diff(state(both), plan) == ()
    assert diff(state(both), plan_of({"j": placed(a=2)})) == (
        Stop(key("j", purpose=Purpose.PROFILE), StopCause.PREEMPT),
    )


def test_a_profiling_run_that_was_given_up_is_not_started_again() -> None:
    plan = plan_of({"j": NO_ROOM}, profiles={"j": profiling(on(b=1), until_s=60.0)})
    assert diff(state(view("j"), now=60.0), plan) == ()


def test_only_the_jobs_asked_about_are_looked_at() -> None:
    snapshot = state(view("j"), view("k"))
    plan = plan_of({"j": placed(a=1), "k": placed(b=1), "gone": placed(b=1)})
    assert [a.key.job for a in diff(snapshot, plan)] == ["j", "k"]
    assert [a.key.job for a in diff(snapshot, plan, {"k", "gone"})] == ["k"]


HOST = {"cpus": 12, "memory_mb": 400, "host": "h"}
MANY = Cluster(
    (
        Node("a", "v100", 4),
        Node("b", "v100", 4, cpus=8),
        Node("c", "k80", 4, **HOST),  # type: ignore[arg-type]
        Node("d", "t4", 2, **HOST),  # type: ignore[arg-type]
    )
)


@st.composite
def plans(draw: st.DrawFn, views: list[JobView]) -> Plan:
    """A plan for gangs, copies or profiling runs on the cluster, valid or not."""
    entries: dict[str, Entry] = {}
    for job in views:
        pieces = draw(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3), max_size=2))
        budget = draw(st.sampled_from([None, 1.0, 2.0]))
        placement = Placement(Configuration.of(pieces), budget=budget) if pieces else None
        entries[job.id] = Placed((placement,)) if placement else NO_ROOM
    if draw(st.booleans()):
        return plan_of(entries, profiles={views[0].id: profiling(on(a=1), until_s=1e9)})
    return plan_of(entries)


@given(st.data())
def test_carried_out_again_and_again_a_valid_plan_comes_true_and_then_asks_for_nothing(
    data: st.DataObject,
) -> None:
    """From the state that one plan led to, the next is carried out, at times half-way."""
    views = [
        view(
            name,
            counts=tuple(range(1, 7)),
            cpus_per_gpu=data.draw(st.sampled_from([0.0, 2.0])),
            memory_mb_per_gpu=data.draw(st.sampled_from([0.0, 90.0])),
        )
        for name in "jklm"
    ]
    most = data.draw(st.sampled_from([None, 1]))
    snapshot = replace(snapshot_of(MANY, views), runs_per_job=most)
    for _ in range(data.draw(st.integers(1, 4))):
        plan = data.draw(plans(views))
        if check_plan(snapshot, plan, ExecutionModel.GANG):
            continue
        for _ in range(data.draw(st.integers(1, 4))):
            actions = diff(snapshot, plan)
            starts = [a for a in actions if isinstance(a, Start)]
            assert not {a.key for a in starts if a.ready} & set(runs_of(snapshot))
            snapshot = carry_out(snapshot, actions)
            now_held = [
                (snapshot.jobs[k.job].job, run.configuration)
                for k, run in runs_of(snapshot).items()
            ]
            assert over_allocated(MANY, now_held) == ""
            assert most is None or all(len(view.runs) <= most for view in snapshot.jobs.values())
            again = diff(snapshot, plan)
            assert [a for a in again if not isinstance(a, Start) or a.ready] == []
            snapshot = let_drain(snapshot)
        if data.draw(st.booleans()):
            snapshot = let_drain(carry_out(snapshot, diff(snapshot, plan)))
            snapshot = carry_out(snapshot, diff(snapshot, plan))
            assert unlike(snapshot, plan) == ""
            assert diff(replace(snapshot, now=snapshot.now + 1.0), plan) == ()
