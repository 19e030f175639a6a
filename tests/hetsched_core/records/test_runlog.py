"""What a run log keeps as columns comes back as the records that were added."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.records.runlog import PlanRecord, PlanRecords
from hetsched_core.types import Trigger

RECORDS = st.lists(
    st.builds(
        PlanRecord,
        *(st.floats(allow_nan=False), st.frozensets(st.sampled_from(Trigger))),
        *(st.floats(0.0, 1e9), st.integers(0, 2**40), st.integers(0, 2**40)),
    ),
    max_size=5,
)


@given(RECORDS)
def test_plan_records_come_back_as_they_were_added(records: list[PlanRecord]) -> None:
    kept = PlanRecords(records)
    assert list(kept) == records
    assert list(kept[1:]) == records[1:]
    assert list(reversed(kept)) == records[::-1]
    assert kept.plan_s.tolist() == [record.plan_s for record in records]
    with pytest.raises(IndexError):
        kept[len(records)]


@given(RECORDS, RECORDS)
def test_plan_records_are_equal_where_all_records_are(
    one: list[PlanRecord], other: list[PlanRecord]
) -> None:
    assert PlanRecords(one) == PlanRecords(one)
    assert (PlanRecords(one) == PlanRecords(other)) == (one == other)
