"""Columns of numbers: what is taken, and what is refused with its row and value."""

import math
from collections.abc import Callable

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


def test_nan_is_taken_where_it_means_unknown() -> None:
    assert math.isnan(floats("x", [math.nan], 0, 1, or_nan=True)[0])


A, B = ints("a", [1], 0, 9), ints("b", [1, 2], 0, 9)


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: floats("x", [math.nan], 0, 1), "x in row 0 is nan; expected 0 to 1"),
        *(
            (lambda value=value: floats("x", [0.5, value], 0, 1, or_nan=True), f"row 1 is {value};")
            for value in (-0.1, 1.1, math.inf, -math.inf)
        ),
        *(
            (lambda values=values: ints("x", values, 0, 9), "x has shape .* of whole numbers")
            for values in ([0.5], ["1"], [True], [None], [[1]], 1)
        ),
        # Bounds hold before a number is narrowed, and where nothing is copied.
        (lambda: ints("x", np.array([2**64 - 1], dtype=np.uint64), -1, 9), f"is {2**64 - 1}"),
        (lambda: whole("x", np.arange(3), 0, 1), "x in row 2 is 2; expected 0 to 1"),
        (lambda: same_length("y", a=A, b=B), "of y differ in length: .*'a': 1, 'b': 2"),
    ],
)
def test_what_is_no_such_column_is_refused(refused: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        refused()
