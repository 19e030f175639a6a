"""Configuration generation: worked example W6, and every rule against its naive twin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched_core.placement.free import PerGpu
from hetsched_core.policies.hops.classes import NodeSpeeds, classes_of, node_speeds
from hetsched_core.policies.hops.configurations import (
    Catalogue,
    Limits,
    Neighbours,
    catalogue_of,
    limits_of,
    options_of,
    segments_of,
)
from hetsched_core.policies.hops.demand import demand_of
from hetsched_core.policies.hops.room import Layout, Room, layout_of
from hetsched_core.types import (
    ALL_SHAPES,
    Cluster,
    Configuration,
    JobView,
    Layer,
    Node,
    Shape,
    Speeds,
    SpeedTable,
)
from tests.hetsched_core.policies.hops import naive
from tests.hetsched_core.worlds import view

EVEN_ONLY = frozenset({Shape.SINGLE_NODE, Shape.EVEN})


def cluster_with(sizes: Sequence[int], groups: Sequence[str] | None = None) -> Cluster:
    names = groups or [""] * len(sizes)
    return Cluster(
        tuple(Node(f"n{at}", "t", size, group=names[at]) for at, size in enumerate(sizes))
    )


def room_with(layout: Layout, idle: Sequence[int]) -> Room:
    room = Room.healthy(layout)
    room.gpus[:] = idle
    return room


def spreading(cluster: Cluster, sensitivity: float) -> Speeds:
    """Profile `m`: 1 sample/s per GPU on one node, 1 / sensitivity on several."""
    types = cluster.gpu_types
    one = np.ones((len(types), 1))
    layers = np.full(one.shape, Layer.TRUTH, np.int8)
    table = SpeedTable(types, np.array([1], np.int64), one, one / sensitivity, layers)
    return Speeds(cluster, {"m": table})


def generated(
    idle: Sequence[int],
    wants: tuple[int, ...],
    sensitivity: float,
    neighbours: Neighbours = Neighbours.ID,
) -> list[str]:
    """The configurations of one job on nodes of 4 GPUs, in the notation of W6."""
    cluster = cluster_with([4] * len(idle))
    layout = layout_of(cluster, True)
    demand = demand_of(
        [view("j", counts=wants)], spreading(cluster, sensitivity), layout, only_profiled=True
    )
    limits = limits_of(layout, demand.needs, tuple(demand.wants.tolist()), ALL_SHAPES, neighbours)
    speeds = NodeSpeeds(np.zeros(1, np.int64), np.ones((1, len(idle))), np.zeros(len(idle), int))
    room = room_with(layout, idle)
    classes = classes_of(room, demand.needs, speeds, by_node=neighbours is Neighbours.ID)
    catalogue = catalogue_of(classes, demand.wants, limits, ALL_SHAPES, neighbours)
    options = options_of(
        demand.kind,
        demand,
        segments_of(demand, catalogue, limits, 1.4),
        catalogue,
        classes,
        speeds.row,
        np.array([-1]),
        np.zeros(1),
    )
    found = []
    for q in range(len(options.job)):
        pieces = options.pieces[options.piece_from[q] : options.piece_from[q + 1]].tolist()
        label = classes.nodes.label
        found.append("{" + ",".join(f"{label[c].lstrip('n')}:{gpus}" for c, gpus in pieces) + "}")
    return found


SEVEN = ["{0:1}", "{1:1}", "{3:1}", "{0:2}", "{1:2}", "{3:2}", "{1:4}"]


@pytest.mark.parametrize(
    ("idle", "wants", "sensitivity", "aggregated", "distributed"),
    [
        ((2, 4, 0, 3), (1, 2, 4, 6), 1.2, SEVEN, ["{0:2,1:2}", "{0:2,1:4}", "{1:4,3:2}"]),
        ((2, 4, 0, 3), (1, 2, 4, 6), 1.9, SEVEN, []),
        ((2, 4, 0, 3), (6, 8), 1.9, [], ["{0:2,1:4}", "{1:4,3:2}", "{0:2,1:4,3:2}"]),
        ((1, 1, 4, 3), (5,), 1.0, [], ["{1:1,2:4}", "{2:4,3:1}"]),
        ((4, 4, 4, 4), (4,), 1.0, ["{0:4}", "{1:4}", "{2:4}", "{3:4}"], []),
        # The largest node could hold it: it waits for one, though two others have room together.
        ((2, 3, 0, 3), (4,), 1.9, [], []),
    ],
)
def test_w6_the_configurations_on_four_nodes_of_four_gpus(
    idle: tuple[int, ...],
    wants: tuple[int, ...],
    sensitivity: float,
    aggregated: list[str],
    distributed: list[str],
) -> None:
    found = generated(idle, wants, sensitivity)
    assert [each for each in found if "," not in each] == aggregated
    assert [each for each in found if "," in each] == distributed


def test_a_job_as_sensitive_as_the_threshold_may_be_spread() -> None:
    assert "{0:2,1:2}" in generated((2, 4, 0, 3), (1, 2, 4, 6), 1.4)
    assert "{0:2,1:2}" not in generated((2, 4, 0, 3), (1, 2, 4, 6), 1.4 + 1e-9)


# -- against the naive twin ------------------------------------------------------------------------


def catalogue(
    cluster: Cluster,
    idle: Sequence[int],
    wants: Sequence[int],
    shapes: frozenset[Shape],
    neighbours: Neighbours,
) -> tuple[Catalogue, list[tuple[int, int]], dict[int, int]]:
    """The catalogue, its (begin, end) by want, and the class of each node."""
    layout = layout_of(cluster, True)
    room = room_with(layout, idle)
    needs = (PerGpu(0.0, 0.0),)
    speeds = NodeSpeeds.equal(layout)
    classes = classes_of(room, needs, speeds, by_node=neighbours is Neighbours.ID)
    pooled = Limits(
        np.zeros((1, 1), np.int64),
        np.ones((1, len(wants)), np.int64),
        np.ones(1, np.int64),
        np.full(1, 1 << 30),
    )
    found = catalogue_of(classes, np.array(wants, np.int64), pooled, shapes, neighbours)
    bounds = list(zip(found.starts[:-1].tolist(), found.starts[1:].tolist(), strict=True))
    of_node = dict(zip(classes.members.tolist(), classes.member_class.tolist(), strict=True))
    return found, bounds, of_node


def by_class(configurations: set[naive.Config], of_node: dict[int, int]) -> set[naive.Config]:
    return {
        tuple(sorted((of_node[node], gpus) for node, gpus in pieces)) for pieces in configurations
    }


TWINS = {
    (ALL_SHAPES, Neighbours.ANY): naive.on_any_nodes,
    (ALL_SHAPES, Neighbours.ID): naive.on_neighbours,
    (EVEN_ONLY, Neighbours.ANY): naive.in_equal_parts,
    (EVEN_ONLY, Neighbours.ID): naive.in_equal_parts_by_id,
}


@settings(max_examples=150, deadline=None)
@given(
    nodes=st.lists(st.tuples(st.integers(0, 5), st.sampled_from("ab")), min_size=1, max_size=7),
    wants=st.sets(st.integers(1, 14), min_size=1, max_size=4),
    shapes=st.sampled_from([ALL_SHAPES, EVEN_ONLY]),
    neighbours=st.sampled_from(list(Neighbours)),
)
def test_every_configuration_is_there_once_as_the_naive_twin_says(
    nodes: list[tuple[int, str]],
    wants: set[int],
    shapes: frozenset[Shape],
    neighbours: Neighbours,
) -> None:
    idle = [gpus for gpus, _ in nodes]
    cluster = cluster_with([5] * len(nodes), [group for _, group in nodes])
    found, bounds, of_node = catalogue(cluster, idle, sorted(wants), shapes, neighbours)
    pools = [[n for n, (_, group) in enumerate(nodes) if group == name] for name in "ab"]
    twin = TWINS[shapes, neighbours]
    for want, (begin, end), middle in zip(
        sorted(wants), bounds, found.spread_from.tolist(), strict=True
    ):
        pieces = [
            tuple(map(tuple, found.pieces[a:b].tolist()))
            for a, b in zip(
                found.piece_from[begin:end], found.piece_from[begin + 1 :], strict=False
            )
        ]
        assert len(pieces) == end - begin
        alone, spread = pieces[: middle - begin], pieces[middle - begin :]
        assert Counter(alone) == Counter(by_class(naive.on_one_node(idle, want), of_node))
        expected = set()
        per_pool = [twin(idle, [pool], want) for pool in pools]
        fewest = min((len(c) for each in per_pool for c in each), default=0)
        for each in per_pool:
            expected |= {c for c in each if len(c) == fewest}
        assert Counter(spread) == Counter(by_class(expected, of_node))


def test_with_one_node_only_nothing_is_spread() -> None:
    found, bounds, _ = catalogue(
        cluster_with([2, 2]), [2, 2], [2, 4], frozenset({Shape.SINGLE_NODE}), Neighbours.ANY
    )
    assert bounds == [(0, 1), (1, 1)]
    assert found.pieces.tolist() == [[0, 2]]


def test_a_want_that_no_group_could_hold_takes_nodes_of_all_groups() -> None:
    cluster = cluster_with([4, 4, 4, 4], ["x", "x", "y", "y"])
    layout = layout_of(cluster, True)
    needs = (PerGpu(0.0, 0.0),)
    for neighbours in Neighbours:
        limits = limits_of(layout, needs, (8, 12), ALL_SHAPES, neighbours)
        assert limits.in_pool.tolist() == [[1, 0]]
        assert limits.largest_node.tolist() == [[4]]
        classes = classes_of(
            Room.healthy(layout),
            needs,
            NodeSpeeds.equal(layout),
            by_node=neighbours is Neighbours.ID,
        )
        found = catalogue_of(classes, np.array([8, 12]), limits, ALL_SHAPES, neighbours)
        pool = classes.pool_from[1]
        spread = [
            {int(c >= pool) for c in found.pieces[a:b, 0]}
            for a, b in zip(found.piece_from[:-1], found.piece_from[1:], strict=True)
        ]
        begin = found.starts[1]
        assert all(len(groups) == 1 for groups in spread[:begin])
        assert spread[begin:]
        assert all(len(groups) == 2 for groups in spread[begin:])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_options_are_the_segments_of_each_job_at_the_speed_of_its_slowest_node(
    data: st.DataObject,
) -> None:
    """Against a loop over jobs, counts, types and configurations."""
    draw = data.draw
    types = ["a", "b"][: draw(st.integers(1, 2))]
    nodes = draw(
        st.lists(st.tuples(st.sampled_from(types), st.integers(1, 4)), min_size=1, max_size=5)
    )
    cluster = Cluster(tuple(Node(f"n{k}", t, gpus) for k, (t, gpus) in enumerate(nodes)))
    counts = np.array([1, 2, 4], np.int64)
    tables = {}
    for name in "mn":
        one = np.array(
            [[draw(st.sampled_from([0.0, 1.0, 2.0, 3.0]))] * 3 for _ in cluster.gpu_types]
        )
        factor = {n.name: draw(st.sampled_from([0.5, 0.8, 1.0])) for n in cluster}
        tables[name] = SpeedTable(
            cluster.gpu_types,
            counts,
            one * np.array([1.0, 0.9, 0.8]),
            one * draw(st.sampled_from([0.5, 0.9])) * np.array([1.0, 0.9, 0.8]),
            np.full(one.shape, Layer.TRUTH, np.int8),
            node_factor=factor if draw(st.booleans()) else {},
        )
    speeds = Speeds(cluster, tables)
    views = []
    for at in range(draw(st.integers(1, 4))):
        wants = tuple(sorted(draw(st.sets(st.sampled_from([1, 2, 3, 4, 6]), min_size=1))))
        job = view(f"j{at}", counts=wants)
        profile = draw(st.sampled_from("mn"))
        views.append(_with_profile(job, profile))
    layout = layout_of(cluster, True)
    demand = demand_of(views, speeds, layout, only_profiled=True)
    limits = limits_of(
        layout, demand.needs, tuple(demand.wants.tolist()), ALL_SHAPES, Neighbours.ID
    )
    nodes_at = _speeds_by_node(demand.tables, cluster)
    classes = classes_of(Room.healthy(layout), demand.needs, nodes_at, by_node=True)
    found = catalogue_of(classes, demand.wants, limits, ALL_SHAPES, Neighbours.ID)
    options = options_of(
        demand.kind,
        demand,
        segments_of(demand, found, limits, 1.4),
        found,
        classes,
        nodes_at.row,
        np.full(len(views), -1),
        np.zeros(len(views)),
    )
    label = classes.nodes.label
    got: dict[int, dict[naive.Config, float]] = {at: {} for at in range(len(views))}
    for q, job_at in enumerate(options.job.tolist()):
        pieces = options.pieces[options.piece_from[q] : options.piece_from[q + 1]].tolist()
        config = tuple(sorted((cluster.index(label[c]), gpus) for c, gpus in pieces))
        assert config not in got[job_at]
        got[job_at][config] = float(options.speed[q])
    for at, each in enumerate(views):
        expected = _configurations(each.job.profile, each.job.requirements.counts, cluster, speeds)
        assert got[at] == pytest.approx(expected)
    gain = options.gain()
    for at in range(len(views)):
        mine = options.job == at
        if mine.any():
            assert gain[mine] == pytest.approx(options.speed[mine] / options.speed[mine].min())


def _with_profile(job_view: JobView, profile: str) -> JobView:
    return replace(job_view, job=replace(job_view.job, profile=profile))


def _configurations(
    profile: str, counts: Sequence[int], cluster: Cluster, speeds: Speeds
) -> dict[naive.Config, float]:
    """Every configuration of a job on the idle cluster, by the words of the paper."""
    found = {}
    for gpu_type in cluster.gpu_types:
        idle = [node.gpus if node.gpu_type == gpu_type else 0 for node in cluster]
        pool = [at for at, node in enumerate(cluster) if node.gpu_type == gpu_type]
        together = speeds.per_gpu(profile, gpu_type, 1)
        apart = speeds.per_gpu(profile, gpu_type, 2, nodes=2)
        for count in counts:
            configurations = naive.on_one_node(idle, count)
            if (apart > 0 and together / apart <= 1.4) or counts[0] > max(idle):
                configurations |= naive.on_neighbours(idle, [pool], count)
            for pieces in configurations:
                config = Configuration.of({cluster.nodes[n].name: gpus for n, gpus in pieces})
                speed = speeds.speed(profile, config)
                if speed > 0:
                    found[pieces] = speed
    return found


def _speeds_by_node(tables: Sequence[SpeedTable], cluster: Cluster) -> NodeSpeeds:
    return node_speeds(tables, cluster, layout_of(cluster, True), 0.0)
