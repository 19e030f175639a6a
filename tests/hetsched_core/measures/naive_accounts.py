"""What is due to users, obviously right: one instant, one job and one account at a time."""

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise

from hetsched_core.records.runlog import JobRecord, RunLog
from hetsched_core.types import EndState
from hetsched_core.types.site import ROOT, Association, ShareTree


def user_of(record: JobRecord) -> Association:
    return (record.job.account, record.job.user or "(no user)")


def held(log: RunLog, record: JobRecord, now: float) -> int:
    return sum(
        run.configuration.gpus
        for run in log.runs
        for at in range(run.times)
        if run.job == record.job.id
        and run.since_s + at * run.every_s <= now < run.freed_s + at * run.every_s
    )


def demand(log: RunLog, record: JobRecord, now: float) -> int:
    end_s = log.closed_s if record.end_s is None else record.end_s
    here = record.job.eligible_from_s <= now < end_s
    able = record.end_state is not EndState.NEVER
    asked = max(record.job.requirements.counts) if here and able else 0
    return max(asked, held(log, record, now))


def shared_out(
    gpus: Fraction, demands: Mapping[Association, int], shares: Mapping[Association, int]
) -> dict[Association, Fraction]:
    """Serve first what has enough at the lowest level; what is left is for the others."""
    due = dict.fromkeys(demands, Fraction(0))
    with_shares = [member for member in demands if shares[member]]
    for some in (with_shares, [member for member in demands if member not in with_shares]):
        weight = {m: Fraction(shares[m] or 1) for m in some}
        for m in sorted(some, key=lambda one: demands[one] / weight[one]):
            whole = sum(weight.values())
            due[m] = min(Fraction(demands[m]), gpus * weight.pop(m) / whole)
            gpus -= due[m]
    return due


def due_now(tree: ShareTree, log: RunLog, now: float) -> dict[Association, Fraction]:
    """The GPUs that are due to each user at one instant."""
    users = {user_of(record) for record in log.jobs}
    tree = tree.with_users(users)
    wanted = {
        user: sum(demand(log, r, now) for r in log.jobs if user_of(r) == user) for user in users
    }
    below = {
        member: sum(n for user, n in wanted.items() if member in tree.path(user))
        for members in tree.children.values()
        for member in members
    }
    due: dict[Association, Fraction] = {}

    def serve(account: str, gpus: Fraction) -> None:
        demands = {m: below[m] for m in tree.children.get(account, ()) if below[m]}
        raw = {m: tree.shares.get(m, 1) for m in demands}
        shares = {m: 1 if one is None else one for m, one in raw.items()}
        for member, some in shared_out(gpus, demands, shares).items():
            if member[1]:
                due[member] = some
            else:
                serve(member[0], some)

    serve(ROOT, Fraction(sum(held(log, r, now) for r in log.jobs)))
    return due


def had_and_due(log: RunLog, tree: ShareTree) -> dict[Association, tuple[float, float]]:
    """GPU seconds of each user: (had, due)."""
    known = {record.job.id for record in log.jobs}
    times = {record.job.eligible_from_s for record in log.jobs}
    times |= {log.closed_s if r.end_s is None else r.end_s for r in log.jobs}
    times |= {
        at + nth * run.every_s
        for run in log.runs
        if run.job in known
        for nth in range(run.times)
        for at in (run.since_s, run.freed_s)
    }
    total = {user_of(record): (0.0, 0.0) for record in log.jobs}
    ordered = sorted(times)
    for since, until in pairwise(ordered):
        now = due_now(tree, log, since)
        for record in log.jobs:
            had, due = total[user_of(record)]
            total[user_of(record)] = (had + held(log, record, since) * (until - since), due)
        for user, gpus in now.items():
            had, due = total[user]
            total[user] = (had, due + float(gpus) * (until - since))
    return total
