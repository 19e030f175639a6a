"""Slurm's texts, read."""

import pytest

from hetsched_core.types import NodeCondition
from slurm_plugin.backend.gres import (
    NO_LIMIT,
    condition,
    gpu_counts,
    gpu_part,
    gpus_in,
    gpus_in_use,
    is_asleep,
    licenses_in,
    memory_mb_in,
    node_names,
    node_range,
    other_gres,
)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("gpu:v100:8", (("v100", 8),)),
        ("gpu:v100:8(S:0-1)", (("v100", 8),)),
        ("gpu:v100:5(IDX:0-4),gpu:a100:0(IDX:N/A)", (("v100", 5),)),
        ("gpu:4", (("gpu", 4),)),
        ("gpu:4(S:0-1)", (("gpu", 4),)),
        ("gpu:3090:4", (("3090", 4),)),
        ("gres/gpu:2", (("gpu", 2),)),
        ("gres/gpu=2", (("gpu", 2),)),
        ("gres/gpu:v100=2", (("v100", 2),)),
        ("gres:gpu:2", (("gpu", 2),)),
        ("craynetwork:4,gpu:h100-80g:2", (("h100-80g", 2),)),
        ("mygpu:4", ()),
        ("", ()),
    ],
)
def test_gpus_are_counted_by_type(text: str, counts: tuple[tuple[str, int], ...]) -> None:
    assert gpu_counts(text) == counts


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("gpu:a100:1(IDX:2),shard:a100:6(4/4,2/4,-/4,0/4)", (("a100", 3),)),
        ("gpu:v100:0(IDX:N/A),shard:v100:3(3/4,0/4)", (("v100", 1),)),
        ("gpu:0(IDX:N/A),mps:100(50/100,50/100)", (("gpu", 2),)),
        ("shard:3090:1(1/4),gpu:a100:2(IDX:0-1)", (("3090", 1), ("a100", 2))),
        ("gpu:a100:0(IDX:N/A),shard:a100:0(0/4,0/4)", ()),
        ("", ()),
    ],
)
def test_a_gpu_of_which_a_share_is_in_use_is_in_use(
    text: str, counts: tuple[tuple[str, int], ...]
) -> None:
    assert gpus_in_use(text) == counts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cpu=4,node=1,gres/gpu=3,gres/gpu:t4=1,gres/gpu:v100=2", (3, ("t4", "v100"))),
        ("cpu=4,gres/gpu:t4=1,gres/gpu:v100=2", (3, ("t4", "v100"))),
        ("gres/gpu:a100:3", (3, ("a100",))),
        ("gres/gpu:3", (3, ())),
        ("cpu=4", (0, ())),
    ],
)
def test_gpus_are_counted_once_though_they_are_listed_by_type_too(
    text: str, found: tuple[int, tuple[str, ...]]
) -> None:
    assert gpus_in(text) == found


@pytest.mark.parametrize(
    ("text", "mb"),
    [("cpu=8,mem=4G,gres/gpu=4", 4096), ("mem=1500M", 1500), ("mem=1025K", 2), ("cpu=8", 0)],
)
def test_memory_is_read_in_mib_rounded_up(text: str, mb: int) -> None:
    assert memory_mb_in(text) == mb


@pytest.mark.parametrize(
    ("words", "means"),
    [
        (["IDLE"], NodeCondition.UP),
        (["MIXED"], NodeCondition.UP),
        (["ALLOCATED", "COMPLETING"], NodeCondition.UP),
        (["IDLE", "DRAIN"], NodeCondition.DRAINED),
        (["MIXED", "DRAINING"], NodeCondition.DRAINED),
        (["IDLE", "MAINTENANCE", "RESERVED"], NodeCondition.DRAINED),
        (["DOWN"], NodeCondition.DOWN),
        (["DOWN", "DRAIN"], NodeCondition.DOWN),
        (["IDLE*"], NodeCondition.DOWN),
        (["IDLE", "NOT_RESPONDING"], NodeCondition.DOWN),
        # One that is reserved or powered down is not closed, but one on its way down.
        (["IDLE", "RESERVED"], NodeCondition.UP),
        (["IDLE", "POWERED_DOWN", "RESERVED"], NodeCondition.UP),
        (["IDLE", "CLOUD", "POWERED_DOWN"], NodeCondition.UP),
        (["MIXED", "CLOUD", "NOT_RESPONDING", "POWERING_UP"], NodeCondition.UP),
        (["IDLE", "POWERING_DOWN", "NOT_RESPONDING"], NodeCondition.DRAINED),
        (["IDLE", "POWER_DOWN"], NodeCondition.DRAINED),
        (["MIXED*", "POWERING_UP"], NodeCondition.UP),
        # For no job: an admin has told it to, and it may never come.
        (["IDLE", "NOT_RESPONDING", "POWERING_UP"], NodeCondition.DRAINED),
        (["DOWN", "POWERED_DOWN"], NodeCondition.DOWN),
        (["IDLE", "DRAIN", "POWERED_DOWN"], NodeCondition.DRAINED),
    ],
)
def test_a_node_s_state_words_become_a_condition(words: list[str], means: NodeCondition) -> None:
    assert condition(words) is means
    assert is_asleep(words) is bool({"POWERED_DOWN", "POWERING_UP"} & {*words})


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("gpu:a100:4(S:0-1),fpga:2", (("fpga", 2),)),
        ("gres/gpu:1,gres/fpga:xc:1,gres/fpga:yd:2,license/cad:1", (("fpga", 3),)),
        ("gpu:1,nic", (("nic", 1),)),
        ("gpu:a100:1,shard:a100:8(0-7),bandwidth:4G(S:0,1)", (("bandwidth", 1),)),
        ("cpu=3,mem=4G,gres/gpu=1", ()),
        (None, ()),
    ],
)
def test_what_is_no_gpu_is_told_by_name(
    text: str | None, others: tuple[tuple[str, int], ...]
) -> None:
    assert other_gres(text) == others


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cad:2,fem@db:10", (("cad", 2), ("fem@db", 10))),
        ("fem;cad:1", (("cad", 1), ("fem", 1))),
        ("cad:2|fem:1", ()),
        (None, ()),
    ],
)
def test_licences_are_told_by_name(text: str | None, found: tuple[tuple[str, int], ...]) -> None:
    assert licenses_in(text) == found


def test_node_lists_are_expanded_and_sorted() -> None:
    assert node_names("n[4,1]") == ("n1", "n4")
    assert node_names(",") == ()
    assert node_names(None) == ()


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("cpu=3,gres/gpu:1", "gres/gpu:1"),
        ("cpu=3,gres/gpu:a100=1", "gres/gpu:a100:1"),
        ("cpu=4", ""),
        ("gres/gpu:2,gres/shard:1", "gres/gpu:2"),
        (None, ""),
    ],
)
def test_of_what_each_task_asks_for_its_gpus_are_told(text: str | None, gpus: str) -> None:
    assert gpu_part(text) == gpus


@pytest.mark.parametrize(
    ("count", "most", "cpus", "tasks", "per_node", "least_and_most"),
    [
        *((2, 2, 2, 2, 0, (2, 2)), (2, 0, 8, 8, 0, (1, 0)), (2, 0, 8, 8, 4, (2, 0))),
        *((1, NO_LIMIT, 1, 1, 0, (1, 0)), (6, 2, 2, 2, 0, (2, 2))),
        # Of tasks that share CPUs it counts each.
        *((2, 64, 1, 64, 0, (1, 64)), (2, 40, 40, 40, 0, (2, 40))),
        # `-N2-4`.
        (2, 4, 1, 2, 0, (2, 4)),
    ],
)
def test_slurm_s_guess_at_the_number_of_nodes_is_no_need(
    count: int, most: int, cpus: int, tasks: int, per_node: int, least_and_most: tuple[int, int]
) -> None:
    assert node_range(count, most, cpus, tasks, per_node) == least_and_most
