"""Rows in order that are mostly taken out near the front, while new ones come at the end."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Any

_LEAST = 64
"""So many places before the first row are not worth giving back."""


class FromFront:
    """Rows in ascending order, each column a list or an array.

    Taking a row out of a list moves all rows behind it, in a queue of thousands at every start of a
    job. Here those before it are moved, which leaves places before the first row; they are given
    back when they are as many as the rows.

    Attributes:
        order: the first column, by which the rows are ordered; its values are unique.
        others: the columns beside it.
        begin: where in the columns the first row is.
    """

    __slots__ = ("begin", "order", "others")

    def __init__(self, *others: list[Any] | array[Any]) -> None:
        """Begin with no rows; `others` are empty."""
        self.order: list[Any] = []
        self.others: tuple[Any, ...] = others
        self.begin = 0

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.order) - self.begin

    @property
    def first(self) -> Any:
        """What the first row is ordered by; None without rows."""
        return self.order[self.begin] if self.begin < len(self.order) else None

    def put(self, item: Any, *values: Any) -> bool:
        """Put a row into its place; return whether it is the first now."""
        order, begin = self.order, self.begin
        last = bool(order) and order[-1] < item  # as most are
        at = len(order) if last else bisect_left(order, item, begin)
        order.insert(at, item)
        for column, value in zip(self.others, values, strict=True):
            column.insert(at, value)
        return at == begin

    def remove(self, item: Any) -> None:
        """Take out the row that is ordered by this, which must be there."""
        order, begin = self.order, self.begin
        at = bisect_left(order, item, begin)
        order[begin + 1 : at + 1] = order[begin:at]
        for column in self.others:
            column[begin + 1 : at + 1] = column[begin:at]
        self.remove_first()

    def remove_first(self) -> None:
        """Take out the first row; there must be one."""
        self.begin = begin = self.begin + 1
        if begin >= _LEAST and 2 * begin >= len(self.order):
            for column in (self.order, *self.others):
                del column[:begin]
            self.begin = 0
