"""Contracts on the site's word: shares, limits and tiers hold under every policy that runs live.

Each is looked at in a scenario of its own, in which there is always work for all GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from hetsched_core.contract.scenario import ORIGIN_S, Scenario, calm
from hetsched_core.contract.trial import Trial, run_trial
from hetsched_core.records.runlog import RunEnd, RunRecord
from hetsched_core.simulate import SimulationSettings
from hetsched_core.types import (
    ExecutionModel,
    Job,
    Node,
    RequirementSet,
    Submission,
)
from hetsched_core.types.site import Limit, ShareTree, SiteSettings

SHARES = {"three": 3, "one": 1}
"""Account -> shares."""

_TOLERANCE = 0.1
_HALF_LIFE_S, _END_S = 3600.0, 2.5 * 3600.0
_ROUND_S, _RESTART_S, _GRACE_S = 300.0, 10.0, 10.0

_AT_MOST = {"GPUs of three": Limit(gpus=5), "jobs of one": Limit(jobs=2)}


def shares_hold(trial: Trial) -> Iterator[str]:
    """Two accounts that always have work get GPU time by their shares, within a tenth.

    Within a fifth where a copy has all GPUs of one of the four nodes.
    """
    if not _judged(trial) or trial.scenario.seed:
        return
    log = run_trial(trial.policy, _crowd(trial.scenario.model)).log
    if log is None:
        yield "the run did not come to its end"
        return
    account = {job.job.id: job.job.account for job in log.jobs}
    had = dict.fromkeys(SHARES, 0.0)
    for run in log.runs:
        # Until then each account has jobs that wait.
        seconds = min(run.freed_s, ORIGIN_S + _END_S) - run.since_s
        had[account[run.job]] += max(0.0, seconds) * run.configuration.gpus
    found = had["three"] / had["one"] if had["one"] else float("inf")
    copies = trial.scenario.model is ExecutionModel.COPIES
    if abs(found / 3.0 - 1.0) > (2 * _TOLERANCE if copies else _TOLERANCE):
        yield f"shares of 3 to 1 came to {found:.2f} to 1"


def limits_hold(trial: Trial) -> Iterator[str]:
    """No more GPUs are held, and no more jobs run, under a limit than it allows."""
    if not _judged(trial) or trial.scenario.seed:
        return
    crowd = _crowd(trial.scenario.model)
    under = {"three": ("GPUs of three",), "one": ("jobs of one",)}
    limited = replace(
        crowd,
        submissions=tuple(
            replace(each, job=replace(each.job, limits=under[each.job.account]))
            for each in crowd.submissions
        ),
        settings=replace(crowd.settings, site=SiteSettings(limits=_AT_MOST)),
    )
    log = run_trial(trial.policy, limited).log
    if log is None:
        yield "the run did not come to its end"
        return
    account = {job.job.id: job.job.account for job in log.jobs}
    for name, most, of_jobs in (("three", 5, False), ("one", 2, True)):
        changes = [
            (at_s, sign * run.configuration.gpus, run.job)
            for run in log.runs
            if account[run.job] == name
            for at_s, sign in ((run.since_s, 1), (_vacated_s(run), -1))
        ]
        holds: Counter[str] = Counter()
        for at_s, more, job_id in sorted(changes):
            holds[job_id] += more
            held = sum(gpus > 0 for gpus in holds.values()) if of_jobs else holds.total()
            if held > most:
                yield f"{held} under {under[name][0]}, which allows {most}, at {at_s:.0f} s"
                return


def tiers_stop(trial: Trial) -> Iterator[str]:
    """What is of a higher tier has the GPUs of lower ones that can be stopped, at once.

    A policy of copies gives them at its next round. Under the others the lower ones are such that
    are stopped for nothing else.
    """
    if not _judged(trial) or trial.scenario.seed:
        return
    crowd = _crowd(trial.scenario.model)
    burst_s = ORIGIN_S + 1000.0
    burst = tuple(
        replace(each, job=replace(each.job, id=f"burst{at}", submit_s=burst_s, tier=1))
        for at, each in enumerate(crowd.submissions[:3])
    )
    copies = trial.scenario.model is ExecutionModel.COPIES
    lower = tuple(
        replace(each, job=replace(each.job, preemptible=copies, gives_way=True))
        for each in crowd.submissions
    )
    log = run_trial(trial.policy, replace(crowd, submissions=(*lower, *burst))).log
    if log is None:
        yield "the run did not come to its end"
        return
    within_s = _GRACE_S + (_ROUND_S if copies else 0.0)
    for job in log.jobs:
        if job.job.tier and (job.first_start_s or float("inf")) > burst_s + within_s:
            yield f"{job.job.id} of a higher tier waited for more than {within_s:.0f} s"


def _judged(trial: Trial) -> bool:
    info = trial.policy.info
    return info.live and info.model is not ExecutionModel.TASKS


def _vacated_s(run: RunRecord) -> float:
    """When a run had stopped working: what it holds while it saves its state is on its way out."""
    stopped = run.ended_by in (RunEnd.PREEMPTED, RunEnd.MOVED)
    return run.freed_s - _GRACE_S if stopped else run.freed_s


def _crowd(model: ExecutionModel) -> Scenario:
    """Return two accounts with far more jobs than four nodes can run, most of them narrow."""
    rng = Random("crowd")
    types = ("a100", "a100", "v100", "v100")
    submissions = []
    for at in range(300):
        account = ("three", "one", "three")[at % 3]
        seconds = rng.uniform(300.0, 1500.0)
        gpus = rng.choice((1, 1, 2, 4))
        job = Job(
            id=f"{account}{at:03d}",
            submit_s=ORIGIN_S + at / 1000,
            requirements=RequirementSet((gpus,)),
            profile="m",
            total_samples=seconds,
            time_limit_s=2 * seconds,
            account=account,
            user=account,
        )
        submissions.append(Submission(job, seconds, cancel_s=ORIGIN_S + _END_S))
    shares = ShareTree({(name, ""): shares for name, shares in SHARES.items()})
    settings = SimulationSettings(
        round_s=_ROUND_S,
        restart_cost_s=_RESTART_S,
        grace_s=_GRACE_S,
        site=SiteSettings(shares, half_life_s=_HALF_LIFE_S),
    )
    nodes = (Node(f"n{at}", gpu_type, 4) for at, gpu_type in enumerate(types))
    return calm(model, nodes, {"a100": 2.0, "v100": 1.0}, submissions, settings)
