"""`cluster.toml`: what it means, what is refused, and that writing and reading agree."""

from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hetsched_core.errors import InputError
from hetsched_core.traces.cluster_file import (
    ClusterFile,
    fold,
    format_cluster,
    parse_cluster,
    read_cluster,
)
from hetsched_core.traces.node_types import NodeTypes
from hetsched_core.types import Cluster, Node

HEAD = 'schema = "hetsched-cluster/1"\n'
ENTRY = '[[nodes]]\nnodes = "n[1-2]"\ngpu_type = "a100"\ngpus = 4\n'


def test_a_range_becomes_one_node_for_each_name_in_the_order_of_the_file_and_of_slurm() -> None:
    more = ENTRY.replace("n[1-2]", "z[10,9]").replace("a100", "NVIDIA_H100_3g.40gb")
    text = f'{HEAD}name = "lab"\n{more}{ENTRY}cpus = 64\nmemory = "512G"\ngroup = "rack1"\n'
    cluster = parse_cluster(text).cluster
    assert cluster.name == "lab"
    assert cluster.nodes == (
        # What is left out is not counted.
        Node("z9", "nvidia_h100_3g.40gb", 4, 0, 0, "z9", ""),
        Node("z10", "nvidia_h100_3g.40gb", 4, 0, 0, "z10", ""),
        Node("n1", "a100", 4, 64, 512 * 1024, "n1", "rack1"),
        Node("n2", "a100", 4, 64, 512 * 1024, "n2", "rack1"),
    )


def shared(nodes: str, host: str, gpu_type: str, more: str = "") -> str:
    return (
        f'[[nodes]]\nnodes = "{nodes}"\nhost = "{host}"\ngpu_type = "{gpu_type}"\ngpus = 1\n{more}'
    )


@pytest.mark.parametrize(
    ("memory", "mib"),
    [("1000", 1000), ('"512G"', 524_288), ('"514404M"', 514_404), ('"1.5T"', 1_572_864), ("0", 0)],
)
def test_memory_is_read_in_slurms_units(memory: str, mib: int) -> None:
    assert parse_cluster(f"{HEAD}{ENTRY}memory = {memory}").cluster["n1"].memory_mb == mib


# Of two types, partitions and a window.
SITE = (
    HEAD
    + ENTRY
    + shared("m-v100", "m", "v100")
    + shared("m-t4", "m", "t4")
    + """
[[partitions]]
name = "big"
nodes = "n[1-2],m"
[[partitions]]
name = "small"
nodes = "n2"
[[windows]]
name = "maintenance"
nodes = "m"
from = 2026-03-02T09:00:00+01:00
until = 1772442000
[node_types]
"old*" = "k80"
"""
)


def test_partitions_and_windows_name_nodes_or_hosts_and_are_written_as_they_are_read() -> None:
    site = parse_cluster(SITE)
    big, small = frozenset({"n1", "n2", "m-v100", "m-t4"}), frozenset({"n2"})
    assert site.partitions == {"big": big, "small": small}
    (window,) = site.windows
    assert window.nodes == frozenset({"m-v100", "m-t4"})
    assert (window.name, window.until_s - window.from_s) == ("maintenance", 3600.0)
    again = parse_cluster(format_cluster(site))
    assert (again.partitions, again.windows) == (site.partitions, site.windows)


@pytest.mark.parametrize(
    ("was", "put", "expected"),
    [
        (HEAD, "", ["schema is None", 'schema = "hetsched-cluster/1"']),
        (ENTRY, "nodes = [", ["not valid TOML"]),
        (SITE, HEAD, ["nodes is missing", "[[nodes]]"]),
        (SITE, HEAD + "nodes = []", ["0 GPUs"]),
        (SITE, HEAD + "nodes = 3", ["nodes is 3", "[[nodes]]"]),
        (HEAD, HEAD + "size = 3\n", ["unknown key 'size'", "name, node"]),
        (HEAD, HEAD + "name = 3\n", ["name is 3", "text in quotes"]),
        (ENTRY, ENTRY + "gpu = 4\n", ["nodes 1: unknown key 'gpu'", "did you mean 'gpus'?"]),
        (ENTRY, ENTRY + ENTRY, ["node 'n1' is listed twice"]),
        ("gpus = 4", "gpus = 0", ["gpus is 0", "1 or more"]),
        ("gpus = 4", "", ["gpus is missing; expected a whole number"]),
        (ENTRY, ENTRY + "cpus = -1\n", ["nodes 1: cpus is -1", "0 or more"]),
        (ENTRY, ENTRY + 'memory = "much"\n', ["memory is 'much'", "512G"]),
        (ENTRY, ENTRY + 'memory = "1K"\n', ["memory is '1K'"]),
        (ENTRY, ENTRY + "memory = -5\n", ["memory is -5"]),
        (ENTRY, ENTRY.replace("n[1-2]", "n[1-"), ["nodes is 'n[1-'", "n[1-8]"]),
        (ENTRY, ENTRY.replace("n[1-2]", ""), ["nodes is ''"]),
        (ENTRY, ENTRY.replace("n[1-2]", "n[1-999999999]"), ["at most 65536"]),
        (ENTRY, ENTRY + 'host = "h[1-3]"\n', ["nodes 1: host names 3 hosts for 2 nodes"]),
        ('"a100"', '"a 100"', ["gpu_type: 'a 100'"]),
        ('"t4"\ngpus = 1', '"t4"\ngpus = 1\ncpus = 8', ["'m-v100' and 'm-t4' share host 'm'"]),
        ('"old*" = "k80"', '"n[" = "a100"', ["node_types: 'n['"]),
        ('"old*" = "k80"', '"n[1-2]*" = "a100"', ["'n[1-2]*'"]),
        ('"old*" = "k80"', 'n1 = ""', ["node_types: ''"]),
        ('"old*" = "k80"', "n1 = 4", ["node_types is {'n1': 4}"]),
        ('nodes = "n2"', 'nodes = "n9"', ["partitions 2: unknown node 'n9'"]),
        ('name = "small"', 'name = "big"', ["a name that no other partition has"]),
        ("until = 1772442000", "until = 5", ["it has to end after it begins"]),
        ("until = 1772442000", "until = 2026-03-02T12:00:00", ["expected a time with its zone"]),
        ("until = 1772442000", "", ["until is missing"]),
        ("until = 1772442000", "till = 1", ["unknown key 'till'"]),
    ],
    ids=lambda of: of[-40:] if isinstance(of, str) else "",
)
def test_a_mistake_is_named_with_its_value(was: str, put: str, expected: list[str]) -> None:
    assert SITE.count(was) == 1
    with pytest.raises(InputError) as caught:
        parse_cluster(SITE.replace(was, put), "lab.toml")
    message = str(caught.value)
    assert message.startswith("lab.toml")
    for part in expected:
        assert part in message


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_bytes(b"\x80\x81")
    with pytest.raises(InputError, match="no text in UTF-8"):
        read_cluster(path)


def test_the_type_of_an_untyped_gpu_is_told_from_its_host() -> None:
    nodes = (
        Node("n1", "a100", 4),
        Node("mixed-a", "a100", 1, host="mixed"),
        Node("mixed-b", "t4", 1, host="mixed"),
    )
    rules = NodeTypes.of({"old-[1-12]": "K80", "dgx*": "v100", "dgx7": "t4", "n1": "t4"})
    expected = {
        "n1": "a100",  # the type of the node
        "old-12": "k80",
        "old-13": None,
        "dgx7": "v100",
        "dgx": "v100",
        "mixed": None,
        "elsewhere": None,
    }
    file = ClusterFile(Cluster(nodes), rules)
    assert {host: file.gpu_type_on(host) for host in expected} == expected


# Writing ------------------------------------------------------------------------------------------


def test_alike_nodes_are_written_as_one_range() -> None:
    nodes = tuple(
        Node(f"n{i}", "a100", 4, 64, 512 * 1024 + i // 10, group="r") for i in range(1, 12)
    )
    assert format_cluster(ClusterFile(Cluster(nodes, "lab")), ["Made by hand."]) == (
        'schema = "hetsched-cluster/1"\nname = "lab"\n\n# Made by hand.\n\n'
        '[[nodes]]\nnodes = "n[1-9]"\ngpu_type = "a100"\ngpus = 4\ncpus = 64\nmemory = "512G"\n'
        'group = "r"\n\n'
        '[[nodes]]\nnodes = "n[10-11]"\ngpu_type = "a100"\ngpus = 4\ncpus = 64\n'
        'memory = "524289M"\ngroup = "r"\n'
    )


@pytest.mark.parametrize(
    ("names", "hosts", "folded"),
    [
        (("n2", "n1"), ("", ""), [("n2", ""), ("n1", "")]),
        (("n1", "n2"), ("h2", "h1"), [("n1", "h2"), ("n2", "h1")]),
    ],
)
def test_nodes_or_hosts_that_would_change_their_order_are_written_one_by_one(
    names: tuple[str, ...], hosts: tuple[str, ...], folded: list[tuple[str, str]]
) -> None:
    nodes = (Node(n, "a100", 4, host=h) for n, h in zip(names, hosts, strict=True))
    assert [(part.nodes, part.hosts) for part in fold(Cluster(tuple(nodes)))] == folded


def test_a_node_name_that_no_list_can_hold_is_refused() -> None:
    with pytest.raises(InputError, match=r"'n\[1\]' cannot stand in a node list"):
        format_cluster(ClusterFile(Cluster((Node("n[1]", "a100", 4),))))


# A handful of each makes neighbours that are alike, out of order, or on one host.
NAMES = st.from_regex(r"(n|n0|r1n|a-|x\.y)[0-9]{1,2}(-t)?", fullmatch=True)
NODES = st.builds(
    Node,
    name=NAMES,
    gpu_type=st.sampled_from(["a100", "t4", "nvidia_h100_80gb_hbm3_3g.40gb"]),
    gpus=st.integers(1, 8),
    cpus=st.just(32),
    memory_mb=st.just(1_000),
    host=st.one_of(st.just(""), st.sampled_from(["h1", "h2"])),
    group=st.sampled_from(["", "rack \\1\"\n\x7f\u2028'é"]),
)
CLUSTERS = st.builds(
    Cluster,
    st.lists(NODES, min_size=1, max_size=12, unique_by=lambda node: node.name).map(tuple),
    name=st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)


@given(CLUSTERS, st.lists(st.text(max_size=200), max_size=3))
def test_what_is_written_reads_back_the_same(cluster: Cluster, comments: list[str]) -> None:
    rules = NodeTypes.of({"old[1-3]": "k80", "dgx*": "v100"})
    read = parse_cluster(format_cluster(ClusterFile(cluster, rules), comments))
    assert read.cluster.nodes == cluster.nodes
    assert read.cluster.name == cluster.name
    assert read.node_types == rules
