"""The first thing to read: whether a log can tell policies apart, which is best, by how much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from hetsched_core.measures.logged import Closeness, LoggedMeasures
from hetsched_core.measures.metrics import Measures
from hetsched_core.policy import PolicyInfo
from hetsched_core.report.estimates import estimate, relative_change
from hetsched_core.report.result import SITE_POLICY, Result
from hetsched_core.report.units import durations, exact
from hetsched_core.types import Knowledge

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

_WAIT_LONG = "The jobs that wait long in the replay under {}"

_SHORTER = 0.1
"""By how much run times may differ from the logged ones."""


class Trust(StrEnum):
    """Whether a log can be trusted for a comparison of policies."""

    YES = "can be trusted"
    PARTLY = "can be trusted in part"
    NO = "cannot be trusted"


_SELDOM_KNOWN = {
    Knowledge.TOTAL_SAMPLES: "how much work each job is",
    Knowledge.FUTURE_ARRIVALS: "which jobs are still to come",
}


def seldom_known(info: PolicyInfo, settings: Mapping[str, object]) -> str:
    """Return what a policy is told that a real scheduler seldom knows; "" for nothing.

    `settings` are those of the replay.
    """
    hidden = {Knowledge.TOTAL_SAMPLES} if settings.get("hide_sizes") else set()
    told = info.knows - hidden
    return " and ".join(words for known, words in _SELDOM_KNOWN.items() if known in told)


def verdict(result: Result, infos: Mapping[str, PolicyInfo]) -> tuple[str, ...]:
    """Return in sentences whether to believe the comparison, and then what it says.

    The first is of the seed of the settings alone, the second of the means over all seeds.

    Args:
        result: what was measured.
        infos: what each policy says of itself, by its name in the result.
    """
    told = list(_best(result, infos))
    found = trust(result)
    if found is not None:
        level, reasons = found
        told.insert(0, " ".join((f"This log {level} for a comparison.", *reasons)))
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
        yield f"{_WAIT_LONG.format(name)} are not those that waited long in the log."


def _doubts(close: Closeness, logged: LoggedMeasures, here: Measures, name: str) -> Iterator[str]:
    if _times(close) > _GOOD_FACTOR:
        yield _waits(close, name)
    if (close.wait_rank_correlation or 0.0) < _GOOD_RANK:
        yield (
            f"{_WAIT_LONG.format(name)} are only in part those that waited long in the log (rank "
            f"correlation of the waits {close.wait_rank_correlation or 0.0:.2f})."
        )
    there_s, here_s = _run_s(logged), _run_s(here)
    if there_s is not None and here_s is not None and abs(here_s / there_s - 1.0) > _SHORTER:
        ran, runs = durations(there_s, here_s)
        yield f"Its jobs ran for {ran} on average; in the replay under {name} it is {runs}."


def _nearer(result: Result) -> Iterator[str]:
    """Name the policy under which jobs wait in an order that is much nearer to the log's."""
    ranks = {
        policy: close.wait_rank_correlation or 0.0 for policy, close in result.closeness.items()
    }
    name = _site_policy(result)
    nearest = max(ranks, key=ranks.__getitem__)
    if ranks[nearest] > ranks[name] + _NEARER:
        yield (
            f"Under {nearest} the waits are nearer to the log's (rank correlation "
            f"{ranks[nearest]:.2f}): the site may not schedule as {name} does here."
        )


def _waits(close: Closeness, name: str) -> str:
    there, here = durations(close.avg_logged_wait_s, close.avg_wait_s)
    return f"Its jobs waited for {there} on average; in the replay under {name} it is {here}."


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
        f"Under {name} a job takes {one} or {another} on average, depending on which nodes the "
        "cluster names first: a job that asks for no GPU type gets the first that is free."
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


def _best(result: Result, infos: Mapping[str, PolicyInfo]) -> Iterator[str]:
    """Say which policy has the shortest completion times, by how much, by what, and how."""
    name = _site_policy(result)
    means = {policy: _means(result, policy) for policy in result.policies}
    first = means.get(name)
    others = {policy: mean for policy, mean in means.items() if mean and policy != name}
    if not first or not others:
        return
    best = min(others, key=lambda policy: others[policy][0])
    took_s, waits_s = others[best]
    orders = sorted({first[0], first[0] * _other_order(result)})
    shares = [1.0 - took_s / jct_s for jct_s in orders]
    if shares[-1] < _NOTHING:
        yield f"No policy has shorter completion times than {name} here, on average."
        return
    least, *rest = sorted({round(100 * share) for share in shares})
    took, *before = durations(took_s, *orders)
    if shares[0] < _NOTHING:
        yield (
            "Which policy has the shortest completion times depends on the order of the cluster's "
            f"nodes: {best} has {took} on average, {name} {' or '.join(before)}."
        )
        return
    below = f"{least} to {rest[-1]} %" if rest else f"{least} %"
    against = " or ".join(before if rest else before[:1])
    text = (
        f"{best} has the shortest completion times: {took} on average, {below} below {against} "
        f"under {name}."
    )
    if not rest:
        waits, waited = durations(waits_s, first[1])
        runs, ran = durations(max(1.0, took_s - waits_s), max(1.0, first[0] - first[1]))
        text += f" Of that jobs wait {waits} instead of {waited}, and run {runs} instead of {ran}."
    yield " ".join((text, *_at_what_cost(result, best, infos), *_as_good(result, best, others)))


def _at_what_cost(result: Result, best: str, infos: Mapping[str, PolicyInfo]) -> Iterator[str]:
    """Say what the best policy needs that a site may not have: sizes, and jobs that restart."""
    if best in infos and (words := seldom_known(infos[best], result.input.settings)):
        yield f"It was told {words}, which a real scheduler seldom knows."
    restarts = estimate([seed[best].restarts for seed in result.by_seed])
    if restarts is not None and restarts.mean >= 1.0:
        cost_s = result.input.settings.get("restart_cost_s")
        each = "" if cost_s is None else f", and each restart takes {exact(float(str(cost_s)))}"
        yield f"It stops running jobs {restarts.mean:,.0f} times in all{each}."


def _as_good(result: Result, best: str, others: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """Name the policies that may be as good, for all that several seeds tell."""
    name = _site_policy(result)
    those = [policy for policy in (name, *others) if policy != best]
    those = [policy for policy in those if _in_doubt(result, best, policy)]
    if those:
        yield f"Within what the seeds alone make, {' and '.join(those)} may be as good."


def _in_doubt(result: Result, one: str, other: str) -> bool:
    columns = ([seed[policy].avg_jct_s for seed in result.by_seed] for policy in (one, other))
    by = relative_change(*columns)
    return by is not None and by.in_doubt


def _means(result: Result, policy: str) -> tuple[float, float] | None:
    """Return the mean completion time and the mean wait, over all seeds; None where none ended."""
    measured: Sequence[Measures] = [seed[policy] for seed in result.by_seed]
    takes = estimate([each.avg_jct_s for each in measured])
    waits = estimate([each.avg_wait_s for each in measured])
    return (takes.mean, waits.mean) if takes and waits and takes.mean else None


def _other_order(result: Result) -> float:
    """Return how many times as long jobs take where the cluster names its nodes the other way."""
    here, other = result.policies[_site_policy(result)].avg_jct_s, result.reordered
    return other.avg_jct_s / here if here and other and other.avg_jct_s else 1.0
