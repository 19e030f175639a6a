"""How benchmarks/replay_and_live.py holds a replay against a live run, on runs that are made up."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.replay_and_live import EARLY_S, SETTINGS, Lived, alike, drawn, replayed

SUBMISSIONS = drawn(1)[:6]


def again(policy: str) -> tuple[Lived, ...]:
    came = (Lived(each.job.id, each.job.submit_s - EARLY_S, 0.0, 0, ()) for each in SUBMISSIONS)
    return replayed(policy, SUBMISSIONS, tuple(came), lambda: 0.0)


def test_a_job_that_comes_before_the_live_round_is_planned_with_it() -> None:
    first, *_ = again("hadar")
    begun_s, _ = first.runs[0]
    assert first.submit_s == -EARLY_S
    assert begun_s == SETTINGS.decision_s


def test_starts_are_alike_at_the_same_time_on_gpus_of_the_same_types_alone() -> None:
    jobs = again("fifo")
    late = tuple(
        replace(job, runs=tuple((at_s + 10.0, held) for at_s, held in job.runs)) for job in jobs
    )
    wider = tuple(
        replace(job, runs=tuple((at_s, f"1 t4+{held}") for at_s, held in job.runs)) for job in jobs
    )
    assert alike(jobs, jobs) == sum(len(job.runs) for job in jobs) > 0
    assert alike(jobs, late) == alike(jobs, wider) == 0
