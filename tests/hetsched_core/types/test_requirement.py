"""Requirement sets and learning rates: worked example W1, and what holds for all of them."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.types import LearningRate, LearningRateScaling, RequirementSet

COUNTS = st.lists(st.integers(1, 1_000_000), min_size=1, max_size=16, unique=True).map(
    lambda counts: RequirementSet(tuple(sorted(counts)))
)


@pytest.mark.parametrize(
    ("text", "most", "counts"),
    [
        ("2-16", 8, (2, 4, 6, 8, 10, 12, 14, 16)),
        ("1-16", 8, (1, 3, 5, 7, 10, 12, 14, 16)),
        ("1-3", 8, (1, 2, 3)),
        ("2-16", 3, (2, 9, 16)),
    ],
)
def test_w1_a_range_stands_for_evenly_spaced_counts(
    text: str, most: int, counts: tuple[int, ...]
) -> None:
    assert RequirementSet.parse(text, most).counts == counts


@pytest.mark.parametrize(
    ("scaling", "rates"),
    [
        (LearningRateScaling.LINEAR, (0.025, 0.05, 0.1, 0.2)),
        (LearningRateScaling.SQRT, (0.05, 0.0707106781, 0.1, 0.1414213562)),
        (LearningRateScaling.NONE, (0.1, 0.1, 0.1, 0.1)),
    ],
)
def test_w1_one_learning_rate_scales_to_other_counts(
    scaling: LearningRateScaling, rates: tuple[float, ...]
) -> None:
    rule = LearningRate(((4, 0.1),), scaling)
    assert [rule.at(k) for k in (1, 2, 4, 8)] == pytest.approx(rates, abs=5e-11)


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(2, 16))
def test_a_range_holds_both_bounds_and_is_as_even_as_whole_counts_can_be(
    one: int, other: int, most: int
) -> None:
    low, high = sorted((one, other))
    counts = RequirementSet.parse(f"{low}-{high}", most).counts
    assert counts[0] == low
    assert counts[-1] == high
    assert len(counts) == min(most, high - low + 1)
    gaps = [b - a for a, b in pairwise(counts)]
    assert not gaps or max(gaps) - min(gaps) <= 1


@given(COUNTS, st.integers(0, 1_000_001))
def test_a_requirement_set_reads_back_from_its_own_text_and_accepts_what_it_lists(
    requirements: RequirementSet, count: int
) -> None:
    assert RequirementSet.parse(str(requirements)) == requirements
    assert (count in requirements) == (count in requirements.counts)
    assert all(listed in requirements for listed in requirements)
    assert "1" not in requirements


@given(COUNTS)
def test_the_rigid_count_is_the_lower_median(requirements: RequirementSet) -> None:
    chosen = requirements.lower_median
    below = sum(count < chosen for count in requirements)
    above = sum(count > chosen for count in requirements)
    assert above - below in (0, 1)


@given(COUNTS, st.none() | st.integers(1, 1_000_000))
def test_a_job_is_parked_with_the_count_asked_for_if_it_is_accepted(
    requirements: RequirementSet, asked: int | None
) -> None:
    default = requirements.default_count(asked)
    assert default == (asked if asked in requirements.counts else min(requirements.counts))


def test_lists_and_ranges_mix_and_duplicates_merge() -> None:
    assert RequirementSet.parse("1, 2,4-8,6").counts == (1, 2, 4, 5, 6, 7, 8)
    assert RequirementSet.parse("4,1,4").counts == (1, 4)
    assert RequirementSet.parse("3-3", 8).counts == (3,)
    assert RequirementSet.rigid(24) == RequirementSet.parse("24")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "neither a GPU count nor a range"),
        ("4,", "neither a GPU count nor a range"),
        ("9999999999", "neither a GPU count nor a range"),
        ("8-4", "write 4-8 instead"),
        ("0", "within 1 to"),
        ("0-4", "within 1 to"),
        ("1,1000001", "within 1 to"),
        ("1-8,20-27,30", "at most 16"),
    ],
)
def test_a_text_that_no_job_could_mean_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        RequirementSet.parse(text)


@pytest.mark.parametrize(
    ("counts", "why"), [((2, 1), "not ascending"), ((2, 2), "not ascending"), ((), "empty")]
)
def test_a_set_of_counts_must_ascend_without_duplicates(counts: tuple[int, ...], why: str) -> None:
    with pytest.raises(InputError, match=why):
        RequirementSet(counts)


def test_several_learning_rates_hold_only_for_their_own_counts() -> None:
    rates = LearningRate(((1, 0.1), (4, 0.3)))
    assert (rates.at(1), rates.at(4)) == (0.1, 0.3)
    with pytest.raises(InputError, match="no learning rate is given for 2 GPUs; given are 1, 4"):
        rates.at(2)
    with pytest.raises(InputError, match="needs one learning rate, but 2 are given"):
        LearningRate(((1, 0.1), (4, 0.3)), LearningRateScaling.LINEAR)


@pytest.mark.parametrize("rate", [0.0, -0.1, math.inf, math.nan])
def test_a_learning_rate_must_be_a_positive_number(rate: float) -> None:
    with pytest.raises(InputError, match="positive rate"):
        LearningRate(((1, rate),))
