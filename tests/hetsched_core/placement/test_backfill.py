"""The earliest starts of a queue on expected run times, and who is started out of turn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched_core.placement import rigid_way
from hetsched_core.placement.fewest import fewest_fit, layout_of
from hetsched_core.placement.free import FreeGpus
from hetsched_core.placement.starts import Queue, Starts
from hetsched_core.placement.timeline import Timeline
from hetsched_core.placement.waiting_line import WaitingLine
from hetsched_core.types import (
    ALL_SHAPES,
    Cluster,
    Configuration,
    Job,
    Node,
    NodeCondition,
    RequirementSet,
    Reservation,
    Shape,
    Snapshot,
    Window,
)
from tests.hetsched_core.placement.naive_backfill import Candidate, NaiveTimeline
from tests.hetsched_core.worlds import cluster_of, linear_speeds, on, snapshot_of, view

SHAPES = (ALL_SHAPES, ALL_SHAPES - {Shape.UNEVEN, Shape.MIXED_TYPES})


def candidate(snapshot: Snapshot, job: Job, limit_s: float) -> Candidate:
    way = rigid_way(job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
    assert way is not None
    layout = layout_of(job, way, snapshot.cluster, snapshot.shapes)
    return Candidate(job.id, layout, limit_s)


def queue_of(snapshot: Snapshot, **jobs: tuple[int, float]) -> list[Candidate]:
    """Build a queue from name=(GPUs, limit)."""
    return [
        candidate(snapshot, view(name, counts=(gpus,)).job, limit_s)
        for name, (gpus, limit_s) in jobs.items()
    ]


def earliest(
    timeline: Timeline,
    queue: list[Candidate],
    now_s: float,
    *,
    reserve_all: bool,
    windows: Sequence[Window] = (),
) -> list[Reservation]:
    """Return the earliest starts of these jobs."""
    kinds = [timeline.kind(each.layout) for each in queue]
    jobs = Queue(
        [each.job for each in queue],
        np.array(kinds, np.int64),
        np.array([each.limit_s for each in queue], np.float64),
    )
    return list(timeline.earliest_starts(jobs, now_s, reserve_all=reserve_all, windows=windows))


def told(starts: list[Reservation]) -> dict[str, tuple[float, str]]:
    return {start.job: (start.start_s, str(start.configuration)) for start in starts}


# -- by hand ---------------------------------------------------------------------------------------


def test_easy_backfill_may_delay_the_second_in_line_and_conservative_does_not() -> None:
    snapshot = snapshot_of(cluster_of(a0=("a100", 4)), [])
    timeline = Timeline(snapshot)
    timeline.hold(view("r").job, on(a0=3), 100.0)
    queue = queue_of(snapshot, head=(3, 10), second=(4, 10), small=(1, 1000), tiny=(1, 90))
    easy = earliest(timeline, queue, 0.0, reserve_all=False)
    # The head keeps the whole node from what would still run then, as in Slurm.
    assert told(easy) == {"head": (100.0, "a0:3"), "tiny": (0.0, "a0:1")}
    conservative = earliest(timeline, queue, 0.0, reserve_all=True)
    assert told(conservative) == {
        "head": (100.0, "a0:3"),
        "second": (110.0, "a0:4"),
        "small": (120.0, "a0:1"),
        "tiny": (0.0, "a0:1"),
    }


def test_more_runs_than_were_ever_noted_before_find_room_in_the_timeline() -> None:
    cluster = cluster_of(a0=("a100", 200))
    snapshot = snapshot_of(cluster, [])
    timeline = Timeline(snapshot)
    for n in range(199):
        timeline.hold(view(f"r{n}").job, on(a0=1), 100.0 + n)
    starts = earliest(timeline, queue_of(snapshot, j=(3, 10)), 0.0, reserve_all=True)
    assert told(starts) == {"j": (101.0, "a0:3")}
    for n in range(199):
        timeline.release(f"r{n}")
    starts = earliest(timeline, queue_of(snapshot, j=(200, 10)), 0.0, reserve_all=True)
    assert told(starts) == {"j": (0.0, "a0:200")}


@pytest.mark.parametrize(
    ("gpus", "shapes", "where"),
    [
        (4, ALL_SHAPES, None),  # one node could hold it, and no node has room for all of it
        (6, ALL_SHAPES, None),  # two nodes could hold it, and it would take three
        (5, ALL_SHAPES, "a0:3+a1:2"),
        (4, ALL_SHAPES - {Shape.UNEVEN}, None),
        (2, ALL_SHAPES, "a1:2"),
    ],
)
def test_a_job_gets_as_few_nodes_as_the_idle_cluster_could_give_it_or_waits(
    gpus: int, shapes: frozenset[Shape], where: str | None
) -> None:
    cluster = cluster_of(a0=("a100", 4), a1=("a100", 4), a2=("a100", 4))
    snapshot = snapshot_of(cluster, [], shapes=shapes)
    free = FreeGpus.of(snapshot)
    job = view("j", counts=(gpus,)).job
    for name, taken in (("a0", 1), ("a1", 2), ("a2", 2)):
        free.take(job, Configuration(((name, taken),)))
    way = rigid_way(job, cluster, snapshot.speeds, shapes)
    assert way is not None
    found = fewest_fit(snapshot, free, job, way, way.types)
    assert (None if found is None else str(found)) == where


# -- against the naive twin ------------------------------------------------------------------------


def random_world(
    seed: int,
) -> tuple[Snapshot, list[Candidate], list[tuple[Job, Configuration, float]]]:
    """A small cluster, some of it in use, and a queue: times are whole, so that sums are exact."""
    rng = Random(seed)
    types = rng.sample(["a100", "k80", "v100"], rng.randint(1, 3))
    counted = rng.random() < 0.6
    shared = rng.random() < 0.3
    nodes = tuple(
        Node(
            f"n{at}",
            rng.choice(types),
            rng.choice((1, 2, 4, 4, 8)),
            cpus=rng.choice((8, 16)) if counted else 0,
            memory_mb=rng.choice((64, 128)) if counted else 0,
            host=f"h{at // 2}" if shared else "",
        )
        for at in range(rng.randint(1, 7))
    )
    cluster = Cluster(nodes)
    speeds = linear_speeds(cluster, {"m": dict.fromkeys(types, 1.0)})
    closed = {n.name: {"condition": NodeCondition.DRAINED} for n in nodes if rng.random() < 0.1}
    snapshot = snapshot_of(cluster, [], speeds=speeds, shapes=rng.choice(SHAPES), nodes=closed)
    sets = [frozenset(rng.sample(cluster.names, rng.randint(1, len(cluster)))) for _ in range(2)]

    def job(name: str) -> Job:
        return Job(
            name,
            0.0,
            RequirementSet.rigid(rng.choice((1, 1, 1, 2, 2, 3, 4, 6, 8, 12))),
            "m",
            gpu_types=rng.choice((None, None, frozenset({types[0]}))),
            cpus_per_gpu=rng.choice((0.0, 1.0, 2.0, 3.0)),
            memory_mb_per_gpu=rng.choice((0.0, 8.0, 20.0)),
            nodes=rng.choice((None, None, *sets)),
            closed=rng.choice((frozenset(), frozenset(), frozenset({"n0"}))),
            min_nodes=(least := rng.choice((1, 1, 1, 2))),
            max_nodes=rng.choice((None, None, least)),
        )

    free = FreeGpus.empty(cluster)
    held, queue = [], []
    for number in range(rng.randint(0, 10)):
        running = job(f"r{number}")
        way = rigid_way(running, cluster, speeds, snapshot.shapes)
        found = way and fewest_fit(snapshot, free, running, way, way.types)
        if found:
            free.take(running, found)
            held.append((running, found, float(rng.randint(900, 1100))))
    for number in range(rng.randint(1, 12)):
        waiting = job(f"w{number}")
        if rigid_way(waiting, cluster, speeds, snapshot.shapes) is not None:
            queue.append(candidate(snapshot, waiting, float(rng.randint(1, 200))))
    return snapshot, queue, held


def windows_of(seed: int) -> list[Window]:
    """Up to two windows about the time of the tests, which may meet, on nodes that may be there."""
    rng = Random(f"windows {seed}")
    return [
        Window(frozenset(rng.sample(("n0", "n1", "n2", "n3"), 2)), begin_s, begin_s + length_s)
        for _ in range(rng.choice((0, 1, 2)))
        for begin_s, length_s in [(rng.randint(900, 1100), rng.randint(1, 100))]
    ]


@settings(max_examples=100)
@given(seed=st.integers(0, 10**9), reserve_all=st.booleans())
def test_the_starts_are_those_of_the_naive_twin_and_of_none_ahead_later(
    seed: int, reserve_all: bool
) -> None:
    """On a timeline that is used again and again, and whoever is behind."""
    rng = Random(seed)
    snapshot, queue, held = random_world(seed)
    timeline = Timeline(snapshot)
    closed = frozenset(v.node.name for v in snapshot.node_views() if not v.open)
    windows = windows_of(seed)
    on_it: set[str] = set()
    # Times go back, too, and past ends that are noted.
    for now_s in (950.0, 950.0, 1000.0, 960.0, 1090.0, 1200.0, 900.0):
        for job, configuration, until_s in held:
            if rng.random() < (0.4 if on_it else 0.9):
                if job.id in on_it:
                    timeline.release(job.id)
                else:
                    timeline.hold(job, configuration, until_s)
                on_it ^= {job.id}
        present = [each for each in held if each[0].id in on_it]
        ahead = queue[: rng.randint(1, len(queue))] if queue else []
        naive = NaiveTimeline(snapshot.cluster, present, closed, windows)
        found = [
            earliest(timeline, each, now_s, reserve_all=reserve_all, windows=windows)
            for each in (queue, ahead)
        ]
        assert found[0] == naive.earliest_starts(queue, now_s, reserve_all=reserve_all)
        assert found[1] == found[0][: len(found[1])]


# -- starts and promises read from arrays ----------------------------------------------------------


def test_starts_and_promises_are_read_from_arrays() -> None:
    """Of four jobs the second starts now, the first and the last keep something."""
    cluster = cluster_of(n0=("a100", 4), n1=("a100", 4))
    queue = Queue(["a", "b", "c", "d"], np.zeros(4, np.int64), np.array([10.0, 20.0, 30.0, 40.0]))
    pieces = np.array([(0, 0, 4), (0, 1, 4), (1, 1, 2), (3, 0, 1)], np.int64)
    starts = Starts(queue, np.array([50.0, 5.0, math.inf, 60.0]), pieces, cluster)
    assert list(starts) == [
        Reservation("a", on(n0=4, n1=4), 50.0, 60.0),
        Reservation("b", on(n1=2), 5.0, 25.0),
        Reservation("d", on(n0=1), 60.0, 100.0),
    ]
    assert [start.job for start in starts.by(5.0)] == ["b"]
    promises = starts.promised_after(5.0)
    assert list(promises) == [
        Reservation("a", on(n0=4, n1=4), 50.0, 60.0),
        Reservation("d", on(n0=1), 60.0, 100.0),
    ]
    # Promises are taken back one after the other.
    fewer = promises.without({"a", "nobody"})
    assert [promise.job for promise in fewer] == ["d"]
    assert len(fewer.without({"d"})) == 0
    assert (len(promises), promises[0].job) == (2, "a")
    assert [promise.job for promise in promises[1:]] == ["d"]
    empty = Queue([], np.zeros(0, np.int64), np.zeros(0))
    nobody = Starts(empty, np.zeros(0), np.zeros((0, 3), np.int64), cluster)
    assert (list(nobody), list(nobody.by(math.inf))) == ([], [])
    assert not nobody.promised_after(0.0)


# -- the line of waiting jobs against a sorted list ------------------------------------------------


@given(seed=st.integers(0, 10**9), near=st.sampled_from([1, 5, 10**6]))
def test_the_first_of_the_line_are_those_of_a_list_sorted_anew(seed: int, near: int) -> None:
    rng, line = Random(seed), WaitingLine()
    there: list[tuple[float, str, int, float]] = []
    seen: list[tuple[Queue, list[tuple[float, str, int, float]]]] = []
    for number in range(200):
        if there and rng.random() < 0.45:
            line.remove(there.pop(rng.randrange(min(near, len(there))))[1])
        else:
            # Most come at the end; no key comes twice.
            key = rng.random() if rng.random() < 0.2 else 1.0 + number
            there = sorted([*there, (key, f"j{number}", number, rng.random())])
            line.put(*there[[job for _, job, *_ in there].index(f"j{number}")])
        line.remove("nobody")
        most = rng.randint(0, 40)
        seen.append((line.first(most), there[:most]))
        assert len(line._order) <= len(there) + max(64, len(there) + 1)
    # What was first stays as it was when the line moves on.
    for found, expected in seen:
        assert list(found.jobs) == [job for _, job, *_ in expected]
        assert found.kinds.tolist() == [kind for *_, kind, _ in expected]
        assert found.limits_s.tolist() == [limit_s for *_, limit_s in expected]
