"""Contracts on stops: each costs a restart and the grace time, and must gain something for it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from hetsched_core.contract.logs import over_allocated
from hetsched_core.contract.scenario import ORIGIN_S, Scenario, calm
from hetsched_core.contract.trial import Trial, TrialDecision, run_trial
from hetsched_core.simulate import SimulationSettings
from hetsched_core.types import (
    Cluster,
    Configuration,
    ExecutionModel,
    Job,
    JobView,
    Node,
    Placed,
    RequirementSet,
    Shape,
    Submission,
    Trigger,
    Waiting,
)

ROUND_S, RESTART_COST_S, GRACE_S = 360.0, 10.0, 30.0
"""What a live daemon does unless it is told otherwise."""


def stops_make_room(trial: Trial) -> Iterator[str]:
    """No job that could stay is stopped, or moved to as many such GPUs where it is no faster."""
    settings = trial.scenario.settings
    free = settings.restart_cost_s + settings.grace_s == 0.0
    if trial.policy.info.model is not ExecutionModel.GANG or free:
        return
    for decision in trial.decisions:
        snapshot, plan = decision.snapshot, decision.plan
        holders = [
            (snapshot.jobs[job].job, placement.configuration)
            for job, entry in plan.entries.items()
            if isinstance(entry, Placed) and job in snapshot.jobs
            for placement in entry.placements
        ]
        holders += [
            (snapshot.jobs[profile.job].job, profile.placement.configuration)
            for profile in plan.profiles
        ]
        for view, has in _running(decision):
            entry = plan.entries[view.id]
            goes = entry.placements[0].configuration if isinstance(entry, Placed) else None
            closed = any(
                not snapshot.nodes[name].open or name in view.job.closed for name, _ in has
            )
            if goes == has or closed or view.blocked is not None:
                continue
            others = [holder for holder in holders if holder[0] is not view.job]
            if over_allocated(snapshot.cluster, [*others, (view.job, has)]):
                continue
            if goes is None:
                yield f"{decision}: job {view.id} is stopped, and no job gets its {has}"
                continue
            profile = view.job.profile
            was, will = (snapshot.speeds.speed(profile, each) for each in (has, goes))
            cluster = snapshot.cluster
            if will <= was and _by_type(cluster, has) == _by_type(cluster, goes):
                yield (
                    f"{decision}: job {view.id} is moved from {has} to {goes} at {will:g} samples/s"
                    f", had {was:g}, and no job gets what it had"
                )


def equal_jobs_are_not_swapped(trial: Trial) -> Iterator[str]:
    """Equal jobs are not moved for each other, nor stopped but at a round's start if that is said.

    So turns cost one stop a round of each GPU at most: (restart cost + grace time) / round.
    """
    info = trial.policy.info
    if info.model is not ExecutionModel.GANG:
        return
    equal = run_trial(trial.policy, equal_jobs(trial.scenario.seed))
    if equal.error is not None:
        yield f"with equal jobs, {type(equal.error).__name__}: {equal.error}"
    for decision in equal.decisions:
        entries = decision.plan.entries
        stopped = [v.id for v, _ in _running(decision) if isinstance(entries[v.id], Waiting)]
        if stopped and not info.takes_turns:
            yield f"{decision}: of equal jobs {stopped[0]} is stopped for another"
        elif stopped and not _when_a_round_starts(decision):
            yield f"{decision}: of equal jobs the turn of {stopped[0]} ends within a round"
        yield from _moved_for_an_equal(decision)


def _moved_for_an_equal(decision: TrialDecision) -> Iterator[str]:
    """Yield what has to go to another node of its type, as its place is given to its equal."""
    snapshot, entries = decision.snapshot, decision.plan.entries
    goes = {
        job: entry.placements[0].configuration
        for job, entry in entries.items()
        if isinstance(entry, Placed)
    }
    cluster = snapshot.cluster
    for view, has in _running(decision):
        to = goes.get(view.id, has)
        if to == has or _by_type(cluster, to) != _by_type(cluster, has):
            continue
        for job, place in goes.items():
            if place == has and snapshot.jobs[job].configuration != has:
                yield f"{decision}: job {view.id} is moved from {has} to {to} for its equal {job}"


def equal_jobs(seed: int) -> Scenario:
    """Return a scenario of equal jobs, some six for each place, on GPUs of one type to three.

    They come in one second, or some seconds apart, and tell their size, a time limit alone, or
    nothing; nothing happens to the cluster. Costs and rounds are those of a live daemon.
    """
    rng = Random(f"equal {seed}")
    per_gpu = {"a100": 1.0, "v100": 0.6, "k80": 0.35}
    types = tuple(per_gpu)[: 1 + seed % 3]
    nodes = [Node(f"n{k}", types[k % len(types)], 4) for k in range(3)]
    gpus = rng.choice((1, 1, 2))
    run_s, apart_s = rng.uniform(600.0, 3000.0), rng.choice((0.0, 0.5, 7.0))
    told, limited = rng.choice(((True, True), (False, True), (False, False)))
    samples = run_s * gpus
    submissions = tuple(
        Submission(
            Job(
                id=f"j{k:03d}",
                submit_s=ORIGIN_S + k * apart_s,
                requirements=RequirementSet((gpus,)),
                profile="m",
                total_samples=samples if told else None,
                time_limit_s=86_400.0 if limited else None,
            ),
            samples=samples,
        )
        for k in range(6 * 12 // gpus)
    )
    return calm(
        ExecutionModel.GANG,
        nodes,
        {gpu_type: per_gpu[gpu_type] for gpu_type in types},
        submissions,
        SimulationSettings(
            round_s=ROUND_S,
            restart_cost_s=RESTART_COST_S,
            grace_s=GRACE_S,
            shapes=frozenset({Shape.SINGLE_NODE, Shape.EVEN}),
        ),
        seed=seed,
        several_nodes=0.8,
    )


def _when_a_round_starts(decision: TrialDecision) -> bool:
    """Whether a plan takes effect when a round starts, made then or ahead."""
    ahead = decision.plan.valid_from_s == decision.snapshot.round.end_s
    return ahead or Trigger.ROUND in decision.snapshot.triggers


def _by_type(cluster: Cluster, configuration: Configuration) -> dict[str, int]:
    gpus: dict[str, int] = {}
    for name, count in configuration:
        gpus[cluster[name].gpu_type] = gpus.get(cluster[name].gpu_type, 0) + count
    return gpus


def _running(decision: TrialDecision) -> Iterator[tuple[JobView, Configuration]]:
    """Yield what runs and where, in order of submission."""
    for view in decision.snapshot.by_submission():
        if (has := view.configuration) is not None:
            yield view, has
