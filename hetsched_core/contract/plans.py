"""Contracts on single decisions: what a policy answers to a snapshot, and to variants of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from hetsched_core.contract.feasibility import Feasibility, feasibility
from hetsched_core.contract.logs import over_allocated
from hetsched_core.contract.settle import carry_out, let_drain, nobody_runs, runs_of, unlike
from hetsched_core.contract.trial import (
    TooManyDecisionsError,
    Trial,
    describe_plan,
    first_difference,
)
from hetsched_core.policy import PlanChecker, Start, as_it_is, check_plan, diff, failure
from hetsched_core.types import (
    ALL_SHAPES,
    EMPTY_PLAN,
    ExecutionModel,
    Horizon,
    Knowledge,
    NodeCondition,
    Placed,
    Placement,
    Reason,
    ReasonCode,
    Shape,
    Snapshot,
    Trigger,
    Waiting,
)

MAX_MEMORY_BYTES = 16 << 20
"""How much a policy may note down (JSON text)."""

_FEW = 4
"""Of how many decisions the contract on shapes that come and go makes several."""

_FEW_SHAPES = frozenset({Shape.SINGLE_NODE, Shape.EVEN})


def policy_describes_itself(trial: Trial) -> Iterator[str]:
    """The policy is a frozen dataclass that names itself, and can live if it needs no future."""
    policy, info = trial.policy, trial.policy.info
    parameters = getattr(type(policy), "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        yield f"{type(policy).__name__} is no frozen dataclass"
    if not info.name or info.name != info.name.strip().lower() or " " in info.name:
        yield f"the name {info.name!r} is not one lower-case word"
    if not info.summary or "\n" in info.summary:
        yield f"the summary {info.summary!r} is not one line"
    if info.live and Knowledge.FUTURE_ARRIVALS in info.knows:
        yield "it knows future arrivals, and replay_only does not say that it cannot run live"


def plans_are_valid(trial: Trial) -> Iterator[str]:
    """Every plan keeps the rules of `check_plan`, and `plan` answers without an exception."""
    if trial.error is not None and not isinstance(trial.error, TooManyDecisionsError):
        yield failure(trial.policy, trial.error)
    for decision in trial.decisions:
        for violation in check_plan(decision.snapshot, decision.plan, trial.policy.info.model):
            yield f"{decision}: {violation}"


def work_gets_on(trial: Trial) -> Iterator[str]:
    """A run comes to its end after finitely many plans."""
    if isinstance(trial.error, TooManyDecisionsError):
        yield str(trial.error)


def changes_are_named(trial: Trial) -> Iterator[str]:
    """A plan that revises another names every entry that it changes, so it can be checked fast."""
    checker = PlanChecker(trial.policy.info.model)
    for decision in trial.decisions:
        snapshot, plan = decision.snapshot, decision.plan
        whole = check_plan(snapshot, plan, trial.policy.info.model)
        if set(checker.check(snapshot, plan)) != set(whole):
            yield f"{decision}: checked by its changes alone, the plan breaks other rules"
        before = snapshot.previous
        if plan.changed is None:
            continue
        if plan.base is not before.identity:
            yield f"{decision}: the plan revises one that is not in force"
            continue
        for job in sorted({*plan.entries, *before.entries} - plan.changed):
            if plan.entries.get(job) != before.entries.get(job):
                yield f"{decision}: the entry of job {job} changed and `changed` does not name it"


def reasons_are_true(trial: Trial) -> Iterator[str]:
    """A waiting job is told "never" where it fits nowhere, and nowhere else."""
    fits: dict[str, Feasibility] = {}
    for decision in trial.decisions:
        snapshot = decision.snapshot
        for job, entry in sorted(decision.plan.entries.items()):
            if not isinstance(entry, Waiting) or job not in snapshot.jobs:
                continue
            if job not in fits:
                fits[job] = _fit(trial, snapshot, job)
            never = entry.reason.code.horizon is Horizon.NEVER
            if never and fits[job] is Feasibility.YES:
                yield f"{decision}: job {job} fits and is told {str(entry.reason)!r}"
            if not never and fits[job] is Feasibility.NO:
                yield f"{decision}: job {job} fits nowhere, is told {str(entry.reason)!r}"
            for other in entry.reason.behind:
                if other not in snapshot.jobs or other == job:
                    yield f"{decision}: job {job} waits behind {other}, which is not active"


def _fit(trial: Trial, snapshot: Snapshot, job_id: str) -> Feasibility:
    job, shapes = snapshot.jobs[job_id].job, snapshot.shapes_for(snapshot.jobs[job_id].job)
    return feasibility(job, snapshot.cluster, snapshot.speeds, shapes, trial.scenario.model)


def same_snapshot_same_plan(trial: Trial) -> Iterator[str]:
    """The same snapshot gives the same plan again, in any order, and is left as it was."""
    for decision in trial.decisions:
        if decision.mutation:
            yield f"{decision}: plan() changed the snapshot: {decision.mutation}"
    for decision in trial.sample:
        again = trial.policy.plan(decision.snapshot)
        found = first_difference(describe_plan(decision.plan), describe_plan(again))
        if found:
            yield f"{decision}: asked again, {found}"


def undeclared_knowledge_is_not_used(trial: Trial) -> Iterator[str]:
    """What the policy does not declare in `info.knows` makes no difference to it."""
    knows, rng = trial.policy.info.knows, Random(trial.scenario.seed)
    for decision in trial.sample:
        jobs = decision.snapshot.jobs
        for name, view in sorted(jobs.items()):
            job = view.job
            if Knowledge.TOTAL_SAMPLES not in knows:
                job = replace(job, total_samples=rng.uniform(1.0, 1e6))
                if job.tasks is not None:
                    job = replace(job, tasks=replace(job.tasks, rounds=1000))
            if Knowledge.TIME_LIMIT not in knows:
                job = replace(job, time_limit_s=rng.uniform(1.0, 1e6))
            jobs = jobs.set(name, replace(view, job=job))
        told = trial.policy.plan(replace(decision.snapshot, jobs=jobs))
        found = first_difference(describe_plan(decision.plan), describe_plan(told))
        if found:
            declared = ", ".join(sorted(knows)) or "nothing"
            yield f"{decision}: it declares {declared}; told more, {found}"


def blocked_jobs_wait(trial: Trial) -> Iterator[str]:
    """On a live cluster, held jobs wait for the reason given, and foreign jobs keep their GPUs."""
    rng, model = Random(trial.scenario.seed), trial.policy.info.model
    for decision in trial.sample:
        snapshot = _live(decision.snapshot, rng)
        plan = trial.policy.plan(snapshot)
        for violation in check_plan(snapshot, plan, model):
            yield f"{decision}, with jobs held and GPUs in foreign use: {violation}"
        for view in snapshot.by_submission():
            entry = plan.entries.get(view.id)
            if view.blocked is None or not isinstance(entry, Waiting):
                continue
            if entry.reason.code is not view.blocked.code:
                yield f"{decision}: job {view.id}, {view.blocked}, is told {str(entry.reason)!r}"


def _live(snapshot: Snapshot, rng: Random) -> Snapshot:
    """Return the snapshot with some jobs held and some free GPUs in foreign use."""
    chosen = rng.sample(sorted(snapshot.jobs), min(len(snapshot.jobs), 3))
    jobs, nodes = snapshot.jobs, snapshot.nodes
    for name in chosen:
        reason = Reason(rng.choice((ReasonCode.HELD, ReasonCode.DEPENDENCY, ReasonCode.QUOTA)))
        jobs = jobs.set(name, replace(jobs[name], blocked=reason))
    for name in rng.sample(snapshot.cluster.names, 2):
        node = nodes[name]
        foreign = rng.randint(0, max(0, node.capacity - node.held_gpus))
        nodes = nodes.set(name, replace(node, foreign_gpus=foreign))
    return replace(
        snapshot,
        jobs=jobs,
        nodes=nodes,
        changed=snapshot.changed | set(chosen),
        nodes_changed=True,
    )


def what_runs_is_a_fact(trial: Trial) -> Iterator[str]:
    """A run on a node that is down or drained breaks no plan, and may stay there."""
    rng, model = Random(trial.scenario.seed), trial.policy.info.model
    for decision in trial.sample:
        snapshot = _in_doubt(decision.snapshot, rng)
        plan = trial.policy.plan(snapshot)
        for violation in check_plan(snapshot, plan, model):
            yield f"{decision}, with nodes closed under runs: {violation}"
        stays = as_it_is(snapshot, model)
        for violation in check_plan(snapshot, stays, model):
            yield f"{decision}, with nodes closed under runs and nothing changed: {violation}"


def _in_doubt(snapshot: Snapshot, rng: Random) -> Snapshot:
    """Return the snapshot with some nodes closed under what runs there."""
    nodes = snapshot.nodes
    busy = [view.node.name for view in snapshot.node_views() if view.held_gpus]
    for name in rng.sample(busy, min(len(busy), 2)):
        condition = rng.choice((NodeCondition.DOWN, NodeCondition.DRAINED))
        nodes = nodes.set(name, replace(nodes[name], condition=condition))
    triggers = snapshot.triggers | {Trigger.NODE}
    return replace(snapshot, nodes=nodes, triggers=triggers, nodes_changed=True)


def shapes_come_and_go(trial: Trial) -> Iterator[str]:
    """A job that may no longer have the shape it is to start in gets another place, or waits."""
    if trial.policy.info.model is not ExecutionModel.GANG:
        return
    rng = Random(trial.scenario.seed)
    for decision in trial.sample[:_FEW]:
        snapshot, plan = nobody_runs(decision.snapshot), EMPTY_PLAN
        some = frozenset(rng.sample(sorted(snapshot.jobs), len(snapshot.jobs) // 2))
        # What every job takes changes with what single ones do, unless there is one that never may.
        others = rng.choice((_FEW_SHAPES, ALL_SHAPES))
        for lost, when in ((frozenset(), "had"), (some, "lost"), (frozenset(), "had again")):
            every = _FEW_SHAPES if lost else others
            trigger = rng.choice((Trigger.ROUND, Trigger.END))
            snapshot = _shaped(replace(snapshot, shapes=every, previous=plan), lost, trigger)
            plan = trial.policy.plan(snapshot)
            for violation in check_plan(snapshot, plan, trial.policy.info.model):
                yield f"{decision}, with shapes {when}: {violation}"
            for job in sorted(plan.entries):
                if plan.never(job) and _fit(trial, snapshot, job) is Feasibility.YES:
                    yield f"{decision}, with shapes {when}: job {job} fits and is told never"


def _shaped(snapshot: Snapshot, lost: frozenset[str], trigger: Trigger) -> Snapshot:
    """Return the snapshot with all jobs but these taking every shape, as those may live."""
    before, jobs = snapshot.previous.entries, snapshot.jobs
    changed = set()
    for name, view in jobs.items():
        shapes = frozenset() if name in lost else ALL_SHAPES - _FEW_SHAPES
        if view.job.shapes != shapes or name not in before:
            changed.add(name)
            jobs = jobs.set(name, replace(view, job=replace(view.job, shapes=shapes)))
    return replace(
        snapshot,
        triggers=frozenset({trigger}),
        jobs=jobs,
        changed=frozenset(changed),
        gone=frozenset(),
        nodes_changed=not before,
    )


def memory_is_json(trial: Trial) -> Iterator[str]:
    """`Plan.memory` is empty or JSON values with a "version", at most 16 MiB of text."""
    for decision in trial.decisions:
        memory = dict(decision.plan.memory)
        if not memory:
            continue
        try:
            text = json.dumps(memory, allow_nan=False)
        except (TypeError, ValueError) as error:
            yield f"{decision}: memory is no JSON: {error}"
            continue
        if json.loads(text) != memory:
            yield f"{decision}: memory is not the same when it has been JSON"
        if "version" not in memory:
            yield f"{decision}: memory has no version: {sorted(memory)}"
        if len(text) > MAX_MEMORY_BYTES:
            yield f"{decision}: memory takes {len(text)} bytes, more than {MAX_MEMORY_BYTES}"


def survives_a_new_start(trial: Trial) -> Iterator[str]:
    """With the plan in force forgotten, the next one is valid; without preemption no job moves."""
    model = trial.policy.info.model
    for decision in trial.sample:
        snapshot = replace(
            decision.snapshot,
            triggers=frozenset({Trigger.NODE}),
            previous=EMPTY_PLAN,
            changed=frozenset(decision.snapshot.jobs),
            gone=frozenset(),
            nodes_changed=True,
        )
        plan = trial.policy.plan(snapshot)
        for violation in check_plan(snapshot, plan, model):
            yield f"{decision}, with the plan in force forgotten: {violation}"
        if trial.preempts or model is not ExecutionModel.GANG:
            continue
        for view in snapshot.by_submission():
            running, entry = view.configuration, plan.entries.get(view.id)
            if running is not None and any(name in view.job.closed for name, _ in running):
                continue
            if running is not None and entry != Placed((Placement(running),)):
                yield f"{decision}: the plan in force forgotten, job {view.id} leaves {running}"


def applying_twice_changes_nothing(trial: Trial) -> Iterator[str]:
    """Carried out, a plan asks for nothing more, and nothing starts on GPUs that are not free."""
    if trial.policy.info.model is ExecutionModel.TASKS:
        return
    for decision in trial.sample:
        snapshot, plan = decision.snapshot, decision.plan
        for wait in (False, True, True):
            if wait:
                snapshot = let_drain(snapshot)
            actions = diff(snapshot, plan)
            ready = [a.key for a in actions if isinstance(a, Start) and a.ready]
            if any(key in runs_of(snapshot) for key in ready):
                yield f"{decision}: a run is started that exists"
            snapshot = carry_out(snapshot, actions)
            held = [
                (snapshot.jobs[k.job].job, r.configuration) for k, r in runs_of(snapshot).items()
            ]
            if found := over_allocated(snapshot.cluster, held):
                yield f"{decision}: carried out, {found}"
            more = [a for a in diff(snapshot, plan) if not isinstance(a, Start) or a.ready]
            if more:
                yield f"{decision}: carried out, it asks for more: {more[0]}"
        if found := unlike(snapshot, plan):
            yield f"{decision}: {found}"
