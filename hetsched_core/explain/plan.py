"""What decides about one job in a plan: its standing, its options, and what rules them out.

What holds a job back is found by asking the policy once more without its rivals, so that the answer
is the same policy's for every policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from immutables import Map

from hetsched_core.explain.why import active_job, would_place
from hetsched_core.measures.fairness import RunTimes
from hetsched_core.placement import FreeGpus, ways_to_fit
from hetsched_core.placement.pack import fastest_fit
from hetsched_core.policy import Policy
from hetsched_core.types import (
    Configuration,
    JobView,
    Layer,
    Phase,
    Placed,
    Plan,
    Snapshot,
    Waiting,
)


@dataclass(frozen=True, slots=True)
class Option:
    """One way in which a job could run: a GPU count on one GPU type.

    Attributes:
        gpus: how many.
        gpu_type: on which type; several are joined by `+` where only a mix of types holds it.
        speed: estimated samples/s of the whole job on the fastest such nodes.
        layer: where that estimate comes from.
        where: the nodes on which it would go now, no other job considered; "" if there is no room.
        price: what these nodes cost by the plan's prices; None where it has none.
        verdict: chosen, held, room now, no room now, nodes down.
    """

    gpus: int
    gpu_type: str
    speed: float
    layer: str
    where: str
    price: float | None
    verdict: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What decides about a job in the plan in force.

    Attributes:
        chosen: where the plan wants it, or has it measured; None if it is to wait.
        decided_by: the score, price or constraint that decides, in words.
        waiting: how many jobs wait; `place` of them were submitted before it.
        waited_s: how long it has waited.
        latency_ratio: that by its expected run time; None where no size or speed is known.
        service_gpu_s: GPU seconds that it has had.
        method, objective, gap: how the plan was found.
        prices: of a GPU by node class, where the plan has prices.
        options: what was there to choose from, by count and speed.
    """

    chosen: Configuration | None
    decided_by: str
    waiting: int
    place: int
    waited_s: float
    latency_ratio: float | None
    service_gpu_s: float
    method: str = ""
    objective: float | None = None
    gap: float | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    options: tuple[Option, ...] = ()


def explain(policy: Policy, snapshot: Snapshot, plan: Plan, job_id: str) -> Explanation:
    """Say what decides about a job.

    Args:
        policy: the one that made the plan.
        snapshot: what is known now.
        plan: the plan in force.
        job_id: the job.

    Raises:
        InputError: no active job has this id.
    """
    view = active_job(snapshot, job_id)
    now, entry, found = snapshot.now, plan.entries.get(job_id), plan.diagnostics
    chosen = None
    if isinstance(entry, Placed) and entry.placements:
        chosen = entry.placements[0].configuration
    elif view.phase(now) is Phase.PROFILING:
        chosen = view.runs[0].configuration
    options = tuple(_options(snapshot, plan, view, chosen))
    waiting = [v for v in snapshot.by_submission() if v.waiting]
    expected_s = None
    if view.job.total_samples is not None:
        times = RunTimes(snapshot.speeds, snapshot.cluster)
        expected_s = times.expected_run_s(view.job, view.job.total_samples)
    return Explanation(
        chosen=chosen,
        decided_by=_decided_by(policy, snapshot, plan, view, options),
        waiting=len(waiting),
        place=next((at for at, v in enumerate(waiting) if v.id == job_id), 0),
        waited_s=view.wait_at(now),
        latency_ratio=view.wait_at(now) / expected_s if expected_s else None,
        service_gpu_s=view.service_at(now),
        method=found.method,
        objective=found.objective,
        gap=found.gap,
        prices=found.prices,
        options=options,
    )


def _options(
    snapshot: Snapshot, plan: Plan, view: JobView, chosen: Configuration | None
) -> Iterator[Option]:
    job, speeds = view.job, snapshot.speeds
    idle, healthy, taken = FreeGpus.of(snapshot), FreeGpus.of(snapshot), None
    if view.begun:
        taken = view.configuration
    for other in snapshot.jobs.values():
        for run in other.runs:
            if other.id != job.id:
                idle.take(other.job, run.configuration)
    for way in ways_to_fit(job, snapshot.cluster, speeds, snapshot.shapes):
        kinds = [way.types] if way.mixed else [(gpu_type,) for gpu_type in way.types]
        for kind in kinds:
            fits = fastest_fit(snapshot, idle, job, way, kind)
            could = fits or fastest_fit(snapshot, healthy, job, way, kind)
            verdict = "room now" if fits else "no room now" if could else "nodes down"
            if chosen is not None and _is(snapshot, chosen, way.count, kind):
                fits, verdict = chosen, "held" if chosen == taken else "chosen"
            where = fits or could
            yield Option(
                gpus=way.count,
                gpu_type="+".join(kind),
                speed=speeds.speed(job.profile, where) if where else 0.0,
                layer=_layer(snapshot, job.profile, kind[0]),
                where=str(fits) if fits else "",
                price=_price(plan, snapshot, where),
                verdict=verdict,
            )


def _is(snapshot: Snapshot, chosen: Configuration, count: int, kind: tuple[str, ...]) -> bool:
    types = {snapshot.cluster[name].gpu_type for name, _ in chosen}
    return chosen.gpus == count and types <= set(kind)


def _layer(snapshot: Snapshot, profile: str, gpu_type: str) -> str:
    table = snapshot.speeds.table(profile)
    if gpu_type not in table.gpu_types:
        return ""
    row = table.layers[table.gpu_types.index(gpu_type)]
    return Layer(int(row.max())).name.lower().replace("_", " ")


def _price(plan: Plan, snapshot: Snapshot, where: Configuration | None) -> float | None:
    """Return what nodes cost, where the plan prices their types or themselves."""
    prices = plan.diagnostics.prices
    if where is None or not prices:
        return None
    total = 0.0
    for name, gpus in where:
        each = prices.get(name, prices.get(snapshot.cluster[name].gpu_type))
        if each is None:
            return None
        total += each * gpus
    return total


def _decided_by(
    policy: Policy,
    snapshot: Snapshot,
    plan: Plan,
    view: JobView,
    options: tuple[Option, ...],
) -> str:
    """Say what decides, the hardest constraint first."""
    entry, name = plan.entries.get(view.id), policy.info.name
    if view.blocked is not None:
        return f"constraint: {view.blocked}"
    if view.phase(snapshot.now) is Phase.PROFILING:
        types = {snapshot.cluster[node].gpu_type for node, _ in view.runs[0].configuration}
        return (
            f"measuring: it runs there so that its speed on {' and '.join(sorted(types))} is known"
        )
    if isinstance(entry, Placed):
        best = max((option.speed for option in options), default=0.0)
        mine = next((o for o in options if o.verdict in ("chosen", "held")), None)
        keeps = view.phase(snapshot.now) in (Phase.RUNNING, Phase.STARTING)
        does = f"{name} lets it keep" if keeps and mine and mine.verdict == "held" else name
        verb = "" if does != name else " gives it"
        share = (
            f"{mine.speed / best:.0%} of the speed of its fastest option" if mine and best else ""
        )
        return f"score: {does}{verb} what the plan says{share and f', {share}'}"
    if not options:
        return "constraint: no accepted GPU count fits this cluster, even if it were idle"
    if all(option.verdict == "nodes down" for option in options):
        return "constraint: every option needs nodes that are down or drained"
    said = str(entry.reason) if isinstance(entry, Waiting) else "not planned yet"
    others = [v.id for v in snapshot.by_submission() if v.waiting and v.id != view.id]
    alone = snapshot.jobs
    for other in others:
        alone = alone.delete(other)
    gone = snapshot.gone | frozenset(others)
    # What a policy remembers of the snapshot before is not of this one.
    without = replace(snapshot, jobs=alone, gone=gone, nodes_changed=True)
    if others and would_place(policy, without, plan, view):
        return (
            f"score: {name} puts others first; without the other waiting jobs ({len(others)}) it "
            f"would start now ({said})"
        )
    held = [v.id for v in snapshot.jobs.values() if not v.waiting]
    if any(option.verdict == "room now" for option in options):
        return f"price: there is room, and {name} does not take it ({said})"
    idle = replace(
        without,
        jobs=Map({view.id: view}),
        nodes=Map(
            {
                n: replace(v, held_gpus=0, held_cpus=0.0, held_memory_mb=0.0)
                for n, v in snapshot.nodes.items()
            }
        ),
        gone=without.gone | frozenset(held),
    )
    if held and would_place(policy, idle, plan, view):
        many = "the job that holds" if len(held) == 1 else f"the {len(held)} jobs that hold"
        does = "leaves" if len(held) == 1 else "leave"
        return f"constraint: {many} GPUs {does} too little room ({said})"
    return f"constraint: {said}"
