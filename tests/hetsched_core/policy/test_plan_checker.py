"""The check of the changes agrees with that of the whole plan."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.policy import PlanChecker, check_plan
from hetsched_core.types import (
    Configuration,
    Entry,
    ExecutionModel,
    JobView,
    Placed,
    Placement,
    Run,
)
from tests.hetsched_core.policy.checked import (
    BLOCKED,
    CLOSED,
    CLUSTER,
    A,
    B,
    gang,
    rules,
)
from tests.hetsched_core.worlds import (
    NO_ROOM,
    held,
    on,
    placed,
    plan_of,
    profiling,
    snapshot_of,
    view,
)

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


def test_what_has_begun_as_planned_is_looked_at_again_when_its_run_ends_in_a_crowd() -> None:
    checker = PlanChecker(ExecutionModel.GANG)
    plan = plan_of({"j": placed(a=4)})
    assert checker.check(gang(view("j", counts=(4,))), plan) == ()
    k = view("k", held(on(a=4)), counts=(4,))
    both = gang(
        view("j", held(on(a=4)), counts=(4,)),
        k,
        previous=plan,
        changed=frozenset("jk"),
        nodes_changed=False,
    )
    kept = plan.revise({"k": placed(a=4)})
    assert checker.check(both, kept) == ()
    ended = gang(
        view("j", counts=(4,)), k, previous=kept, changed=frozenset("j"), nodes_changed=False
    )
    (violation,) = checker.check(ended, kept.revise({}))
    assert (violation.rule, violation.jobs) == ("capacity", ("j",))


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
