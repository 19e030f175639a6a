"""What becomes of a snapshot when the actions of `diff` are carried out, without a simulator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from immutables import Map

from hetsched_core.policy import Action, Grant, RunKey, Start, Stop
from hetsched_core.types import Placed, Plan, Run, Snapshot

GRACE_S = 1.0


def runs_of(snapshot: Snapshot) -> dict[RunKey, Run]:
    """Return every run that holds GPUs."""
    return {
        RunKey(view.id, run.purpose, run.copy): run
        for view in snapshot.by_submission()
        for run in view.runs
    }


def carry_out(snapshot: Snapshot, actions: Iterable[Action]) -> Snapshot:
    """Return the state right after: stopped runs drain, starts that are ready hold their GPUs."""
    runs = runs_of(snapshot)
    for action in actions:
        match action:
            case Stop(key):
                runs[key] = replace(runs[key], draining_until_s=snapshot.now + GRACE_S)
            case Grant(key, budget):
                runs[key] = replace(runs[key], budget=budget)
            case Start(key, placement, True):
                runs[key] = Run(
                    number=0,
                    configuration=placement.configuration,
                    since_s=snapshot.now,
                    progress_from_s=snapshot.now,
                    speed=1.0,
                    copy=placement.copy,
                    purpose=placement.purpose,
                    budget=placement.budget,
                )
    return _with(snapshot, runs, snapshot.now)


def let_drain(snapshot: Snapshot) -> Snapshot:
    """Return the state when every run that drains has freed its GPUs."""
    staying = {key: r for key, r in runs_of(snapshot).items() if r.draining_until_s is None}
    return _with(snapshot, staying, snapshot.now + GRACE_S)


def nobody_runs(snapshot: Snapshot) -> Snapshot:
    """Return the state with every run gone."""
    return _with(snapshot, {}, snapshot.now)


def unlike(snapshot: Snapshot, plan: Plan) -> str:
    """Return the first job that does not hold what the plan gives it, or ""."""
    held: dict[str, list[tuple[object, ...]]] = {job: [] for job in snapshot.jobs}
    for key, run in runs_of(snapshot).items():
        held[key.job].append((key.purpose, key.copy, run.configuration.pieces, run.budget))
    for view in snapshot.by_submission():
        entry = plan.entries[view.id]
        wanted = [profile.placement for profile in plan.profiles if profile.job == view.id]
        wanted += entry.placements if isinstance(entry, Placed) else ()
        placed = [(p.purpose, p.copy, p.configuration.pieces, p.budget) for p in wanted]
        if sorted(held[view.id]) != sorted(placed):
            return f"job {view.id} holds {held[view.id]} where the plan wants {placed}"
    return ""


def _with(snapshot: Snapshot, runs: dict[RunKey, Run], now: float) -> Snapshot:
    """Return the snapshot with these runs, and counted anew what the nodes hold."""
    jobs = {
        view.id: replace(view, runs=tuple(run for key, run in runs.items() if key.job == view.id))
        for view in snapshot.jobs.values()
    }
    nodes = {
        view.node.name: replace(view, held_gpus=0, held_cpus=0.0, held_memory_mb=0.0)
        for view in snapshot.node_views()
    }
    for key, run in runs.items():
        job = jobs[key.job].job
        for name, gpus in run.configuration:
            node = nodes[name]
            nodes[name] = replace(
                node,
                held_gpus=node.held_gpus + gpus,
                held_cpus=node.held_cpus + gpus * job.cpus_per_gpu,
                held_memory_mb=node.held_memory_mb + gpus * job.memory_mb_per_gpu,
            )
    return replace(snapshot, now=now, jobs=Map(jobs), nodes=Map(nodes))
