"""What a comparison shows, in sentences, and what must be known before relying on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched_core.measures.logged import Closeness
from hetsched_core.measures.metrics import Measures
from hetsched_core.report.estimates import Estimate, estimate, relative_change
from hetsched_core.report.gains import LEAST_S, Gains
from hetsched_core.report.history import History, LoggedHistory
from hetsched_core.report.result import SITE_POLICY
from hetsched_core.report.units import UNCHANGED, change, duration, durations
from hetsched_core.traces.jobs import Assumption
from hetsched_core.traces.sacct import EXPORT


@dataclass(frozen=True, slots=True)
class Caution:
    """What must be known before relying on a comparison, and a command that would mend it.

    What is to be typed stands in backquotes in the text.
    """

    text: str
    command: str = ""


Seeds = Sequence[Mapping[str, Measures]]
"""For each seed the measures of each policy."""

QUIET_SHARE = 0.02
"""If fewer jobs than this wait for more than `LEAST_S`, there is little that a policy could do."""

FEW_JOBS = 200

_CROWDED = 0.1
"""Most jobs in the last tenth of the time: the log was cut to what was seen then."""

_WORTH_NAMING = 0.05
_NAMED = 4

_INFERRED = (
    "Nodes and GPUs were inferred from the log, which shows what was used: what never was in use "
    "is missing. Give the cluster as it is with `--cluster`; `hetsched cluster infer` drafts it."
)
_BLIND = "Spreading a job over several nodes costs nothing here (`--placement-blind`)."
_ALWAYS = (
    (
        "The replay begins with an empty cluster and knows no jobs but those of the input: what "
        "ran before, and what else used these nodes, is not in the way."
    ),
    "Users submit when they did, whatever the policy, and no node fails.",
)


def findings(seeds: Seeds, histories: Sequence[History], gains: Sequence[Gains]) -> tuple[str, ...]:
    """Return what the comparison shows, the most important first.

    Args:
        seeds: for each seed the measures of each policy.
        histories: what the policies did under the first seed.
        gains: what changes for which jobs against the first policy.
    """
    first, *others = [history.policy for history in histories]
    told = [*_quiet(histories)]
    if not others:
        told.append(_alone(seeds, first))
    by_policy = {one.policy: one for one in gains}
    # Policies of which the same is to be said share a sentence.
    alike: dict[str, list[str]] = {}
    for policy in others:
        text = _against(seeds, first, policy) + _for_whom(by_policy.get(policy), len(seeds))
        alike.setdefault(text, []).append(policy)
    told += [f"Under {_listed(policies)} {text}" for text, policies in alike.items()]
    return tuple(told)


def _listed(names: Sequence[str]) -> str:
    *head, last = names
    return f"{', '.join(head)} and {last}" if head else last


def _quiet(histories: Sequence[History]) -> Iterator[str]:
    """Say so where hardly a job waits, since then no policy can matter much."""
    first = histories[0]
    jobs = len(first.jobs.ids)
    waits = max(int((history.jobs.wait_s > LEAST_S).sum()) for history in histories)
    if waits >= max(1.0, QUIET_SHARE * jobs):
        return
    most = max(peak(history) for history in histories)
    who = "No job waits" if waits == 0 else f"Only {waits:,} of {jobs:,} jobs wait"
    whatever = ", whatever the policy" if len(histories) > 1 else ""
    yield (
        f"{who} for more than a minute in the replay{whatever}: even at the busiest "
        f"moment no more than {most:,} of {first.cluster.gpus:,} GPUs are held. Where there is no "
        "queue to put in order, schedulers hardly differ, so this input cannot tell which of them "
        "is better. Replay a busier period."
    )


def peak(history: History) -> int:
    """Return the most GPUs held at any moment."""
    held = history.held
    times = np.concatenate([held.until_s, held.since_s])
    # At one moment GPUs are given back before they are taken.
    order = np.argsort(times, kind="stable")
    level = np.concatenate([-held.weight, held.weight])[order].cumsum()
    return int(level.max(initial=0.0))


def _means(seeds: Seeds, policy: str) -> tuple[Estimate | None, Estimate | None]:
    """Mean completion time and mean wait."""
    return (
        estimate([measures[policy].avg_jct_s for measures in seeds]),
        estimate([measures[policy].avg_wait_s for measures in seeds]),
    )


def _alone(seeds: Seeds, policy: str) -> str:
    jct, wait = _means(seeds, policy)
    if jct is None or wait is None:
        return f"No job completes under {policy}."
    return (
        f"Under {policy} a job takes {duration(jct.mean)} on average from submission to end, "
        f"{duration(wait.mean)} of it waiting."
    )


def _against(seeds: Seeds, first: str, policy: str) -> str:
    """Say what becomes of jobs under a policy, against the first; begins after its name."""
    old, old_wait = _means(seeds, first)
    new, new_wait = _means(seeds, policy)
    if new is None or new_wait is None:
        return "no job completes: nothing to compare."
    if old is None or old_wait is None:
        return f"jobs complete, and under {first} none: nothing to compare."
    by = relative_change(
        [measures[first].avg_jct_s for measures in seeds],
        [measures[policy].avg_jct_s for measures in seeds],
    )
    relative = change(by.mean if by else 0.0)
    if relative == UNCHANGED:
        return f"jobs take as long as under {first}, {duration(old.mean)} on average."
    after, before = durations(new.mean, old.mean)
    wait, old_waiting = durations(new_wait.mean, old_wait.mean)
    text = (
        f"a job takes {after} on average from submission to end, against {before} under {first} "
        f"({relative})."
    )
    if max(new_wait.mean, old_wait.mean) >= LEAST_S:
        text += f" It waits for {wait} of that, against {old_waiting}."
    else:
        text += " It hardly waits under either; it runs on faster or slower GPUs."
    here, there = (
        round(float(np.mean([seed[each].restarts for seed in seeds]))) for each in (policy, first)
    )
    if here > there:
        mean = " (mean over the seeds)" if len(seeds) > 1 else ""
        text += (
            f" Running jobs are stopped {here:,} times in all{mean}, to go on elsewhere or later: "
            "they have to save their state."
        )
    if by is not None and by.in_doubt:
        text += " The difference is within what the seeds alone make: take it for none."
    return text


def _for_whom(gains: Gains | None, seeds: int) -> str:
    if gains is None or not (gains.total.sooner or gains.total.later):
        return ""
    total = gains.total
    text = (
        f" Of the {total.jobs:,} jobs that complete {total.sooner:,} end sooner and "
        f"{total.later:,} later"
    )
    text += "." if seeds == 1 else " (first seed)."
    worse = [
        f"{group.label} ({change(group.change)})"
        for grouping in gains.groupings
        for group in grouping.groups
        if group.change > _WORTH_NAMING and group.later > group.sooner
    ]
    if worse:
        more = f" and {len(worse) - _NAMED} other groups" if len(worse) > _NAMED else ""
        text += f" On average longer: {'; '.join(worse[:_NAMED])}{more}."
    return text


def cautions(
    seeds: Seeds, first: History, settings: Mapping[str, object], assumptions: Sequence[str]
) -> tuple[Caution, ...]:
    """Return what limits the comparison, with what would mend it.

    Args:
        seeds: for each seed the measures of each policy.
        first: what the first policy did.
        settings: what was chosen, by option.
        assumptions: what was assumed to get from the input to the jobs.
    """
    texts = (
        _drawn(first, len(seeds)),
        _few(first),
        *_running(assumptions),
        _INFERRED if settings.get("cluster", "") is None else "",
        _BLIND if settings.get("placement_blind") else "",
        *_ALWAYS,
    )
    return (*_crowded(first), *(Caution(text) for text in texts if text))


def _crowded(first: History) -> Iterator[Caution]:
    submit_s = first.jobs.submit_s
    span_s = float(submit_s[-1] - submit_s[0])
    late = int((submit_s > submit_s[-1] - _CROWDED * span_s).sum())
    if span_s and late > len(submit_s) / 2 and first.jobs.inferred.all():
        yield Caution(
            f"{late:,} of {len(submit_s):,} jobs were submitted in the last tenth of the time "
            f"({duration(_CROWDED * span_s)} of {duration(span_s)}). So the log may hold just the "
            "jobs that were there when it was exported: those that ended before are missing, and "
            "with them the load, so that waits come out too short. Export a whole month:",
            EXPORT,
        )


def _few(first: History) -> str:
    jobs = len(first.jobs.ids)
    if jobs >= FEW_JOBS:
        return ""
    return f"{jobs:,} jobs are few: one long job moves a mean, and the 99th percentile is one job."


def _running(assumptions: Sequence[str]) -> Iterator[str]:
    """Say of jobs that ran on past the end of the log that they are cut short."""
    for assumption in assumptions:
        if assumption.endswith(f"{Assumption.RUNNING}."):
            yield f"{assumption} What they did later is missing, and their true run times."


def _drawn(first: History, seeds: int) -> str:
    drawn, jobs = int(first.jobs.drawn.sum()), len(first.jobs.ids)
    if not drawn:
        return ""
    return (
        f"What {drawn:,} of {jobs:,} jobs compute is not in the input: a model of the same class "
        "of GPU hours was drawn for each, and with it how much faster or slower the job would be "
        "on another GPU type. Name the models in a file for `--rules`."
        + ("" if seeds > 1 else " `--seeds 5` shows how far the draw moves the result.")
    )


_BUSY_SHARE = 0.85
"""If the log's jobs hold less than this of the GPUs while others wait, it was no lack of GPUs."""


def against_log(
    closeness: Mapping[str, Closeness], logged: LoggedHistory, gpus: int
) -> tuple[str, ...]:
    """Return what the comparison with the log shows, the most important first.

    Args:
        closeness: how close each policy comes to the log; at least one.
        logged: what the site's own scheduler did.
        gpus: GPUs of the cluster.
    """
    policy = SITE_POLICY if SITE_POLICY in closeness else next(iter(closeness))
    return (*_starts(policy, closeness[policy]), *_idle(closeness[policy], logged, gpus))


def _starts(policy: str, found: Closeness) -> Iterator[str]:
    there, here = durations(found.avg_logged_wait_s, found.avg_wait_s)
    close = round(found.close_share * found.jobs)
    text = (
        f"How close the replay comes to the log: jobs wait {there} on average before they start in "
        f"the log, and {here} under {policy}. Within 5 minutes of their logged start {close:,} of "
        f"{found.jobs:,} jobs start"
    )
    if not found.waited:
        yield f"{text}; none waits for longer than that in either."
        return
    others = "they" if found.waited == found.jobs else f"the {found.waited:,} others"
    hardly = found.jobs - found.waited
    if hardly:
        some = "" if hardly == close else f"{hardly:,} of them "
        text += f", {some}because they hardly wait in either"
    text += (
        f"; of {others} {found.waited_close or 'none'}. Half of all starts are off by at most "
        f"{duration(found.p50_error_s)}, nine of ten by at most {duration(found.p90_error_s)}."
    )
    if found.wait_rank_correlation is not None:
        text += (
            f" The rank correlation of the waits is {found.wait_rank_correlation:.2f}: 1 if jobs "
            "that wait longer in the log wait longer in the replay, 0 if that is left to chance."
        )
    yield text


def _idle(found: Closeness, logged: LoggedHistory, gpus: int) -> Iterator[str]:
    """Say how many GPUs the log's own jobs held while others of them waited."""
    held = logged.held_while_waiting()
    if held is None or found.avg_logged_wait_s < LEAST_S:
        return
    told = f"While jobs waited in the log, its jobs held {held:.1f} of {gpus:,} GPUs on average"
    if held < _BUSY_SHARE * gpus:
        yield (
            f"{told}. The others were idle all the same (too few on one node, of a type those jobs "
            "could not take, or kept for others), down or drained, in partitions closed to those "
            "jobs, or held by jobs that are not in this log. A replay knows little of this, and "
            "starts jobs there."
        )
    else:
        yield f"{told}: it was for want of GPUs, and who went first, that jobs waited."
