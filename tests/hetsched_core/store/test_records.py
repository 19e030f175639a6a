"""Records: what could not have been measured cannot be made."""

import math
from dataclasses import replace

import pytest

from hetsched_core.errors import InputError
from hetsched_core.runlog import PlanRecord, RunEnd, RunRecord
from hetsched_core.store import (
    BandwidthMeasurement,
    BandwidthTerm,
    BasicTimes,
    DataTimes,
    Decision,
    Measurement,
    Moments,
    ProfileKey,
    StoredRun,
)
from hetsched_core.throughput.iteration import Pattern
from hetsched_core.types import Configuration, Purpose

KEY = ProfileKey("resnet50", "alice")
SPEED = Measurement(KEY, "a100", 4, 2, Moments(3, 250.0, 2.0), 1e9, ("n1", "n2"))
TIMES = BasicTimes(
    KEY,
    "a100",
    64,
    25_000_000,
    Pattern.OVERLAPPED_DATA,
    Moments(2, 0.1),
    Moments(2, 0.2),
    Moments(2, 0.01),
    1e9,
)
BANDWIDTH = BandwidthMeasurement("a100", BandwidthTerm.LINK, Moments(1, 2e9), 1e9)
RUN = RunRecord(
    "7", 0, 0, Purpose.RUN, Configuration.of({"n1": 2}), 1e9, 2e9, 5e8, 1e6, RunEnd.COMPLETED
)


@pytest.mark.parametrize(
    ("name", "owner", "why"),
    [
        ("", "alice", "empty"),
        ("x" * 257, "alice", "too long"),
        ("a\nb", "alice", "a line break"),
        ("a\0", "alice", "a NUL"),
        ("\ud800", "alice", "half a surrogate pair, which no file can hold"),
        ("a\u202eb", "alice", "turns the line around"),
        (" a", "alice", "blank in front"),
        ("a", "al\tice", "a tab in the owner"),
    ],
)
def test_names_that_no_listing_could_show_are_refused(name: str, owner: str, why: str) -> None:
    with pytest.raises(InputError, match="printable"):
        ProfileKey(name, owner)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"speed": Moments(1, 0.0)}, "speed of 0.0"),
        ({"speed": Moments(1, -5.0)}, "speed of -5.0"),
        ({"speed": Moments(1, 1e13)}, "speed of 10000000000000.0"),
        ({"gpus": 1}, "1 GPUs on 2 nodes"),
        ({"node_count": 0}, "on 0 nodes"),
        ({"gpus": 10**7}, "10000000 GPUs"),
        ({"gpus": 10**400}, "GPUs on 2 nodes"),
        ({"at_s": math.nan}, "time of nan"),
        ({"at_s": -1.0}, "time of -1.0"),
        ({"at_s": 1e12}, "time of 1000000000000.0"),
        ({"gpu_type": ""}, "GPU type ''"),
        ({"nodes": ("n1",)}, "1 names for 2 nodes"),
        ({"nodes": ("n1", "n1")}, "name each once"),
        ({"nodes": ("n1", "")}, "node ''"),
    ],
)
def test_an_absurd_speed_is_refused(changes: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        replace(SPEED, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"batch_size": 0}, "batch of 0"),
        ({"parameters": -1}, "-1 parameters"),
        ({"forward_s": Moments(2, -0.1)}, "part of -0.1 s"),
        ({"update_s": Moments(2, 86_401.0)}, "part of 86401.0 s"),
        ({"backward_s": Moments(3, 0.1)}, "measured 2 times, another part 3"),
        ({"at_s": math.inf}, "time of inf"),
    ],
)
def test_absurd_basic_times_are_refused(changes: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        replace(TIMES, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data_s", "wait_s", "named"),
    [
        ((0.1, 0.2), (0.1,), "2 data times and 1 waits"),
        ((math.nan,), (0.1,), "of nan s"),
        ((0.1,), (-0.1,), "of -0.1 s"),
        ((1e9,), (0.1,), "of 1000000000.0 s"),
    ],
)
def test_absurd_data_times_are_refused(
    data_s: tuple[float, ...], wait_s: tuple[float, ...], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        DataTimes(KEY, "a100", data_s, wait_s)


@pytest.mark.parametrize(
    ("term", "value", "named"),
    [
        (BandwidthTerm.LINK, 0.0, "bandwidth of 0.0"),
        (BandwidthTerm.NETWORK, 1e16, "bandwidth of 1e"),
        (BandwidthTerm.NETWORK_RING, 1.5, "network_ring of 1.5"),
    ],
)
def test_absurd_bandwidths_are_refused(term: BandwidthTerm, value: float, named: str) -> None:
    with pytest.raises(InputError, match=named):
        replace(BANDWIDTH, term=term, value=Moments(1, value))


def test_a_run_whose_numbers_are_none_is_refused() -> None:
    with pytest.raises(InputError, match="nan in a run of job 7"):
        StoredRun(replace(RUN, samples=math.nan), "nonce123", KEY)


def test_a_decision_at_no_time_is_refused() -> None:
    with pytest.raises(InputError, match="time of nan"):
        Decision("hops", PlanRecord(math.nan, frozenset(), 0.1, 1, 2))
