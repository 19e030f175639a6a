"""Records: what could not have been measured cannot be made."""

import math
from dataclasses import replace
from typing import Any

import pytest

from hetsched_core.errors import InputError
from hetsched_core.records.runlog import PlanRecord
from hetsched_core.store import (
    BandwidthMeasurement,
    BandwidthTerm,
    DataTimes,
    Decision,
    Moments,
    ProfileKey,
)
from tests.hetsched_core.store.measured import RESNET, TIMES, measured

SPEED = measured(250.0, "n1", "n2", gpus=4)
DATA = DataTimes(RESNET, "a100", (0.1, 0.2), (0.1, 0.1))
BANDWIDTH = BandwidthMeasurement("a100", BandwidthTerm.LINK, Moments(1, 2e9), 1e9)
RING = BandwidthMeasurement("a100", BandwidthTerm.NETWORK_RING, Moments(1, 0.5), 1e9)
DECISION = Decision("hops", PlanRecord(1e9, frozenset(), 0.1, 1, 2))


@pytest.mark.parametrize(
    ("name", "owner", "why"),
    [
        ("", "alice", "empty"),
        ("x" * 257, "alice", "too long"),
        ("a\nb", "alice", "a line break"),
        ("\ud800", "alice", "half a surrogate pair, which no file can hold"),
        ("a\u202eb", "alice", "turns the line around"),
        ("a", "al\tice", "a tab in the owner"),
    ],
)
def test_names_that_no_listing_could_show_are_refused(name: str, owner: str, why: str) -> None:
    with pytest.raises(InputError, match="printable"):
        ProfileKey(name, owner)


@pytest.mark.parametrize(
    ("record", "changes", "named"),
    [
        (SPEED, {"node_count": 0}, "on 0 nodes"),
        (SPEED, {"gpus": 10**7}, "10000000 GPUs"),
        (SPEED, {"at_s": math.nan}, "time of nan"),
        (SPEED, {"nodes": ("n1",)}, "1 names for 2 nodes"),
        (SPEED, {"nodes": ("n1", "n1")}, "name each once"),
        (SPEED, {"nodes": ("n1", "")}, "node ''"),
        (TIMES, {"batch_size": 0}, "batch of 0"),
        (TIMES, {"parameters": -1}, "-1 parameters"),
        (TIMES, {"forward_s": Moments(1, -0.1)}, "part of -0.1 s"),
        (TIMES, {"update_s": Moments(1, 86_401.0)}, "part of 86401.0 s"),
        (TIMES, {"backward_s": Moments(3, 0.1)}, "measured 1 times, another part 3"),
        (DATA, {"wait_s": (0.1,)}, "2 data times and 1 waits"),
        (DATA, {"data_s": (math.nan, 0.1)}, "of nan s"),
        (BANDWIDTH, {"value": Moments(1, 0.0)}, "bandwidth of 0.0"),
        (BANDWIDTH, {"value": Moments(1, 1e16)}, "bandwidth of 1e"),
        (RING, {"value": Moments(1, 1.5)}, "network_ring of 1.5"),
        (DECISION, {"plan": PlanRecord(math.nan, frozenset(), 0.1, 1, 2)}, "time of nan"),
    ],
)
def test_what_cannot_have_been_measured_is_refused(
    record: Any, changes: dict[str, object], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        replace(record, **changes)
