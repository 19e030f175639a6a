"""A month in seconds: what `make soak-month` does, with few jobs, so that it goes on working."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from slurm_plugin.testbed import Installation
from tests.slurm_plugin.faults.month import (
    Seen,
    changing_zone,
    copy_and_truncate,
    grown,
    growth,
    page,
    real,
    rotate,
    simulated,
)
from tests.slurm_plugin.faults.month_slurm import Hour

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler here")


@pytest.mark.slow
def test_part_of_a_day_goes_by_on_a_slurm_that_is_made_up(short_folder: Path) -> None:
    outcome, hours = simulated(short_folder, 40, 0.2, copy_and_truncate, nodes=6)
    assert outcome.wrong == ()
    # By night there are fewer.
    assert 10 < hours[-1].submitted <= 40
    assert hours[-1].ended > hours[-1].submitted / 2
    assert (outcome.log.events["up"], outcome.log.events["down"]) == (1, 1)
    # The log went on after each rotation, which loses what is said between its copy and its cut.
    assert 0 <= outcome.log.lost <= outcome.log.rotations > 0
    # Its jobs were placed, measured, moved, listened to.
    assert outcome.log.events["place"] >= hours[-1].ended
    assert outcome.rows["speed"] > 0
    assert outcome.rows["decision"] == len(set(outcome.log.decisions))
    # slurmctld was away, and came back.
    assert outcome.log.events["away"] == outcome.log.events["back"] > 0
    text = page(hours, 0.2, outcome, Counter(jobs=40), outcome)
    assert text.startswith("# A month of operation")
    assert f"| {hours[-1].ended} | {hours[-1].rss_kib / 1024:.0f} |" in text


@pytest.mark.slurm
@pytest.mark.slow
def test_a_few_jobs_go_through_a_month_on_a_real_slurm(
    short_folder: Path, installation: Installation
) -> None:
    turn = rotate if shutil.which("logrotate") else copy_and_truncate
    outcome, happened = real(short_folder, 40, turn, nodes=4, summer_s=(15.0, 25.0))
    assert outcome.wrong == ()
    assert (happened["jobs"], happened["finished"], happened["summer"]) == (40, 40, 2)
    assert (happened["restart"], happened["upkeep"], happened["rotation"]) == (4, 4, 30)
    assert outcome.log.lost <= outcome.log.rotations


def seen(ended: int, mib: float, descriptors: int = 10) -> Seen:
    """What was seen of a daemon."""
    return Seen(
        ended=ended,
        rss_kib=round(mib * 1024),
        descriptors=descriptors,
        threads=5,
        database_kib=0,
        spool_files=0,
        moves_files=0,
        cycles=10.0,
        cpu_s=0.1,
        load=1.0,
    )


def hour(ended: int, cpu_ms: float, load: float = 1.0) -> Hour:
    """An hour of a month, of twelve cycles, with as many jobs as load."""
    return Hour(
        day=ended / 1000,
        submitted=ended,
        ended=ended,
        waiting=ended % 7,
        running=ended % 11,
        cycles=12,
        cycle_ms=2 * cpu_ms,
        cpu_ms=cpu_ms,
        rss_kib=0,
        descriptors=0,
        threads=0,
        database_kib=0,
        log_kib=0,
        load=load,
    )


EVEN = [hour(100 * at, 50.0) for at in range(40)]


def test_what_grows_is_told_and_what_fills_at_first_is_not() -> None:
    fills = [seen(1000 * at, 200 + 50 * min(1.0, at / 10)) for at in range(40)]
    assert growth(fills).mib == pytest.approx(0.0, abs=1e-6)
    assert [*grown(fills, EVEN)] == []
    leaks = [seen(1000 * at, 200 + 2 * at) for at in range(40)]
    assert growth(leaks).mib == pytest.approx(2.0, rel=0.01)
    words = "memory beside the database grows by 2.00 MiB for 1,000 jobs"
    assert [*grown(leaks, EVEN)] == [words]
    opens = [seen(1000 * at, 200, descriptors=10 + at) for at in range(40)]
    assert [*grown(opens, EVEN)] == ["30 descriptors at first, 49 in the end"]


def test_a_cycle_that_takes_longer_with_jobs_that_are_over_is_told_and_one_under_load_is_not() -> (
    None
):
    flat = [seen(1000 * at, 200) for at in range(40)]
    loaded = [hour(1000 * at, 50.0 + 5 * (at % 9), load=at % 9) for at in range(40)]
    assert [*grown(flat, loaded)] == []
    slower = [hour(1000 * at, 50.0 + 4 * at + 5 * (at % 9), load=at % 9) for at in range(40)]
    words = "a cycle takes 4.0 ms more of a CPU for each 1,000 jobs that are over"
    assert [*grown(flat, slower)] == [words]


def test_summer_begins_and_ends_when_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    spring_s, autumn_s = 1795000000.0, 1795000600.0
    monkeypatch.setenv("TZ", changing_zone(spring_s, autumn_s))
    time.tzset()
    try:
        moments = (spring_s - 1, spring_s, autumn_s - 1, autumn_s)
        assert [time.localtime(at_s).tm_isdst for at_s in moments] == [0, 1, 1, 0]
    finally:
        monkeypatch.undo()
        time.tzset()
