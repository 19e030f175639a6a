"""Fair Tree by hand: levels, ties, and users and accounts that count as their parents."""

from __future__ import annotations

import math

import pytest

from hetsched_core.errors import InputError
from hetsched_core.site import fair_tree, level_fairshare
from hetsched_core.types.site import ROOT, Association, ShareTree

ALICE, BOB, CAROL, DAVE = ("bio", "alice"), ("bio", "bob"), ("phys", "carol"), ("phys", "dave")


@pytest.mark.parametrize(
    ("used", "factors"),
    [
        # phys has used less than bio, and of bio's users bob less than alice.
        ({ALICE: 60.0, BOB: 40.0, CAROL: 70.0}, {CAROL: 1.0, BOB: 2 / 3, ALICE: 1 / 3}),
        # What ties has the higher rank.
        (
            {ALICE: 0.0, BOB: 0.0, CAROL: 50.0, DAVE: 10.0},
            {ALICE: 1.0, BOB: 1.0, DAVE: 0.5, CAROL: 0.25},
        ),
        # Users of accounts that tie are ranked together, by their use of their parts of these.
        (
            {ALICE: 10.0, BOB: 30.0, CAROL: 20.0, DAVE: 20.0},
            {ALICE: 1.0, CAROL: 0.75, DAVE: 0.75, BOB: 0.25},
        ),
    ],
)
def test_users_are_ranked_by_their_accounts_first(
    used: dict[Association, float], factors: dict[Association, float]
) -> None:
    assert fair_tree(ShareTree().with_users(used), used) == pytest.approx(factors)


def test_shares_are_weighed_against_use_at_each_level() -> None:
    tree = ShareTree(
        {("bio", ""): 3, ("phys", ""): 1, ALICE: 4, BOB: 1, CAROL: 1, ("lab", "eve"): 2},
        parents={"lab": "phys"},
    )
    used = {ALICE: 60.0, BOB: 20.0, CAROL: 5.0, ("lab", "eve"): 15.0}
    level = level_fairshare(tree, used)
    assert level[("bio", "")] == pytest.approx(0.75 / 0.8)
    assert level[("phys", "")] == pytest.approx(0.25 / 0.2)
    assert level[ALICE] == pytest.approx(0.8 / 0.75)
    assert level[BOB] == pytest.approx(0.2 / 0.25)
    # carol is a sibling of the account lab, which has one share, too.
    assert level[CAROL] == pytest.approx(0.5 / 0.25)
    assert level[("lab", "")] == pytest.approx(0.5 / 0.75)
    assert fair_tree(tree, used) == {CAROL: 1.0, ("lab", "eve"): 0.75, ALICE: 0.5, BOB: 0.25}


def test_a_user_that_ties_with_an_account_has_the_rank_of_its_first_user() -> None:
    tree = ShareTree({("bio", "alice"): 1, ("lab", "bob"): 1}, parents={"lab": "bio"})
    assert fair_tree(tree, {}) == {("bio", "alice"): 1.0, ("lab", "bob"): 1.0}
    used = {("bio", "alice"): 5.0, ("lab", "bob"): 5.0, ("lab", "carol"): 0.0}
    factors = fair_tree(tree.with_users(used), used)
    # alice and lab tie: carol, the first of lab, has alice's rank.
    assert factors == pytest.approx(
        {("bio", "alice"): 1.0, ("lab", "carol"): 1.0, ("lab", "bob"): 1 / 3}
    )


def test_what_counts_as_its_parent_has_no_level_of_its_own() -> None:
    tree = ShareTree(
        {("bio", ""): None, ALICE: 1, CAROL: None, DAVE: 1, ("phys", ""): 2, ("new", "eve"): 0}
    )
    used = {ALICE: 50.0, CAROL: 40.0, DAVE: 10.0}
    level = level_fairshare(tree, used)
    # bio's user stands among the accounts at the root.
    assert tree.children[ROOT] == (ALICE, ("new", ""), ("phys", ""))
    assert ("bio", "") not in level
    assert level[ALICE] == pytest.approx(0.25 / 0.5)
    assert level[CAROL] == math.inf
    assert level[("new", "eve")] == 0.0


def test_shares_below_0_and_accounts_in_themselves_are_refused() -> None:
    with pytest.raises(InputError, match="user alice of account bio has -1 shares"):
        ShareTree({ALICE: -1})
    with pytest.raises(InputError, match="account a is in itself"):
        ShareTree(parents={"a": "b", "b": "a"})
