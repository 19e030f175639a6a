"""How close the replays come to the log, in sentences, and what is known of why not closer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hetsched_core.logged import Closeness
from hetsched_core.report.gains import LEAST_S
from hetsched_core.report.logged_history import LoggedHistory
from hetsched_core.report.units import duration, durations

SITE_POLICY = "slurm"
"""The policy that stands for a site's own scheduler."""

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
