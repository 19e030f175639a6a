"""What the page shows: a pure function from what the daemon has published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from hetsched_core.measures.accounts import AccountNow, accounts_now
from hetsched_core.report.live_state import LiveJob, LiveNode, LiveState, Past
from hetsched_core.types import Entry, JobView, Placed, ReasonCode, Reservation, Waiting
from slurm_plugin.api.answers import NEW, CycleView, word_of
from slurm_plugin.daemon.nodes.gpu_use import gpu_uses

MOST_ROWS = 200
"""So many running and so many waiting jobs are listed; all are counted."""


MOST_ACCOUNTS = 50
"""So many accounts are listed, and so many users."""


def live_state(published: CycleView, past: Past) -> LiveState:
    """Return what everybody may see: where jobs are private, their numbers alone.

    Those that are to begin later come after all others that wait.
    """
    snapshot, plan = published.snapshot, published.plan
    jobs = snapshot.by_submission()
    running = [view for view in jobs if view.begun]
    waiting = [view for view in jobs if not view.begun]
    later = tuple(published.later.values())
    # One word for each, so that they add up to those that wait.
    words = (word_of(snapshot, plan, view, published.mode) for view in (*waiting, *later))
    reasons = Counter(word or NEW for word in words)
    private = published.private_jobs
    shown = 0 if private else MOST_ROWS
    waits = (view.wait_at(snapshot.now) for view in waiting)
    promised = {each.job: each for each in plan.reservations}
    return LiveState(
        at_s=published.at_s,
        up_since_s=published.up_since_s,
        policy=published.policy.info.name,
        mode=published.mode,
        away=published.away,
        plan_s=published.plan_s,
        decisions=published.decisions,
        private_jobs=private,
        nodes=tuple(
            LiveNode(
                view.node.name,
                view.node.gpu_type,
                condition,
                *(use.held, use.foreign, use.closed, use.idle),
            )
            for view, condition, use in gpu_uses(snapshot)
        ),
        running_jobs=len(running),
        waiting_jobs=len(waiting) + len(later),
        # Of a single job it would be that job's.
        longest_wait_s=None if private else max(waits, default=0.0),
        reasons=dict(reasons.most_common()),
        running=tuple(_job(published, view, promised) for view in islice(running, shown)),
        waiting=tuple(
            _job(published, view, promised) for view in islice(chain(waiting, later), shown)
        ),
        accounts=() if private else _accounts(accounts_now(snapshot)),
        past=past,
    )


def _accounts(rows: Sequence[AccountNow]) -> tuple[AccountNow, ...]:
    """Return what is worth a table: nothing where all jobs are of one user."""
    accounts = [each for each in rows if not each.user]
    users = [each for each in rows if each.user]
    return (*accounts[:MOST_ACCOUNTS], *users[:MOST_ACCOUNTS]) if len(users) > 1 else ()


def _job(published: CycleView, view: JobView, promised: Mapping[str, Reservation]) -> LiveJob:
    job = view.job
    entry = published.plan.entries.get(view.id)
    pieces = [piece for run in view.runs for piece in run.configuration]
    where = _folded(node for node, _ in pieces)
    begun = [run for run in view.runs if run.begun]
    reason = f"{ReasonCode.PLACED.word} on {where}" if pieces and not begun else ""
    return LiveJob(
        job=view.id,
        user=job.user,
        name=job.name,
        partition=job.partition,
        accepts=str(job.requirements),
        since_s=min((run.since_s for run in begun), default=job.submit_s),
        waited_s=view.wait_at(published.snapshot.now),
        restarts=view.restarts,
        gpus=sum(gpus for _, gpus in pieces) if begun else 0,
        where=where if begun else "",
        reason=reason if pieces else _why(entry) if entry else _kept_back(view),
        planned_s=promised[view.id].start_s if view.id in promised else None,
    )


def _why(entry: Entry | None) -> str:
    """Return why a job holds no GPUs; where the plan gives it some, which."""
    match entry:
        case Waiting(reason):
            return reason.code.word
        case Placed(placements) if placements:
            nodes = (node for each in placements for node, _ in each.configuration)
            return f"to start on {_folded(nodes)}"
    return ""


def _kept_back(view: JobView) -> str:
    """Return why a job is in no plan yet."""
    reason = view.blocked
    return "" if reason is None else f"{reason.code.word}, {reason.detail}"


def _folded(nodes: Iterable[str]) -> str:
    """Return for example `n[1-4]`."""
    return str(NodeSet.fromlist(list(nodes), resolver=RESOLVER_NOGROUP))
