"""Configuration generation: worked example W6, and every rule against its naive twin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hetsched_core.kernels.configurations import UNEVEN
from hetsched_core.placement.free import PerGpu
from hetsched_core.policies.hops.configurations import (
    Catalogue,
    ClusterLimits,
    Neighbours,
    catalogue_of,
    limits_of,
    options_of,
)
from hetsched_core.policies.hops.demand import shape_code
from hetsched_core.policies.hops.room import Classes, Room, classes_of, layout_of, node_speeds
from hetsched_core.types import ALL_SHAPES, Cluster, Shape
from tests.hetsched_core.policies.hops import naive
from tests.hetsched_core.policies.hops.worlds import World, nodes_of, table_of, worlds
from tests.hetsched_core.worlds import view

EVEN_ONLY = frozenset({Shape.SINGLE_NODE, Shape.EVEN})


def by_piece(catalogue: Catalogue) -> list[tuple[tuple[int, int], ...]]:
    """(class, GPUs) of each configuration, node by node."""
    found = []
    for a, b in pairwise(catalogue.piece_from):
        pieces = catalogue.pieces[a:b].tolist()
        assert len({(c, gpus) for c, gpus, _ in pieces}) == len(pieces)
        found.append(tuple((c, gpus) for c, gpus, nodes in pieces for _ in range(nodes)))
    return found


def options_by_node(
    world: World, room: Room, neighbours: Neighbours
) -> list[list[tuple[naive.Config, float]]]:
    """Of each job the configurations that it is offered, with their speeds."""
    generator, jobs = world.generator(neighbours), np.arange(len(world.views))
    generated = generator.on(room)
    options = options_of(generator, generated, jobs, np.full(len(jobs), -1), np.zeros(len(jobs)))
    label, configurations = generated.classes.nodes.label, by_piece(generated.catalogue)
    found: list[list[tuple[naive.Config, float]]] = [[] for _ in jobs]
    for q, job in enumerate(options.job.tolist()):
        pieces = configurations[options.configuration[q]]
        config = tuple(sorted((world.cluster.index(label[c]), gpus) for c, gpus in pieces))
        found[job].append((config, float(options.speed[q])))
    for job, speeds in enumerate(found):
        slowest = min((speed for _, speed in speeds), default=1.0)
        gain = [speed / slowest for _, speed in speeds]
        assert options.gain()[options.job == job].tolist() == pytest.approx(gain)
    return found


def generated(idle: Sequence[int], wants: tuple[int, ...], sensitivity: float) -> list[str]:
    """The configurations of one job on nodes of 4 GPUs, in the notation of W6."""
    table = table_of(["t"], sensitivity=sensitivity)
    world = World.of(nodes_of(*[4] * len(idle)), table, view("j", counts=wants))
    room = world.room()
    room.gpus[:] = idle
    (mine,) = options_by_node(world, room, Neighbours.ID)
    return ["{" + ",".join(f"{node}:{gpus}" for node, gpus in config) + "}" for config, _ in mine]


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


@given(worlds())
def test_options_are_the_segments_of_each_job_at_the_speed_of_its_slowest_node(
    world: World,
) -> None:
    """Against a loop over jobs, counts, types and configurations."""
    found = options_by_node(world, world.room(), Neighbours.ID)
    for options, expected in zip(found, world.configurations(Neighbours.ID), strict=True):
        assert len(options) == len(expected)
        assert dict(options) == pytest.approx(expected)


# -- against the naive twin ------------------------------------------------------------------------


def catalogue(
    cluster: Cluster,
    idle: Sequence[int],
    wants: Sequence[int],
    shapes: frozenset[Shape],
    neighbours: Neighbours,
    limits: ClusterLimits | None = None,
) -> tuple[Catalogue, Classes]:
    """The catalogue for jobs without needs; without limits every pool may hold every want."""
    layout = layout_of(cluster, True)
    room = Room.healthy(layout)
    room.gpus[:] = idle
    equal = node_speeds((), layout, 0.0)
    classes = classes_of(room, (PerGpu(),), equal, by_node=neighbours is Neighbours.ID)
    one = np.ones(1, np.int64)
    anywhere = ClusterLimits(
        largest_node=np.zeros((1, 1), np.int64),
        in_pool=np.ones((1, len(wants)), np.int64),
        shape=np.full(1, shape_code(shapes)),
        least=one,
        most=one << 30,
    )
    sizes = np.array(wants, np.int64)
    return catalogue_of(classes, sizes, limits or anywhere, neighbours), classes


TWINS = {
    (ALL_SHAPES, Neighbours.ANY): naive.on_any_nodes,
    (ALL_SHAPES, Neighbours.ID): naive.on_neighbours,
    (EVEN_ONLY, Neighbours.ANY): naive.in_equal_parts,
    (EVEN_ONLY, Neighbours.ID): naive.in_equal_parts_by_id,
}


@pytest.mark.parametrize(("shapes", "neighbours"), TWINS, ids=["any", "id", "even", "even by id"])
@settings(max_examples=40)
@given(
    nodes=st.lists(st.tuples(st.integers(0, 5), st.sampled_from("ab")), min_size=1, max_size=7),
    wants=st.sets(st.integers(1, 14), min_size=1, max_size=4).map(sorted),
)
# The only node of one pool holds what takes three of the other.
@example(nodes=[(1, "a"), (1, "a"), (1, "a"), (3, "b")], wants=[3])
def test_every_configuration_is_there_once_as_the_naive_twin_says(
    nodes: list[tuple[int, str]],
    wants: list[int],
    shapes: frozenset[Shape],
    neighbours: Neighbours,
) -> None:
    idle, groups = [gpus for gpus, _ in nodes], [group for _, group in nodes]
    cluster = nodes_of(*[5] * len(nodes), groups=groups)
    found, classes = catalogue(cluster, idle, wants, shapes, neighbours)
    of_node = dict(zip(classes.members.tolist(), classes.member_class.tolist(), strict=True))

    def by_class(configurations: set[naive.Config]) -> Counter[naive.Config]:
        return Counter(
            {tuple(sorted((of_node[node], gpus) for node, gpus in c)) for c in configurations}
        )

    pieces = by_piece(found)
    pools = [[n for n, group in enumerate(groups) if group == name] for name in "ab"]
    for at, want in enumerate(wants):
        begin, end, middle = found.starts[at], found.starts[at + 1], found.spread_from[at]
        assert Counter(pieces[begin:middle]) == by_class(naive.on_one_node(idle, want))
        per_pool = [TWINS[shapes, neighbours](idle, [pool], want) for pool in pools]
        fewest = min((len(c) for each in per_pool for c in each), default=0)
        expected = {c for each in per_pool for c in each if len(c) == fewest}
        assert Counter(pieces[middle:end]) == by_class(expected)


def test_with_one_node_only_nothing_is_spread() -> None:
    only = frozenset({Shape.SINGLE_NODE})
    found, _ = catalogue(nodes_of(2, 2), [2, 2], [2, 4], only, Neighbours.ANY)
    assert found.starts.tolist() == [0, 1, 1]
    assert found.pieces.tolist() == [[0, 2, 1]]


@pytest.mark.parametrize("neighbours", Neighbours)
def test_a_want_that_no_group_could_hold_takes_nodes_of_all_groups(neighbours: Neighbours) -> None:
    cluster = nodes_of(4, 4, 4, 4, groups=["x", "x", "y", "y"])
    limits = limits_of(layout_of(cluster, True), (PerGpu(),), (UNEVEN,), (8, 12), neighbours)
    assert limits.in_pool.tolist() == [[1, 0]]
    assert limits.largest_node.tolist() == [[4]]
    found, classes = catalogue(cluster, [4] * 4, [8, 12], ALL_SHAPES, neighbours, limits)
    spread = [
        len({int(c >= classes.pool_from[1]) for c, _ in pieces}) for pieces in by_piece(found)
    ]
    first, last = found.starts[1:].tolist()
    assert 0 < first < last
    assert spread == [1] * first + [2] * (last - first)
