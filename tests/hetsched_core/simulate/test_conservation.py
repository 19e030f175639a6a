"""What must hold in every simulation, on random scenarios in which everything goes wrong."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from hetsched_core.contract import Trial, random_scenario, run_trial
from hetsched_core.policy import Policy, make_policy
from hetsched_core.records.runlog import RunLog, RunRecord
from hetsched_core.types import EndState, ExecutionModel, Purpose

POLICIES = [make_policy(name) for name in ("sjf", "las", "hadare", "hlas")]
"""Of each execution model one."""

TRIALS = [
    pytest.param((policy, seed), id=f"{policy.info.name}-{seed}")
    for policy in POLICIES
    for seed in range(6)
]


@pytest.fixture(scope="module", params=TRIALS)
def trial(request: pytest.FixtureRequest) -> Trial:
    return run(*request.param)


@pytest.fixture(scope="module", params=TRIALS[:12])
def gang_trial(request: pytest.FixtureRequest) -> Trial:
    return run(*request.param)


@cache
def run(policy: Policy, seed: int) -> Trial:
    return run_trial(policy, random_scenario(seed, policy.info.model))


def log_of(trial: Trial) -> RunLog:
    assert trial.error is None
    assert trial.log is not None
    return trial.log


def runs_of(log: RunLog, job: str, purpose: Purpose = Purpose.RUN) -> list[RunRecord]:
    return [run for run in log.runs if run.job == job and run.purpose is purpose]


def test_a_job_that_ends_by_itself_has_done_all_its_samples_and_no_more(trial: Trial) -> None:
    log = log_of(trial)
    samples = {s.job.id: s.samples for s in trial.scenario.submissions}
    assert sorted(record.job.id for record in log.jobs) == list(samples)
    ended = 0
    for record in log.jobs:
        kept = sum(run.samples for run in runs_of(log, record.job.id))
        assert kept == pytest.approx(record.samples, rel=1e-6, abs=1e-3)
        assert record.samples <= samples[record.job.id] * (1 + 1e-9)
        if record.end_state in (EndState.COMPLETED, EndState.FAILED):
            assert record.samples == samples[record.job.id]
            ended += 1
    assert ended


def test_wait_and_time_with_gpus_add_up_to_the_time_from_eligibility_to_the_end(
    trial: Trial,
) -> None:
    log = log_of(trial)
    for record in log.jobs:
        end_s = log.closed_s if record.end_s is None else record.end_s
        stay_s = max(0.0, end_s - record.job.eligible_from_s)
        with_gpus_s = _union_s(runs_of(log, record.job.id))
        assert record.wait_s + with_gpus_s == pytest.approx(stay_s, abs=1e-4)
        if trial.scenario.model is ExecutionModel.GANG:
            # A gang holds one configuration at a time.
            held_s = sum(run.freed_s - run.since_s for run in runs_of(log, record.job.id))
            assert held_s == pytest.approx(with_gpus_s, abs=1e-4)


def _union_s(runs: list[RunRecord]) -> float:
    """For how long any of these runs held GPUs."""
    covered, until_s = 0.0, 0.0
    for run in sorted(runs, key=lambda run: run.since_s):
        covered += max(0.0, run.freed_s - max(run.since_s, until_s))
        until_s = max(until_s, run.freed_s)
    return covered


def test_productive_time_is_part_of_the_time_held_and_makes_the_samples(trial: Trial) -> None:
    log, truth = log_of(trial), trial.scenario.truth
    profiles = {record.job.id: record.job.profile for record in log.jobs}
    for run in log.runs:
        held_s = run.freed_s - run.since_s
        assert 0.0 <= run.productive_s <= held_s + 1e-6
        if trial.scenario.model is not ExecutionModel.TASKS:
            speed = truth.speed(profiles[run.job], run.configuration)
            assert run.samples == pytest.approx(speed * run.productive_s, rel=1e-6, abs=1e-3)


def test_what_a_gang_loses_is_restart_cost_grace_and_undone_work_and_nothing_else(
    gang_trial: Trial,
) -> None:
    """A run that ended as planned, or by itself, loses no work."""
    log, settings = log_of(gang_trial), gang_trial.scenario.settings
    for record in log.jobs:
        runs = sorted(runs_of(log, record.job.id), key=lambda run: run.number)
        for number, run in enumerate(runs):
            lost_s = run.freed_s - run.since_s - run.productive_s
            starting_s = settings.restart_cost_s if number else 0.0
            if run.ended_by.value in ("completed", "failed"):
                assert lost_s == pytest.approx(starting_s, abs=1e-5)
            elif run.ended_by.value in ("preempted", "moved"):
                stopped_s = run.freed_s - settings.grace_s
                starting_s = min(starting_s, stopped_s - run.since_s)
                assert lost_s == pytest.approx(starting_s + settings.grace_s, abs=1e-5)
            elif run.ended_by.value in ("crashed", "node lost"):
                assert lost_s <= starting_s + settings.grace_s + settings.checkpoint_s + 1e-5


def test_what_a_snapshot_says_of_a_job_is_what_the_log_says_in_the_end(trial: Trial) -> None:
    log = log_of(trial)
    for decision in trial.decisions[::5]:
        now = decision.snapshot.now
        for view in decision.snapshot.by_submission():
            runs = [run for run in log.runs if run.job == view.id and run.since_s < now]
            gpu_s = sum(r.configuration.gpus * (min(r.freed_s, now) - r.since_s) for r in runs)
            assert view.service_at(now) == pytest.approx(gpu_s, abs=1e-3)
            stay_s = now - view.job.eligible_from_s
            past = [replace(run, freed_s=min(run.freed_s, now)) for run in runs]
            assert view.wait_at(now) == pytest.approx(stay_s - _union_s(past), abs=1e-4)
            held = {name for run in view.runs for name, _ in run.configuration}
            ongoing = [r for r in runs if r.freed_s > now]
            assert {name for r in ongoing for name, _ in r.configuration} <= held


def test_restarts_are_the_starts_after_the_first(trial: Trial) -> None:
    log = log_of(trial)
    for record in log.jobs:
        starts = sorted({run.since_s for run in runs_of(log, record.job.id)})
        assert record.first_start_s == (starts[0] if starts else None)
        if trial.scenario.model is not ExecutionModel.TASKS:
            assert record.restarts == max(0, len(starts) - 1)
