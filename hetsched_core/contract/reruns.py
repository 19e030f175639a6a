"""Contracts that need the scenario run once more, with something changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from random import Random

from hetsched_core.contract.logs import every_job_that_fits_ends
from hetsched_core.contract.scenario import (
    ORIGIN_S,
    Scenario,
    random_scenario,
    side_by_side,
)
from hetsched_core.contract.trial import (
    Trial,
    TrialDecision,
    describe_plan,
    first_difference,
    run_trial,
)
from hetsched_core.types import (
    EMPTY_PLAN,
    EndState,
    ExecutionModel,
    Knowledge,
    Snapshot,
    Submission,
)

OTHER_NAMES = "zq~"
"""Put before every name, it leaves their order alone and changes their hashes."""

ENOUGH_DECISIONS = 80
"""How many plans are compared when hidden sizes differ."""

# A run of tasks costs by the task, a run of gangs by the plan.
_LONGER = {ExecutionModel.GANG: 100, ExecutionModel.COPIES: 100, ExecutionModel.TASKS: 5}


def names_make_no_difference(trial: Trial) -> Iterator[str]:
    """Run again under other names, everything happens as before: no set's order decides."""
    scenario = random_scenario(trial.scenario.seed, trial.scenario.model, OTHER_NAMES)
    other = run_trial(trial.policy, scenario)
    for one, two in zip(trial.decisions, other.decisions, strict=False):
        lines = (line.replace(OTHER_NAMES, "") for line in describe_plan(two.plan))
        found = first_difference(describe_plan(one.plan), lines)
        if found or one.snapshot.now != two.snapshot.now:
            yield f"{one}: with every name prefixed, {found or two}"
            return
    if len(trial.decisions) != len(other.decisions):
        yield f"{len(trial.decisions)} plans, with every name prefixed {len(other.decisions)}"


def hidden_truth_makes_no_difference(trial: Trial) -> Iterator[str]:
    """Until a job ends, sizes and limits that the policy may not know make no difference.

    Jobs are made so long that few end, and run twice with different sizes, limits and ends.
    """
    knows = trial.policy.info.knows
    sizes = Knowledge.TOTAL_SAMPLES not in knows
    limits = Knowledge.TIME_LIMIT not in knows
    if not sizes and not limits:
        return
    rng, longer = Random(trial.scenario.seed), _LONGER[trial.scenario.model]
    # What a window closes to a job tells of its limit.
    settings = replace(trial.scenario.settings, windows=())
    scenario = replace(trial.scenario, settings=settings)
    long = _with_submissions(scenario, lambda s: replace(_longer(s, longer), cancel_s=None))
    other = _with_submissions(long, lambda s: _disguised(s, rng, sizes=sizes, limits=limits))

    def run(scenario: Scenario) -> tuple[TrialDecision, ...]:
        asked = count(1)

        def enough(snapshot: Snapshot) -> bool:
            # When a job is done that need not be in the other run, they may differ.
            return next(asked) > ENOUGH_DECISIONS or (sizes and bool(snapshot.gone))

        return run_trial(trial.policy, scenario, enough=enough).decisions

    for one, two in zip(run(long), run(other), strict=False):
        found = first_difference(describe_plan(one.plan), describe_plan(two.plan))
        if found or one.snapshot.now != two.snapshot.now:
            yield f"{one}: with other hidden sizes and limits, {found or two}"
            return


def who_wants_other_nodes_is_not_waited_for(trial: Trial) -> Iterator[str]:
    """A job that alone can use some nodes now starts there, whatever waits for others."""
    if trial.scenario.model is ExecutionModel.TASKS:
        # There jobs take turns on GPUs, some of them in batches.
        return
    scenario = side_by_side(trial.scenario.model)
    log = run_trial(trial.policy, scenario).log
    if log is None:
        yield "the run of two partitions side by side comes to no end"
        return
    starts_s = {record.job.id: record.first_start_s for record in log.jobs}
    for job, at_s, why in (
        ("alone", ORIGIN_S, "has a node to itself"),
        ("short", ORIGIN_S, "ends before the window"),
        ("long", scenario.settings.windows[0].until_s, "waits for a window's end"),
    ):
        start_s = starts_s[job]
        latest_s = at_s + 3 * scenario.settings.round_s
        if start_s is None or not at_s <= start_s <= latest_s:
            yield f"job {job}, which {why}, starts at {start_s}, not from {at_s} to {latest_s}"


def notes_may_be_lost(trial: Trial) -> Iterator[str]:
    """Its memory, or the plan in force, lost now and then, it goes on and jobs still end."""
    rng = Random(trial.scenario.seed)

    def forgetful(snapshot: Snapshot) -> Snapshot:
        match rng.randrange(6):
            case 0:
                return replace(snapshot, previous=replace(snapshot.previous, memory={}))
            case 1:
                return replace(
                    snapshot,
                    previous=EMPTY_PLAN,
                    changed=frozenset(snapshot.jobs),
                    gone=frozenset(),
                    nodes_changed=True,
                )
            case _:
                # As it comes back from where it is kept.
                memory = json.loads(json.dumps(dict(snapshot.previous.memory)))
                return replace(snapshot, previous=replace(snapshot.previous, memory=memory))

    other = run_trial(trial.policy, trial.scenario, shown=forgetful)
    if other.error is not None:
        yield f"with notes lost, {type(other.error).__name__}: {other.error}"
    if other.log is not None:
        for found in every_job_that_fits_ends(other, other.log):
            yield f"with notes lost, {found}"


def _with_submissions(scenario: Scenario, change: Callable[[Submission], Submission]) -> Scenario:
    return replace(scenario, submissions=tuple(change(s) for s in scenario.submissions))


def _longer(submission: Submission, times: int) -> Submission:
    """Return the job with so many times the work, in as many times the training rounds."""
    job = submission.job
    if job.tasks is not None and job.tasks.rounds is not None:
        job = replace(job, tasks=replace(job.tasks, rounds=times * job.tasks.rounds))
    return replace(submission, job=job, samples=times * submission.samples)


def _disguised(submission: Submission, rng: Random, *, sizes: bool, limits: bool) -> Submission:
    times, limit_s = rng.randint(2, 9), rng.uniform(1.0, 1e6)
    ends_as = rng.choice((EndState.COMPLETED, EndState.FAILED))
    if sizes:
        submission = replace(_longer(submission, times), ends_as=ends_as)
    if limits:
        submission = replace(submission, job=replace(submission.job, time_limit_s=limit_s))
    return submission
