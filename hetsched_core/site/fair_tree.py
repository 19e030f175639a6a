"""Slurm's Fair Tree: level fairshare among siblings, and the rank of each user.

Source: "Fair Tree Fairshare Algorithm" in Slurm's documentation, and its plug-in
priority/multifactor (fair_tree.c).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

from hetsched_core.types.site import ROOT, Association, ShareTree


def effective_usage(tree: ShareTree, used: Mapping[Association, float]) -> dict[Association, float]:
    """Return the part that each account and user has in what its siblings and it have used.

    Args:
        tree: accounts and users.
        used: user -> its use, decayed, in any unit.
    """
    total: dict[Association, float] = {}
    for user, amount in used.items():
        for step in ((ROOT, ""), *tree.path(user)):
            total[step] = total.get(step, 0.0) + amount
    part = {}
    for account, members in tree.children.items():
        whole = total.get((account, ""), 0.0)
        for each in members:
            part[each] = total.get(each, 0.0) / whole if whole > 0 else 0.0
    return part


def normal_shares(tree: ShareTree) -> dict[Association, float]:
    """Return the part that each account and user has in the shares of its siblings and its own.

    Of users that count as their account (`shares` of None) it is 0.
    """
    normal = {}
    for members in tree.children.values():
        whole = sum(tree.shares.get(each, 1) or 0 for each in members)
        for each in members:
            normal[each] = (tree.shares.get(each, 1) or 0) / whole if whole else 0.0
    return normal


def level_fairshare(tree: ShareTree, used: Mapping[Association, float]) -> dict[Association, float]:
    """Return shares / usage of each account and user, both relative to its siblings.

    Above 1 it has had less than is due to it. It is infinite for what has used nothing and for
    users that count as their account, 0 for what has no shares.
    """
    usage, normal = effective_usage(tree, used), normal_shares(tree)
    level = {}
    for each, part in usage.items():
        if tree.shares.get(each, 1) is None:
            level[each] = math.inf
        elif normal[each] == 0:
            level[each] = 0.0
        else:
            level[each] = normal[each] / part if part > 0 else math.inf
    return level


def fair_tree(tree: ShareTree, used: Mapping[Association, float]) -> dict[Association, float]:
    """Return the fair-share factor of each user, in (0, 1]: its rank / the number of users.

    Users are ranked depth first, siblings of a higher level fairshare before others. Users that tie
    have one rank. Accounts that tie are ranked as one; a user that ties with an account has
    the rank of its first user.
    """
    level = level_fairshare(tree, used)
    ranked: list[tuple[Association, bool]] = []

    def visit(siblings: Sequence[Association], tied: bool) -> None:
        # Of what ties, users come first.
        order = sorted(siblings, key=lambda each: (-level[each], each[1] == ""))
        before = None
        for (value, is_account), group in groupby(
            order, key=lambda each: (level[each], each[1] == "")
        ):
            tied = tied if before is None else value == before
            before, members = value, list(group)
            if is_account:
                visit([one for name, _ in members for one in tree.children.get(name, ())], tied)
            else:
                ranked.extend((each, tied or at > 0) for at, each in enumerate(members))

    visit(tree.children[ROOT], False)
    factors: dict[Association, float] = {}
    rank = len(ranked)
    for at, (user, tied) in enumerate(ranked):
        rank = rank if tied else len(ranked) - at
        factors[user] = rank / len(ranked)
    return factors
