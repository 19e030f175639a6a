"""Starts and promises read from arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hetsched_core.placement.starts import Queue, Start, Starts
from hetsched_core.types import Reservation
from tests.hetsched_core.worlds import cluster_of, on

CLUSTER = cluster_of(n0=("a100", 4), n1=("a100", 4))


@pytest.fixture
def starts() -> Starts:
    """Of four jobs the second starts now, the first and the last keep something."""
    queue = Queue(["a", "b", "c", "d"], np.zeros(4, np.int64), np.array([10.0, 20.0, 30.0, 40.0]))
    pieces = np.array([(0, 0, 4), (0, 1, 4), (1, 1, 2), (3, 0, 1)], np.int64)
    return Starts(queue, np.array([50.0, 5.0, math.inf, 60.0]), pieces, CLUSTER)


def test_pieces_of_one_job_are_one_start(starts: Starts) -> None:
    assert list(starts) == [
        Start("a", on(n0=4, n1=4), 50.0),
        Start("b", on(n1=2), 5.0),
        Start("d", on(n0=1), 60.0),
    ]


def test_who_starts_now_is_told_from_who_is_promised_something(starts: Starts) -> None:
    assert [start.job for start in starts.by(5.0)] == ["b"]
    assert list(starts.promised_after(5.0)) == [
        Reservation("a", on(n0=4, n1=4), 50.0, 60.0),
        Reservation("d", on(n0=1), 60.0, 100.0),
    ]


def test_promises_can_be_taken_back_one_after_the_other(starts: Starts) -> None:
    promises = starts.promised_after(5.0)
    fewer = promises.without({"a", "nobody"})
    assert [promise.job for promise in fewer] == ["d"]
    assert len(fewer.without({"d"})) == 0
    assert len(promises) == 2
    assert promises[0].job == "a"
    assert [promise.job for promise in promises[1:]] == ["d"]


def test_nobody_in_the_queue_is_nobody_who_starts() -> None:
    empty = Queue([], np.zeros(0, np.int64), np.zeros(0))
    starts = Starts(empty, np.zeros(0), np.zeros((0, 3), np.int64), CLUSTER)
    assert list(starts) == []
    assert list(starts.by(math.inf)) == []
    assert not starts.promised_after(0.0)
