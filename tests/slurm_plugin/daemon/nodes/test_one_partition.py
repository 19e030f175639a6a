"""A job of several partitions runs on nodes of one of them."""

from dataclasses import replace

import pytest

from slurm_plugin.backend import Resources, SlurmJob, SlurmNode
from slurm_plugin.daemon.settings import DaemonSettings
from tests.slurm_plugin.daemon.fake_slurm import RIGID, WAITING, Site, node, places, running

SETTINGS = DaemonSettings(partitions=frozenset({"a", "b"}))


def in_partitions(name: str, *partitions: str, used: int = 0) -> SlurmNode:
    """A node of four GPUs in these."""
    return replace(node(name, used), partitions=frozenset(partitions))


NODES = (
    *(in_partitions(name, "a") for name in ("n0", "n1")),
    *(in_partitions(name, "b") for name in ("n2", "n3")),
)


def wide(gpus: int, **more: object) -> SlurmJob:
    """A job for two nodes of either partition."""
    resources = Resources((2, 2), 2, "", f"gres/gpu:{gpus // 2}", "", "")
    asks = replace(RIGID, gpus=gpus, resources=resources, partition="a", partitions=("a", "b"))
    return replace(asks, **more)  # type: ignore[arg-type]


SET = replace(
    WAITING,
    mark='hetsched/2 {"nonce":"a1","gpu-set":"8"}',
    gpus=8,
    partition="a",
    partitions=("a", "b"),
)


@pytest.mark.parametrize("policy", ["fifo", "steady"])
@pytest.mark.parametrize("job", [wide(4), wide(8), SET])
def test_a_job_for_several_nodes_is_placed_where_one_partition_has_room(
    job: SlurmJob, policy: str
) -> None:
    # One node of each partition is in use: only `b` has two with room later.
    others = [running(replace(RIGID, id=f"9{at}"), f"n{at}", gpus=4) for at in (0, 2)]
    nodes = (in_partitions("n0", "a", used=4), NODES[1], in_partitions("n2", "b", used=4), NODES[3])
    site = Site(job, *others, nodes=nodes, settings=SETTINGS, policy=policy)
    assert places(site.cycle(3)) == {}
    calls = site.see(job, others[0], nodes=(*nodes[:2], *NODES[2:]), seconds=70)
    assert set(places(calls)[job.id]) == {"n2", "n3"}


def test_a_job_of_one_gpu_and_one_of_nested_partitions_may_be_on_any_node() -> None:
    one = replace(RIGID, partition="a", partitions=("a", "b"))
    site = Site(one, nodes=NODES, settings=SETTINGS)
    site.cycle()
    assert site.world.jobs["5"].job.nodes is None
    nested = tuple(in_partitions(each.name, "a", *(each.partitions or ())) for each in NODES)
    site = Site(wide(4), nodes=nested, settings=SETTINGS)
    site.cycle()
    assert site.world.jobs["5"].job.nodes is None


def test_a_waiting_job_without_gpus_for_two_nodes_is_on_those_of_one_partition() -> None:
    resources = Resources((2, 2), 2, "", "", "", "")
    job = replace(wide(4), gpus=0, resources=resources)
    site = Site(job, nodes=NODES, settings=SETTINGS)
    (nodes,) = places(site.cycle(2)).values()
    assert nodes in {("n0", "n1"), ("n2", "n3")}
