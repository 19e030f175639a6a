"""Clusters made for generated workloads."""

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.synthetic.cluster import MOST_NODES, synthetic_cluster


def test_every_type_gets_as_many_nodes_give_or_take_one() -> None:
    cluster = synthetic_cluster(2000, ["a100", "v100", "t4"], name="big")
    assert cluster.name == "big"
    assert cluster.gpus_by_type() == {"a100": 84 * 8, "v100": 83 * 8, "t4": 83 * 8}
    assert {node.gpus for node in cluster} == {8}
    assert cluster.names[:2] == ("a100-1", "a100-2")


@pytest.mark.parametrize(
    ("gpus", "types", "says"),
    [
        (2001, ["a100"], "GPU"),
        (8, ["a100", "v100"], "GPU"),
        (16, ["a100", "a100"], "GPU"),
        (8, [], "GPU"),
        # More than any cluster has are refused at once.
        (8 * 10**16, ["a100"], f"{10**16} nodes of 8; give at most {MOST_NODES} nodes"),
        (8 * 10**16 + 1, ["a100"], f"are {10**16} nodes of 8 and 1 GPUs over"),
    ],
)
def test_gpus_that_make_no_whole_nodes_of_each_type_are_refused(
    gpus: int, types: list[str], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        synthetic_cluster(gpus, types)
