"""Clusters inferred from logs and from Slurm's own lists of nodes, alone and together."""

import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hetsched_core.errors import InputError
from hetsched_core.traces.infer_cluster import InferredCluster, infer_cluster
from hetsched_core.traces.node_types import NodeTypes
from hetsched_core.traces.sacct import LoggedAllocation, read_sacct
from hetsched_core.traces.slurm_nodes import SlurmNodeRecord, read_scontrol, read_sinfo
from hetsched_core.types import Node
from tests.hetsched_core.traces.worlds import FOX, columns

HEADER = "JobID|State|Submit|Start|End|TimelimitRaw|NodeList|AllocTRES"


def log(rows: str) -> list[LoggedAllocation]:
    """Read rows of `NODES GPUS START END`: GPUs as in `a100=2+?=1`, times in minutes of an hour."""
    lines = [HEADER]
    for job, row in enumerate(filter(None, rows.split(";")), 1):
        nodes, gpus, start, end = row.split()
        begun, ended = (f"2025-03-03T09:{minute}:00" for minute in (start, end))
        state = "COMPLETED"
        if end == "-":
            state, ended = "RUNNING", "Unknown"
        counts = [(name, int(count)) for name, count in (p.split("=") for p in gpus.split("+"))]
        tres = f"gres/gpu={sum(count for _, count in counts)}"
        tres += "".join(f",gres/gpu:{name}={count}" for name, count in counts if name != "?")
        lines.append(f"{job}|{state}|{begun}|{begun}|{ended}|600|{nodes}|{tres}")
    source = read_sacct(BytesIO("".join(f"{line}\n" for line in lines).encode()))
    allocations = list(source)
    assert not source.report.unusable
    return allocations


def sizes(inferred: InferredCluster) -> str:
    """The nodes as `NAME TYPE=GPUS; ...`."""
    return "; ".join(f"{node.name} {node.gpu_type}={node.gpus}" for node in inferred.cluster)


def remarks(inferred: InferredCluster) -> list[str]:
    """What is said beside that GPUs were counted and that CPUs or memory are not known."""
    usual = ("GPUs counted as the most", "CPUs or memory are not known")
    return [text for text in inferred.assumptions if not any(part in text for part in usual)]


FROM_A_LOG = {
    "overlapping": ("n1 a100=2 00 10; n1 a100=1 05 15", "n1 a100=3", None),
    "one after the other": ("n1 a100=2 00 10; n1 a100=2 10 15", "n1 a100=2", None),
    "held for less than a second": ("n1 a100=4 05 05; n1 a100=1 00 10", "n1 a100=4", None),
    "types in lower case": ("n1 A100=1 00 10; n1 a100=1 00 10", "n1 a100=2", None),
    "Slurm's order": ("n10 t4=1 00 10; n9 t4=1 00 10", "n9 t4=1; n10 t4=1", None),
    "still running": (
        "n1 a100=2 00 -; n1 a100=2 30 40; n2 a100=2 00 10",
        "n1 a100=4; n2 a100=2",
        "n1: the count rests on allocations without an end",
    ),
    "two types": (
        "n1 a100=2+t4=1 00 10; n1 t4=1 05 10",
        "n1-a100 a100=2; n1-t4 t4=2",
        "n1: GPUs of several types",
    ),
    "spread evenly": (
        "n[1-3] a100=7 00 10; n[4-5] a100=4 00 10",
        "n1 a100=3; n2 a100=2; n3 a100=2; n4 a100=2; n5 a100=2",
        "Of an allocation on several nodes .*, 2 allocations, 1 of them with a remainder",
    ),
    "several types go where each is known": (
        "n[1-3] a100=4+t4=2 00 10; n1 a100=1 20 30; n2 a100=1 20 30; n3 t4=1 20 30",
        "n1 a100=2; n2 a100=2; n3 t4=2",
        "Of an allocation",
    ),
    "fewer than nodes": ("n[1-3] t4=2 00 10", "n1 t4=1; n2 t4=1", "Of an allocation"),
    "untyped, of the type seen elsewhere": (
        "n1 ?=2 00 10; n1 a100=1 05 10; n2 ?=1 00 10",
        "n1 a100=3; n2 untyped=1",
        "n2: no source names the GPUs' type",
    ),
}


@pytest.mark.parametrize(("rows", "found", "said"), FROM_A_LOG.values(), ids=FROM_A_LOG)
def test_a_node_has_as_many_gpus_as_were_in_use_at_once(
    rows: str, found: str, said: str | None
) -> None:
    inferred = infer_cluster(log(rows))
    assert sizes(inferred) == found
    assert all((node.cpus, node.memory_mb) == (0, 0) for node in inferred.cluster)
    assert all(node.host == node.name.split("-")[0] for node in inferred.cluster)
    for usual in ("GPUs counted as the most that the log shows", "CPUs or memory are not known"):
        assert any(f": {usual}" in sentence for sentence in inferred.assumptions)
    assert [bool(re.match(said or "", remark)) for remark in remarks(inferred)] == [True] * bool(
        said
    )


def in_use_each_minute(spans: list[tuple[int, int, int]]) -> Iterator[int]:
    """Count in the plainest way: GPUs held in every minute."""
    for minute in range(60):
        yield sum(gpus for gpus, start, end in spans if start <= minute < end)


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(10, 58), st.integers(1, 30)), min_size=1))
def test_the_count_is_the_most_of_any_minute_or_allocation(
    spans: list[tuple[int, int, int]],
) -> None:
    spans = [(gpus, start, min(start + length, 59)) for gpus, start, length in spans]
    rows = ";".join(f"n1 a100={gpus} {start} {end}" for gpus, start, end in spans)
    most = max(*in_use_each_minute(spans), *(gpus for gpus, _, _ in spans))
    assert sizes(infer_cluster(log(rows))) == f"n1 a100={most}"


def test_a_job_past_its_time_limit_without_an_end_holds_nothing_for_ever() -> None:
    early, late = "2025-03-01T00:00:00", "2025-03-03T00:00:00"
    text = (
        f"{HEADER}|ElapsedRaw\n1|RUNNING|{early}|{early}|Unknown|60|n1|gres/gpu:t4=2|200000\n"
        f"2|COMPLETED|{late}|{late}|2025-03-03T01:00:00|60|n1|gres/gpu:t4=2|3600\n"
    )
    assert sizes(infer_cluster(read_sacct(BytesIO(text.encode())))) == "n1 t4=2"


def test_a_run_that_two_exports_show_counts_once() -> None:
    allocations = log("n1 a100=2 00 10")
    assert sizes(infer_cluster([*allocations, *allocations])) == "n1 a100=2"


# With Slurm's lists and rules ---------------------------------------------------------------------


def listed(name: str, *gpus: tuple[str | None, int]) -> SlurmNodeRecord:
    return SlurmNodeRecord(name, gpus, 8, 100)


A100 = listed("n1", ("a100", 4))
T4S = listed("n1", ("t4", 2))
MIXED = listed("n1", ("a100", 2), (None, 2))
ON_TWO_TYPES = "n1 a100=1 00 10; n1 t4=1 00 10; n1 ?=4 00 10"
MORE_IN_USE = "n1: the log has more GPUs in use than Slurm lists"
TOGETHER: dict[str, tuple[str, list[SlurmNodeRecord], dict[str, str], str, list[str]]] = {
    "a rule names what the log does not": (
        "n1 ?=2 00 10; n2 a100=1 00 10; n2 ?=1 05 10",
        [],
        {"n*": "v100"},
        "n1 v100=2; n2 a100=2",
        [],
    ),
    "untyped on a host of two types": (
        ON_TWO_TYPES,
        [],
        {},
        "n1-a100 a100=1; n1-t4 t4=1",
        ["n1: GPUs of several types", "n1: untyped allocations"],
    ),
    "a rule names one of two types": (
        ON_TWO_TYPES,
        [],
        {"n1": "t4"},
        "n1-a100 a100=1; n1-t4 t4=5",
        ["n1: GPUs of several types"],
    ),
    "untyped beside typed": (
        "",
        [MIXED],
        {},
        "n1-a100 a100=2; n1-untyped untyped=2",
        ["n1: no source names", "n1: GPUs of several types"],
    ),
    "a rule names the untyped beside typed": (
        "n1 a100=1+?=2 00 10",
        [],
        {"n1": "t4"},
        "n1-a100 a100=1; n1-t4 t4=2",
        ["n1: GPUs of several types"],
    ),
    "Slurm tells which of several nodes has which type": (
        "n[1-2] a100=4+t4=2 00 10; n2 t4=1 20 30",
        [A100],
        {},
        "n1 a100=4; n2 t4=2",
        ["n2: in the log but not in Slurm's list", "Of an allocation"],
    ),
    "the log names the type": (
        "n1 a100=1 00 10",
        [listed("n1", (None, 4)), listed("n2", (None, 4))],
        {},
        "n1 a100=4; n2 untyped=4",
        ["n2: no source names"],
    ),
    "Slurm names the type": ("n1 ?=2 00 10; n1 ?=1 00 10", [T4S], {}, "n1 t4=2", [MORE_IN_USE]),
    "types that follow each other": ("n1 ?=2 00 10; n1 t4=2 10 20", [T4S], {}, "n1 t4=2", []),
    "no GPU": ("", [T4S, listed("c1"), listed("c2")], {}, "n1 t4=2", ["c[1-2]: left out, as no"]),
}


@pytest.mark.parametrize(
    ("rows", "scontrol", "rules", "found", "said"), TOGETHER.values(), ids=TOGETHER
)
def test_a_log_slurm_and_rules_name_types_together(
    rows: str, scontrol: list[SlurmNodeRecord], rules: dict[str, str], found: str, said: list[str]
) -> None:
    inferred = infer_cluster(log(rows), scontrol=scontrol, rules=NodeTypes.of(rules))
    assert sizes(inferred) == found
    assert len(remarks(inferred)) == len(said)
    assert all(text.startswith(part) for text, part in zip(remarks(inferred), said, strict=True))


def test_scontrol_goes_before_sinfo_and_sinfo_before_the_log() -> None:
    inferred = infer_cluster(
        log("n[1-4] a100=32 00 10"),
        scontrol=[SlurmNodeRecord("n1", (("a100", 2),), None, 100)],
        sinfo=[
            SlurmNodeRecord("n1", (("t4", 4),), 16, 200),
            SlurmNodeRecord("n2", (("a100", 4),), 16, 200),
            SlurmNodeRecord("n3", None, 32, 300),
        ],
    )
    assert inferred.cluster.nodes == (
        Node("n1", "a100", 2, 16, 100),
        Node("n2", "a100", 4, 16, 200),
        Node("n3", "a100", 8, 32, 300),
        Node("n4", "a100", 8, 0, 0),
    )
    for said in (
        "n[3-4]: GPUs counted as the most that the log shows",
        "n4: in the log but not in Slurm's list",
        "n[1-2]: the log has more GPUs in use than Slurm lists",
        "n4: CPUs or memory are not known",
    ):
        assert any(sentence.startswith(said) for sentence in inferred.assumptions)


def test_nodes_are_in_the_order_of_their_weights() -> None:
    said = "NodeName=n{} Gres=gpu:{}:2 Weight={}\n"
    rows = ((1, "a100", 30), (2, "t4", 10), (3, "a100", 30), (4, "v100", 20), (5, "t4", 10))
    nodes = read_scontrol("".join(said.format(*row) for row in rows))
    cluster = infer_cluster(scontrol=nodes).cluster
    assert [node.name for node in cluster] == ["n2", "n5", "n4", "n1", "n3"]
    assert cluster.gpu_types == ("t4", "v100", "a100")


def test_no_gpu_in_any_source_is_an_error_that_says_where_gpus_are_shown() -> None:
    with pytest.raises(InputError, match=r"no GPU found on 1 nodes; .* scontrol show nodes"):
        infer_cluster(sinfo=[SlurmNodeRecord("n1")])


# Real clusters ------------------------------------------------------------------------------------


def test_fox_from_an_hour_of_its_log_and_its_list_of_nodes(data_dir: Path) -> None:
    allocations = read_sacct(data_dir / "sacct/fox_sacct_P_noheader.txt", columns(FOX))
    sinfo = read_sinfo((data_dir / "sacct/fox_node_output.txt").read_text())
    inferred = infer_cluster(allocations, sinfo=sinfo, rules=NodeTypes.of({"gpu-10": "h100"}))
    assert {node.name.removeprefix("gpu-"): node.gpu_type for node in inferred.cluster} == {
        **dict.fromkeys(("1", "2", "13"), "a100"),
        **dict.fromkeys(("5", "11"), "rtx30"),
        **dict.fromkeys(("7", "8", "9"), "a100_80"),
        "10": "h100",
        "12": "a40",
        **dict.fromkeys(("15", "16"), "l40s"),
    }
    # A job on each of these held all four GPUs; those of gpu-8 were held by four jobs.
    for name in ("gpu-1", "gpu-5", "gpu-7", "gpu-8", "gpu-9", "gpu-13"):
        assert inferred.cluster[name].gpus == 4
    assert any("bigmem-[1-2],c1-[5-29],gpu-[4,6,14]: left" in text for text in remarks(inferred))
