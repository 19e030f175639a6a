"""Where accounts and users stand now: what they hold, against what is due to them.

Due is what `hetsched_core.measures.accounts` says, at one instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched_core.kernels.due import integrate_due
from hetsched_core.measures.accounts import accounts_of, numbered
from hetsched_core.site.fair_tree import effective_usage
from hetsched_core.types import Snapshot
from hetsched_core.types.site import Association, ShareTree, association_of

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AccountNow:
    """An account with all that is in it, or a user of one.

    Attributes:
        account: its name, "" where none is known.
        user: "" for the account itself.
        shares: among its siblings; None for what counts as its account.
        used: its part in what it and its siblings have used of late; None where nobody counts it.
        held_gpus: what its jobs hold.
        due_gpus: what is due to it of all that is held, by shares and by what it asks for.
        running: how many of its jobs hold GPUs.
        waiting: how many do not.
    """

    account: str
    user: str
    shares: int | None
    used: float | None
    held_gpus: int
    due_gpus: float
    running: int
    waiting: int


def accounts_now(snapshot: Snapshot) -> tuple[AccountNow, ...]:
    """Return all accounts that have jobs, or hold one that has, then all users; most GPUs first.

    A job that is kept back by something else than want of GPUs asks for none.
    """
    views = snapshot.by_submission()
    users = sorted({association_of(view.job) for view in views})
    site = snapshot.site
    tree = (ShareTree() if site is None or site.tree is None else site.tree).with_users(users)
    used = {} if site is None or site.tree is None else effective_usage(tree, site.used)
    columns = {user: at for at, user in enumerate(users)}
    user_of = np.array([columns[association_of(view.job)] for view in views], np.int64)
    held = np.array([0 if (has := view.holds) is None else has.gpus for view in views], np.int64)
    counts = (view.job.requirements.counts[-1] for view in views)
    asked = np.array([0 if v.blocked else n for v, n in zip(views, counts, strict=True)], np.int64)
    held_gpus = _summed(user_of, held, users)
    due_gpus = _due(tree, users, held_gpus, _summed(user_of, np.maximum(held, asked), users))
    running = _summed(user_of, (held > 0).astype(np.int64), users)
    waiting = _summed(user_of, (held == 0).astype(np.int64), users)

    def row(each: Association, inside: Sequence[int]) -> AccountNow:
        return AccountNow(
            *each,
            shares=tree.shares.get(each, 1),
            used=used.get(each),
            held_gpus=int(held_gpus[inside].sum()),
            due_gpus=float(due_gpus[inside].sum()),
            running=int(running[inside].sum()),
            waiting=int(waiting[inside].sum()),
        )

    inside_of = accounts_of(tree, users) | {user: [at] for at, user in enumerate(users)}
    rows = [row(*each) for each in inside_of.items()]
    return tuple(sorted(rows, key=lambda one: (one.user != "", -one.held_gpus, one.account)))


def _summed(user_of: Ints, values: Ints, users: Sequence[Association]) -> Ints:
    return np.bincount(user_of, values, len(users)).astype(np.int64)


def _due(
    tree: ShareTree, users: Sequence[Association], held: Ints, wanted: Ints
) -> NDArray[np.float64]:
    """Return (U,) the GPUs due to each user: those of a second in which nothing changes."""
    first, parent, shares, leaf = numbered(tree, users)
    had_gpu_s, due_gpu_s = np.zeros((2, 1, len(parent)))
    now, then = np.zeros(len(users)), np.ones(1)
    # The compiled function takes longer to load, and more memory, than this ever saves.
    integrate = integrate_due.py_func
    integrate(now, leaf, wanted, held, first, parent, shares, then, had_gpu_s, due_gpu_s)
    due: NDArray[np.float64] = due_gpu_s[0, leaf]
    return due
