"""Figures of docs/reproduction/throughput.md: the estimator against published measurements.

    HETSCHED_DATA=... python benchmarks/papers/throughput.py

writes them between the markers of the page; `--check` only says whether they are still the same.
"""

from __future__ import annotations

import csv
import gzip
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.page import PAGES, PageSample, command, data_folder, markdown
from benchmarks.papers.workloads import THROUGHPUTS
from hetsched_core.throughput.estimate import Layers, estimate
from hetsched_core.throughput.first_estimate import GpuFacts, ProfileFacts, first_estimate
from hetsched_core.throughput.fit import USUAL, Prior, Rate, Variant, fit_training
from hetsched_core.throughput.measured import SpeedRows
from hetsched_core.throughput.theory import IterationTheory, TrainingModel
from hetsched_core.traces.gavel import read_throughputs
from hetsched_core.types import Cluster, Node

Floats = NDArray[np.float64]

PAGE = PAGES / "throughput.md"
COUNTS = (1, 2, 4, 8)
KNOWN, JUDGED = (1, 2), (4, 8)
PLACEMENTS = {1: "one node", 2: "across nodes"}
MOST_SPEEDUP = 2.05

# -- Gavel's tables --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GavelRow:
    """One model at one batch size on one GPU type: samples/s of the whole job at `COUNTS`."""

    model: str
    batch: int
    gpu_type: str
    nodes: int
    speeds: tuple[float, ...]

    def fault(self) -> str:
        """Why these speeds are not what GPUs of one host do; empty if nothing is wrong."""
        if self.speeds[1] > MOST_SPEEDUP * self.speeds[0]:
            return f"2 GPUs are {self.speeds[1] / self.speeds[0]:.2f} times as fast as 1"
        for less, more in itertools.pairwise(range(len(COUNTS))):
            if self.speeds[more] < self.speeds[less]:
                return f"{COUNTS[more]} GPUs are slower than {COUNTS[less]}"
        return ""


Predict = Callable[[GavelRow, int], float]
"""Samples/s of the whole job at a count, from its speeds on 1 and 2 GPUs and those of others."""


@cache
def gavel_rows(folder: Path) -> tuple[GavelRow, ...]:
    """Return every row of Gavel's table that was measured at all four counts."""
    path = folder / THROUGHPUTS
    tables = read_throughputs(gzip.decompress(path.read_bytes()).decode(), path.name)
    rows = []
    for name, table in tables.items():
        model, _, batch = name.partition(" (batch size ")
        for at, gpu_type in enumerate(table.gpu_types):
            for nodes, half in ((1, table.one_node), (2, table.several_nodes)):
                speeds = half[at] * table.counts
                if tuple(table.counts) == COUNTS and np.all(speeds > 0):
                    rows.append(
                        GavelRow(
                            model, int(batch.rstrip(")")), gpu_type, nodes, tuple(speeds.tolist())
                        )
                    )
    return tuple(rows)


def two_points(row: GavelRow, gpus: int) -> float:
    """Predict by a ring through the two points: T = c + d (N-1)/N, between nodes T = c + d."""
    alone, two = (n / speed for n, speed in zip(KNOWN, row.speeds, strict=False))
    lost = max(0.0, two - alone)
    return gpus / (alone + (lost * 2 * (gpus - 1) / gpus if row.nodes == 1 else lost))


def variants(rows: Sequence[GavelRow]) -> dict[int, Variant]:
    """Return what may be known of one model on one type, by batch size: 1 and 2 GPUs."""
    rates: dict[int, dict[tuple[int, int], Rate]] = defaultdict(dict)
    for row in rows:
        for gpus, speed in zip(KNOWN, row.speeds, strict=False):
            nodes = 1 if gpus == 1 else row.nodes
            # In steps/s: a batch is one step.
            rates[row.batch][gpus, nodes] = Rate(gpus, nodes, speed / gpus)
    return {batch: Variant(1.0, tuple(found.values())) for batch, found in rates.items()}


def models(
    rows: Sequence[GavelRow], prior: Prior, together: bool
) -> dict[tuple[str, str, int], TrainingModel]:
    """Fit every (model, type), its batch sizes together or each alone."""
    groups: dict[tuple[str, str], list[GavelRow]] = defaultdict(list)
    for row in rows:
        groups[row.model, row.gpu_type].append(row)
    fitted = {}
    for (model, gpu_type), members in groups.items():
        by_batch = variants(members)
        sets = [list(by_batch)] if together else [[batch] for batch in by_batch]
        for batches in sets:
            found = fit_training([by_batch[batch] for batch in batches], prior=prior)
            for batch, one in zip(batches, found, strict=True):
                fitted[model, gpu_type, batch] = one
    return fitted


def by_formula(rows: Sequence[GavelRow], prior: Prior, together: bool) -> Predict:
    """Predict by the fitted formula alone."""
    fitted = models(rows, prior, together)
    return lambda row, gpus: (
        gpus * fitted[row.model, row.gpu_type, row.batch].per_gpu(gpus, row.nodes)
    )


def by_lookup(rows: Sequence[GavelRow], prior: Prior) -> Predict:
    """Predict as a policy is told: formula and measured speeds through the layers."""
    profiles = tuple(dict.fromkeys(f"{row.model} {row.batch}" for row in rows))
    types = tuple(dict.fromkeys(row.gpu_type for row in rows))
    fitted = models(rows, prior, together=True)
    theory = IterationTheory.of(
        (profiles.index(f"{model} {batch}"), types.index(gpu_type), one)
        for (model, gpu_type, batch), one in fitted.items()
    )
    known = [
        (profiles.index(f"{row.model} {row.batch}"), types.index(row.gpu_type), gpus, nodes, speed)
        for row in rows
        for gpus, nodes, speed in ((1, 1, row.speeds[0]), (2, row.nodes, row.speeds[1] / 2))
    ]
    profile, place, gpus, nodes = (np.array([k[i] for k in known]) for i in range(4))
    speeds = np.array([k[4] for k in known])
    measured = SpeedRows(
        profile, place, gpus, nodes, speeds, np.ones_like(gpus), np.zeros_like(speeds)
    )
    cluster = Cluster(tuple(Node(gpu_type, gpu_type, 8) for gpu_type in types))
    found = estimate(cluster, Layers(profiles, types, by_type=measured, theories=[theory]), COUNTS)
    tables = {name: found.table(name) for name in profiles}
    return lambda row, gpus: (
        gpus * tables[f"{row.model} {row.batch}"].per_gpu(row.gpu_type, gpus, row.nodes)
    )


def error(row: GavelRow, gpus: int, predict: Predict) -> float:
    """Return |predicted / measured - 1| of the speed."""
    return abs(predict(row, gpus) / row.speeds[COUNTS.index(gpus)] - 1)


def errors(rows: Iterable[GavelRow], gpus: int, nodes: int, predict: Predict) -> Floats:
    """Return the errors of one placement at one count."""
    return np.array([error(row, gpus, predict) for row in rows if row.nodes == nodes])


CASES = [(gpus, nodes) for nodes in PLACEMENTS for gpus in JUDGED]
CASE_NAMES = [f"{gpus} GPUs, {PLACEMENTS[nodes]}" for gpus, nodes in CASES]


def summary(rows: Sequence[GavelRow], predict: Predict) -> list[str]:
    """Return median and 90th percentile of the four cases, in per cent."""
    found = (errors(rows, gpus, nodes, predict) for gpus, nodes in CASES)
    return [f"{np.median(e):.1%} ({np.percentile(e, 90):.0%})" if len(e) else "–" for e in found]


def medians(rows: Sequence[GavelRow], predict: Predict) -> float:
    """Return the mean of the four medians."""
    return float(np.mean([np.median(errors(rows, *case, predict)) for case in CASES]))


GRID = [
    Prior(noise, spread, share)
    for noise in (0.03, 0.05, 0.1)
    for spread in (0.3, 0.5, 1.0)
    for share in (-2.0, -1.0, 0.0)
]


def chosen_elsewhere(rows: Sequence[GavelRow], by_prior: Mapping[Prior, Predict]) -> Predict:
    """Predict each model with the prior that is best for all other models."""
    best = {}
    for model in {row.model for row in rows}:
        others = [row for row in rows if row.model != model]
        best[model] = min(GRID, key=lambda prior: medians(others, by_prior[prior]))
    return lambda row, gpus: by_prior[best[row.model]](row, gpus)


@cache
def gavel_figures(rows: tuple[GavelRow, ...]) -> dict[str, str]:
    """Return the tables of Gavel's measurements."""
    sane = [row for row in rows if not row.fault()]
    hops = replace(USUAL, network_ring=0.0)
    # The fits see 1 and 2 GPUs of every row, sane or not: a policy could not tell either.
    lookup = by_lookup(rows, USUAL)
    by_prior = {prior: by_lookup(rows, prior) for prior in GRID}
    methods = {
        "ring through two points": two_points,
        "formula (1), each batch size alone": by_formula(rows, hops, together=False),
        "… with a ring between nodes too": by_formula(rows, USUAL, together=False),
        "… batch sizes of a model together": by_formula(rows, USUAL, together=True),
        "… looked up through the layers": lookup,
        "… prior chosen on the other models": chosen_elsewhere(sane, by_prior),
    }
    spans = [[float(np.median(errors(sane, *case, by_prior[p]))) for p in GRID] for case in CASES]
    table = [[name, *summary(sane, predict)] for name, predict in methods.items()]
    table.append(["(any of 27 priors: medians)", *(f"{min(s):.1%} to {max(s):.1%}" for s in spans)])
    faulty = [row for row in rows if row.fault()]
    return {
        "methods": markdown(["median (90th percentile)", *CASE_NAMES], table),
        "counts": (
            f"{len(rows)} rows were measured at all four counts; {len(sane)} are sane "
            f"({sum(r.nodes == 1 for r in sane)} on one node, {sum(r.nodes == 2 for r in sane)} "
            "across nodes) and judged here."
        ),
        "models": markdown(["type", "model", "rows", *CASE_NAMES], per_model(sane, lookup)),
        "types": markdown(["type", "two points", "looked up"], per_type(sane, lookup)),
        "faulty": markdown(
            ["row", "placement", "steps/s at 1, 2, 4, 8", "fault", "error at 4, 8"],
            [
                [
                    f"{row.model} {row.batch}, {row.gpu_type}",
                    PLACEMENTS[row.nodes],
                    ", ".join(f"{speed:.4g}" for speed in row.speeds),
                    row.fault(),
                    ", ".join(f"{error(row, gpus, lookup):.0%}" for gpus in JUDGED),
                ]
                for row in faulty
            ],
        ),
        "all": markdown(
            ["all rows, faulty ones included", *CASE_NAMES],
            [
                [name, *summary(rows, predict)]
                for name, predict in (
                    ("ring through two points", two_points),
                    ("looked up through the layers", lookup),
                )
            ],
        ),
        "hosts": hosts(rows),
    }


def per_model(sane: Sequence[GavelRow], predict: Predict) -> list[list[str]]:
    """Return the median error of each type and model."""
    groups: dict[tuple[str, str], list[GavelRow]] = defaultdict(list)
    for row in sane:
        groups[row.gpu_type, row.model].append(row)
    return [
        [
            *key,
            str(len(members)),
            *(
                f"{np.median(found):.1%}" if len(found) else "–"
                for found in (errors(members, *case, predict) for case in CASES)
            ),
        ]
        for key, members in sorted(groups.items())
    ]


def per_type(sane: Sequence[GavelRow], predict: Predict) -> list[list[str]]:
    """Return the median error of each type over all cases."""
    lines = []
    for gpu_type in sorted({row.gpu_type for row in sane}):
        members = [row for row in sane if row.gpu_type == gpu_type]
        found = [
            np.concatenate([errors(members, *case, method) for case in CASES])
            for method in (two_points, predict)
        ]
        lines.append([gpu_type, *(f"{np.median(e):.1%}" for e in found)])
    return lines


def hosts(rows: Sequence[GavelRow]) -> str:
    """Say how often more GPUs on one node lose what no single link can explain."""

    def iterations_s(gpu_type: str) -> Floats:
        return np.array(
            [
                np.divide(COUNTS, row.speeds)
                for row in rows
                if row.gpu_type == gpu_type and row.nodes == 1
            ]
        )

    v100, p100 = iterations_s("v100"), iterations_s("p100")
    faster = int((v100[:, 3] < v100[:, 2]).sum())
    more = int((p100[:, 3] - p100[:, 2] > p100[:, 2] - p100[:, 0]).sum())
    return (
        f"In {faster} of {len(v100)} V100 rows an iteration is shorter on 8 GPUs than on 4. In "
        f"{more} of {len(p100)} P100 rows an iteration loses more time from 4 to 8 GPUs than from "
        "1 to 4; in a ring it is a sixth."
    )


def first_estimates(rows: Sequence[GavelRow]) -> str:
    """Compare formula (10)'s ratio between types with the measured one, on one GPU."""
    alone: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for row in rows:
        alone[row.model, row.batch][row.gpu_type] = row.speeds[0]
    lines = []
    for known, asked in itertools.permutations(("k80", "p100", "v100"), 2):
        guess = first_estimate(GpuFacts.published(asked), ProfileFacts()) / first_estimate(
            GpuFacts.published(known), ProfileFacts()
        )
        ratios = np.array(
            [s[asked] / s[known] for s in alone.values() if {asked, known} <= s.keys()]
        )
        off = np.exp(np.abs(np.log(guess / ratios)))
        same = np.exp(np.abs(np.log(ratios)))
        lines.append(
            [known, asked, f"{guess:.2f}", f"{np.median(ratios):.2f}"]
            + [f"{np.median(values):.2f}" for values in (off, same)]
        )
    heads = ["known on", "asked for", "formula (10)", "measured (median)", "off by a factor of"]
    return markdown([*heads, "taking both for equal: off by"], lines)


# -- Single nodes ----------------------------------------------------------------------------------

SPREADS = {
    "Frontera, RTX 5000, BERT": "frontera/frontera-bert-agg.csv",
    "Frontera, RTX 5000, ResNet": "frontera/frontera-resnet-agg.csv",
    "Frontera, RTX 5000, PageRank": "frontera/frontera-pagerank-agg.csv",
    "Longhorn, V100, BERT": "sim/bert-longhorn-agg.csv",
    "Longhorn, V100, ResNet": "sim/resnet-longhorn-agg.csv",
    "Longhorn, V100, PageRank": "sim/pagerank-longhorn-agg.csv",
    "Lonestar6, A100, ResNet": "ls6/resnet-ls6-agg.csv",
}
RUNS = (1, 10, 100, 1000)
SEEDS = range(10)


@dataclass(frozen=True, slots=True)
class Spread:
    """Speeds measured GPU by GPU, relative to their median: node, GPU in the node, speed."""

    node: NDArray[np.int64]
    device: NDArray[np.int64]
    speed: Floats


def read_spread(path: Path) -> Spread:
    """Read one file of durations."""
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    speed = 1 / np.array([float(line["perf"]) for line in lines])
    names = [f"{line['cabinet']}-{line['node']}" for line in lines]
    return Spread(
        np.unique(names, return_inverse=True)[1],
        np.unique([line["device"] for line in lines], return_inverse=True)[1],
        speed / np.median(speed),
    )


def runs_as_rows(node: NDArray[np.int64], speed: Floats) -> SpeedRows:
    """Return one row for each place, as a store would keep these runs."""
    place, at, count = np.unique(node, return_inverse=True, return_counts=True)
    mean = np.bincount(at, speed) / count
    squares = np.bincount(at, (speed - mean[at]) ** 2)
    one = np.ones_like(place)
    sd = np.sqrt(squares / np.maximum(count - 1, 1))
    return SpeedRows(0 * one, place, one, one, mean, count, sd)


def node_errors(spread: Spread, runs: int) -> Floats:
    """Return the mean error without the entity layer, with a node's own mean, with its factor.

    Runs take place on random GPUs other than the judged one of each node, so that what is judged
    was never seen; every GPU of a node is judged in turn.
    """
    nodes = int(spread.node.max()) + 1
    cluster = Cluster(tuple(Node(f"n{at}", "gpu", 8) for at in range(nodes)))
    found = []
    for device in np.unique(spread.device):
        judged = spread.device == device
        places = np.unique(spread.node[judged])
        truth = np.array(
            [np.median(spread.speed[judged & (spread.node == place)]) for place in places]
        )
        pool = np.flatnonzero(~judged)
        for seed in SEEDS:
            seen = np.random.default_rng(seed).choice(pool, min(runs, len(pool)), replace=False)
            by_node = runs_as_rows(spread.node[seen], spread.speed[seen])
            by_type = runs_as_rows(0 * spread.node[seen], spread.speed[seen])
            layers = Layers(("job",), ("gpu",), by_node, by_type)
            without = estimate(cluster, replace(layers, by_node=SpeedRows.none()))
            plain = np.full(nodes, without.per_gpu[0, 0, 0, 0])
            own = plain.copy()
            own[by_node.place] = by_node.per_gpu
            table = estimate(cluster, layers).table("job")
            factors = [table.node_factor.get(f"n{at}", 1.0) for at in range(nodes)]
            drawn = table.one_node[0, 0] * np.array(factors)
            found.append([np.abs(guess[places] / truth - 1) for guess in (plain, own, drawn)])
    return np.array([np.concatenate([f[i] for f in found]).mean() for i in range(3)])


def spread_figures(folder: Path) -> str:
    """Return the value of the entity layer as a table."""
    lines = []
    for name, file in SPREADS.items():
        spread = read_spread(folder / "variability" / file)
        lines.append([name, str(int(spread.node.max()) + 1)])
        for runs in RUNS:
            lines[-1].append(" / ".join(f"{e:.2%}" for e in node_errors(spread, runs)))
    return markdown(["", "nodes", *(f"{n} run{'s' * (n > 1)}" for n in RUNS)], lines)


# -- The page --------------------------------------------------------------------------------------


@cache
def all_of_gavel() -> Mapping[str, str]:
    """Return the tables of Gavel's measurements, which share what is dear."""
    return gavel_figures(gavel_rows(data_folder()))


def gavel_figure(name: str) -> str:
    """Return one of the tables of Gavel's measurements."""
    return all_of_gavel()[name]


GAVEL_FIGURES = ("methods", "counts", "models", "types", "faulty", "all", "hosts")
FIGURES: dict[str, Callable[[], str]] = {
    **{name: partial(gavel_figure, name) for name in GAVEL_FIGURES},
    "first": lambda: first_estimates(gavel_rows(data_folder())),
    "spread": lambda: spread_figures(data_folder()),
}
SAMPLE = PageSample(PAGE, FIGURES)


if __name__ == "__main__":
    command(PAGE, FIGURES)()
