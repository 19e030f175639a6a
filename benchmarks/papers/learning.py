"""Figures of docs/reproduction/learning.md: what policies know when they learn speeds in a replay.

    python -m benchmarks.papers.learning

writes them between the markers of the page (six to ten minutes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from benchmarks.papers.page import PAGES, PageSample, command, markdown, table_line
from benchmarks.papers.workloads import bundled, run
from hetsched_core.measures.metrics import measure
from hetsched_core.policy import make_policy
from hetsched_core.replay.replay import with_node_spread
from hetsched_core.simulate import (
    Estimates,
    KnownSpeeds,
    RunMeasurement,
    SimulationSettings,
)
from hetsched_core.simulate.learned import LEAST_ITERATIONS, LearnedSpeeds
from hetsched_core.throughput.node_spread import node_spread
from hetsched_core.traces.load import ReplayInputs
from hetsched_core.types import Configuration, Purpose, Speeds

PAGE = PAGES / "learning.md"
POLICIES = ("srtf", "gavel", "sia")
SPREADS = (None, "longhorn-resnet")
SEEDS = range(3)
KNOWN_RUNS = ((0, 0), (1, 9), (10, 99), (100, 10**9))


@cache
def load(seed: int, spread: str | None) -> ReplayInputs:
    """Return the bundled log, its models drawn with this seed, on nodes that differ as measured."""
    loaded = bundled(seed)
    return loaded if spread is None else with_node_spread(loaded, node_spread(spread), seed)


@dataclass(slots=True)
class ComparedEstimates:
    """Learned estimates that are compared with each run before they are told of it.

    Each of `found` is the number of runs of the profile that were known, and the relative error of
    the speed that was estimated, with the entity layer and without.
    """

    inner: LearnedSpeeds
    runs: dict[str, int] = field(default_factory=dict)
    found: list[tuple[int, float, float]] = field(default_factory=list)

    def speeds(self, now: float) -> Speeds:
        """Return what is learned so far."""
        return self.inner.speeds(now)

    def observe(self, measured: RunMeasurement) -> None:
        """Judge what was believed of a run, then learn from it."""
        profile, where = measured.job.profile, measured.configuration
        if measured.purpose is Purpose.RUN and measured.samples > 0:
            speeds = self.inner.speeds(0.0)
            types_alone = replace(speeds.table(profile), node_factor={})
            true = measured.samples / measured.seconds
            known = self.runs.get(profile, 0)
            with_nodes, without = (
                abs(s.speed(profile, where) / true - 1)
                for s in (speeds, speeds.revised({profile: types_alone}))
            )
            self.found.append((known, with_nodes, without))
            self.runs[profile] = known + 1
        self.inner.observe(measured)


def unlearned(loaded: ReplayInputs, seed: int) -> LearnedSpeeds:
    """Return estimates that know nothing yet."""
    return LearnedSpeeds(loaded.cluster, loaded.speeds, seed=seed)


def profiled(loaded: ReplayInputs, seed: int) -> LearnedSpeeds:
    """Return estimates that know a profiling run of each model on one GPU of each type."""
    estimates = unlearned(loaded, seed)
    jobs = {s.job.profile: s.job for s in loaded.workload.submissions}
    first = {node.gpu_type: node.name for node in reversed(loaded.cluster.nodes)}
    for profile, job in sorted(jobs.items()):
        for node in first.values():
            where = Configuration.of({node: 1})
            speed = loaded.speeds.speed(profile, where)
            samples = LEAST_ITERATIONS * loaded.speeds.table(profile).batch_size
            if speed > 0:
                estimates.observe(
                    RunMeasurement(job, Purpose.PROFILE, where, samples, samples / speed)
                )
    return estimates


def average_jct_h(loaded: ReplayInputs, policy: str, estimates: Estimates, seed: int) -> float:
    """Return what a policy makes of the log with these estimates."""
    log = run(loaded, make_policy(policy), SimulationSettings(seed=seed), estimates)
    jct_s = measure(log, loaded.speeds).avg_jct_s
    assert jct_s is not None
    return jct_s / 3600


def errors(policy: str, spread: str | None) -> list[str]:
    """Return the median error with and without the entity layer, by the runs known."""
    found = []
    for seed in SEEDS:
        loaded = load(seed, spread)
        judged = ComparedEstimates(unlearned(loaded, seed))
        average_jct_h(loaded, policy, judged, seed)
        found += judged.found
    table = np.array(found)
    cells = []
    for least, most in KNOWN_RUNS:
        here = table[(table[:, 0] >= least) & (table[:, 0] <= most), 1:]
        with_nodes, without = np.median(here, axis=0)
        cells.append(f"{without:.1%} / {with_nodes:.1%} ({len(here)})")
    return cells


SOURCES: dict[str, Callable[[ReplayInputs, int], Estimates]] = {
    "truth": lambda loaded, _: KnownSpeeds(loaded.speeds),
    "profiled before": profiled,
    "nothing known": unlearned,
}


def costs(policy: str, spread: str | None) -> list[str]:
    """Return the average JCT under the truth, and what knowing less changes of it."""
    jct_h = np.array(
        [
            [
                average_jct_h(loaded, policy, source(loaded, seed), seed)
                for source in SOURCES.values()
            ]
            for seed in SEEDS
            for loaded in [load(seed, spread)]
        ]
    )
    cells = [f"{jct_h[:, 0].mean():.2f} h"]
    for column in (1, 2):
        more = jct_h[:, column] / jct_h[:, 0] - 1
        cells.append(f"{more.mean():+.1%} ({more.min():+.1%} to {more.max():+.1%})")
    return cells


def table(heads: list[str], cells: Callable[[str, str | None], list[str]]) -> str:
    """Return a table with a line for each policy and spread of the nodes."""
    lines = (line(p, spread, cells) for spread in SPREADS for p in POLICIES)
    return markdown(["policy", "spread of the nodes", *heads], lines)


def line(
    policy: str, spread: str | None, cells: Callable[[str, str | None], list[str]]
) -> list[str]:
    """Return a line of a table."""
    return [policy, spread or "none", *cells(policy, spread)]


KNOWN = ["0 runs", *(f"{a} to {b} runs" for a, b in KNOWN_RUNS[1:-1]), "100 and more"]
FIGURES = {
    "errors": lambda: table(KNOWN, errors),
    "costs": lambda: table([*SOURCES], costs),
}
SAMPLE = PageSample(
    PAGE,
    lines={
        "errors": lambda: table_line(line("srtf", None, errors)),
        "costs": lambda: table_line(line("srtf", None, costs)),
    },
)


if __name__ == "__main__":
    command(PAGE, FIGURES)()
