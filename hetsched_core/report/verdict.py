"""The first thing to read: whether a log can tell policies apart, which is best, by how much."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from hetsched_core.measures.logged import Closeness, LoggedMeasures
from hetsched_core.measures.metrics import Measures
from hetsched_core.report.result import SITE_POLICY, Result
from hetsched_core.report.units import durations

_QUIET = 0.02
"""Where fewer jobs than this share wait, there is little that a policy could do."""

_RANK, _GOOD_RANK = 0.3, 0.7
"""Below the one, waits in the replay say nothing of those in the log; from the other on, much."""

_FACTOR, _GOOD_FACTOR = 2.0, 1.25
"""By how much the mean waits may differ, and differ at the most where they are alike."""

_NOTHING = 0.01
"""A change by less is none."""

_NEARER = 0.05
"""By how much a rank correlation is greater that is worth a word."""

_SHORTER = 0.1
"""By how much run times may differ from the logged ones."""


class Trust(StrEnum):
    """Whether a log can be trusted for a comparison of policies."""

    YES = "can be trusted"
    PARTLY = "can be trusted in part"
    NO = "cannot be trusted"


def verdict(result: Result) -> tuple[str, ...]:
    """Return in sentences whether to believe the comparison, and then what it says."""
    told = list(_best(result))
    found = trust(result)
    if found is not None:
        level, reasons = found
        told.insert(0, " ".join((f"For a comparison this log {level}.", *reasons)))
    return tuple(told)


def trust(result: Result) -> tuple[Trust, tuple[str, ...]] | None:
    """Return how far the log can be trusted, and why; None where there is no log."""
    name = _site_policy(result)
    if result.logged is None or name not in result.closeness:
        return None
    close, here = result.closeness[name], result.policies[name]
    if close.waited < max(1.0, _QUIET * close.jobs):
        few = f"Only {close.waited:,} of {close.jobs:,} jobs wait for more than 5 minutes"
        return Trust.NO, (f"{few}; where there is no queue, policies hardly differ.",)
    wrong, doubts = tuple(_wrong(close, name)), tuple(_doubts(close, result.logged, here, name))
    if wrong:
        return Trust.NO, (*wrong, *_nearer(result))
    moved = tuple(_moved_by_order(result))
    if doubts or moved:
        doubts = (*doubts, *(_nearer(result) if doubts else ()), *moved)
        if len(result.input.gpus) > 1 and result.input.settings.get("types") == "asked":
            doubts = (*doubts, "`--types logged` holds each job to the GPU type that it ran on.")
        return Trust.PARTLY, doubts
    there, waits = durations(close.avg_logged_wait_s, close.avg_wait_s)
    return Trust.YES, (f"Jobs wait {waits} under {name} and {there} in the log, in a like order.",)


def _site_policy(result: Result) -> str:
    return SITE_POLICY if SITE_POLICY in result.policies else next(iter(result.policies), "")


def _wrong(close: Closeness, name: str) -> Iterator[str]:
    if _times(close) > _FACTOR:
        yield _waits(close, name)
    if (close.wait_rank_correlation or 0.0) < _RANK:
        yield f"Other jobs wait under {name} than in the log."


def _doubts(close: Closeness, logged: LoggedMeasures, here: Measures, name: str) -> Iterator[str]:
    if _times(close) > _GOOD_FACTOR:
        yield _waits(close, name)
    if (close.wait_rank_correlation or 0.0) < _GOOD_RANK:
        yield (
            f"In part other jobs wait under {name} than in the log (rank correlation "
            f"{close.wait_rank_correlation or 0.0:.2f})."
        )
    there_s, here_s = _run_s(logged), _run_s(here)
    if there_s is not None and here_s is not None and abs(here_s / there_s - 1.0) > _SHORTER:
        ran, runs = durations(there_s, here_s)
        yield f"Its jobs ran {ran} on average, and run {runs} under {name}."


def _nearer(result: Result) -> Iterator[str]:
    """Name the policy under which jobs wait in an order that is much nearer to the log's."""
    ranks = {
        policy: close.wait_rank_correlation or 0.0 for policy, close in result.closeness.items()
    }
    name = _site_policy(result)
    nearest = max(ranks, key=ranks.__getitem__)
    if ranks[nearest] > ranks[name] + _NEARER:
        yield (
            f"Jobs waited in an order nearer to that under {nearest} ({ranks[nearest]:.2f}): the "
            f"site's queue was in another order than that of {name} here."
        )


def _waits(close: Closeness, name: str) -> str:
    there, here = durations(close.avg_logged_wait_s, close.avg_wait_s)
    return f"Its jobs waited {there} on average, and wait {here} under {name}."


def _times(close: Closeness) -> float:
    """Return how many times as long jobs wait in the one as in the other."""
    least, most = sorted((close.avg_logged_wait_s, close.avg_wait_s))
    return most / max(least, 1.0)


def _run_s(measures: LoggedMeasures | Measures) -> float | None:
    """Return the mean time in which jobs that ran did not wait."""
    if not measures.avg_jct_s or measures.avg_wait_s is None:
        return None
    return max(1.0, measures.avg_jct_s - measures.avg_wait_s)


def _moved_by_order(result: Result) -> Iterator[str]:
    """Say how much it matters which GPU type the cluster names first, where it does."""
    other, name = result.reordered, _site_policy(result)
    here = result.policies[name].avg_jct_s
    if other is None or not other.avg_jct_s or not here:
        return
    if abs(other.avg_jct_s / here - 1.0) <= _NOTHING:
        return
    one, another = durations(*sorted((here, other.avg_jct_s)))
    yield (
        f"Under {name} a job takes {one} or {another} on average, depending on the order in which "
        "the cluster names its nodes: a job that asks for no GPU type gets the first that is free."
    )
    flips = any(
        (_below(result, policy, here) > _NOTHING)
        is not (_below(result, policy, other.avg_jct_s) > _NOTHING)
        for policy in _others(result)
    )
    if flips:
        yield "Which policies are better depends on that."


def _others(result: Result) -> list[str]:
    return [policy for policy in result.policies if policy != _site_policy(result)]


def _below(result: Result, policy: str, baseline_s: float) -> float:
    """Return by which share the mean completion time is below a baseline."""
    jct_s = result.policies[policy].avg_jct_s
    return 0.0 if jct_s is None else 1.0 - jct_s / baseline_s


def _best(result: Result) -> Iterator[str]:
    """Say which policy has the shortest completion times, by how much, and by what."""
    name = _site_policy(result)
    first = result.policies.get(name)
    if first is None or not first.avg_jct_s or not _others(result):
        return
    best = max(_others(result), key=lambda policy: _below(result, policy, 1.0))
    mean = result.policies[best]
    orders = [first.avg_jct_s]
    if result.reordered is not None and result.reordered.avg_jct_s:
        orders.append(result.reordered.avg_jct_s)
    orders.sort()
    shares = [_below(result, best, jct_s) for jct_s in orders]
    if shares[-1] < _NOTHING or mean.avg_jct_s is None:
        yield f"No policy has shorter completion times than {name} here, on average."
        return
    least, *rest = sorted({round(100 * share) for share in shares})
    took, *before = durations(mean.avg_jct_s, *orders)
    if shares[0] < _NOTHING:
        yield (
            "Which policy has the shortest completion times depends on the order of the cluster's "
            f"nodes: {best} has {took} on average, {name} {' or '.join(before)}."
        )
        return
    below = f"{least} to {rest[-1]} %" if rest else f"{least} %"
    text = f"{best} has the shortest completion times: {took} on average, {below} below "
    text += f"{' or '.join(before if rest else before[:1])} under {name}"
    runs_s, ran_s = _run_s(mean), _run_s(first)
    if rest or runs_s is None or ran_s is None:
        yield f"{text}."
        return
    assert mean.avg_wait_s is not None
    assert first.avg_wait_s is not None
    waits, waited = durations(mean.avg_wait_s, first.avg_wait_s)
    runs, ran = durations(runs_s, ran_s)
    yield f"{text}. Of that jobs wait {waits} instead of {waited}, and run {runs} instead of {ran}."
