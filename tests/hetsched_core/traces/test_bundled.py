"""The bundled log: readable, possible on its cluster, and what its description says."""

from collections.abc import Iterator

import pytest

from hetsched_core.traces.bundled import log_path
from hetsched_core.traces.sacct import Doubt, LoggedAllocation, ReadReport, read_sacct, warnings_of
from tests.hetsched_core.traces.worlds import UTC


@pytest.fixture(scope="module")
def read() -> tuple[list[LoggedAllocation], ReadReport]:
    log = read_sacct(log_path(), UTC.sacct)
    return list(log), log.report


def rows() -> Iterator[dict[str, str]]:
    """The rows of jobs, not of steps."""
    header, *lines = log_path().read_text(encoding="utf-8").splitlines()
    for line in lines:
        row = dict(zip(header.split("|"), line.split("|"), strict=True))
        if "." not in row["JobID"]:
            yield row


def test_every_line_is_read_without_an_option(
    read: tuple[list[LoggedAllocation], ReadReport],
) -> None:
    _, report = read
    assert report.complete
    assert (report.unusable, warnings_of([report])) == (0, ())
    assert report.doubts.keys() == {Doubt.STILL_RUNNING, Doubt.REQUEUE}


def test_its_description_says_what_is_in_it(
    read: tuple[list[LoggedAllocation], ReadReport],
) -> None:
    allocations = read[0]
    text = (log_path().parent / "README.md").read_text(encoding="utf-8")
    assert f"{len({row['JobID'] for row in rows()}):,} jobs" in text
    assert f"| runs on GPUs | {len(allocations)} |" in text
    minutes = sorted((run.elapsed_s or 0.0) / 60 for run in allocations)
    at = (f"{minutes[int(len(minutes) * q)]:,.0f}" for q in (0.1, 0.5, 0.9, 0.99))
    assert f"| {' / '.join(at)} minutes |" in text
    held_s = sum(run.gpu_count * (run.elapsed_s or 0.0) for run in allocations)
    assert f"| {held_s / (64 * 4 * 86_400):.2f} |" in text
