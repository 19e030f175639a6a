"""Replays that benchmarks/papers/hops.py is made of, each kept in a file once it is computed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from benchmarks.papers.hops_setting import MODELS, SCALES, HopsWorld, world_of
from hetsched_core.measures.metrics import measure
from hetsched_core.policies.sia import Sia
from hetsched_core.policy import Policy, make_policy
from hetsched_core.simulate import Estimates, KnownSpeeds, SimulationSettings, simulate
from hetsched_core.simulate.learned import LearnedSpeeds
from hetsched_core.types import (
    Cluster,
    Configuration,
    Placed,
    Plan,
    Reason,
    ReasonCode,
    Snapshot,
    Waiting,
)

CLASS_OF = {model.name: model.size.value for model in MODELS}
HIGH_RATIO = 3.0


SCATTERED = Waiting(Reason(ReasonCode.AHEAD))


@dataclass(frozen=True)
class Unscattered(Sia):
    """Sia whose jobs wait where the nodes' idle GPUs would scatter them over more than need be.

    As in its paper, which has jobs on part of one node or on whole nodes.
    """

    def plan(self, snapshot: Snapshot) -> Plan:
        """Leave out what would be scattered; no job gets the GPUs."""
        plan = super().plan(snapshot)
        out = {
            job: SCATTERED
            for job, entry in plan.entries.items()
            if isinstance(entry, Placed)
            and scattered(entry.placements[0].configuration, snapshot.cluster)
        }
        return replace(plan, entries=plan.entries.update(out), base=None, changed=None)


def scattered(configuration: Configuration, cluster: Cluster) -> bool:
    """Whether a configuration has more nodes than its type's largest nodes would need."""
    types = {cluster[name].gpu_type for name, _ in configuration}
    largest = max(node.gpus for node in cluster if node.gpu_type in types)
    return len(configuration) > -(-configuration.gpus // largest)


def policy_of(variant: PolicyVariant) -> Policy:
    """Return the policy of a variant."""
    parameters = dict(variant.parameters)
    if variant.policy == "sia, unscattered":
        return Unscattered(gap=float(parameters["gap"]))
    return make_policy(variant.policy, parameters)


@dataclass(frozen=True, slots=True)
class PolicyVariant:
    """A policy with parameters, and what it is told about speeds.

    `told`: `types` the true means of the GPU types; `nodes` the truth; `learned` nothing at first.
    """

    policy: str
    parameters: tuple[tuple[str, str], ...] = ()
    told: str = "types"


@dataclass(frozen=True, slots=True)
class HopsCell:
    """One replay. `faster` multiplies the arrivals of an hour."""

    scale: str
    variant: PolicyVariant
    seed: int
    round_s: float = 360.0
    faster: float = 1.0

    @property
    def file(self) -> str:
        """The name under which what came out is kept."""
        v = self.variant
        settings = ",".join(f"{key}={value}" for key, value in v.parameters)
        parts = (self.scale, v.policy, settings, v.told, self.round_s, self.faster, self.seed)
        return "_".join(str(part).replace(" ", "") for part in parts) + ".json"


@dataclass(frozen=True, slots=True)
class Found:
    """The measures of one replay: hours, ratios, GPUs a round, shares, counts.

    `class_ratio` is the largest latency ratio by class of GPU hours, `high_ratio` the share of jobs
    whose ratio is above `HIGH_RATIO`.
    """

    makespan: float
    jct: float
    wait: float
    max_ratio: float
    fragments: float
    max_ftf: float
    unfair: float
    held: float
    restarts: int
    profiling: float
    high_ratio: float
    class_ratio: dict[str, float]


def result(cell: HopsCell, folder: Path) -> Found:
    """Return what came out of a replay, computed unless the folder has it."""
    file = folder / cell.file
    if not file.exists():
        fresh = file.with_suffix(".part")
        fresh.write_text(json.dumps(asdict(_replay(cell))))
        fresh.rename(file)
    return Found(**json.loads(file.read_text()))


@cache
def _world(scale: str, faster: float, seed: int) -> HopsWorld:
    setting = SCALES[scale]
    return world_of(replace(setting, per_hour=setting.per_hour * faster), seed)


def _estimates(world: HopsWorld, told: str, seed: int) -> Estimates:
    match told:
        case "types":
            return KnownSpeeds(world.by_type)
        case "nodes":
            return KnownSpeeds(world.speeds)
        case "learned":
            return LearnedSpeeds(world.cluster, world.speeds, seed=seed)
    raise ValueError(f"{told!r} is not one of types, nodes, learned")


def _replay(cell: HopsCell) -> Found:
    world = _world(cell.scale, cell.faster, cell.seed)
    log = simulate(
        world.submissions,
        world.cluster,
        policy_of(cell.variant),
        world.speeds,
        SimulationSettings(round_s=cell.round_s, seed=cell.seed),
        estimates=_estimates(world, cell.variant.told, cell.seed),
    )
    m = measure(log, world.speeds)
    assert m.completed == m.jobs
    ratios = [(CLASS_OF[r.job.profile], r.wait_s / (r.expected_run_s or 1.0)) for r in log.jobs]
    return Found(
        makespan=(m.makespan_s or 0.0) / 3600,
        jct=(m.avg_jct_s or 0.0) / 3600,
        wait=(m.avg_wait_s or 0.0) / 3600,
        max_ratio=m.max_latency_ratio or 0.0,
        fragments=m.avg_fragments or 0.0,
        max_ftf=m.ftf_max or 0.0,
        unfair=m.ftf_unfair_share or 0.0,
        held=m.gpu_utilisation or 0.0,
        restarts=m.restarts,
        profiling=m.profiling_gpu_s / m.gpu_s,
        high_ratio=sum(ratio > HIGH_RATIO for _, ratio in ratios) / len(ratios),
        class_ratio={
            size: max((ratio for each, ratio in ratios if each == size), default=0.0)
            for size in ("S", "M", "L", "XL")
        },
    )
