"""Figures of docs/reproduction/hops.md: Hops beside what its paper reports.

    python -m benchmarks.papers.hops [--cells FOLDER] [--check] [FIGURE ...]

writes them between the markers of the page; with `--check` it compares instead. Every replay is
kept in the folder once it is computed, so that a run that was cut short goes on where it was;
without the option that is a new one in the place for temporary files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import click
import numpy as np

from benchmarks.papers.comparison_runs import as_times
from benchmarks.papers.hops_cells import Found, HopsCell, PolicyVariant, result
from benchmarks.papers.page import PAGES, PageSample, markdown, rewrite, table_line
from hetsched_core.report.estimates import estimate

PAGE = PAGES / "hops.md"
SEEDS = range(10)
FIVE_SEEDS = range(5)
FEW_SEEDS = range(3)
SMALL, LARGE = "64 GPUs", "512 GPUs"
SMALL_CALIBRATED, LARGE_CALIBRATED = f"{SMALL}, calibrated", f"{LARGE}, calibrated"

HOPS = PolicyVariant("hops", told="learned")
HOPS_KNOWING = PolicyVariant("hops", told="nodes")
HOPS_BY_TYPE = PolicyVariant("hops", told="types")
SIA = PolicyVariant("sia", (("gap", "0.01"),))
SIA_UNSCATTERED = PolicyVariant("sia, unscattered", SIA.parameters)
GAVEL = PolicyVariant("gavel")
SIMPLE = tuple(map(PolicyVariant, ("slurm", "fifo", "las", "sjf", "srtf")))
SEEDS_OF: dict[str, dict[PolicyVariant, range]] = {
    SMALL: dict.fromkeys((HOPS, SIA, SIA_UNSCATTERED, GAVEL, *SIMPLE), SEEDS),
    LARGE: dict.fromkeys((HOPS, HOPS_KNOWING, SIA, GAVEL, *SIMPLE), SEEDS),
    SMALL_CALIBRATED: dict.fromkeys((HOPS, SIA, SIA_UNSCATTERED, GAVEL), SEEDS),
    LARGE_CALIBRATED: dict.fromkeys((HOPS, SIA, SIA_UNSCATTERED, GAVEL), SEEDS),
}
"""The policies of each setting. On 512 GPUs a replay of Hops takes half a minute of a CPU, one of
sia a minute."""

PAPER = {
    (SMALL, "hops"): (9.51, 3.2, 0.95, 0.37, 0.15),
    (SMALL, "sia"): (11.68, 4.41, 1.47, 1.03, 5.89),
    (SMALL, "gavel"): (14.46, 5.92, 2.11, 1.31, 3.36),
    (LARGE, "hops"): (10.48, 2.24, 0.87, 3.22, 0.45),
    (LARGE, "sia"): (12.36, 3.79, 1.68, 78.5, 56),
    (LARGE, "gavel"): (15.42, 4.04, 2.24, 70.43, 18),
}
"""Tables 3 and 4: hours, hours, hours, ratio, GPUs."""

PAPER |= {(f"{scale}, calibrated", policy): row for (scale, policy), row in PAPER.items()}

MEASURES = {
    "makespan": "makespan h",
    "jct": "JCT h",
    "wait": "wait h",
    "max_ratio": "max. LR",
    "fragments": "fragments",
}


def named(variant: PolicyVariant) -> str:
    """Return how a variant is called in tables."""
    known = variant.policy == "hops" and variant.told == "nodes"
    return variant.policy + (", speeds known" if known else "")


def over(
    folder: Path,
    seeds: Sequence[int],
    scale: str,
    variant: PolicyVariant,
    *,
    round_s: float = 360.0,
    faster: float = 1.0,
) -> list[Found]:
    """Return what came out for each seed, kept in a folder once it is computed."""
    return [result(HopsCell(scale, variant, seed, round_s, faster), folder) for seed in seeds]


# -- Statistics ------------------------------------------------------------------------------------


def values(found: Sequence[Found], measure: str) -> list[float]:
    """Return one measure of several replays."""
    return [float(getattr(each, measure)) for each in found]


def spread(sample: Sequence[float]) -> str:
    """Return a mean and its interval, if there are several."""
    found = estimate(sample)
    assert found is not None
    digits = 2 if abs(found.mean) < 9.995 else 1
    around = "" if found.half_width is None else f" ± {found.half_width:.{digits}f}"
    return f"{found.mean:.{digits}f}{around}"


def times(sample: Sequence[float], base: Sequence[float]) -> str:
    """Return the geometric mean of paired ratios and its interval, if there are several."""
    return as_times(estimate((np.log(sample) - np.log(base)).tolist()))


# -- Tables ----------------------------------------------------------------------------------------


def main_line(folder: Path, scale: str, variant: PolicyVariant) -> tuple[str, ...]:
    """Return what a policy makes of one of the paper's settings."""
    seeds = SEEDS_OF[scale][variant]
    found = over(folder, seeds, scale, variant)
    return (
        named(variant),
        str(len(seeds)),
        *(spread(values(found, measure)) for measure in (*MEASURES, "max_ftf")),
        f"{100 * np.mean(values(found, 'unfair')):.0f}",
        f"{100 * np.mean(values(found, 'held')):.0f}",
        f"{np.mean(values(found, 'restarts')):.0f}",
    )


def main_table(folder: Path, scale: str) -> str:
    """Return every policy's means, the paper's below each that it has."""
    lines = []
    for variant in SEEDS_OF[scale]:
        lines.append(main_line(folder, scale, variant))
        published = PAPER.get((scale, variant.policy))
        if published and variant is not HOPS_KNOWING:
            cells = (f"{value:g}" for value in published)
            lines.append((f"{variant.policy}, paper", "", *cells, *[""] * 4))
    return markdown(
        (
            "policy",
            "seeds",
            *MEASURES.values(),
            "max. FTF",
            "FTF > 1 %",
            "GPUs held %",
            "restarts",
        ),
        lines,
    )


RATIOS = ("makespan", "jct", "wait", "max_ratio")


def ratio_table(folder: Path, scale: str) -> str:
    """Return how many times Hops's measures those of the others are, the paper's beside."""
    first, *rivals = SEEDS_OF[scale]
    own = PAPER[scale, "hops"]
    lines = []
    for variant in rivals:
        seeds = SEEDS_OF[scale][variant]
        base, found = (over(folder, seeds, scale, each) for each in (first, variant))
        published = PAPER.get((scale, variant.policy)) if variant is not HOPS_KNOWING else None
        cells = []
        for at, measure in enumerate(RATIOS):
            cells.append(times(values(found, measure), values(base, measure)))
            cells.append(f"{published[at] / own[at]:.2f}" if published else "")
        lines.append((named(variant), *cells))
    heads = (part for m in RATIOS for part in (MEASURES[m].removesuffix(" h"), "paper"))
    return markdown(("over hops", *heads), lines)


def hops(**parameters: str) -> PolicyVariant:
    """Return Hops, learning, with other parameters."""
    return PolicyVariant("hops", tuple(sorted(parameters.items())), "learned")


PRIORITIES = {
    "latency_ratio": HOPS,
    **{name: hops(priority=name) for name in ("las", "sjf", "srtf", "fifo")},
}

SHORT_FIRST = ("latency_ratio", "sjf", "srtf")
"""Those of which the paper says that long jobs wait, beside its own."""


def priorities(folder: Path, scale: str, seeds: Sequence[int], names: Sequence[str]) -> str:
    """Return the largest latency ratio by class of GPU hours under some priorities."""
    lines = []
    for name in names:
        variant = PRIORITIES[name]
        found = over(folder, seeds, scale, variant)
        by_class = (
            f"{np.mean([each.class_ratio[size] for each in found]):.2f}"
            for size in ("S", "M", "L", "XL")
        )
        means = (f"{np.mean(values(found, m)):.2f}" for m in ("jct", "wait", "max_ratio"))
        high = f"{100 * np.mean(values(found, 'high_ratio')):.1f}"
        lines.append((name, *means, *by_class, high))
    heads = ("priority", "JCT h", "wait h", "max. LR", "S", "M", "L", "XL", "LR > 3, % of jobs")
    return markdown(heads, lines)


RATES = (30, 60, 120, 300, 600, 1200)


def rates(folder: Path) -> str:
    """Return average JCT and its difference from Hops's by arrivals an hour."""
    lines = []
    for rate in RATES:
        own, *others = (
            values(over(folder, FEW_SEEDS, SMALL, variant, faster=rate / 100), "jct")
            for variant in (HOPS, SIA, GAVEL)
        )
        line = [f"{rate} ({rate / 10:g})", f"{np.mean(own):.2f}"]
        for jct in others:
            more = np.mean(jct) - np.mean(own)
            line += [f"{np.mean(jct):.2f}", f"{more:+.2f}", f"{np.mean(jct) / np.mean(own):.2f}"]
        lines.append(line)
    heads = ["jobs/h in the paper (here)", "hops JCT h"]
    for rival in ("sia", "gavel"):
        heads += [f"{rival} JCT h", "more", "times"]
    return markdown(heads, lines)


def compared(folder: Path, scale: str, variants: Mapping[str, PolicyVariant]) -> str:
    """Return variants of Hops, and their paired ratios to the first."""
    lines = []
    base: list[Found] = []
    for name, variant in variants.items():
        found = over(folder, SEEDS, scale, variant)
        ratios = [times(values(found, m), values(base, m)) if base else "1" for m in RATIOS[:2]]
        base = base or found
        lines.append((name, *(spread(values(found, m)) for m in MEASURES), *ratios))
    first = next(iter(variants))
    heads = (f"{MEASURES[m].removesuffix(' h')} / {first}" for m in RATIOS[:2])
    return markdown(("", *MEASURES.values(), *heads), lines)


AWARENESS = {"by node": HOPS_KNOWING, "by type": HOPS_BY_TYPE, "learning": HOPS}
ADJUSTMENT = {"on": HOPS, "off": hops(adjustment="false")}
SPREADING = {"sensitivity up to 1.4": HOPS, "any": hops(sensitivity="inf")}
LAMBDAS = {
    "latency ratio, 0": hops(lam="0"),
    "latency ratio, 1": HOPS,
    "latency ratio, 2": hops(lam="2"),
    "latency ratio, inf": hops(lam="inf"),
    "finish-time fairness, 1": hops(priority="finish_time_fairness", lam="1"),
    "finish-time fairness, 2": hops(priority="finish_time_fairness", lam="2"),
}
FAIRNESS = {name: LAMBDAS[name] for name in LAMBDAS if name.endswith((", 1", ", 2"))}
ROUNDS_S = (60.0, 360.0)
SWEEP = (*MEASURES, "max_ftf")


def sweep(
    folder: Path,
    scale: str,
    seeds: Sequence[int],
    variants: Mapping[str, PolicyVariant],
    round_s: float = 360.0,
) -> list[tuple[str, ...]]:
    """Return lines of means."""
    rows = []
    for name, variant in variants.items():
        found = over(folder, seeds, scale, variant, round_s=round_s)
        means = (f"{np.mean(values(found, measure)):.2f}" for measure in SWEEP)
        unfair = f"{100 * np.mean(values(found, 'unfair')):.0f}"
        rows.append((name, *means, unfair, f"{np.mean(values(found, 'restarts')):.0f}"))
    return rows


def swept(rows: Iterable[tuple[str, ...]]) -> str:
    """Return the table of a sweep."""
    return markdown(("", *MEASURES.values(), "max. FTF", "FTF > 1 %", "restarts"), list(rows))


def rounds(folder: Path) -> str:
    """Return Hops and its rivals by the length of a round."""
    return swept(
        row
        for variant in (HOPS, SIA, GAVEL)
        for length in ROUNDS_S
        for row in sweep(
            folder, SMALL, FEW_SEEDS, {f"{named(variant)}, {length:.0f} s": variant}, length
        )
    )


# -- The page --------------------------------------------------------------------------------------

FIGURES: dict[str, Callable[[Path], str]] = {
    "small": lambda folder: main_table(folder, SMALL),
    "small-ratios": lambda folder: ratio_table(folder, SMALL),
    "large": lambda folder: main_table(folder, LARGE),
    "large-ratios": lambda folder: ratio_table(folder, LARGE),
    "small-calibrated": lambda folder: main_table(folder, SMALL_CALIBRATED),
    "small-calibrated-ratios": lambda folder: ratio_table(folder, SMALL_CALIBRATED),
    "large-calibrated": lambda folder: main_table(folder, LARGE_CALIBRATED),
    "large-calibrated-ratios": lambda folder: ratio_table(folder, LARGE_CALIBRATED),
    "large-calibrated-spreading": lambda folder: compared(folder, LARGE_CALIBRATED, SPREADING),
    "priorities": lambda folder: priorities(folder, SMALL, FEW_SEEDS, tuple(PRIORITIES)),
    "priorities-large": lambda folder: priorities(folder, LARGE, FIVE_SEEDS, SHORT_FIRST),
    "rates": rates,
    "awareness": lambda folder: compared(folder, SMALL, AWARENESS),
    "awareness-large": lambda folder: compared(folder, LARGE, AWARENESS),
    "adjustment": lambda folder: compared(folder, SMALL, ADJUSTMENT),
    "adjustment-large": lambda folder: compared(folder, LARGE, ADJUSTMENT),
    "lambdas": lambda folder: swept(sweep(folder, SMALL, FEW_SEEDS, LAMBDAS)),
    "fairness-large": lambda folder: swept(sweep(folder, LARGE, FIVE_SEEDS, FAIRNESS)),
    "rounds": rounds,
}


@cache
def fresh_folder() -> Path:
    """Return a new place for replays."""
    return Path(tempfile.mkdtemp(prefix="hops-"))


def but_sia(scale: str) -> str:
    """Return the lines of all on a cluster but sia, the slowest."""
    variants = [each for each in SEEDS_OF[scale] if not each.policy.startswith("sia")]
    lines = (main_line(fresh_folder(), scale, variant) for variant in variants)
    return "\n".join(map(table_line, lines))


SAMPLE = PageSample(
    PAGE,
    lines={
        "small": lambda: but_sia(SMALL),
        "small-calibrated": lambda: but_sia(SMALL_CALIBRATED),
    },
)


@click.command()
@click.argument("names", metavar="[FIGURE ...]", nargs=-1, type=click.Choice(tuple(FIGURES)))
@click.option("--cells", type=click.Path(path_type=Path, file_okay=False), help="Kept replays.")
@click.option("--check", is_flag=True, help="Compare with the page; exit 1 where they differ.")
def main(names: tuple[str, ...], cells: Path | None, check: bool) -> None:
    """Rewrite the page, or only the figures named."""
    folder = cells or fresh_folder()
    folder.mkdir(parents=True, exist_ok=True)
    click.echo(f"replays are kept in {folder}", err=True)
    figures = {name: partial(figure, folder) for name, figure in FIGURES.items()}
    rewrite(PAGE, figures, names, check=check)


if __name__ == "__main__":
    main()
