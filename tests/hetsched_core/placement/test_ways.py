"""How a job could ever run, while estimates of its speeds are revised."""

from __future__ import annotations

from dataclasses import replace

from hetsched_core.placement import Way, rigid_way, ways_to_fit
from hetsched_core.types import ALL_SHAPES
from tests.hetsched_core.worlds import cluster_of, linear_speeds, submission

CLUSTER = cluster_of(a=("a100", 4), b=("a100", 4), k=("k80", 8))
JOB = submission("j", 1.0, (1, 8, 16)).job


def test_ways_are_those_of_where_a_job_runs_whatever_the_speeds() -> None:
    one, other = (linear_speeds(CLUSTER, {"m": {"a100": s, "k80": 1.0}}) for s in (2.0, 3.0))
    first, second = (ways_to_fit(JOB, CLUSTER, s, ALL_SHAPES) for s in (one, other))
    assert first == second
    assert first == (
        Way(1, ("a100", "k80"), mixed=False),
        Way(8, ("a100", "k80"), mixed=False),
        Way(16, ("a100", "k80"), mixed=True),
    )
    assert rigid_way(JOB, CLUSTER, one, ALL_SHAPES) is first[1]


def test_an_object_stands_for_one_kind_of_job_only() -> None:
    speeds = linear_speeds(CLUSTER, {"m": {"a100": 2.0}, "other": {"a100": 5.0}})
    alike, unlike = (replace(JOB, id="alike"), replace(JOB, profile="other"))
    ours, same, theirs = (
        ways_to_fit(job, CLUSTER, speeds, ALL_SHAPES) for job in (JOB, alike, unlike)
    )
    assert same is ours
    assert theirs == ours
    assert theirs is not ours
    assert all(one is not other for one, other in zip(ours, theirs, strict=True))


def test_revised_speeds_change_the_order_of_types_and_where_a_job_fits() -> None:
    def ways(a100: float, k80: float, several_nodes: float = 1.0) -> dict[int, tuple[str, ...]]:
        speeds = linear_speeds(CLUSTER, {"m": {"a100": a100, "k80": k80}}, several_nodes)
        return {way.count: way.types for way in ways_to_fit(JOB, CLUSTER, speeds, ALL_SHAPES)}

    both = ("k80", "a100")
    assert ways(1.0, 2.0) == {1: both, 8: both, 16: both}
    assert ways(1.0, 2.0, several_nodes=0.0) == {1: both, 8: ("k80",)}
    assert ways(1.0, 0.0) == {1: ("a100",), 8: ("a100",)}
    assert ways(0.0, 0.0) == {}
