"""What a job has had, and what has been told of it, does not begin anew with each daemon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from hetsched_core.store import IN_MEMORY, Mode, Store
from slurm_plugin.backend import JobState, SlurmJob
from tests.slurm_plugin.daemon.fake_slurm import RIGID, WAITING, Site, node, running
from tests.slurm_plugin.daemon.test_journal import (
    CAME,
    RUNS,
    Bench,
    bench,
    bench_on,
    events,
    job,
)
from tests.slurm_plugin.daemon.test_journal import running as runs_on

__all__ = ["bench"]

RUN = running(RIGID, "n0", since_s=990.0, gpus=2)
QUEUED: dict[str, Any] = {"submit_s": 1040.0, "restarts": 1}


@contextmanager
def next_daemon(before: Bench, seconds: float = 0.0) -> Iterator[Bench]:
    """Another daemon, after so many seconds; of the one before nothing more is heard."""
    before.telemetry.close()
    before.clock.now += seconds
    after = bench_on(before.store, before.clock)
    yield after
    after.telemetry.close()


# -- attained service ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "had"),
    [
        (RUN, 2 * 70),
        # It was stopped 50 s after its begin, and waits or has begun again.
        (replace(RIGID, **QUEUED), 2 * 50),
        (replace(RUN, start_s=1055.0, **QUEUED), 2 * 50 + 2 * 5),
        (replace(RUN, state=JobState.COMPLETING, end_s=1045.0), 2 * 55),
        # The end of its time limit is yet to come.
        (replace(RUN, state=JobState.COMPLETING, end_s=4000.0), 2 * 70),
        # Since when is not known.
        (replace(RUN, state=JobState.SUSPENDED), 2 * 70),
        # The controller has come back as it was before.
        (replace(RIGID, submit_s=800.0), 2 * 10),
    ],
    ids=["runs", "waits", "runs again", "ends", "ends by now", "suspended", "as it was saved"],
)
def test_the_next_daemon_goes_on_with_what_a_job_has_had(then: SlurmJob, had: float) -> None:
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        Site(RUN, nodes=(node("n0", used=2),), store=store).cycle()
        for now, more in ((1060.0, 0.0), (1060.0, 0.0), (1070.0, 20.0)):
            site = Site(then, nodes=(node("n0", used=2),), store=store, now=now)
            site.cycle()
            goes_on = then.state is JobState.RUNNING
            view = site.world.jobs["5"]
            assert view.service_at(now) == pytest.approx(had + (more if goes_on else 0.0))
            assert view.first_start_s == 990.0


def test_all_runs_of_a_job_count_whatever_daemon_saw_them() -> None:
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        for at in range(3):
            since_s = 1000.0 + 100.0 * at
            again: dict[str, Any] = {"restarts": at, "submit_s": since_s - 20.0}
            run = replace(running(WAITING, "n0", since_s=since_s), **again)
            site = Site(run, nodes=(node("n0", used=1),), store=store, now=since_s, policy="las")
            site.cycle(60)
            assert site.world.jobs["1"].service_at(site.clock.now) == 60.0 + at * 80.0


def test_a_job_that_runs_when_it_is_seen_first_has_not_waited_meanwhile() -> None:
    site = Site(RUN, nodes=(node("n0", used=2),))
    site.cycle()
    assert site.world.jobs["5"].wait_at(1000.0) == pytest.approx(90.0)


# -- history ---------------------------------------------------------------------------------------


def test_gpu_hours_of_all_runs_are_told_at_the_end_and_each_run_once(bench: Bench) -> None:
    first, second = runs_on(job(1), 1002.0), runs_on(job(1), 1150.0)
    second = replace(second, restarts=1, submit_s=1110.0)
    bench.cycle(job(1))
    bench.cycle(first)
    with next_daemon(bench, 50) as after:
        after.cycle(first)
        after.cycle(first)
        assert events(after, "1").count(RUNS) == 1
        with next_daemon(after, 150) as last:
            # It was queued again after 108 s, and began again where it was.
            last.cycle(second)
            assert events(last, "1").count(RUNS) == 2
            last.cycle(replace(second, state=JobState.ENDED, end_s=1250.0), seconds=60)
            hours = 4 * (108 + 100) / 3600
            assert events(last, "1")[-1] == ("left", f"after {hours:.3g} GPU hours")


def test_what_was_said_of_a_job_is_not_said_again_by_the_next_daemon(bench: Bench) -> None:
    first = runs_on(job(1), 1000.0)
    bench.cycle(job(1))
    bench.cycle(first, job(2))
    before = events(bench, "1"), events(bench, "2")
    with next_daemon(bench, 5) as after:
        after.cycle(first, job(2))
        assert (events(after, "1"), events(after, "2")) == before
        after.cycle(replace(job(1), restarts=1), job(2))
        assert ("stopped", "n0:4") in events(after, "1")


@pytest.mark.parametrize("began", ["before", "meanwhile", "twice", "never"])
def test_of_a_job_that_ended_while_no_daemon_looked_slurm_s_own_end_is_told(
    bench: Bench, began: str
) -> None:
    run = runs_on(job(1), 1002.0 if began in ("before", "twice") else 1020.0)
    seconds = 30.0 if began == "meanwhile" else 48.0
    bench.cycle(job(1))
    if began in ("before", "twice"):
        bench.cycle(run)
    if began == "twice":
        # Its first run was over after 18 s.
        run = replace(run, restarts=1, submit_s=1020.0, start_s=1040.0)
        seconds = 18.0 + 10.0
    ended = replace(run, state=JobState.ENDED, end_s=1050.0)
    if began == "never":
        ended = replace(job(1), state=JobState.ENDED, end_s=1050.0)
    with next_daemon(bench, 100) as after:
        after.cycle(ended)
        after.cycle(ended)
        *_, left = after.store.events("1")
        had = (
            "without having run"
            if began == "never"
            else f"after {4 * seconds / 3600:.3g} GPU hours"
        )
        assert (left.event, left.detail, left.at_s) == ("left", had, 1050.0)
        (stored,) = after.store.jobs("1")
        first = {"before": 1002.0, "twice": 1002.0, "meanwhile": 1020.0}.get(began)
        assert (stored.ended_s, stored.first_start_s) == (1050.0, first)


def test_of_a_job_that_slurm_has_forgotten_meanwhile_it_is_told_that_it_left(
    bench: Bench,
) -> None:
    bench.cycle(job(1))
    with next_daemon(bench, 1000) as after:
        after.cycle()
        after.cycle()
        assert events(after, "1") == [
            CAME,
            *events(bench, "1")[1:-1],
            ("left", "while no daemon ran"),
        ]
