"""Each rule of `check_plan` for gangs has a plan that breaks it and no other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hetsched_core.policy import check_plan
from hetsched_core.types import (
    Configuration,
    Entry,
    ExecutionModel,
    NodeCondition,
    Placed,
    Placement,
    ProfilePlacement,
    Purpose,
    Shape,
    Snapshot,
)
from tests.hetsched_core.policy.checked import (
    BLOCKED,
    DRAINED,
    K80,
    A,
    B,
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
    profiling,
    view,
)


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
    fields: dict[str, Any],
    world: dict[str, Any],
    broken: list[str],
) -> None:
    snapshot = gang(view("j", **fields), **world)
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
