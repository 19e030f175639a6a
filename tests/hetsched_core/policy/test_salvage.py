"""Of a plan that breaks rules the rest is left, and what breaks them stays as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.policy import ASK_AGAIN_S, as_it_is, check_plan, salvaged
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
    ProfilePlacement,
    Purpose,
    Reason,
    ReasonCode,
    Snapshot,
    Waiting,
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

CLUSTER = Cluster(tuple(Node(name, "v100", 4, cpus=8) for name in "abc"))
DOWN = {"b": {"condition": NodeCondition.DOWN}}
HELD = Reason(ReasonCode.HELD)


def rest_of(snapshot: Snapshot, plan: Plan, model: ExecutionModel = ExecutionModel.GANG) -> Plan:
    found = salvaged(snapshot, plan, check_plan(snapshot, plan, model), model)
    assert check_plan(snapshot, found, model) == ()
    return found


def refused(rule: str) -> Waiting:
    return Waiting(Reason(ReasonCode.INVALID_PLAN, detail=rule))


RUNS = view("r", held(on(b=2)), counts=(2,))


@pytest.mark.parametrize(
    ("bad", "entry"),
    [
        pytest.param({"x": placed(b=1)}, refused("node-closed"), id="a start on a closed node"),
        pytest.param({"x": placed(z=1)}, refused("unknown-node"), id="a node that is gone"),
        pytest.param({"x": placed(a=3)}, refused("requirement"), id="a count that is not accepted"),
        pytest.param({"x": Placed(())}, refused("gang"), id="no placement"),
        pytest.param({}, refused("missing"), id="no entry"),
        pytest.param({"r": placed(b=1), "x": NO_ROOM}, NO_ROOM, id="a move on a closed node"),
        pytest.param({"y": NO_ROOM, "x": NO_ROOM}, NO_ROOM, id="a job that is not there"),
    ],
)
def test_an_entry_that_breaks_a_rule_leaves_all_others_theirs(
    bad: dict[str, Entry], entry: Entry
) -> None:
    snapshot = snapshot_of(CLUSTER, [RUNS, view("w"), view("x")], nodes=DOWN)
    rest = rest_of(snapshot, plan_of({"r": placed(b=2), "w": placed(c=1)} | bad))
    assert dict(rest.entries) == {"r": placed(b=2), "w": placed(c=1), "x": entry}


def test_of_those_that_take_too_much_those_submitted_first_start() -> None:
    jobs = [view(name, counts=(2,), submit_s=at) for at, name in enumerate("stuv")]
    snapshot = snapshot_of(CLUSTER, jobs)
    rest = rest_of(snapshot, plan_of({**dict.fromkeys("stu", placed(a=2)), "v": placed(c=2)}))
    assert rest.entries["u"] == refused("capacity")
    assert [rest.entries[name] for name in "stv"] == [placed(a=2), placed(a=2), placed(c=2)]


def test_what_was_to_make_way_for_such_a_job_goes_on() -> None:
    jobs = [view("r", held(on(a=4)), counts=(4,)), view("q", held(on(c=4)), counts=(4,))]
    snapshot = snapshot_of(CLUSTER, [*jobs, view("x", counts=(1,)), view("w")])
    plan = plan_of({"r": NO_ROOM, "q": NO_ROOM, "x": placed(a=2), "w": placed(c=1)})
    rest = rest_of(snapshot, plan)
    assert dict(rest.entries) == {
        "r": placed(a=4),
        "x": refused("requirement"),
        "q": NO_ROOM,
        "w": placed(c=1),
    }


def test_a_job_that_is_not_stopped_after_all_keeps_its_gpus_from_those_who_were_to_have_them() -> (
    None
):
    snapshot = snapshot_of(CLUSTER, [view("r", held(on(a=4)), counts=(1, 4)), view("w")])
    rest = rest_of(snapshot, plan_of({"r": placed(a=3), "w": placed(a=1)}))
    assert dict(rest.entries) == {"r": placed(a=4), "w": refused("capacity")}


def test_a_profiling_run_that_breaks_a_rule_is_left_out_and_one_that_goes_on_is_not() -> None:
    goes_on = ProfilePlacement("p", profiling(on(b=1)))
    before = replace(plan_of({"p": NO_ROOM}), profiles=(goes_on,))
    run = held(on(b=1), purpose=Purpose.PROFILE)
    jobs = [view("p", run), view("x"), view("w")]
    snapshot = snapshot_of(CLUSTER, jobs, nodes=DOWN, previous=before)
    entries: dict[str, Entry] = {"p": NO_ROOM, "x": NO_ROOM, "w": placed(a=1)}
    bad = ProfilePlacement("x", profiling(on(b=1)))
    rest = rest_of(snapshot, replace(plan_of(entries), profiles=(goes_on, bad)))
    assert rest.profiles == (goes_on,)
    assert rest.entries["w"] == placed(a=1)
    assert as_it_is(snapshot, ExecutionModel.GANG).profiles == (goes_on,)


def test_notes_are_those_of_the_plan_and_the_policy_is_asked_again_soon() -> None:
    snapshot = snapshot_of(CLUSTER, [view("x")])
    plan = replace(plan_of({}), memory={"version": 1})
    rest = rest_of(snapshot, plan)
    assert (rest.memory, rest.replan) == (plan.memory, replace(plan.replan, at_s=ASK_AGAIN_S))
    assert rest.identity is not plan.identity


@st.composite
def runs(draw: st.DrawFn) -> tuple[JobView, ...]:
    """Jobs as a live cluster may show them: what they hold fits nothing."""
    jobs = []
    for name in "jklm":
        configurations = draw(
            st.lists(
                st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), min_size=1), max_size=3
            )
        )
        jobs.append(
            view(
                name,
                *(
                    held(
                        Configuration.of(each),
                        copy=draw(st.integers(0, 1)),
                        purpose=draw(st.sampled_from(Purpose)),
                        draining_until_s=draw(st.sampled_from([None, 9.0])),
                    )
                    for each in configurations
                ),
                counts=draw(st.sampled_from([(1,), (1, 2, 4)])),
                cpus_per_gpu=draw(st.sampled_from([0.0, 3.0])),
                blocked=draw(st.sampled_from([None, HELD])),
            )
        )
    return tuple(jobs)


@given(st.data())
def test_whatever_runs_to_leave_it_as_it_is_is_valid_and_so_is_what_is_left_of_any_plan(
    data: st.DataObject,
) -> None:
    model = data.draw(st.sampled_from([ExecutionModel.GANG, ExecutionModel.COPIES]))
    snapshot = snapshot_of(
        CLUSTER,
        data.draw(runs()),
        nodes={
            name: {
                "condition": data.draw(st.sampled_from(NodeCondition)),
                "foreign_gpus": data.draw(st.integers(-1, 6)),
                "foreign_cpus": data.draw(st.sampled_from([0.0, 7.0, 99.0])),
            }
            for name in "abc"
        },
    )
    snapshot = replace(snapshot, runs_per_job=data.draw(st.sampled_from([None, 1])))
    assert check_plan(snapshot, as_it_is(snapshot, model), model) == ()
    wanted = st.dictionaries(st.sampled_from("abcz"), st.integers(1, 5), min_size=1, max_size=2)
    entries: dict[str, Entry] = {}
    profiles = {}
    for name in data.draw(st.sets(st.sampled_from("jklmn"))):
        where = [Configuration.of(each) for each in data.draw(st.lists(wanted, max_size=2))]
        entries[name] = Placed(tuple(Placement(each, at) for at, each in enumerate(where)))
        if data.draw(st.booleans()):
            profiles[name] = profiling(Configuration.of(data.draw(wanted)))
    rest = rest_of(snapshot, plan_of(entries, profiles=profiles), model)
    assert set(rest.entries) == set(snapshot.jobs)
