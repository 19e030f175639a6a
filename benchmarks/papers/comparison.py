"""Figures of docs/reproduction/comparison.md: all policies on all workloads.

    HETSCHED_DATA=... python -m benchmarks.papers.comparison FOLDER

writes the inputs and the sweeps (`sweeps/`) into the folder, runs what is missing there (an hour
of one core in all), and fills in the page, the one with all measures, and that of `steady`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from benchmarks.papers.comparison_figure import draw
from benchmarks.papers.comparison_inputs import (
    SWEEPS,
    inputs,
    write_input,
    write_inputs,
    write_sweeps,
)
from benchmarks.papers.comparison_runs import (
    FRAGMENTS,
    FTF,
    JCT,
    JCT_MIN,
    MAKESPAN,
    MAKESPAN_MIN,
    MAX_RATIO,
    MEAN_RATIO,
    P99_JCT,
    P99_WAIT,
    PLAN,
    RESTARTS,
    RESTARTS_A_JOB,
    WAIT,
    WAIT_MIN,
    MeasureColumn,
    Runs,
    run_sweep,
    waits_by_width,
)
from benchmarks.papers.comparison_tables import (
    ablations,
    everything,
    frontiers,
    leaders,
    own_measures,
    plain,
    records,
    summary,
    telling,
    times_ours,
    together,
    widths,
    with_hidden,
    with_shares,
)
from benchmarks.papers.page import PAGES, PageSample, data_folder, rewrite

PAGE = PAGES / "comparison.md"
ALL = PAGES / "comparison-all.md"
STEADY = PAGES.parent / "policies" / "steady.md"
PLOT = PAGES / "comparison.svg"

COMPARED = ("generated", "traces", "windows", "logs")
BATCH = "gavel static"
"""The ablations' one workload whose jobs are all there at once."""

OWN_MEASURES: Mapping[str, tuple[MeasureColumn, ...]] = {
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

LONG = (JCT, P99_JCT, P99_WAIT, MAKESPAN, RESTARTS_A_JOB)
"""For weeks: beside the mean what those have who have least."""

DEAR = (JCT, WAIT, MAKESPAN, MAX_RATIO, MEAN_RATIO, RESTARTS)


@cache
def arrivals() -> Runs:
    """Run one workload alone, the 96 jobs of Gavel's physical cluster, under all policies."""
    data = data_folder()
    with TemporaryDirectory() as made:
        folder = Path(made)
        write_sweeps(folder)
        write_input(next(each for each in inputs(data) if each.name == "gavel-arrivals"), folder)
        sweep = folder / "traces.toml"
        head, first, *_ = sweep.read_text().split("[[workloads]]\n")
        _, *policies = sweep.read_text().split("[[policies]]\n")
        sweep.write_text("[[policies]]\n".join([f"{head}[[workloads]]\n{first}", *policies]))
        return run_sweep("traces", folder)


def untimed() -> str:
    """Return every measure of that workload but the last, what a plan takes on the clock."""
    heading, table = everything(arrivals())
    lines = (line.rsplit("|", 2)[0] + "|" for line in table.splitlines())
    return "\n".join([heading.splitlines()[0], *lines])


SAMPLE = PageSample(PAGE, lines={"leaders": lambda: leaders(arrivals())})
SAMPLE_OF_ALL = PageSample(ALL, lines={"all": untimed})


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, resolve_path=True))
def main(folder: Path) -> None:
    """Run what is missing in FOLDER, and rewrite the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    write_inputs(data_folder(), folder)
    halves = tomllib.loads((SWEEPS / "halves.toml").read_text())
    chosen_on, judged_on = halves["chosen_on"], halves["judged_on"]
    runs: Runs = {k: v for name in COMPARED for k, v in run_sweep(name, folder).items()}
    chosen, judged = telling(runs, chosen_on), telling(runs, judged_on)
    ablated = run_sweep("ablations", folder)
    weeks = with_hidden(run_sweep("long", folder), run_sweep("long-untold", folder))
    arriving = [workload for workload in judged_on if workload != BATCH]
    rewrite(
        PAGE,
        {
            "summary": lambda: summary(runs),
            "leaders": lambda: leaders(runs),
            "records": lambda: records(runs),
            "judged": lambda: own_measures(judged, OWN_MEASURES),
            "together": lambda: together(judged),
            "frontiers": lambda: frontiers(judged),
            "chosen": lambda: own_measures(chosen, OWN_MEASURES),
            "tasks": lambda: plain(run_sweep("tasks", folder), SHORT),
            "dear": lambda: plain(run_sweep("dear", folder), DEAR, JCT),
            "weeks": lambda: times_ours(weeks, LONG),
            "widths": lambda: widths(
                *(waits_by_width(name, folder) for name in ("long", "long-untold"))
            ),
            "week by week": lambda: plain(weeks, LONG, JCT),
            "shares": lambda: with_shares(run_sweep("shares", folder)),
        },
    )
    rewrite(ALL, {"all": lambda: "\n".join(everything(runs)).strip()})
    rewrite(
        STEADY,
        {
            "ablations-judged": lambda: ablations(telling(ablated, arriving)),
            "ablations-batch": lambda: ablations(telling(ablated, [BATCH])),
            "ablations-chosen": lambda: ablations(telling(ablated, chosen_on)),
        },
    )
    draw(judged, PLOT)


if __name__ == "__main__":
    main()
