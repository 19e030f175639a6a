"""Columns of numbers from outside: checked once, then copied, read-only and contiguous."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetsched_core.errors import InputError


def floats(
    name: str, values: ArrayLike, least: float, most: float, *, or_nan: bool = False
) -> NDArray[np.float64]:
    """Return a column of numbers within bounds, both included; NaN only if `or_nan`.

    Raises:
        InputError: it is no column of numbers, or one of them is out of bounds.
    """
    column = np.array(_column(name, values, "numbers", (np.integer, np.floating)), np.float64)
    inside = (column >= least) & (column <= most)
    _refuse(name, column, inside | np.isnan(column) if or_nan else inside, least, most)
    column.flags.writeable = False
    return column


def ints(name: str, values: ArrayLike, least: int, most: int) -> NDArray[np.int64]:
    """Return a column of whole numbers within bounds, both included.

    Raises:
        InputError: it is no column of whole numbers, or one of them is out of bounds.
    """
    column = np.array(whole(name, values, least, most))
    column.flags.writeable = False
    return column


def whole(name: str, values: ArrayLike, least: int, most: int) -> NDArray[np.int64]:
    """Return whole numbers within bounds without a copy: for a call, not to be kept.

    Raises:
        InputError: it is no column of whole numbers, or one of them is out of bounds.
    """
    given = _column(name, values, "whole numbers", (np.integer,))
    if given.size and not least <= given.min() <= given.max() <= most:
        _refuse(name, given, (given >= least) & (given <= most), least, most)
    return np.ascontiguousarray(given, dtype=np.int64)


def same_length(what: str, **columns: NDArray[np.float64] | NDArray[np.int64]) -> None:
    """Refuse columns of different lengths."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"the columns of {what} differ in length: {lengths}")


def _column(
    name: str, values: ArrayLike, kind: str, dtypes: tuple[type[np.generic], ...]
) -> NDArray[Any]:
    given = np.asarray(values)
    if given.ndim != 1 or (given.size and not issubclass(given.dtype.type, dtypes)):
        raise InputError(
            f"{name} has shape {given.shape} and type {given.dtype}; expected a column of {kind}"
        )
    return given


def _refuse(
    name: str, column: NDArray[Any], inside: NDArray[np.bool_], least: float, most: float
) -> None:
    if not inside.all():
        row = int(np.argmin(inside))
        raise InputError(f"{name} in row {row} is {column[row]}; expected {least:g} to {most:g}")
