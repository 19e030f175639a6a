"""Classes of nodes: which count as interchangeable, and under which name."""

from __future__ import annotations

import numpy as np
import pytest

from hetsched_core.placement.free import PerGpu
from hetsched_core.policies.hops.room import (
    Classes,
    NodeSpeeds,
    Room,
    classes_of,
    layout_of,
    node_speeds,
)
from hetsched_core.types import Cluster, Node
from tests.hetsched_core.policies.hops.worlds import table_of

PLAIN = PerGpu(0.0, 0.0)
NODES = (
    Node("a", "t", 4, cpus=16, group="x"),
    Node("b", "t", 4, cpus=4, group="x"),
    Node("c", "t", 4, cpus=16, group="y"),
    Node("d", "u", 4, cpus=16, group="y"),
    Node("e", "t", 2, cpus=16, group="x"),
    Node("f", "t", 4, cpus=16, group="x"),
)
CLUSTER = Cluster(NODES)


def names_of(classes: Classes) -> dict[str, str]:
    """The nodes of each class, by its label."""
    found = {}
    for at, label in enumerate(classes.nodes.label):
        nodes = classes.members[classes.member_class == at]
        found[label] = "".join(CLUSTER.nodes[node].name for node in nodes)
        assert classes.nodes.count[at] == len(nodes)
        assert {CLUSTER.nodes[node].gpus for node in nodes} == {int(classes.nodes.capacity[at])}
    return found


@pytest.mark.parametrize(
    ("cpus", "groups", "by_node", "classes"),
    [
        (0.0, False, False, "t x2: e, t x4: abcf, u x4: d"),
        (0.0, True, False, "t x2 in x: e, t x4 in x: abf, t x4 in y: c, u x4 in y: d"),
        # One has too few CPUs for all of its GPUs.
        (2.0, False, False, "t x2: e, t x4: b, t x4 #2: acf, u x4: d"),
        # By node every node is a class in the order of the cluster.
        (0.0, False, True, "a: a, b: b, c: c, e: e, f: f, d: d"),
    ],
)
def test_nodes_of_one_type_and_group_with_equal_room_for_every_job_are_one_class(
    cpus: float, groups: bool, by_node: bool, classes: str
) -> None:
    layout, needs = layout_of(CLUSTER, groups), (PLAIN, PerGpu(cpus))
    equal = node_speeds((), layout, 0.0)
    found = names_of(classes_of(Room.healthy(layout), needs, equal, by_node=by_node))
    assert ", ".join(f"{label}: {nodes}" for label, nodes in found.items()) == classes


def test_classes_of_several_groups_are_of_one_kind_if_they_differ_in_nothing_else() -> None:
    layout = layout_of(CLUSTER, True)
    equal = node_speeds((), layout, 0.0)
    slower = NodeSpeeds(equal.row, equal.factor, np.array([1, 1, 0, 0, 1, 1]))
    for speeds, alike in ((equal, True), (slower, False)):
        nodes = classes_of(Room.healthy(layout), (PLAIN,), speeds, by_node=False).nodes
        assert nodes.kind is not None
        # In x one class of 2 GPUs and one of 4, in y one of 4; and `u`.
        assert len(nodes) == 4
        assert len(set(nodes.kind.tolist())) == (3 if alike else 4)


@pytest.mark.parametrize(
    ("step", "levels"), [(0.0, [2, 0, 1, 0, 3, 2]), (0.05, [1, 0, 0, 0, 1, 1]), (1.0, [0] * 6)]
)
def test_speed_levels_end_where_a_node_is_faster_than_the_slowest_by_the_step(
    step: float, levels: list[int]
) -> None:
    factors = dict(zip("abcef", (1.0, 0.9, 0.94, 1.04, 1.0), strict=True))
    layout = layout_of(CLUSTER, False)
    speeds = node_speeds((table_of(["t", "u"], node_factor=factors),), layout, step)
    assert speeds.level.tolist() == levels
    classes = classes_of(Room.healthy(layout), (PLAIN,), speeds, by_node=False)
    mean = [np.mean([factors.get(n, 1.0) for n in nodes]) for nodes in names_of(classes).values()]
    assert classes.factor[1].tolist() == pytest.approx(mean)


def test_a_node_with_nothing_to_give_is_in_no_class() -> None:
    layout = layout_of(CLUSTER, False)
    room = Room.healthy(layout)
    room.gpus[[0, 3]] = 0
    classes = classes_of(room, (PLAIN,), node_speeds((), layout, 0.0), by_node=False)
    assert classes.members.tolist() == [1, 2, 4, 5]
