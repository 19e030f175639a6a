"""Serving jobs in strict order at the cost of what changed, held to `pack`, which looks at all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import ClassVar

import pytest

from hetsched_core.contract import Scenario, random_scenario
from hetsched_core.placement import Packing, StrictOrder, pack
from hetsched_core.placement.entries import NEVER
from hetsched_core.placement.fewest import fewest_fit
from hetsched_core.placement.pack import Bars, Fit, fastest_fit
from hetsched_core.placement.ways import Way, reach
from hetsched_core.policy import Policy, PolicyInfo, check_plan
from hetsched_core.simulate import simulate
from hetsched_core.simulate.learned import LearnedSpeeds
from hetsched_core.types import (
    ALL_SHAPES,
    Cluster,
    ExecutionModel,
    Job,
    JobView,
    Placed,
    Plan,
    Replan,
    Shape,
    Snapshot,
    Speeds,
    submission_order,
)
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    placed,
    snapshot_of,
    view,
)


def in_line(strict: StrictOrder) -> list[str]:
    """Return who waits, in order."""
    return sorted(strict.waiting, key=strict.waiting.__getitem__)


def by_submission(view: JobView, snapshot: Snapshot) -> tuple[float, str]:
    return submission_order(view)


@dataclass(frozen=True)
class Compared:
    """Plans with `StrictOrder` and asks the twin the same."""

    info: ClassVar[PolicyInfo] = PolicyInfo("compared", "in order", "", model=ExecutionModel.GANG)
    strict: StrictOrder
    followed: list[bool] = field(default_factory=list)

    def plan(self, snapshot: Snapshot) -> Plan:
        self.followed.append(self.strict.follows(snapshot))
        plan = self.strict.plan(snapshot, Replan())
        order = sorted(snapshot.jobs.values(), key=lambda view: self.strict.key(view, snapshot))
        twin = pack(
            snapshot, order, Packing.STRICT_ORDER, Replan(), self.strict.fit, self.strict.bars
        )
        assert dict(plan.entries) == dict(twin.entries)
        placed = {job for job, entry in plan.entries.items() if isinstance(entry, Placed)}
        assert set(self.strict.placed) == placed
        waiting = in_line(self.strict)
        views = [snapshot.jobs[job] for job in waiting]
        assert views == sorted(views, key=lambda view: self.strict.key(view, snapshot))
        return plan


def play(scenario: Scenario, policy: Policy, **other: object) -> None:
    """Replay a scenario, with other settings or estimates where they are given."""
    parts = {"settings": scenario.settings, "estimates": scenario.estimates, **other}
    simulate(
        scenario.submissions,
        scenario.cluster,
        policy,
        scenario.truth,
        incidents=scenario.incidents,
        **parts,  # type: ignore[arg-type]
    )


FEW = frozenset({Shape.SINGLE_NODE, Shape.EVEN})


@dataclass(frozen=True)
class ComesAndGoes:
    """Plans with another policy, to which jobs lose shapes and get them back, as they do live."""

    info: ClassVar[PolicyInfo] = Compared.info
    compared: Compared
    rng: Random
    always_few: bool
    lost: set[str] = field(default_factory=set)

    def plan(self, snapshot: Snapshot) -> Plan:
        before = set(self.lost)
        if self.rng.random() < 0.5:
            self.lost.clear()
            share = self.rng.choice((0.0, 0.5))
            self.lost.update(j for j in sorted(snapshot.jobs) if self.rng.random() < share)
        jobs = snapshot.jobs
        for job_id, seen in snapshot.jobs.items():
            shapes = frozenset() if job_id in self.lost else ALL_SHAPES - FEW
            jobs = jobs.set(job_id, replace(seen, job=replace(seen.job, shapes=shapes)))
        shown = replace(
            snapshot,
            jobs=jobs,
            shapes=FEW if self.always_few or self.lost & set(jobs) else ALL_SHAPES,
            changed=snapshot.changed | ((before ^ self.lost) & set(jobs)),
        )
        plan = self.compared.plan(shown)
        assert check_plan(shown, plan, ExecutionModel.GANG) == ()
        return plan


def all_allowed(job: Job, _: Way, cluster: Cluster) -> int:
    return cluster.mask(job.nodes)


@pytest.mark.parametrize(
    ("fit", "bars"), [(fastest_fit, reach), (fewest_fit, reach), (fewest_fit, all_allowed)]
)
@pytest.mark.parametrize("seed", range(12))
def test_the_plans_are_those_of_the_naive_twin_and_valid_while_shapes_come_and_go(
    seed: int, fit: Fit, bars: Bars
) -> None:
    scenario = random_scenario(seed)
    stays = Compared(StrictOrder(by_submission, fit, bars))
    play(scenario, stays)
    strict = StrictOrder(by_submission, fit, bars)
    changes = ComesAndGoes(Compared(strict), Random(seed), seed % 2 == 0)
    play(scenario, changes, settings=replace(scenario.settings, shapes=ALL_SHAPES))
    assert any(stays.followed)
    assert any(changes.compared.followed)


ONE = cluster_of(n0=("a100", 1))
FOUR = cluster_of(n0=("a100", 4))


def later(
    cluster: Cluster, views: list[JobView], plan: Plan, *changed: str, **more: object
) -> Snapshot:
    """What is seen after a plan when only these jobs have changed."""
    return snapshot_of(
        cluster,
        views,
        previous=plan,
        changed=frozenset(changed),
        nodes_changed=False,
        **more,  # type: ignore[arg-type]
    )


def at_speed(cluster: Cluster, speed: float) -> Speeds:
    return linear_speeds(cluster, {"m": {"a100": speed}})


def test_a_place_that_is_not_taken_yet_is_given_up_with_its_shape_and_no_sooner() -> None:
    cluster = cluster_of(n0=("a100", 4), n1=("a100", 2))
    wide = view("a", counts=(6,))
    takes_all = replace(wide, job=replace(wide.job, shapes=ALL_SHAPES - FEW))
    known = {"speeds": at_speed(cluster, 1.0), "shapes": FEW}
    strict = StrictOrder(by_submission)
    plan = strict.plan(snapshot_of(cluster, [takes_all], **known), Replan())  # type: ignore[arg-type]
    everything = plan.entries["a"]
    assert everything == placed(n0=4, n1=2)
    runs = replace(wide, runs=(held(on(n0=4, n1=2)),))
    for seen, entry in (
        (takes_all, everything),
        (runs, everything),
        (wide, NEVER),
        (takes_all, everything),
    ):
        told = later(cluster, [seen], plan, "a", **known)
        assert strict.follows(told)
        plan = strict.plan(told, Replan())
        assert plan.entries["a"] == entry
        assert check_plan(told, plan, ExecutionModel.GANG) == ()
    # What was expected of even shapes alone holds no more where all jobs take others.
    assert not strict.follows(replace(told, previous=plan, shapes=ALL_SHAPES))


def test_who_changes_places_again_and_again_leaves_few_rows_behind() -> None:
    first = view("first", held(on(n0=4)), counts=(4,))
    others = [view(f"j{n}", counts=(4,), submit_s=1.0 + n) for n in range(20)]
    names, speeds = [other.id for other in others], at_speed(FOUR, 1.0)
    penalty = 50
    strict = StrictOrder(lambda view, _: (penalty, *submission_order(view)))
    plan = strict.plan(snapshot_of(FOUR, [first, *others], speeds=speeds), Replan())
    for penalty in reversed(range(50)):  # noqa: B007  # Everybody moves before where all were.
        told = later(FOUR, [first, *others], plan, *names, speeds=speeds)
        assert strict.follows(told)
        plan = strict.plan(told, Replan())
        assert in_line(strict) == names
        assert sum(map(len, strict._queues.values())) <= 64 + 2 * len(others) + 1


def by_estimates(view: JobView, snapshot: Snapshot) -> tuple[float, float, str]:
    profile = view.job.profile
    fastest = max(snapshot.speeds.per_gpu(profile, t, 1) for t in snapshot.cluster.gpu_types)
    return (snapshot.ended.mean_run_s(profile) or 0.0, fastest, view.id)


@pytest.mark.parametrize("seed", range(12))
def test_the_plans_are_those_of_the_naive_twin_while_estimates_are_learned(seed: int) -> None:
    scenario = random_scenario(seed)
    compared = Compared(StrictOrder(by_estimates))
    learned = LearnedSpeeds(scenario.cluster, scenario.truth, seed=seed)
    play(scenario, compared, estimates=learned)
    assert not all(compared.followed)


def test_a_job_that_can_run_after_all_waits_and_one_that_cannot_never_will() -> None:
    views = [view("a", held(on(n0=1))), view("b", submit_s=1.0), view("c", submit_s=2.0)]
    strict = StrictOrder(by_submission)
    plan = strict.plan(snapshot_of(ONE, views, speeds=at_speed(ONE, 1.0)), Replan())
    for speed, waiting in ((0.0, []), (1.0, ["b", "c"])):
        plan = strict.plan(later(ONE, views, plan, speeds=at_speed(ONE, speed)), Replan())
        assert in_line(strict) == waiting
        assert (plan.entries["b"] is NEVER) is not bool(waiting)
        assert plan.entries["a"] == placed(n0=1)
