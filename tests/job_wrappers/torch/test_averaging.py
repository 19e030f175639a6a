"""The mean of states, beside a twin that does it number by number."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from job_wrappers.averaging import Mean

numbers = st.floats(-1e6, 1e6, width=32)
rows = st.integers(1, 4).flatmap(
    lambda n: st.lists(
        st.tuples(st.lists(numbers, min_size=n, max_size=n), st.integers(1, 10**6)),
        min_size=1,
        max_size=5,
    )
)


def mean_of(start: object, *weighted: tuple[object, float]) -> Any:
    mean = Mean(start)
    for state, weight in weighted:
        mean.add(state, weight)
    return mean.result()


@given(rows)
def test_the_mean_of_tensors_is_that_of_exact_fractions(
    given: list[tuple[list[float], int]],
) -> None:
    total = sum(weight for _, weight in given)
    found = mean_of({}, *(({"w": torch.tensor(values)}, weight) for values, weight in given))
    for at, value in enumerate(found["w"].tolist()):
        exact = sum(Fraction(values[at]) * weight for values, weight in given) / total
        largest = max(abs(values[at]) for values, _ in given)
        assert value == pytest.approx(float(exact), rel=1e-6, abs=1e-7 * largest)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex64])
def test_the_mean_of_one_state_and_of_equal_ones_is_that_state_bit_for_bit(
    dtype: torch.dtype,
) -> None:
    state = {"w": torch.randn(1000, dtype=dtype) * 1e3}
    for copies in (1, 3, 7):
        found = mean_of({}, *((state, weight + 0.1) for weight in range(copies)))
        assert found["w"].dtype == dtype
        assert torch.equal(found["w"], state["w"])
        assert found["w"].data_ptr() != state["w"].data_ptr()


def test_whole_numbers_add_up_what_each_state_added_and_the_rest_is_the_first_ones() -> None:
    start = {"batches": torch.tensor(10), "ids": torch.arange(3), "on": torch.tensor(True)}
    first = {"batches": torch.tensor(14), "ids": torch.arange(3), "on": torch.tensor(False)}
    second = {"batches": torch.tensor(11), "ids": torch.arange(3), "on": torch.tensor(True)}
    found = mean_of(start, (first, 4.0), (second, 1.0))
    # The result shares no memory with what was added.
    first["on"].fill_(True)
    assert (found["batches"].item(), found["on"].item()) == (15, False)
    assert torch.equal(found["ids"], torch.arange(3))


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"w": torch.ones(3)}, "w is float32 of 3, not float32 of 2"),
        ({"w": torch.ones(2, dtype=torch.float64)}, "w is float64 of 2"),
        ({"w": torch.ones(2), "v": torch.ones(2)}, "not of the form of the others: v"),
        ({"w": torch.tensor([1.0, math.nan])}, "w is not finite"),
        ({"w": torch.tensor([1.0, math.inf])}, "w is not finite"),
        ({"w": 1.0}, "w is float, not float32 of 2"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_leaves_no_trace(
    state: dict[str, Any], why: str
) -> None:
    mean = Mean({"w": torch.zeros(2)})
    mean.add({"w": torch.tensor([1.0, 2.0])}, 1.0)
    with pytest.raises(ValueError, match=why):
        mean.add(state, 5.0)
    mean.add({"w": torch.tensor([3.0, 2.0])}, 1.0)
    assert mean.result()["w"].tolist() == [2.0, 2.0]
