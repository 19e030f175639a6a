"""What is left of a plan that breaks rules, for a cluster that cannot wait for a better one.

A replay ends at an invalid plan, which is an error in the policy. A live cluster has to go on: one
entry that breaks a rule must not cost all other jobs theirs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace

from immutables import Map

from hetsched_core.policy.check import Violation, check_plan, is_kept
from hetsched_core.types import (
    Entry,
    ExecutionModel,
    JobView,
    Placed,
    Placement,
    Plan,
    Purpose,
    Reason,
    ReasonCode,
    Snapshot,
    Waiting,
)

ASK_AGAIN_S = 10.0
"""How long a policy is left alone that has made no plan, or one that breaks rules."""


def salvaged(
    snapshot: Snapshot, plan: Plan, violations: Iterable[Violation], model: ExecutionModel
) -> Plan:
    """Return the valid rest of an invalid plan.

    A job whose entry breaks a rule stays as it is: what runs keeps what it holds, and what waits
    goes on waiting. So do the runs that the plan stops where such a job was to start: they were to
    make way for it. Where no job can be named, everything stays as it is. The policy is asked again
    after `ASK_AGAIN_S`.

    Args:
        snapshot: what the plan was made from.
        plan: the plan.
        violations: the rules that it breaks, as `check_plan` tells.
        model: the policy's execution model.
    """
    stays = as_it_is(snapshot, model)
    known = (job for job in snapshot.jobs if job in plan.entries)
    entries = stays.entries.update({job: plan.entries[job] for job in known})
    rest = replace(plan, entries=entries, base=None, changed=None, identity=stays.identity)
    left: set[str] = set()
    while violations:
        named = {job: each.rule for each in violations for job in each.jobs if job not in left}
        if not named:
            return _asked_soon(replace(stays, replan=plan.replan, memory=plan.memory), snapshot.now)
        named = {job: "" for job in _making_way(snapshot, rest, named) if job not in left} | named
        left.update(named)
        as_before: dict[str, Entry] = {}
        for job in named:
            if job in snapshot.jobs:
                as_before[job] = _told_why(stays.entries[job], named[job])
        profiles = [each for each in rest.profiles if each.job not in named]
        profiles += (each for each in stays.profiles if each.job in named)
        rest = replace(rest, entries=rest.entries.update(as_before), profiles=tuple(profiles))
        violations = check_plan(snapshot, rest, model)
    return _asked_soon(rest, snapshot.now)


def _asked_soon(plan: Plan, now: float) -> Plan:
    at_s = min(math.inf if plan.replan.at_s is None else plan.replan.at_s, now + ASK_AGAIN_S)
    return replace(plan, replan=replace(plan.replan, at_s=at_s))


def as_it_is(snapshot: Snapshot, model: ExecutionModel) -> Plan:
    """Return the plan that starts and stops nothing, which is valid whatever the snapshot.

    What runs where a window closes a node to it has to leave all the same.
    Of two runs under the name of one, only the first goes on: a plan cannot name the other.
    """
    before = snapshot.previous
    return Plan(
        Map({job: _unchanged(view, before, model) for job, view in snapshot.jobs.items()}),
        profiles=tuple(
            each
            for each in before.profiles
            if each.job in snapshot.jobs and is_kept(snapshot.jobs[each.job], each.placement)
        ),
        replan=before.replan,
        memory=before.memory,
    )


def _unchanged(view: JobView, before: Plan, model: ExecutionModel) -> Entry:
    if model is not ExecutionModel.TASKS:
        runs = {
            run.copy: Placement(run.configuration, run.copy, budget=run.budget)
            for run in reversed(view.runs)
            if run.purpose is Purpose.RUN
            and run.draining_until_s is None
            and view.job.closed.isdisjoint(name for name, _ in run.configuration)
        }
        kept = tuple(reversed(runs.values()))
        if kept:
            return Placed(kept if model is ExecutionModel.COPIES else kept[:1])
    entry = before.entries.get(view.id)
    if view.blocked is not None:
        return Waiting(view.blocked)
    return entry if isinstance(entry, Waiting) else Waiting(Reason(ReasonCode.INVALID_PLAN))


def _told_why(entry: Entry, rule: str) -> Entry:
    """Return an entry that stays as it is; what waits for no other reason is told the rule."""
    if isinstance(entry, Waiting) and entry.reason.code is ReasonCode.INVALID_PLAN:
        return Waiting(Reason(ReasonCode.INVALID_PLAN, detail=rule))
    return entry


def _making_way(snapshot: Snapshot, plan: Plan, jobs: Collection[str]) -> list[str]:
    """Return the jobs with runs that the plan stops on nodes where some of these were to start."""
    nodes = {
        name
        for job, placement in _placements(plan)
        if job in jobs
        for name, _ in placement.configuration
    }
    kept = {(job, placement.configuration) for job, placement in _placements(plan)}
    return [
        view.id
        for view in snapshot.jobs.values()
        for run in view.runs
        if run.draining_until_s is None
        and (view.id, run.configuration) not in kept
        and not nodes.isdisjoint(name for name, _ in run.configuration)
    ]


def _placements(plan: Plan) -> list[tuple[str, Placement]]:
    """Return every placement of a plan with its job."""
    entries = ((job, entry) for job, entry in plan.entries.items() if isinstance(entry, Placed))
    found = [(job, placement) for job, entry in entries for placement in entry.placements]
    return found + [(each.job, each.placement) for each in plan.profiles]
