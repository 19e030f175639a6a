"""A daemon that could not look for a while counts what happened, not how long it looked away."""

from dataclasses import replace

import pytest

from slurm_plugin.backend import JobState
from tests.slurm_plugin.daemon.test_journal import Bench, bench, events, job, running

__all__ = ["bench"]


def test_gpu_hours_end_when_slurm_says_that_the_job_ended(bench: Bench) -> None:
    bench.cycle(job(1))
    run = running(job(1), bench.clock.now)
    bench.cycle(run)
    ended = replace(run, state=JobState.ENDED, nodes=(), end_s=bench.clock.now + 8.0)
    bench.cycle(ended, seconds=90)
    assert events(bench, "1")[-1] == ("left", f"after {4 * 8 / 3600:.3g} GPU hours")


@pytest.mark.parametrize("told", ["the end", "nothing", "its time limit"])
@pytest.mark.parametrize("then", ["queued again", "over", "given up"])
def test_what_a_job_holds_while_it_completes_is_not_counted(
    bench: Bench, then: str, told: str
) -> None:
    bench.cycle(job(1))
    run = running(job(1), bench.clock.now)
    bench.cycle(run)
    ends = replace(run, state=JobState.COMPLETING, over=then == "given up")
    seconds = 8.0 if told == "the end" else 20.0
    in_s = {"the end": 8.0, "its time limit": 600.0}.get(told)
    end_s = None if in_s is None else bench.clock.now + in_s
    for each in (20.0, 20.0, 20.0):
        bench.cycle(replace(ends, end_s=end_s), seconds=each)
    if then == "queued again":
        bench.cycle(replace(job(1), restarts=1))
    ended = replace(run, state=JobState.ENDED, nodes=(), end_s=end_s)
    bench.cycle(*([ended] if then == "over" else []))
    assert events(bench, "1")[-1] == ("left", f"after {4 * seconds / 3600:.3g} GPU hours")


def test_a_job_that_ran_between_two_looks_is_told_to_have_run(bench: Bench) -> None:
    bench.cycle(job(1))
    start_s = bench.clock.now + 1.0
    run = replace(running(job(1), start_s), state=JobState.ENDED, end_s=start_s + 8.0)
    bench.cycle(run, seconds=60)
    assert events(bench, "1")[-1] == ("left", f"after {4 * 8 / 3600:.3g} GPU hours")
    (stored,) = bench.store.jobs("1")
    assert stored.first_start_s == start_s


@pytest.mark.parametrize("told", [True, False], ids=["the end is told", "it is not"])
def test_a_job_that_ended_by_itself_is_told_to_end_when_it_did_and_not_to_be_stopped(
    bench: Bench, told: bool
) -> None:
    run = running(job(1), bench.clock.now)
    bench.cycle(run)
    end_s = bench.clock.now + 0.5
    ends = replace(run, state=JobState.COMPLETING, over=True, end_s=end_s if told else None)
    for _ in range(3):
        bench.cycle(ends)
    bench.cycle(replace(ends, state=JobState.ENDED))
    *_, runs, ended, left = bench.store.events("1")
    assert [runs.event, ended.event, left.event] == ["runs", "ends", "left"]
    assert ended.at_s == left.at_s == (end_s if told else end_s + 0.5)


def test_a_job_that_is_queued_again_is_told_to_stop(bench: Bench) -> None:
    run = running(job(1), bench.clock.now)
    bench.cycle(run)
    bench.cycle(replace(run, state=JobState.COMPLETING))
    assert events(bench, "1")[-1] == ("stops", "n0:4")
