"""Use that decays: halved in a half-life, however often it is looked at."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.site import Ledger, Usage
from hetsched_core.types import Job
from hetsched_core.types.site import Association
from tests.hetsched_core.worlds import on, view

ALICE, BOB, CAROL = ("bio", "alice"), ("bio", "bob"), ("phys", "carol")


def job_of(user: Association) -> Job:
    return view("j", account=user[0], user=user[1]).job


def test_usage_halves_in_a_half_life_and_what_is_held_counts() -> None:
    used = Usage(0.0, {ALICE: 1000.0, BOB: 0.0}, {BOB: 4})
    later = used.carried_on(100.0, half_life_s=100.0)
    assert later.at_s == 100.0
    assert later.gpu_s[ALICE] == pytest.approx(500.0)
    # The integral of 4 GPUs over 100 s, each second halving by the end as often as it is old.
    assert later.gpu_s[BOB] == pytest.approx(4 * 100.0 / (2 * math.log(2)))
    # With hardly any decay it is GPU seconds.
    held = Usage(0.0).knowing([job_of(ALICE)]).holding([(job_of(ALICE), on(n0=3))])
    assert held.carried_on(50.0, half_life_s=1e12).gpu_s == {ALICE: pytest.approx(150.0)}


@given(
    st.floats(1.0, 1e6),
    st.floats(0.0, 1e5),
    st.floats(0.0, 1e5),
    st.integers(0, 64),
    st.floats(0, 1e8),
)
def test_usage_is_the_same_however_often_it_is_carried_on(
    half_life_s: float, first_s: float, second_s: float, gpus: int, used: float
) -> None:
    usage = Usage(0.0, {ALICE: used}, {ALICE: gpus})
    in_steps = usage.carried_on(first_s, half_life_s).carried_on(first_s + second_s, half_life_s)
    at_once = usage.carried_on(first_s + second_s, half_life_s)
    assert in_steps.gpu_s[ALICE] == pytest.approx(at_once.gpu_s[ALICE], rel=1e-9, abs=1e-6)


def test_who_is_new_has_used_nothing_and_who_is_known_keeps_what_was_used() -> None:
    usage = Usage(0.0, {ALICE: 5.0}).knowing([job_of(ALICE), job_of(CAROL)])
    assert usage.gpu_s == {ALICE: 5.0, CAROL: 0.0}


def test_a_ledger_that_is_looked_at_often_comes_to_what_is_held_at_a_constant_rate() -> None:
    ledger = Ledger()
    for minute in range(301):
        ledger = ledger.at(60.0 * minute, {ALICE: 4 * 60.0 * minute}, half_life_s=3600.0)
    exact = Usage(0.0, {ALICE: 0.0}, {ALICE: 4}).carried_on(300 * 60.0, 3600.0)
    assert ledger.used[ALICE] == pytest.approx(exact.gpu_s[ALICE], rel=1e-4)
    # Who has left is not forgotten at once.
    assert ledger.at(300 * 60.0, ledger.served, 3600.0).used == ledger.used
