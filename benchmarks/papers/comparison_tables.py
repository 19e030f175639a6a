"""Tables of the comparison, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.papers.comparison_runs import (
    COLUMNS,
    COPIES,
    FRAGMENTS,
    FTF,
    JAIN,
    JCT,
    MAKESPAN,
    MAX_RATIO,
    MEAN_RATIO,
    PLAN,
    RESTARTS,
    SHARE_ERROR,
    WAIT,
    WIDE,
    MeasureColumn,
    Row,
    Runs,
    as_times,
    geometric,
    log_ratios,
    relative,
    shown,
)
from benchmarks.papers.page import markdown
from hetsched_core.report.estimates import Estimate, estimate
from hetsched_core.report.units import number

OURS = "steady"
EMPTY = ("fox", "habrok", "gavel small")
"""Workloads in which hardly anybody waits: they tell policies apart by seconds."""

NOISE = 0.02
"""Where there is one run, figures that differ by less count as equal."""

ABLATED = {
    "steady": "all of it",
    "steady patience_s=1.0": "no patience: the latency ratio alone",
    "steady patience_s=1000000000.0": "nothing but patience: shortest remaining time",
    "steady power=0.0": "all configurations are worth the same",
    "steady power=0.5": "twice the speed is worth half as much again",
    "steady restart_weight=0.0": "restarts cost nothing in the decision",
    "steady urgent=0.0": "no job is planned for before the next round",
    "steady mixed=2.0": "one GPU type a job",
    "steady window=1.0": "no more jobs planned for than the cluster holds",
}


def telling(runs: Runs, chosen: Sequence[str] = ()) -> Runs:
    """Return the workloads in which somebody waits, all of them or some."""
    return {
        workload: of_policy
        for workload, of_policy in runs.items()
        if workload not in EMPTY and (not chosen or workload in chosen)
    }


def summary(runs: Runs) -> str:
    """Return, for each policy, how far it is from the best of each workload, on average."""
    times = (JCT, MAX_RATIO, MEAN_RATIO, MAKESPAN, WAIT, FTF)
    parts: dict[str, dict[str, list[float]]] = {}
    plain: dict[str, list[tuple[float, float, float]]] = {}
    for of_policy in telling(runs).values():
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
                *(_times(geometric(of_name.get(column.head, []))) for column in times),
                *(number(mean, 1) for mean in means),
            ]
        )
    heads = [f"{column.head.removesuffix(' h')} ×" for column in times]
    return markdown(["policy", *heads, "fragments", "restarts a job", "ms a plan"], lines)


def _times(value: float) -> str:
    return "–" if math.isnan(value) else number(value, 2 if value < 100 else 0)


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
            cells.append(f"{first} ({_mean(rivals[first], column)}; {second} × {lead:.2f})")
            cells.append(_against(of_policy, OURS, first, column))
        lines.append(cells)
    heads = ["workload"]
    for column in (JCT, MAX_RATIO, MAKESPAN):
        heads += [f"{column.head}: first (value; next)", "steady / first"]
    return markdown(heads, lines)


def _mean(seeds: Mapping[int, Row], column: MeasureColumn) -> str:
    found = column.over_seeds(seeds)
    return "–" if found is None else shown(Estimate(found.mean), column.digits)


def _against(
    of_policy: Mapping[str, Mapping[int, Row]], mine: str, other: str, column: MeasureColumn
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


def by_workload(runs: Runs, rival: str, column: MeasureColumn) -> dict[str, Estimate]:
    """Return the logarithm of steady / rival for each workload, over its seeds."""
    found = {
        workload: estimate(log_ratios(of_policy[OURS], of_policy[rival], column))
        for workload, of_policy in runs.items()
        if rival in of_policy and OURS in of_policy
    }
    return {workload: each for workload, each in found.items() if each is not None}


def over_workloads(found: Mapping[str, Estimate]) -> Estimate | None:
    """Return the mean over workloads, each counted once: they differ more than seeds do."""
    return estimate([each.mean for each in found.values()])


def own_measures(runs: Runs, measures: Mapping[str, Sequence[MeasureColumn]]) -> str:
    """Return how `steady` does on each rival's own measures; in bold where it is surely behind."""
    lines = []
    for rival, columns in measures.items():
        for column in columns:
            found = by_workload(runs, rival, column)
            won = [each for each in found.values() if verdict(each) < 0]
            lost = [
                f"{workload} ({number(math.exp(each.mean), 2)})"
                for workload, each in found.items()
                if verdict(each) > 0
            ]
            every = over_workloads(found)
            text = f"**{as_times(every)}**" if verdict(every) > 0 else as_times(every)
            lines.append([rival, column.head, text, f"{len(won)} of {len(found)}", ", ".join(lost)])
    heads = ["rival", "its measure", "steady / rival", "surely less on", "surely more on"]
    return markdown(heads, lines)


def together(runs: Runs) -> str:
    """Return how `steady` does against each rival on mean JCT and the greatest ratio at once."""
    lines = []
    rivals = dict.fromkeys(name for of_policy in runs.values() for name in of_policy)
    for rival in (name for name in rivals if name != OURS):
        jct, ratio = by_workload(runs, rival, JCT), by_workload(runs, rival, MAX_RATIO)
        here = jct.keys() & ratio.keys()
        both = [w for w in here if jct[w].mean < 0 and ratio[w].mean < 0]
        neither = [w for w in jct if w in here and jct[w].mean > 0 and ratio[w].mean > 0]
        lines.append(
            [
                rival,
                as_times(over_workloads(jct)),
                as_times(over_workloads(ratio)),
                f"{len(both)} of {len(here)}",
                ", ".join(neither),
            ]
        )
    heads = ["rival", "mean JCT: steady / rival", "max. LR: steady / rival"]
    return markdown([*heads, "both less on", "both more on"], lines)


def frontier(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return who is on the frontier, from the least first measure to the least second one.

    Nobody else has less of one of the two and no more of the other.
    """

    def beaten(name: str) -> bool:
        mine = points[name]
        return any(
            other != mine and all(o <= m for o, m in zip(other, mine, strict=True))
            for other in points.values()
        )

    return sorted((name for name in points if not beaten(name)), key=lambda name: points[name])


def frontiers(runs: Runs) -> str:
    """Return, workload by workload, who is on the frontier of mean JCT and greatest ratio."""
    lines = []
    for workload, of_policy in runs.items():
        jct, ratio = relative(of_policy, JCT), relative(of_policy, MAX_RATIO)
        points = {n: (jct[n], ratio[n]) for n in jct if n in ratio and n != COPIES}
        on = [f"{n} ({_times(points[n][0])}, {_times(points[n][1])})" for n in frontier(points)]
        lines.append([workload, ", ".join(on)])
    return markdown(["workload", "on the frontier (mean JCT ×, max. LR ×)"], lines)


def records(runs: Runs) -> str:
    """Return on which workloads each policy is first, and on which last."""
    lines = []
    names = list(dict.fromkeys(name for of_policy in runs.values() for name in of_policy))
    here = telling(runs)
    for name in names:
        cells = [name]
        for column in (JCT, MAX_RATIO, MAKESPAN):
            first = [
                workload
                for workload, of_policy in here.items()
                if relative(of_policy, column).get(name, math.inf) <= 1.0 + NOISE
            ]
            cells.append(", ".join(first))
        last = []
        for workload, of_policy in here.items():
            times = relative(of_policy, JCT)
            if name in times and times[name] >= max(times.values()):
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


def plain(runs: Runs, columns: Sequence[MeasureColumn], ratio: MeasureColumn | None = None) -> str:
    """Return one table of some measures, of few workloads, and steady / policy of one of them."""
    lines = []
    for workload, of_policy in runs.items():
        for name, rows in of_policy.items():
            cells = [shown(column.over_seeds(rows), column.digits) for column in columns]
            if ratio is not None:
                cells.append("" if name == OURS else _against(of_policy, OURS, name, ratio))
            lines.append([workload, name, *cells])
    last = [] if ratio is None else [f"{ratio.head.removesuffix(' h')}: steady / policy"]
    return markdown(["workload", "policy", *(column.head for column in columns), *last], lines)


HIDDEN = "sizes hidden"


def with_hidden(told: Runs, hidden: Runs) -> Runs:
    """Return runs together with those of the same jobs that do not tell their sizes."""
    return {
        workload: {
            **of_policy,
            **{
                f"{label.split()[0]}, {HIDDEN}": rows
                for label, rows in hidden.get(workload, {}).items()
            },
        }
        for workload, of_policy in told.items()
    }


def widths(*waits: Mapping[str, Sequence[tuple[float, ...]]]) -> str:
    """Return what narrow and wide jobs waited, means over runs; those of hidden sizes last."""
    told, hidden = waits
    every = {**told, **{f"{label.split()[0]}, {HIDDEN}": each for label, each in hidden.items()}}
    lines = [
        [label, *(number(sum(column) / len(column), 1) for column in zip(*each, strict=True))]
        for label, each in every.items()
    ]
    heads = ["1 GPU: mean h", f"{WIDE} and more: mean h", "the width that waits longest: 99 % h"]
    return markdown(["policy", *heads], lines)


def times_ours(runs: Runs, columns: Sequence[MeasureColumn]) -> str:
    """Return how many times each measure of `steady` that of every policy is, over all runs."""
    labels = dict.fromkeys(label for of_policy in runs.values() for label in of_policy)
    lines = []
    for label in labels:
        cells = [label]
        for column in columns:
            logs = [
                log
                for each in runs.values()
                if label in each
                for log in log_ratios(each[label], each[OURS], column)
            ]
            cells.append("1" if label == OURS else as_times(estimate(logs)))
        lines.append(cells)
    return markdown(["policy", *(f"{c.head.removesuffix(' h')} ×" for c in columns)], lines)


def with_shares(runs: Runs) -> str:
    """Return what shares cost and do: each workload with them (NAME, shares) against without."""
    lines = []
    for workload, plain_runs in runs.items():
        for name, alone in plain_runs.items() if f"{workload}, shares" in runs else ():
            kept = runs[f"{workload}, shares"][name]
            cells = [workload, name, _mean(alone, JCT)]
            cells.append(as_times(estimate(log_ratios(kept, alone, JCT))))
            for column in (JAIN, SHARE_ERROR, RESTARTS):
                cells += [_mean(alone, column), _mean(kept, column)]
            lines.append(cells)
    heads = ["workload", "policy", JCT.head, "with shares, ×"]
    for column in (JAIN, SHARE_ERROR, RESTARTS):
        heads += [column.head, "with"]
    return markdown(heads, lines)


def ablations(runs: Runs) -> str:
    """Return what each ingredient is worth: without it / with it, over all runs of these."""
    sure = (JCT, MAX_RATIO, MAKESPAN, RESTARTS)
    others = (MEAN_RATIO, WAIT, FTF, PLAN)
    lines = []
    for label, what in ABLATED.items():
        cells = [label.removeprefix("steady").strip() or "steady", what]
        for column in (*sure, *others):
            found = estimate(
                [
                    log
                    for each in runs.values()
                    if label in each
                    for log in log_ratios(each[label], each[OURS], column)
                ]
            )
            means = found and Estimate(found.mean)
            cells.append(as_times(found if column in sure and label != OURS else means))
        lines.append(cells)
    heads = ["", "", *(column.head.removesuffix(" h") for column in (*sure, *others))]
    return markdown(heads, lines)
