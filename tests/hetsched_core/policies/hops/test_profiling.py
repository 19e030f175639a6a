"""The profiling queue of Hops: which types a job is measured on, when, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hetsched_core.policies.hops.hops import Hops
from hetsched_core.types import EMPTY_PLAN, Cluster, Layer, Plan, Purpose, Speeds, Trigger
from tests.hetsched_core.policies.hops.worlds import at_round, table_of
from tests.hetsched_core.policies.worlds import ARRIVAL, END, ROUND, answer, reasons, with_job
from tests.hetsched_core.worlds import cluster_of, held, on, view, where

ONE_EACH = cluster_of(a=("t", 1), b=("u", 1))
THREE_TYPES = cluster_of(a=("t", 1), b=("u", 1), c=("w", 1))
NEW = view("j")
SAME = view("same", submit_s=1.0)
FIXED = view("fixed", held(on(a=1)), preemptible=False)


def guessed(cluster: Cluster, known: Iterable[str] = ()) -> Speeds:
    """Profile `m`, measured on the `known` types alone; batches of 8 samples."""
    types = cluster.gpu_types
    layers = [Layer.THEORY if t in known else Layer.FIRST_ESTIMATE for t in types]
    return Speeds(cluster, {"m": table_of(types, layers=layers, batch_size=8.0)})


def runs(plan: Plan) -> list[tuple[str, str]]:
    """Its profiling runs: the job, and where."""
    return [(each.job, str(each.placement.configuration)) for each in plan.profiles]


def test_a_new_job_is_profiled_on_all_types_at_once_before_anything_else() -> None:
    cluster = cluster_of(a=("t", 2), b=("u", 2))
    plan = answer(Hops(), at_round(cluster, NEW, SAME, speeds=guessed(cluster)))
    assert runs(plan) == [("j", "a:1"), ("j", "b:1")]
    assert [p.placement.copy for p in plan.profiles] == [0, 1]
    assert {p.placement.budget for p in plan.profiles} == {50 * 8.0}
    assert {p.placement.until_s for p in plan.profiles} == {300.0}
    # Of one key, one job is measured; both wait for it.
    assert reasons(plan) == {"j": "profiling", "same": "profiling"}
    # Without profiling first estimates are taken as they are.
    plan = answer(Hops(profile_iterations=0), at_round(cluster, NEW, speeds=guessed(cluster)))
    assert (plan.profiles, where(plan)) == ((), {"j": "a:1"})


def test_a_job_runs_on_the_types_it_knows_while_others_are_measured() -> None:
    cluster = cluster_of(a=("t", 1), b=("u", 2))
    speeds = guessed(cluster, known=["t"])
    plan = answer(Hops(), at_round(cluster, NEW, speeds=speeds))
    assert runs(plan) == [("j", "b:1")]
    assert where(plan) == {"j": "a:1"}
    # Between rounds what is under way goes on, and what was given up is not tried again.
    between = at_round(cluster, NEW, now=10.0, triggers=END, speeds=speeds, previous=plan)
    assert answer(Hops(), between).profiles == plan.profiles
    assert answer(Hops(), replace(between, now=301.0)).profiles == ()


def test_a_run_that_has_not_begun_gives_way_to_what_others_have_begun_in_its_place() -> None:
    speeds = guessed(ONE_EACH)
    plan = answer(Hops(), at_round(ONE_EACH, NEW, speeds=speeds))
    assert runs(plan) == [("j", "a:1"), ("j", "b:1")]
    # Slurm has started it, while it held nothing back.
    between = at_round(ONE_EACH, NEW, FIXED, now=9.0, triggers=END, speeds=speeds, previous=plan)
    assert runs(answer(Hops(), between)) == [("j", "b:1")]
    # Or the job itself, elsewhere.
    begun = view("j", held(on(b=1)))
    plan = answer(Hops(), replace(at_round(ONE_EACH, NEW, speeds=speeds), runs_per_job=1))
    assert runs(plan) == [("j", "a:1")]
    between = at_round(ONE_EACH, begun, now=9.0, triggers=END, speeds=speeds, previous=plan)
    assert runs(answer(Hops(), replace(between, runs_per_job=1))) == []


def test_the_next_run_to_be_measured_waits_until_the_last_one_has_ended() -> None:
    speeds = guessed(ONE_EACH)
    start = replace(at_round(ONE_EACH, NEW, speeds=speeds), runs_per_job=1)
    plan = answer(Hops(), start)
    assert runs(plan) == [("j", "a:1")]
    measured = guessed(ONE_EACH, ["t"])
    left = at_round(ONE_EACH, NEW, now=9.0, triggers=frozenset({Trigger.PROFILE}), speeds=measured)
    left = replace(left, runs_per_job=1, previous=replace(plan, profiles=()))
    plan = answer(Hops(), left)
    assert runs(plan) == [("j", "b:1")]
    draining = view("j", held(on(a=1), purpose=Purpose.PROFILE, draining_until_s=20.0))
    later = at_round(ONE_EACH, draining, now=10.0, triggers=END, speeds=measured, previous=plan)
    assert runs(answer(Hops(), replace(later, runs_per_job=1))) == [("j", "b:1")]


def test_who_comes_within_a_round_is_profiled_at_once_where_gpus_are_idle() -> None:
    speeds = guessed(ONE_EACH)
    start = at_round(ONE_EACH, FIXED, now=360.0, speeds=speeds)
    plan = replace(answer(Hops(), start), profiles=())
    late = view("j", submit_s=400.0)
    arrives = at_round(
        ONE_EACH, FIXED, late, now=400.0, triggers=ARRIVAL, speeds=speeds, previous=plan
    )
    arrives = replace(arrives, round=start.round)
    later = answer(Hops(), arrives)
    assert runs(later) == [("j", "b:1")]
    # It failed: it is not begun again, and another type is as soon as a GPU falls idle.
    failed = replace(arrives, now=405.0, previous=replace(later, profiles=()))
    assert answer(Hops(), failed).profiles == ()
    fewer = failed.jobs.delete("fixed")
    ended = replace(failed, jobs=fewer, gone=frozenset({"fixed"}), triggers=END)
    assert runs(answer(Hops(), ended)) == [("j", "a:1")]
    again = replace(failed, now=720.0, triggers=ROUND)
    assert runs(answer(Hops(), again)) == [("j", "b:1")]


def test_a_job_is_measured_only_where_it_may_run_on_types_with_gpus_enough() -> None:
    cluster = cluster_of(a=("t", 2), b=("u", 4))
    wide = view("j", counts=(4,))
    assert runs(answer(Hops(), at_round(cluster, wide, speeds=guessed(cluster)))) == [("j", "b:1")]
    some = with_job(view("j", gpu_types=frozenset("tu")), nodes=frozenset("ac"))
    snapshot = at_round(THREE_TYPES, some, speeds=guessed(THREE_TYPES))
    assert runs(answer(Hops(), snapshot)) == [("j", "a:1")]


def test_a_job_that_can_have_one_run_at_a_time_is_profiled_on_one_type_after_another() -> None:
    plan, seen = EMPTY_PLAN, []
    for known in ([], ["t"], ["t", "u"], ["t", "u", "w"]):
        start = at_round(THREE_TYPES, NEW, speeds=guessed(THREE_TYPES, known), previous=plan)
        plan = answer(Hops(), replace(start, runs_per_job=1))
        seen.append([place for _, place in runs(plan)])
        assert reasons(plan) == ({"j": "profiling"} if plan.profiles else {})
        # Once it is measured there it runs there for the rest of the round, if only there.
        plan = replace(plan, profiles=())
    assert seen == [["a:1"], ["b:1"], ["c:1"], []]
    assert set(where(plan)) == {"j"}


def test_while_a_job_has_its_one_run_to_be_measured_others_of_its_key_are_measured_too() -> None:
    start = at_round(ONE_EACH, NEW, SAME, speeds=guessed(ONE_EACH))
    plan = answer(Hops(), replace(start, runs_per_job=1))
    assert runs(plan) == [("j", "a:1"), ("same", "b:1")]
    # Between rounds, what is measured on `t` already does not run beside its other measurement.
    speeds = guessed(ONE_EACH, ["t"])
    between = at_round(ONE_EACH, NEW, SAME, now=9.0, triggers=END, speeds=speeds, previous=plan)
    later = answer(Hops(), replace(between, runs_per_job=1))
    assert later.profiles == plan.profiles
    assert where(later) == {}
