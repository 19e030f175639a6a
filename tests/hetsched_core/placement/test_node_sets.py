"""Jobs that may use some nodes only, and so many: what is free to them, and how they fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hetsched_core.placement.keep import may_keep
from hetsched_core.placement.pools import Pools
from hetsched_core.placement.ways import shut_out
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


def test_windows_shut_a_job_out_that_fits_where_too_little_is_open() -> None:
    def shut(count: int, **limits: object) -> bool:
        return shut_out(job(count, **limits), CLUSTER, SPEEDS, ALL_SHAPES)

    assert shut(12, closed=nodes("a"), nodes=nodes("a", "b", "c"))
    assert not shut(8, closed=nodes("a"), nodes=nodes("a", "b", "c"))
    assert not shut(99, closed=nodes("a"))
    assert not shut(12)


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


def test_pools_hold_what_is_not_fixed_foreign_or_closed() -> None:
    fixed = JobView(job(2), 0.0, runs=(held(on(b=2)),))
    drained = {"condition": NodeCondition.DRAINED}
    states: dict[str, dict[str, object]] = {"c": {"foreign_gpus": 1}, "d": dict(drained)}
    snapshot = snapshot_of(CLUSTER, [fixed], nodes=states)
    pools = Pools.of(snapshot, {"j": placed(b=2)}, [job(nodes=nodes("b", "c"))])
    assert pools.capacity.tolist() == [13.0, 0.0, 5.0]
