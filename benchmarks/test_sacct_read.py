"""Lines a second of the sacct reader on a mix like that of a real GPU cluster.

The lines are those of Fox (60 % steps, 20 % GPU allocations), again and again with other ids and
times, so that no two rows of a log are alike. The measure is taken against splitting the same
lines, in the same run: a ratio does not depend on the machine.
"""

import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import least_s
from benchmarks.papers.workloads import FOX_FIELDS
from hetsched_core.traces.sacct import SacctOptions, parse_fields, parse_zone, read_sacct

ID = re.compile(r"\d+")
TIME = re.compile(r"2025-\d\d-\d\dT\d\d:\d\d:\d\d")
MOST_TIMES_A_SPLIT = 10.0


def fox_like(lines: list[str], copies: int) -> Iterator[bytes]:
    """Yield the lines of a log again and again, each time with other ids and later times."""
    for copy in range(copies):
        yield "".join(
            _moved(line, 1_000 * copy, timedelta(seconds=7_001 * copy)) for line in lines
        ).encode()


def _moved(line: str, ids: int, by: timedelta) -> str:
    number = ID.findall(line)[0]
    line = line.replace(number, str(int(number) + ids), 2)
    return TIME.sub(lambda found: (datetime.fromisoformat(found[0]) + by).isoformat(), line)


@pytest.fixture(scope="module")
def fox_lines(data_dir: Path) -> list[str]:
    return (data_dir / "sacct/fox_sacct_P_noheader.txt").read_text().splitlines(keepends=True)


@pytest.fixture(scope="module")
def options() -> SacctOptions:
    return SacctOptions(fields=parse_fields(FOX_FIELDS), zone=parse_zone("Europe/Oslo"))


def test_reading_costs_a_few_times_what_splitting_the_lines_costs(
    benchmark: BenchmarkFixture, fox_lines: list[str], options: SacctOptions
) -> None:
    log = b"".join(fox_like(fox_lines, 350))
    lines = log.splitlines()

    def split() -> float:
        began = time.perf_counter()
        for line in lines:
            line.split(b"|")
        return time.perf_counter() - began

    def read() -> int:
        return sum(1 for _ in read_sacct(BytesIO(log), options))

    split_s = min(split() for _ in range(5))
    used = benchmark.pedantic(read, rounds=5, warmup_rounds=1)
    assert used == 350 * 65
    best_s = least_s(benchmark)
    benchmark.extra_info["lines_per_s"] = round(len(lines) / best_s)
    benchmark.extra_info["times_a_split"] = round(best_s / split_s, 2)
    assert best_s / split_s < MOST_TIMES_A_SPLIT
