"""Figures of docs/reproduction/shapes.md: what uneven and mixed shapes gain over even ones alone.

    python -m benchmarks.papers.shapes

writes them between the markers of the page (about six minutes of one core).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks.papers.comparison_runs import FRAGMENTS, JCT, RESTARTS, WAIT, MeasureColumn, Row
from benchmarks.papers.comparison_runs import shown as cell
from benchmarks.papers.hops_setting import SCALES, world_of
from benchmarks.papers.page import PAGES, PageSample, command, markdown, table_line
from benchmarks.papers.workloads import bundled
from hetsched_core.cli import main as hetsched
from hetsched_core.measures.metrics import Measures, measure
from hetsched_core.policy import make_policy
from hetsched_core.replay.replay import replay
from hetsched_core.report.estimates import Estimate, estimate, relative_change
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.traces.cluster_file import ClusterFile, format_cluster
from hetsched_core.traces.load import ReplayInputs, load_workload
from hetsched_core.types import ALL_SHAPES, Cluster, Node, Shape

PAGE = PAGES / "shapes.md"
CLUSTER = Cluster(
    tuple(
        Node(f"{kind}-{number}", kind, 8) for kind in ("a100", "v100", "t4") for number in range(3)
    )
)
JOBS = ("--jobs", "400", "--load", "0.9", "--elastic-share", "1", "--models", "hops")
SEEDS = (0, 1, 2)
GRACE_S = 30.0

POLICIES: Mapping[str, Mapping[str, str]] = {"hops": {}, "hadar": {"replan": "full"}}
"""Those whose papers make such shapes."""

EVEN = frozenset({Shape.SINGLE_NODE, Shape.EVEN})
SHAPES = {"even": EVEN, "and uneven": EVEN | {Shape.UNEVEN}, "and mixed": ALL_SHAPES}
COLUMNS = (
    JCT,
    MeasureColumn(
        "99 % JCT h", lambda row: None if (s := row["p99_jct_s"]) is None else s / 3600.0, 1
    ),
    WAIT,
    FRAGMENTS,
    RESTARTS,
)


def generated(seed: int, folder: Path) -> ReplayInputs:
    """Return generated jobs, a few of which use sixteen GPUs, accepting several counts."""
    cluster, jobs = folder / "cluster.toml", folder / f"jobs-{seed}.jsonl"
    cluster.write_text(format_cluster(ClusterFile(CLUSTER)))
    made = ["workload", "generate", "--cluster", str(cluster), *JOBS, "--seed", str(seed)]
    if hetsched([*made, str(jobs)]) != 0:
        raise SystemExit("the workload could not be generated")
    return load_workload([jobs], ClusterFile(CLUSTER))


WORKLOADS: Mapping[str, Callable[[int, Path], ReplayInputs]] = {
    "the bundled log": lambda seed, _: bundled(seed),
    "the same, elastic": lambda seed, _: bundled(seed, elastic=True),
    "generated, elastic": generated,
}


def measured(loaded: ReplayInputs, policy: str, shapes: frozenset[Shape]) -> Row:
    """Return the measures of one replay."""
    settings = SimulationSettings(grace_s=GRACE_S, shapes=shapes)
    (result,) = replay(loaded, {policy: make_policy(policy, POLICIES[policy])}, settings)
    found = result.measures
    return {
        name: getattr(found, name)
        for name in ("avg_jct_s", "p99_jct_s", "avg_wait_s", "avg_fragments", "restarts")
    }


def gain(even: Mapping[int, Row], other: Mapping[int, Row], column: MeasureColumn) -> str:
    """Return how a measure changes against even shapes, seed by seed, in per cent."""
    return cell_of_change(
        relative_change(
            [column.of(even[seed]) for seed in SEEDS], [column.of(other[seed]) for seed in SEEDS]
        )
    )


def cell_of_change(change: Estimate | None) -> str:
    """Return a relative change in per cent, "" for none."""
    if change is None:
        return ""
    width = "" if change.half_width is None else f" ± {change.half_width * 100:.1f}"
    return f"{change.mean * 100:+.1f}{width}"


def rows(
    workloads: Iterable[str] = WORKLOADS, policies: Iterable[str] = POLICIES
) -> Iterator[tuple[str, ...]]:
    """Yield the lines of the table, one for each workload, policy and set of shapes."""
    with tempfile.TemporaryDirectory() as name:
        for workload in workloads:
            loaded = {seed: WORKLOADS[workload](seed, Path(name)) for seed in SEEDS}
            for policy in policies:
                found: dict[str, dict[int, Row]] = {}
                for label, shapes in SHAPES.items():
                    found[label] = {s: measured(loaded[s], policy, shapes) for s in SEEDS}
                    of = found[label]
                    figures = [cell(column.over_seeds(of), column.digits) for column in COLUMNS]
                    gains = [gain(found["even"], of, column) for column in (JCT, FRAGMENTS)]
                    yield (
                        workload,
                        policy,
                        label,
                        *figures,
                        *(gains if label != "even" else ("", "")),
                    )


def shapes() -> str:
    """Return the table."""
    heads = ("workload", "policy", "shapes", *(column.head for column in COLUMNS))
    return markdown((*heads, "JCT, % of even", "fragments, % of even"), rows())


HOPS_SEEDS = range(10)


def of_hops() -> str:
    """Return what Hops makes of its paper's jobs on 64 GPUs under even shapes and uneven ones.

    It knows the speed of every node.
    """
    found: dict[str, list[Measures]] = {"even": [], "and uneven": []}
    for seed in HOPS_SEEDS:
        world = world_of(SCALES["64 GPUs"], seed)
        for label, of in found.items():
            settings = SimulationSettings(round_s=360.0, seed=seed, shapes=SHAPES[label])
            policy = make_policy("hops", {})
            log = simulate(world.submissions, world.cluster, policy, world.speeds, settings)
            of.append(measure(log, world.speeds))
    lines = []
    for label, of in found.items():
        line = [label]
        for name, scale in (("makespan_s", 3600.0), ("avg_jct_s", 3600.0), ("avg_fragments", 1.0)):
            old, new = ([getattr(m, name) for m in each] for each in (found["even"], of))
            line.append(cell(estimate([each / scale for each in new]), 2))
            change = relative_change(old, new) if label != "even" and scale > 1 else None
            line += [cell_of_change(change)] if scale > 1 else []
        lines.append(line)
    heads = ("shapes", "makespan h", "% of even", "mean JCT h", "% of even", "fragments")
    return markdown(heads, lines)


def hops_generated() -> str:
    """Return the lines of `hops` on the generated jobs."""
    return "\n".join(map(table_line, rows(("generated, elastic",), ("hops",))))


FIGURES = {"shapes": shapes, "hops": of_hops}
SAMPLE = PageSample(PAGE, lines={"shapes": hops_generated})


if __name__ == "__main__":
    command(PAGE, FIGURES)()
