"""Columns of numbers: what is taken, and what is refused with its row and value."""

import math

import numpy as np
import pytest

from hetsched_core.errors import InputError
from hetsched_core.throughput.columns import floats, ints, same_length, whole


def test_a_column_is_copied_contiguous_and_read_only_and_for_a_call_it_is_not_copied() -> None:
    given = np.arange(6)[::2]
    taken = floats("x", given, 0, 10)
    assert taken.tolist() == [0.0, 2.0, 4.0]
    assert taken.flags.c_contiguous
    assert not taken.flags.writeable
    assert not np.shares_memory(taken, given)
    assert len(floats("x", [], 0, 1)) == 0
    given = np.arange(3)
    assert np.shares_memory(whole("x", given, 0, 9), given)
    assert whole("x", given.astype(np.int32), 0, 9).dtype == ints("x", [], 0, 1).dtype == np.int64


@pytest.mark.parametrize("value", [-0.1, 1.1, math.inf, -math.inf, math.nan])
def test_a_number_out_of_bounds_is_refused_and_nan_taken_where_it_means_unknown(
    value: float,
) -> None:
    with pytest.raises(InputError, match=f"x in row 1 is {value}; expected 0 to 1"):
        floats("x", [0.5, value], 0, 1, or_nan=not math.isnan(value))
    assert math.isnan(floats("x", [math.nan], 0, 1, or_nan=True)[0])


@pytest.mark.parametrize(
    "values", [[0.5], ["1"], [True], [None], [[1]], 1], ids=lambda values: str(values)
)
def test_what_is_no_column_of_whole_numbers_is_refused(values: object) -> None:
    with pytest.raises(InputError, match=r"x has shape .* expected a column of whole numbers"):
        ints("x", values, 0, 9)  # type: ignore[arg-type]


def test_bounds_hold_before_a_number_is_narrowed_and_where_nothing_is_copied() -> None:
    with pytest.raises(InputError, match="is 18446744073709551615"):
        ints("x", np.array([2**64 - 1], dtype=np.uint64), -1, 9)
    with pytest.raises(InputError, match="x in row 2 is 2; expected 0 to 1"):
        whole("x", np.arange(3), 0, 1)


def test_columns_of_different_length_are_named() -> None:
    with pytest.raises(InputError, match=r"the columns of y differ in length: .*'a': 1, 'b': 2"):
        same_length("y", a=ints("a", [1], 0, 9), b=ints("b", [1, 2], 0, 9))
