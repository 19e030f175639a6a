"""The columns of sacct that an allocation has as they are, each declared once for all readers."""

from __future__ import annotations

from typing import NamedTuple


class PlainColumn(NamedTuple):
    """A column of text.

    Attributes:
        field: of `LoggedAllocation`.
        name: sacct's.
        key: of a record of `sacct --json`.
        free_text: whether users write there what they like, a delimiter among it.
    """

    field: str
    name: str
    key: str
    free_text: bool = False


PLAIN = (
    PlainColumn("user", "User", "user"),
    PlainColumn("account", "Account", "account"),
    PlainColumn("partition", "Partition", "partition"),
    PlainColumn("qos", "QOS", "qos"),
    PlainColumn("name", "JobName", "name", free_text=True),
)
