"""Clusters inferred from logs and from Slurm's own lists of nodes, alone and together."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hetsched_core.errors import InputError
from hetsched_core.traces.infer_cluster import InferredCluster, infer_cluster
from hetsched_core.traces.node_types import NodeTypes
from hetsched_core.traces.sacct import Allocation, read_sacct
from hetsched_core.traces.slurm_nodes import SlurmNode, read_scontrol, read_sinfo
from hetsched_core.types import Node
from tests.hetsched_core.traces.worlds import FOX, columns

HEADER = "JobID|State|Submit|Start|End|TimelimitRaw|NodeList|AllocTRES"


def log(*rows: str) -> list[Allocation]:
    """Read rows of `NODES GPUS START END`: GPUs as in `a100=2+?=1`, times in minutes of an hour."""
    lines = [HEADER]
    for job, row in enumerate(rows, 1):
        nodes, gpus, start, end = row.split()
        begun, ended = (f"2025-03-03T09:{minute}:00" for minute in (start, end))
        state = "COMPLETED"
        if end == "-":
            state, ended = "RUNNING", "Unknown"
        counts = [(name, int(count)) for name, count in (p.split("=") for p in gpus.split("+"))]
        tres = f"gres/gpu={sum(count for _, count in counts)}"
        tres += "".join(f",gres/gpu:{name}={count}" for name, count in counts if name != "?")
        lines.append(f"{job}|{state}|{begun}|{begun}|{ended}|600|{nodes}|{tres}")
    text = "".join(f"{line}\n" for line in lines)
    source = read_sacct(BytesIO(text.encode()))
    allocations = list(source)
    assert not source.report.unusable
    return allocations


def sizes(inferred: InferredCluster) -> dict[str, tuple[str, int]]:
    return {node.name: (node.gpu_type, node.gpus) for node in inferred.cluster}


def assumed(inferred: InferredCluster, text: str) -> list[str]:
    return [sentence for sentence in inferred.assumptions if text in sentence]


# From a log ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "gpus"),
    [
        pytest.param(["n1 a100=2 00 10", "n1 a100=1 05 15"], 3, id="overlapping"),
        pytest.param(["n1 a100=2 00 10", "n1 a100=2 10 15"], 2, id="one after the other"),
        pytest.param(["n1 a100=2 10 15", "n1 a100=2 00 10"], 2, id="the later one first"),
        pytest.param(["n1 a100=4 05 05", "n1 a100=1 00 10"], 4, id="held for less than a second"),
        pytest.param(["n1 a100=2 00 -", "n1 a100=2 30 40"], 4, id="still running"),
        pytest.param(
            ["n1 a100=1 00 20", "n1 a100=1 05 10", "n1 a100=1 06 09", "n1 a100=1 10 20"],
            3,
            id="several at once",
        ),
    ],
)
def test_a_node_has_as_many_gpus_as_were_in_use_at_once(rows: list[str], gpus: int) -> None:
    assert sizes(infer_cluster(log(*rows))) == {"n1": ("a100", gpus)}


def in_use_each_minute(spans: list[tuple[int, int, int]]) -> Iterator[int]:
    """Count in the plainest way: GPUs held in every minute."""
    for minute in range(60):
        yield sum(gpus for gpus, start, end in spans if start <= minute < end)


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(10, 58), st.integers(1, 30)), min_size=1))
def test_the_count_is_the_most_of_any_minute_or_allocation(
    spans: list[tuple[int, int, int]],
) -> None:
    spans = [(gpus, start, min(start + length, 59)) for gpus, start, length in spans]
    rows = [f"n1 a100={gpus} {start} {end}" for gpus, start, end in spans]
    most = max(*in_use_each_minute(spans), *(gpus for gpus, _, _ in spans))
    assert sizes(infer_cluster(log(*rows))) == {"n1": ("a100", most)}


def test_nodes_come_in_slurms_order() -> None:
    inferred = infer_cluster(log("n10 t4=1 00 10", "n9 t4=1 00 10", "a2 t4=1 00 10"))
    assert inferred.cluster.names == ("a2", "n9", "n10")


def test_a_count_that_rests_on_a_job_without_an_end_is_said_to() -> None:
    inferred = infer_cluster(log("n1 a100=2 00 -", "n1 a100=2 30 40", "n2 a100=2 00 10"))
    (sentence,) = assumed(inferred, "without an end")
    assert sentence.startswith("n1: ")


def test_a_job_past_its_time_limit_without_an_end_holds_nothing_for_ever() -> None:
    early, late = "2025-03-01T00:00:00", "2025-03-03T00:00:00"
    text = (
        f"{HEADER}|ElapsedRaw\n1|RUNNING|{early}|{early}|Unknown|60|n1|gres/gpu:t4=2|200000\n"
        f"2|COMPLETED|{late}|{late}|2025-03-03T01:00:00|60|n1|gres/gpu:t4=2|3600\n"
    )
    assert sizes(infer_cluster(read_sacct(BytesIO(text.encode())))) == {"n1": ("t4", 2)}


def test_a_run_that_two_exports_show_counts_once() -> None:
    allocations = log("n1 a100=2 00 10")
    assert sizes(infer_cluster([*allocations, *allocations])) == {"n1": ("a100", 2)}


def test_what_a_log_cannot_tell_is_said() -> None:
    inferred = infer_cluster(log("n[1-2] a100=4 00 10"))
    assert all((node.cpus, node.memory_mb) == (0, 0) for node in inferred.cluster)
    assert assumed(inferred, "n[1-2]: GPUs counted as the most that the log shows")
    assert assumed(inferred, "n[1-2]: CPUs or memory are not known")


def test_types_are_read_in_lower_case() -> None:
    inferred = infer_cluster(log("n1 A100=1 00 10", "n1 a100=1 00 10"))
    assert sizes(inferred) == {"n1": ("a100", 2)}


def test_a_host_with_two_types_becomes_two_nodes() -> None:
    inferred = infer_cluster(log("n1 a100=2+t4=1 00 10", "n1 t4=1 05 10"))
    assert inferred.cluster.nodes == (
        Node("n1-a100", "a100", 2, host="n1"),
        Node("n1-t4", "t4", 2, host="n1"),
    )
    assert assumed(inferred, "n1: GPUs of several types")


# Over several nodes -------------------------------------------------------------------------------


def test_a_total_over_several_nodes_is_spread_evenly_and_a_remainder_is_noted() -> None:
    inferred = infer_cluster(log("n[1-3] a100=7 00 10", "n[4-5] a100=4 00 10"))
    assert [node.gpus for node in inferred.cluster] == [3, 2, 2, 2, 2]
    assert assumed(inferred, "2 allocations, 1 of them with a remainder")


def test_several_types_over_several_nodes_go_where_each_type_is_known() -> None:
    inferred = infer_cluster(
        log("n[1-3] a100=4+t4=2 00 10", "n1 a100=1 20 30", "n2 a100=1 20 30", "n3 t4=1 20 30")
    )
    assert sizes(inferred) == {"n1": ("a100", 2), "n2": ("a100", 2), "n3": ("t4", 2)}


def test_slurm_tells_which_node_of_several_has_which_type() -> None:
    scontrol = [SlurmNode("n1", (("a100", 4),), 8, 100)]
    inferred = infer_cluster(log("n[1-2] a100=4+t4=2 00 10", "n2 t4=1 20 30"), scontrol=scontrol)
    assert sizes(inferred) == {"n1": ("a100", 4), "n2": ("t4", 2)}


def test_fewer_gpus_than_nodes_leave_the_last_nodes_out() -> None:
    assert sizes(infer_cluster(log("n[1-3] a100=2 00 10"))) == {
        "n1": ("a100", 1),
        "n2": ("a100", 1),
    }


# Without a type -----------------------------------------------------------------------------------


def test_an_untyped_gpu_has_the_type_that_its_node_shows_elsewhere() -> None:
    inferred = infer_cluster(
        log("n1 ?=2 00 10", "n1 a100=1 05 10", "n[2-3] ?=2 00 10", "n3 t4=1 20 30")
    )
    assert sizes(inferred) == {"n1": ("a100", 3), "n2": ("untyped", 1), "n3": ("t4", 1)}
    assert assumed(inferred, "n2: no source names the GPUs' type")


def test_a_rule_names_the_type_where_the_log_does_not() -> None:
    rules = NodeTypes.of({"n*": "v100"})
    inferred = infer_cluster(log("n1 ?=2 00 10", "n2 a100=1 00 10", "n2 ?=1 05 10"), rules=rules)
    assert sizes(inferred) == {"n1": ("v100", 2), "n2": ("a100", 2)}
    assert not assumed(inferred, "no source names")


def test_untyped_gpus_on_a_host_of_two_types_are_not_counted_and_that_is_said() -> None:
    rows = ["n1 a100=1 00 10", "n1 t4=1 00 10", "n1 ?=4 00 10"]
    inferred = infer_cluster(log(*rows))
    assert sizes(inferred) == {"n1-a100": ("a100", 1), "n1-t4": ("t4", 1)}
    assert assumed(inferred, "n1: untyped allocations")
    named = infer_cluster(log(*rows), rules=NodeTypes.of({"n1": "t4"}))
    assert sizes(named)["n1-t4"] == ("t4", 5)


def test_untyped_gpus_beside_typed_ones_are_of_another_type() -> None:
    mixed = (("a100", 2), (None, 2))
    inferred = infer_cluster(scontrol=[SlurmNode("n1", mixed, 8, 100)])
    assert sizes(inferred) == {"n1-a100": ("a100", 2), "n1-untyped": ("untyped", 2)}
    named = infer_cluster(
        log("n1 a100=1+?=2 00 10"), sinfo=[SlurmNode("n1")], rules=NodeTypes.of({"n1": "t4"})
    )
    assert sizes(named) == {"n1-a100": ("a100", 1), "n1-t4": ("t4", 2)}


# From Slurm's lists -------------------------------------------------------------------------------


def test_scontrol_goes_before_sinfo_and_sinfo_before_the_log() -> None:
    inferred = infer_cluster(
        log("n[1-4] a100=32 00 10"),
        scontrol=[SlurmNode("n1", (("a100", 2),), 8, 100)],
        sinfo=[
            SlurmNode("n1", (("a100", 4),), 16, 200),
            SlurmNode("n2", (("a100", 4),), 16, 200),
            SlurmNode("n3", None, 32, 300),
        ],
    )
    assert [(node.name, node.gpus, node.cpus, node.memory_mb) for node in inferred.cluster] == [
        ("n1", 2, 8, 100),
        ("n2", 4, 16, 200),
        ("n3", 8, 32, 300),
        ("n4", 8, 0, 0),
    ]
    assert assumed(inferred, "n[3-4]: GPUs counted as the most that the log shows")
    assert assumed(inferred, "n4: in the log but not in Slurm's list")
    assert assumed(inferred, "n[1-2]: the log has more GPUs in use than Slurm lists")


def test_sinfo_fills_in_what_scontrol_leaves_open() -> None:
    inferred = infer_cluster(
        scontrol=[SlurmNode("n1", (("a100", 2),))],
        sinfo=[SlurmNode("n1", (("t4", 1),), 16, 200)],
    )
    assert inferred.cluster.nodes == (Node("n1", "a100", 2, 16, 200),)
    assert inferred.assumptions == ()


def test_the_log_names_the_type_of_gpus_that_slurm_lists_without() -> None:
    inferred = infer_cluster(
        log("n1 a100=1 00 10"),
        scontrol=[SlurmNode("n1", ((None, 4),), 8, 100), SlurmNode("n2", ((None, 4),), 8, 100)],
    )
    assert sizes(inferred) == {"n1": ("a100", 4), "n2": ("untyped", 4)}


def test_slurm_names_the_type_of_gpus_that_the_log_shows_without() -> None:
    scontrol = [SlurmNode("n1", (("t4", 2),), 8, 100)]
    inferred = infer_cluster(log("n1 ?=2 00 10", "n1 ?=1 00 10"), scontrol=scontrol)
    assert sizes(inferred) == {"n1": ("t4", 2)}
    assert assumed(inferred, "n1: the log has more GPUs in use than Slurm lists")


def test_the_log_shows_no_more_gpus_than_slurm_lists_when_types_follow_each_other() -> None:
    scontrol = [SlurmNode("n1", (("t4", 2),), 8, 100)]
    inferred = infer_cluster(log("n1 ?=2 00 10", "n1 t4=2 10 20"), scontrol=scontrol)
    assert inferred.assumptions == ()


def test_nodes_without_gpus_are_left_out_and_named() -> None:
    inferred = infer_cluster(
        scontrol=[SlurmNode("n1", (("t4", 1),), 8, 100), *(SlurmNode(f"c{i}", ()) for i in (1, 2))]
    )
    assert inferred.cluster.names == ("n1",)
    assert inferred.assumptions == ("c[1-2]: left out, as no source shows GPUs there.",)


def test_no_gpu_in_any_source_is_an_error_that_says_where_gpus_are_shown() -> None:
    with pytest.raises(InputError, match=r"no GPU found on 1 nodes; .* scontrol show nodes"):
        infer_cluster(sinfo=[SlurmNode("n1")])


# Real clusters ------------------------------------------------------------------------------------


def test_fox_from_an_hour_of_its_log_and_its_list_of_nodes(data_dir: Path) -> None:
    allocations = read_sacct(data_dir / "sacct/fox_sacct_P_noheader.txt", columns(FOX))
    sinfo = read_sinfo((data_dir / "sacct/fox_node_output.txt").read_text())
    inferred = infer_cluster(allocations, sinfo=sinfo, rules=NodeTypes.of({"gpu-10": "h100"}))
    types = {node.name: node.gpu_type for node in inferred.cluster}
    assert types == {
        "gpu-1": "a100",
        "gpu-2": "a100",
        "gpu-5": "rtx30",
        "gpu-7": "a100_80",
        "gpu-8": "a100_80",
        "gpu-9": "a100_80",
        "gpu-10": "h100",
        "gpu-11": "rtx30",
        "gpu-12": "a40",
        "gpu-13": "a100",
        "gpu-15": "l40s",
        "gpu-16": "l40s",
    }
    # A job on each of these held all four GPUs; those of gpu-8 were held by four jobs.
    for name in ("gpu-1", "gpu-5", "gpu-7", "gpu-8", "gpu-9", "gpu-13"):
        assert inferred.cluster[name].gpus == 4
    assert assumed(inferred, "bigmem-[1-2],c1-[5-29],gpu-[4,6,14]: left out")


def test_habrok_is_what_scontrol_says_whatever_the_log_shows(data_dir: Path) -> None:
    scontrol = read_scontrol((data_dir / "sacct/habrok_scontrol_nodes.txt").read_text())
    inferred = infer_cluster(scontrol=scontrol)
    assert inferred.cluster.gpus_by_type() == {"a100": 24, "v100": 34}
    assert inferred.cluster["a100gpu3"] == Node("a100gpu3", "a100", 4, 64, 514_404)


def test_a_test_cluster_from_a_log_with_requeues_and_two_types_in_a_job(data_dir: Path) -> None:
    allocations = read_sacct(data_dir / "sacct/slurm_26.05/sacct_D_a_P_ALL_by_id.txt")
    inferred = infer_cluster(allocations)
    types = {node.name: node.gpu_type for node in inferred.cluster}
    assert types == dict(zip([f"n{i}" for i in range(6)], ["a100", "v100", "t4"] * 2, strict=True))
    # A runaway of four GPUs and a job of four: the only count that is too high, and said to be.
    assert inferred.cluster["n0"].gpus == 8
    (sentence,) = assumed(inferred, "without an end")
    assert sentence.startswith("n0: ")
