"""What decides about one job: score, price or constraint, and the options it has."""

import pytest

from hetsched_core.errors import InputError
from hetsched_core.explain.plan import explain
from hetsched_core.policies.fifo import Fifo
from hetsched_core.policies.gavel import Gavel
from hetsched_core.policies.las import Las
from hetsched_core.types import (
    JobView,
    NodeCondition,
    Purpose,
    Reason,
    ReasonCode,
    Shape,
    Snapshot,
    Trigger,
    Waiting,
)
from tests.hetsched_core.worlds import cluster_of, held, on, plan_of, profiling, snapshot_of, view

CLUSTER = cluster_of(n0=("a100", 4), n1=("a100", 4), n2=("t4", 4))


def world(*views: JobView, **more: object) -> Snapshot:
    return snapshot_of(
        CLUSTER,
        views,
        shapes=frozenset({Shape.SINGLE_NODE}),
        triggers=frozenset({Trigger.ROUND}),
        **more,  # type: ignore[arg-type]
    )


def test_who_goes_first_is_a_score_that_the_policy_itself_is_asked_about() -> None:
    snapshot = world(
        view("x", held(on(n0=3)), counts=(3,)),
        view("y", held(on(n1=4)), counts=(4,)),
        view("z", held(on(n2=4)), counts=(4,)),
        view("first", counts=(4,), submit_s=1.0),
        view("second", counts=(1,), submit_s=2.0),
    )
    plan = Fifo().plan(snapshot)
    second = explain(Fifo(), snapshot, plan, "second")
    assert second.decided_by.startswith("score: fifo puts others first; without the other waiting")
    assert (second.place, second.waiting, second.chosen) == (1, 2, None)
    verdicts = {option.gpu_type: option.verdict for option in second.options}
    assert verdicts == {"a100": "room now", "t4": "no room now"}
    first = explain(Fifo(), snapshot, plan, "first")
    assert first.decided_by.startswith("constraint: the 3 jobs that hold GPUs leave too little")
    assert {option.verdict for option in first.options} == {"no room now"}


def test_a_placed_job_shows_what_was_chosen_among_its_options() -> None:
    snapshot = world(view("a", counts=(1, 2)), view("b", held(on(n2=2)), counts=(2,)))
    plan = Fifo().plan(snapshot)
    found = explain(Fifo(), snapshot, plan, "a")
    assert found.chosen is not None
    assert [o.verdict for o in found.options].count("chosen") == 1
    chosen = next(o for o in found.options if o.verdict == "chosen")
    assert (chosen.gpus, chosen.where) == (found.chosen.gpus, str(found.chosen))
    assert chosen.speed == snapshot.speeds.speed("m", found.chosen)
    assert found.decided_by.startswith("score: fifo gives it what the plan says")
    keeps = explain(Fifo(), snapshot, plan, "b")
    assert [o.verdict for o in keeps.options if o.gpu_type == "t4"] == ["held"]
    assert "lets it keep" in keeps.decided_by


@pytest.mark.parametrize(
    ("job", "nodes", "words"),
    [
        (view("a", counts=(16,)), {}, "no accepted GPU count fits this cluster"),
        (
            view("a", gpu_types=frozenset({"t4"})),
            {"n2": {"condition": NodeCondition.DOWN}},
            "every option needs nodes that are down or drained",
        ),
        (view("a", blocked=Reason(ReasonCode.HELD)), {}, "not yet: its user, an admin or Slurm"),
    ],
)
def test_a_hard_constraint_is_told_as_one(
    job: JobView, nodes: dict[str, dict[str, object]], words: str
) -> None:
    snapshot = world(job, nodes=nodes)
    decided = explain(Fifo(), snapshot, Fifo().plan(snapshot), "a").decided_by
    assert decided.startswith(f"constraint: {words}")


def test_prices_of_the_plan_are_what_an_option_costs() -> None:
    snapshot = world(*(view(f"j{k}", counts=(4,), submit_s=float(k)) for k in range(6)))
    plan = Gavel().plan(snapshot)
    assert plan.diagnostics.prices
    found = explain(Gavel(), snapshot, plan, "j5")
    assert found.prices == plan.diagnostics.prices
    for option in found.options:
        assert option.price == pytest.approx(4 * found.prices[option.gpu_type])


def test_standing_is_what_the_snapshot_shows() -> None:
    snapshot = world(view("a", held(on(n0=2)), counts=(2,)), view("b", counts=(4,)), now=100.0)
    found = explain(Las(), snapshot, Las().plan(snapshot), "a")
    assert found.service_gpu_s == 200.0
    assert explain(Las(), snapshot, Las().plan(snapshot), "b").waited_s == 100.0
    with pytest.raises(InputError, match="no active job 'c'"):
        explain(Las(), snapshot, Las().plan(snapshot), "c")


def test_a_job_that_is_measured_does_not_wait() -> None:
    run = held(on(n2=1), purpose=Purpose.PROFILE)
    snapshot = world(view("a", run))
    waits = Waiting(Reason(ReasonCode.PROFILING))
    plan = plan_of({"a": waits}, profiles={"a": profiling(on(n2=1))})
    found = explain(Fifo(), snapshot, plan, "a")
    assert found.chosen == on(n2=1)
    assert found.decided_by == "measuring: it runs there so that its speed on t4 is known"
    assert next(o.verdict for o in found.options if o.gpu_type == "t4") == "chosen"


def test_what_is_kept_for_a_job_is_chosen_and_not_held_and_was_no_service() -> None:
    snapshot = world(view("a", held(on(n0=2), begun=False), counts=(2,)), now=50.0)
    found = explain(Fifo(), snapshot, Fifo().plan(snapshot), "a")
    assert (found.waited_s, found.service_gpu_s) == (50.0, 0.0)
    assert (found.waiting, found.chosen) == (0, on(n0=2))
    assert {option.verdict for option in found.options} == {"chosen", "room now"}
    assert "gives it what the plan says" in found.decided_by
