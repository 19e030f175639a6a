"""The table of a million jobs in docs/benchmarks.md holds what benchmarks/scale.py measured."""

from __future__ import annotations

import csv
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_of_whole_replays_is_the_measured_one() -> None:
    with (DOCS / "benchmarks/scale.csv").open(newline="") as file:
        measured = {(row["policy"], int(row["jobs"])): row for row in csv.DictReader(file)}
    assert {policy for policy, _ in measured} == {"fifo", "slurm"}
    page = (DOCS / "benchmarks.md").read_text().splitlines()
    head = page.index("| jobs | `fifo`: CPU s / elapsed s / MiB / plans | `slurm`: the same |")
    table = page[head + 2 : page.index("", head)]
    assert table == [
        f"| {jobs:,} | {_cell(measured.get(('fifo', jobs)))} "
        f"| {_cell(measured.get(('slurm', jobs)))} |"
        for jobs in sorted({jobs for _, jobs in measured})
    ]


def _cell(row: dict[str, str] | None) -> str:
    if row is None:
        return "not measured"
    cpu_s, elapsed_s = (_seconds(float(row[name])) for name in ("cpu_s", "elapsed_s"))
    return f"{cpu_s} / {elapsed_s} / {int(row['peak_mib']):,} / {int(row['plans']):,}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 200 else f"{seconds:.0f}"
