"""Figures of docs/reproduction/comparison.md: all policies on all workloads.

    HETSCHED_DATA=... python -m docs.reproduction.comparison FOLDER

writes the inputs and the sweeps (`sweeps/`) into the folder, runs what is missing there (half an
hour of one core in all), and fills in the page, the one with all measures, and that of `steady`.
"""

from __future__ import annotations

import math
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from docs.reproduction.comparison_inputs import SWEEPS, write_inputs
from docs.reproduction.comparison_runs import (
    COLUMNS,
    COPIES,
    FRAGMENTS,
    FTF,
    JCT,
    JCT_MIN,
    MAKESPAN,
    MAKESPAN_MIN,
    MAX_RATIO,
    MEAN_RATIO,
    PLAN,
    RESTARTS,
    WAIT,
    WAIT_MIN,
    Column,
    Row,
    Runs,
    as_times,
    geometric,
    log_ratios,
    read_runs,
    relative,
    run_sweep,
    shown,
)
from docs.reproduction.fidelity import markdown
from docs.reproduction.page import filled
from hetsched_core.report.estimates import Estimate, estimate

PAGE = Path(__file__).with_suffix(".md")
ALL = Path(__file__).with_name("comparison-all.md")
STEADY = Path(__file__).parents[1] / "policies" / "steady.md"
PLOT = Path(__file__).with_name("comparison.svg")

COMPARED = ("generated", "traces", "windows", "logs")
OURS = "steady"
EMPTY = ("fox", "habrok", "gavel small")
"""Workloads in which hardly anybody waits: they tell policies apart by seconds."""

NOISE = 0.02
"""Where there is one run, figures that differ by less count as equal."""

OWN_MEASURES: Mapping[str, tuple[Column, ...]] = {
    "hops": (JCT, MAX_RATIO, MAKESPAN, WAIT, FRAGMENTS),
    "hadar replan=incremental": (MAKESPAN, JCT),
    "hadar replan=full": (MAKESPAN, JCT),
    "hadare": (MAKESPAN,),
    "gavel": (FTF, MAKESPAN, JCT),
    "sia": (JCT, MAKESPAN, FTF),
    "tiresias": (JCT,),
    "las": (JCT, MAX_RATIO),
    "2d-las": (JCT, MAX_RATIO),
    "srtf": (JCT, MAX_RATIO),
    "sjf": (JCT,),
    "slurm": (WAIT, JCT),
    "fifo": (JCT,),
}
"""What each system was made for, as its paper or its users would have it."""

SHORT = (JCT_MIN, WAIT_MIN, MAKESPAN_MIN, MAX_RATIO, MEAN_RATIO, FTF, FRAGMENTS, RESTARTS, PLAN)
"""For jobs of a few minutes."""

DEAR = (JCT, WAIT, MAKESPAN, MAX_RATIO, MEAN_RATIO, RESTARTS)

LABELS = {
    "fifo": (-6, -4, "right"),
    "hadar replan=incremental": (6, 6, "left"),
    "gavel-fifo": (-6, 3, "right"),
    "yarn-cs": (6, -8, "left"),
    "srtf": (-6, -8, "right"),
    "2d-las": (-6, 3, "right"),
    "las": (6, -9, "left"),
    "tiresias": (6, 5, "left"),
}
"""Where names stand beside points that lie close together: offset, and the side it begins at."""

ABLATED = {
    "steady": "all of it",
    "steady patience_s=1.0": "no patience: the latency ratio alone",
    "steady patience_s=1000000000.0": "nothing but patience: shortest remaining time",
    "steady power=0.0": "all configurations are worth the same",
    "steady power=1.0": "twice the speed is worth twice as much",
    "steady restart_weight=0.0": "restarts cost nothing in the decision",
    "steady urgent=0.0": "nobody is planned for before the next round",
    "steady mixed=2.0": "one GPU type a job",
    "steady sizes=attained": "sizes unknown",
}


# -- the page --------------------------------------------------------------------------------------


def summary(runs: Runs) -> str:
    """Return, for each policy, how far it is from the best of each workload, on average."""
    times = (JCT, MAX_RATIO, MEAN_RATIO, MAKESPAN, WAIT, FTF)
    parts: dict[str, dict[str, list[float]]] = {}
    plain: dict[str, list[tuple[float, float, float]]] = {}
    for of_policy in (of for workload, of in runs.items() if workload not in EMPTY):
        for column in times:
            found = relative(of_policy, column)
            # A measure that some policy lacks would be compared on other workloads than the rest.
            for name, value in found.items() if len(found) == len(of_policy) else ():
                parts.setdefault(name, {}).setdefault(column.head, []).append(value)
        for name, seeds in of_policy.items():
            plain.setdefault(name, []).extend(
                (
                    FRAGMENTS.of(row) or 0.0,
                    (RESTARTS.of(row) or 0.0) / (row["jobs"] or 1.0),
                    PLAN.of(row) or 0.0,
                )
                for row in seeds.values()
            )
    most = max(len(of_name[JCT.head]) for of_name in parts.values())
    lines = []
    for name, of_name in sorted(parts.items(), key=lambda item: geometric(item[1][JCT.head])):
        many = len(of_name[JCT.head])
        means = [sum(column) / len(column) for column in zip(*plain[name], strict=True)]
        lines.append(
            [
                name if many == most else f"{name} ({many})",
                *(shown_times(geometric(of_name.get(column.head, []))) for column in times),
                *(f"{mean:.1f}" for mean in means),
            ]
        )
    heads = [f"{column.head.removesuffix(' h')} ×" for column in times]
    return markdown(["policy", *heads, "fragments", "restarts a job", "ms a plan"], lines)


def shown_times(value: float) -> str:
    """Return how many times as much something is."""
    return "–" if math.isnan(value) else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def leaders(runs: Runs) -> str:
    """Return who is first on each workload, and by how much `steady` is behind or ahead."""
    lines = []
    for workload, of_policy in runs.items():
        rivals = {name: seeds for name, seeds in of_policy.items() if name not in (OURS, COPIES)}
        cells = [workload]
        for column in (JCT, MAX_RATIO, MAKESPAN):
            times = relative(rivals, column)
            first, second = [*sorted(times, key=lambda name: times[name]), ""][:2]
            lead = times.get(second, 1.0)
            cells.append(f"{first} ({column_mean(rivals[first], column)}; {second} × {lead:.2f})")
            cells.append(against(of_policy, OURS, first, column))
        lines.append(cells)
    heads = ["workload"]
    for column in (JCT, MAX_RATIO, MAKESPAN):
        heads += [f"{column.head}: first (value; next)", "steady / first"]
    return markdown(heads, lines)


def column_mean(seeds: Mapping[int, Row], column: Column) -> str:
    """Return a mean without its interval."""
    found = column.over_seeds(seeds)
    return "–" if found is None else shown(type(found)(found.mean), column.digits)


def against(
    of_policy: Mapping[str, Mapping[int, Row]], mine: str, other: str, column: Column
) -> str:
    """Return mine / other with its interval over the seeds, bold where mine is surely less."""
    if mine not in of_policy or other not in of_policy:
        return "–"
    found = estimate(log_ratios(of_policy[mine], of_policy[other], column))
    return f"**{as_times(found)}**" if verdict(found) < 0 else as_times(found)


def verdict(found: Estimate | None) -> int:
    """Return -1 where a ratio's logarithm is below 0 beyond the noise, 1 where above, else 0."""
    if found is None:
        return 0
    noise = NOISE if found.half_width is None else max(found.half_width, 1e-9)
    if abs(found.mean) <= noise:
        return 0
    return -1 if found.mean < 0 else 1


def own_measures(runs: Runs, chosen: Sequence[str]) -> str:
    """Return how `steady` does on each rival's own measures, on these workloads.

    The ratio is over all runs that both have, workload by workload and seed by seed.
    """
    lines = []
    for rival, columns in OWN_MEASURES.items():
        here = [w for w in chosen if w in runs and rival in runs[w] and OURS in runs[w]]
        for column in columns:
            logs = {w: log_ratios(runs[w][OURS], runs[w][rival], column) for w in here}
            found = {w: estimate(each) for w, each in logs.items()}
            won = [w for w in here if verdict(found[w]) < 0]
            lost = [
                f"{w} ({math.exp(each.mean):.2f})"
                for w, each in found.items()
                if each is not None and verdict(each) > 0
            ]
            every = estimate([log for each in logs.values() for log in each])
            cells = [rival, column.head, as_times(every)]
            lines.append([*cells, f"{len(won)} of {len(here)}", ", ".join(lost)])
    heads = ["rival", "its measure", "steady / rival", "surely less on", "surely more on"]
    return markdown(heads, lines)


def records(runs: Runs) -> str:
    """Return on which workloads each policy is first, and on which last."""
    lines = []
    names = list(dict.fromkeys(name for of_policy in runs.values() for name in of_policy))
    for name in names:
        cells = [name]
        for column in (JCT, MAX_RATIO, MAKESPAN):
            first = []
            for workload, of_policy in runs.items():
                if workload in EMPTY or name not in of_policy:
                    continue
                if relative(of_policy, column).get(name, math.inf) <= 1.0 + NOISE:
                    first.append(workload)
            cells.append(", ".join(first))
        last = []
        for workload, of_policy in runs.items():
            times = relative(of_policy, JCT)
            if workload not in EMPTY and name in times and times[name] >= max(times.values()):
                last.append(workload)
        lines.append([*cells, ", ".join(last)])
    return markdown(["policy", "first in JCT", "in max. LR", "in makespan", "last in JCT"], lines)


def everything(runs: Runs) -> Iterator[str]:
    """Yield a heading and a table of all measures for each workload."""
    for workload, of_policy in runs.items():
        seeds = max(len(each) for each in of_policy.values())
        yield f"### {workload}\n\n{seeds} run{'s' * (seeds > 1)} of each.\n"
        lines = [
            [name, *(shown(column.over_seeds(rows), column.digits) for column in COLUMNS)]
            for name, rows in of_policy.items()
        ]
        yield markdown(["policy", *(column.head for column in COLUMNS)], lines) + "\n"


def plain(runs: Runs, columns: Sequence[Column]) -> str:
    """Return one table of some measures, of few workloads."""
    lines = [
        [workload, name, *(shown(column.over_seeds(rows), column.digits) for column in columns)]
        for workload, of_policy in runs.items()
        for name, rows in of_policy.items()
    ]
    return markdown(["workload", "policy", *(column.head for column in columns)], lines)


def ablations(runs: Runs, chosen: Sequence[str]) -> str:
    """Return what each ingredient is worth: without it / with it, on these workloads."""
    columns = (JCT, MAX_RATIO, MEAN_RATIO, MAKESPAN, WAIT, FTF, RESTARTS, PLAN)
    here = [runs[w] for w in chosen if w in runs]
    lines = []
    for label, what in ABLATED.items():
        cells = [label.removeprefix("steady").strip() or "steady", what]
        for column in columns:
            logs = [
                log
                for each in here
                if label in each
                for log in log_ratios(each[label], each[OURS], column)
            ]
            cells.append(f"{geometric(map(math.exp, logs)):.2f}")
        lines.append(cells)
    heads = ["", "", *(column.head.removesuffix(" h") for column in columns)]
    return markdown(heads, lines)


def draw(runs: Runs, path: Path) -> None:
    """Draw mean JCT against the greatest latency ratio, each over the best of its workload."""
    points: dict[str, tuple[list[float], list[float]]] = {}
    for workload, of_policy in runs.items():
        if workload in EMPTY:
            continue
        jct, most = relative(of_policy, JCT), relative(of_policy, MAX_RATIO)
        for name in jct.keys() & most.keys():
            xs, ys = points.setdefault(name, ([], []))
            xs.append(jct[name])
            ys.append(most[name])
    with mpl.rc_context({"svg.hashsalt": "hetsched", "font.size": 9}):
        figure = Figure(figsize=(7.2, 4.4), layout="constrained")
        axes = figure.add_subplot()
        axes.set(xscale="log", yscale="log")
        axes.set_xlim(0.95, 6.0)
        axes.set_xticks([1.0, 1.5, 2.0, 3.0, 4.0, 5.0], ["1", "1.5", "2", "3", "4", "5"])
        axes.minorticks_off()
        axes.set_xlabel("mean JCT, times the best of each workload (geometric mean)")
        axes.set_ylabel("greatest latency ratio, likewise")
        for name, (xs, ys) in sorted(points.items()):
            x, y = geometric(xs), geometric(ys)
            axes.plot(x, y, "D" if name == OURS else "o", color="C3" if name == OURS else "C0")
            dx, dy, side = LABELS.get(name, (6, 3, "left"))
            axes.annotate(name, (x, y), xytext=(dx, dy), textcoords="offset points", ha=side)
        axes.grid(alpha=0.3)
        figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Run what is missing, and rewrite the pages."""
    data = os.environ.get("HETSCHED_DATA")
    if not data or len(sys.argv) != 2:
        sys.stderr.write(f"{__doc__}\n")
        return 1
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    write_inputs(Path(data), folder)
    for name in (*COMPARED, "tasks", "dear", "ablations"):
        run_sweep(name, folder)
    halves = tomllib.loads((SWEEPS / "halves.toml").read_text())
    runs: Runs = {k: v for name in COMPARED for k, v in read_runs(name, folder).items()}
    tasks, ablated = read_runs("tasks", folder), read_runs("ablations", folder)
    figures = {
        "summary": summary(runs),
        "leaders": leaders(runs),
        "records": records(runs),
        "judged": own_measures(runs, halves["judged_on"]),
        "chosen": own_measures(runs, halves["chosen_on"]),
        "tasks": plain(tasks, SHORT),
        "dear": plain(read_runs("dear", folder), DEAR),
    }
    PAGE.write_text(filled(PAGE.read_text(), figures))
    ALL.write_text(filled(ALL.read_text(), {"all": "\n".join(everything(runs)).strip()}))
    both = {
        "ablations-judged": ablations(ablated, halves["judged_on"]),
        "ablations-chosen": ablations(ablated, halves["chosen_on"]),
    }
    STEADY.write_text(filled(STEADY.read_text(), both))
    draw(runs, PLOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
