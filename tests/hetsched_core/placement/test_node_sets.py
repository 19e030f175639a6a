"""Jobs that may use some nodes only, and so many: what is free to them, and how they fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hetsched_core.placement import FreeGpus, rigid_way, ways_to_fit
from hetsched_core.placement.free import PerGpu
from hetsched_core.placement.keep import may_keep
from hetsched_core.placement.pools import Pools
from hetsched_core.placement.ways import reach, shut_out
from hetsched_core.types import ALL_SHAPES, Job, JobView, NodeCondition
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    placed,
    snapshot_of,
    submission,
)

CLUSTER = cluster_of(a=("v100", 8), b=("v100", 4), c=("v100", 4), d=("k80", 4))
SPEEDS = linear_speeds(CLUSTER, {"m": {"v100": 1.0, "k80": 1.0}})


def job(count: int = 1, **limits: Any) -> Job:
    return submission("j", 1.0, (count,), **limits).job


def nodes(*names: str) -> frozenset[str]:
    return frozenset(names)


def test_a_mask_has_a_bit_for_each_node_of_a_set_that_is_not_closed() -> None:
    assert CLUSTER.mask(None) == 0b1111
    assert CLUSTER.mask(nodes("a", "c", "elsewhere")) == 0b0101
    assert CLUSTER.mask(nodes("a", "c"), nodes("a")) == 0b0100
    assert CLUSTER.mask(None, nodes("a")) == 0b1110


def test_nodes_that_are_left_out_for_others_are_no_place_for_anybody() -> None:
    free = FreeGpus.empty(CLUSTER)
    rest = free.outside(CLUSTER.mask(nodes("b", "c")))
    assert rest.one_node(PerGpu(), "v100", 4) == on(a=4)
    assert rest.one_node(PerGpu(nodes=nodes("b")), "v100", 1) is None
    assert free.one_node(PerGpu(), "v100", 4) == on(b=4)


def test_what_is_closed_for_a_time_is_no_reason_to_say_never() -> None:
    ways = [
        ways_to_fit(job(12, **limits), CLUSTER, SPEEDS, ALL_SHAPES)
        for limits in ({}, {"closed": nodes("a", "b", "c", "d")})
    ]
    assert [[(w.count, w.types, w.mixed) for w in each] for each in ways] == [
        [(12, ("v100",), False)]
    ] * 2


def test_windows_shut_a_job_out_that_fits_where_too_little_is_open() -> None:
    def shut(count: int, **limits: object) -> bool:
        return shut_out(job(count, **limits), CLUSTER, SPEEDS, ALL_SHAPES)

    assert shut(12, closed=nodes("a"), nodes=nodes("a", "b", "c"))
    assert not shut(8, closed=nodes("a"), nodes=nodes("a", "b", "c"))
    assert not shut(99, closed=nodes("a"))
    assert not shut(12)


def test_jobs_of_other_sets_have_other_ways_and_reach_their_own_nodes() -> None:
    one, same, other = (job(4, nodes=nodes(*names)) for names in ("ab", "ab", "cd"))
    ways = [rigid_way(j, CLUSTER, SPEEDS, ALL_SHAPES) for j in (one, same, other)]
    assert ways[0] is ways[1]
    assert ways[0] is not ways[2]
    assert None not in ways
    assert [reach(j, w, CLUSTER) for j, w in zip((one, other), ways[1:], strict=True) if w] == [
        0b0011,
        0b1100,
    ]
    closed = replace(one, closed=nodes("a"))
    assert ways[0] is not None
    assert reach(closed, ways[0], CLUSTER) == 0b0010


def test_who_runs_outside_its_nodes_stays_and_does_not_come_back() -> None:
    given = job(2, nodes=nodes("b"))
    running, gone = (JobView(given, 0.0, runs=runs) for runs in ((held(on(a=2)),), ()))
    closed = replace(running, job=replace(given, closed=nodes("a")))
    for seen, where, may in (
        (running, on(a=2), True),
        (gone, on(a=2), False),
        (gone, on(b=2), True),
        (closed, on(a=2), False),
    ):
        assert may_keep(snapshot_of(CLUSTER, [seen]), seen, where) is may


def test_pools_are_whole_types_and_what_jobs_may_use_of_them() -> None:
    snapshot = snapshot_of(CLUSTER, [])
    jobs = [
        job(),
        job(nodes=nodes("b", "c", "d")),
        job(nodes=nodes("c", "d")),
        job(nodes=nodes("d")),
    ]
    pools = Pools.of(snapshot, {}, jobs)
    assert pools.labels == ("v100", "k80", "v100 in b,c", "v100 in c")
    assert pools.capacity.tolist() == [16.0, 4.0, 8.0, 4.0]
    assert [tuple(pools.own(j)) for j in jobs] == [(0, 1), (2, 1), (3, 1), (-1, 1)]
    inside = {(each, each) for each in range(4)} | {(2, 0), (3, 0), (3, 2)}
    assert set(map(tuple, np.argwhere(pools.inside).tolist())) == inside
    without = Pools.of(snapshot, {}, [job()])
    assert without.labels == ("v100", "k80")
    assert without.inside.tolist() == [[True, False], [False, True]]


def test_pools_hold_what_is_not_fixed_foreign_or_closed() -> None:
    fixed = JobView(job(2), 0.0, runs=(held(on(b=2)),))
    drained = {"condition": NodeCondition.DRAINED}
    states: dict[str, dict[str, object]] = {"c": {"foreign_gpus": 1}, "d": dict(drained)}
    snapshot = snapshot_of(CLUSTER, [fixed], nodes=states)
    pools = Pools.of(snapshot, {"j": placed(b=2)}, [job(nodes=nodes("b", "c"))])
    assert pools.capacity.tolist() == [13.0, 0.0, 5.0]
