"""The arithmetic of HadarE's copies: H6, and what holds for all splits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.policies.hadar.copies import consolidation_s, split_steps, within_slot

H6 = (5.0, 1.0, 1.0, 2.5, 2.5)
"""Steps/s of the five nodes."""


@pytest.mark.parametrize(
    ("steps", "parts"),
    [
        (1000, [417, 84, 83, 208, 208]),
        (2000, [833, 167, 167, 417, 416]),
        (3, [1, 0, 0, 1, 1]),
        (0, [0, 0, 0, 0, 0]),
    ],
)
def test_h6_steps_are_split_by_largest_remainder(steps: int, parts: list[int]) -> None:
    assert split_steps(steps, H6) == parts


def test_h6_a_slot_of_90_s_lets_1080_of_2000_steps_be_done() -> None:
    done = within_slot(split_steps(2000, H6), H6, 90.0)
    assert done == [450, 90, 90, 225, 225]
    assert sum(done) == 1080


@given(steps=st.integers(0, 10**9), rates=st.lists(st.floats(0.001, 1e6), min_size=1, max_size=12))
def test_a_split_adds_up_and_nobody_is_a_step_away_from_its_share(
    steps: int, rates: list[float]
) -> None:
    parts = split_steps(steps, rates)
    assert sum(parts) == steps
    for part, rate in zip(parts, rates, strict=True):
        assert abs(part - steps * rate / math.fsum(rates)) < 1 + 1e-6


def test_a_node_that_makes_no_progress_gets_no_steps() -> None:
    assert split_steps(10, [0.0, 2.0, 0.0]) == [0, 10, 0]
    assert split_steps(10, [0.0, 0.0]) == [0, 0]
    assert within_slot([5, 5], [0.0, 1.0], 3.0) == [0, 3]
    # One too slow for one step in a slot starts one all the same.
    assert within_slot([4], [0.001], 90.0) == [1]


def test_averaging_sends_the_parameters_and_gets_them_back() -> None:
    # ResNet-18: 11.17 million parameters of 4 bytes, both ways over 1 GB/s.
    expected = 2 * 4 * 11.17e6 / 1e9
    assert consolidation_s("resnet18-cifar10", 1.0) == pytest.approx(expected)
    assert consolidation_s("ResNet-18 (batch size 32)", 1.0) == pytest.approx(expected)
    assert consolidation_s("nobody knows", 1.0) == pytest.approx(0.2)
    assert consolidation_s("resnet18-cifar10", math.inf) == 0.0
