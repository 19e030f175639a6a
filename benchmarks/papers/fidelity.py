"""Figures of docs/reproduction/fidelity.md: this simulator beside the published one of Gavel.

    HETSCHED_DATA=... python benchmarks/papers/fidelity.py

writes them between the markers of the page (about three minutes of a CPU).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.papers.page import PAGES, PageSample, command, data_folder, markdown
from benchmarks.papers.workloads import PHYSICAL, Variant, gavel, name_of
from benchmarks.papers.workloads import run as replayed
from hetsched_core.measures.metrics import Measures, measure
from hetsched_core.optimize import Point
from hetsched_core.policies.gavel import Gavel, Objective
from hetsched_core.policy import Policy, make_policy
from hetsched_core.simulate import SimulationSettings
from hetsched_core.traces.load import ReplayInputs
from hetsched_core.types import Placed, Plan, Reason, ReasonCode, Snapshot, Waiting

PAGE = PAGES / "fidelity.md"
ROUND_S = 360.0


@dataclass(frozen=True, slots=True)
class TraceSetting:
    """A trace of Gavel's and the cluster that it was measured on: GPUs by type."""

    name: str
    trace: str
    gpus: tuple[tuple[str, int], ...]


ARRIVALS = TraceSetting(
    "arrivals",
    "gavel_physical_cluster_max_min_fairness.trace",
    PHYSICAL,
)
MAKESPAN = TraceSetting("makespan", "gavel_physical_cluster_minimize_makespan.trace", ARRIVALS.gpus)
STATIC = TraceSetting(
    "static", "gavel_generated_480_static.trace", (("v100", 20), ("p100", 20), ("k80", 20))
)

PUBLISHED = {
    (ARRIVALS, Objective.MAX_MIN_FAIRNESS): (4.06, 17.76),
    (ARRIVALS, Objective.TOTAL_THROUGHPUT): (4.74, 17.76),
    (ARRIVALS, Objective.FINISH_TIME_FAIRNESS): (4.17, 18.05),
    (ARRIVALS, Objective.MAKESPAN): (6.38, 17.09),
    (MAKESPAN, Objective.MAX_MIN_FAIRNESS): (9.91, 19.03),
    (MAKESPAN, Objective.MAKESPAN): (17.72, 17.98),
    (STATIC, Objective.MAX_MIN_FAIRNESS): (33.5, 80.2),
    (STATIC, Objective.TOTAL_THROUGHPUT): (35.8, 83.5),
    (STATIC, Objective.MAKESPAN): (75.8, 76.1),
}
"""Average JCT and makespan in hours, as the published simulator gives them."""


@dataclass(frozen=True)
class Blocking(Gavel):
    """Gavel as the published simulator runs it: what came after the shares blocks GPUs, idle."""

    def plan(self, snapshot: Snapshot) -> Plan:
        """Take the GPUs of those that came after the shares from them, and give them to none."""
        plan = super().plan(snapshot)
        shares = plan.memory.get("shares", {})
        assert isinstance(shares, dict)
        idle = {
            job: Waiting(Reason(ReasonCode.AHEAD))
            for job, entry in plan.entries.items()
            if isinstance(entry, Placed) and job not in shares
        }
        entries = plan.entries.update(idle)
        return replace(plan, entries=entries, base=None, changed=None)


def load(setting: TraceSetting, folder: Path, *, blind: bool) -> ReplayInputs:
    """Return a trace with its cluster, on which spreading a job costs nothing if `blind`."""
    loaded = gavel(folder, setting.trace, setting.gpus)
    return replace(loaded, speeds=loaded.speeds.placement_blind()) if blind else loaded


def run(
    setting: TraceSetting,
    policy: Policy,
    folder: Path,
    *,
    blind: bool = True,
    restart_cost_s: float = 0.0,
) -> Measures:
    """Return what a policy makes of a trace."""
    loaded = load(setting, folder, blind=blind)
    settings = SimulationSettings(round_s=ROUND_S, restart_cost_s=restart_cost_s)
    measures = measure(replayed(loaded, policy, settings), loaded.speeds)
    assert measures.completed == measures.jobs
    return measures


def hours(measures: Measures) -> tuple[float, float]:
    """Return average JCT and makespan in hours."""
    assert measures.avg_jct_s is not None
    assert measures.makespan_s is not None
    return measures.avg_jct_s / 3600, measures.makespan_s / 3600


# -- Tables ----------------------------------------------------------------------------------------


def beside(found: float, published: float) -> str:
    """Return a figure with its distance from the published one."""
    return f"{found:.2f} ({(found / published - 1) * 100:+.1f} %)"


def cells(folder: Path) -> str:
    """All nine cells, default parameters."""
    lines = []
    for (setting, objective), (jct, makespan) in PUBLISHED.items():
        found = hours(run(setting, Gavel(objective=objective), folder))
        lines.append(
            (
                setting.name,
                objective.value,
                f"{jct:g}",
                beside(found[0], jct),
                f"{makespan:g}",
                beside(found[1], makespan),
            )
        )
    heads = ("trace", "objective", "JCT published", "here", "makespan published", "here")
    return markdown(heads, lines)


VARIANTS: tuple[tuple[str, type[Gavel], float, Point], ...] = (
    ("as above", Gavel, 1920.0, Point.VERTEX),
    ("who came since the shares blocks GPUs", Blocking, 1920.0, Point.VERTEX),
    ("another optimum: the interior point", Gavel, 1920.0, Point.INTERIOR),
    ("both", Blocking, 1920.0, Point.INTERIOR),
    ("shares anew at least every 960 s", Gavel, 960.0, Point.VERTEX),
    ("shares anew in every round with a change", Gavel, 0.0, Point.VERTEX),
)


def variants(folder: Path) -> str:
    """One rule changed at a time."""
    lines = []
    shown = [key for key in PUBLISHED if key[0] is not STATIC]
    for name, cls, reallocate_s, point in VARIANTS:
        line = [name]
        for setting, objective in shown:
            jct, makespan = PUBLISHED[setting, objective]
            policy = cls(objective=objective, reallocate_s=reallocate_s, point=point)
            found = hours(run(setting, policy, folder))
            line.append(
                f"{(found[0] / jct - 1) * 100:+.1f} / {(found[1] / makespan - 1) * 100:+.1f}"
            )
        lines.append(tuple(line))
    heads = ("% from published, JCT / makespan",)
    return markdown((*heads, *(f"{s.name}, {o.value}" for s, o in shown)), lines)


RIVALS: tuple[Variant, ...] = (
    *(("gavel", {"objective": objective.value}) for objective in Objective),
    *((name, {}) for name in ("sia", "las", "2d-las", "tiresias", "srtf", "sjf")),
    *((name, {}) for name in ("fifo", "gavel-fifo", "yarn-cs")),
)
COSTS = ((True, 0.0), (False, 0.0), (False, 10.0), (False, 60.0))


def ranking(setting: TraceSetting, folder: Path) -> str:
    """Average JCT and rank of every policy as costs are switched on one after another."""
    names, found = [], []
    for variant in RIVALS:
        names.append(name_of(variant))
        policy = make_policy(*variant)
        found.append(
            [
                run(setting, policy, folder, blind=blind, restart_cost_s=cost_s)
                for blind, cost_s in COSTS
            ]
        )
    columns = [[hours(measures)[0] for measures in column] for column in zip(*found, strict=True)]
    lines = []
    for at, (name, measures) in enumerate(zip(names, found, strict=True)):
        ranked = [
            f"{column[at]:.2f} ({sorted(column).index(column[at]) + 1})" for column in columns
        ]
        makespans = " / ".join(f"{hours(measures[k])[1]:.1f}" for k in (0, -1))
        lines.append((name, *ranked, makespans, f"{measures[-1].restarts / measures[-1].jobs:.1f}"))
    lines.sort(key=lambda line: float(line[3].split()[0]))
    heads = (
        "average JCT, hours (rank)",
        "no costs",
        "placement",
        "+ 10 s a restart",
        "+ 60 s",
        "makespan, first / last",
        "restarts a job",
    )
    return markdown(heads, lines)


FIGURES = {
    "cells": lambda: cells(data_folder()),
    "variants": lambda: variants(data_folder()),
    "arrivals": lambda: ranking(ARRIVALS, data_folder()),
    "static": lambda: ranking(STATIC, data_folder()),
}
SAMPLE = PageSample(PAGE, {"cells": FIGURES["cells"]})


if __name__ == "__main__":
    command(PAGE, FIGURES)()
