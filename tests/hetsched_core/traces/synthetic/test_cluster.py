"""Clusters made for generated workloads."""

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.synthetic import synthetic_cluster
from hetsched_core.traces.synthetic.cluster import MOST_NODES


def test_every_type_gets_as_many_nodes_give_or_take_one() -> None:
    cluster = synthetic_cluster(2000, ["a100", "v100", "t4"], name="big")
    assert cluster.name == "big"
    assert cluster.gpus_by_type() == {"a100": 84 * 8, "v100": 83 * 8, "t4": 83 * 8}
    assert {node.gpus for node in cluster} == {8}
    assert cluster.names[:2] == ("a100-1", "a100-2")


@pytest.mark.parametrize(
    ("gpus", "types", "per_node"),
    [(2001, ["a100"], 8), (8, ["a100", "v100"], 8), (16, ["a100", "a100"], 8), (8, [], 8)],
)
def test_gpus_that_make_no_whole_nodes_of_each_type_are_refused(
    gpus: int, types: list[str], per_node: int
) -> None:
    with pytest.raises(InputError, match="GPU"):
        synthetic_cluster(gpus, types, per_node)


def test_more_nodes_than_any_cluster_has_are_refused_at_once() -> None:
    most = f"{10**16} nodes of 8; give at most {MOST_NODES} nodes"
    with pytest.raises(InputError, match=most):
        synthetic_cluster(8 * 10**16, ["a100"])
    with pytest.raises(InputError, match=f"are {10**16} nodes of 8 and 1 GPUs over"):
        synthetic_cluster(8 * 10**16 + 1, ["a100"])
