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


def test_a_range_becomes_one_node_for_each_name() -> None:
    text = f'{HEAD}name = "lab"\n{ENTRY}cpus = 64\nmemory = "512G"\ngroup = "rack1"\n'
    cluster = parse_cluster(text).cluster
    assert cluster.name == "lab"
    assert cluster.nodes == (
        Node("n1", "a100", 4, 64, 512 * 1024, "n1", "rack1"),
        Node("n2", "a100", 4, 64, 512 * 1024, "n2", "rack1"),
    )


def test_what_is_left_out_is_not_counted() -> None:
    node = parse_cluster(HEAD + ENTRY).cluster["n1"]
    assert (node.cpus, node.memory_mb, node.group, node.host) == (0, 0, "", "n1")


def test_nodes_keep_the_order_of_the_file_and_slurms_inside_a_list() -> None:
    text = HEAD + ENTRY.replace("n[1-2]", "z[10,9]") + ENTRY.replace("n[1-2]", "a[01-02]")
    assert parse_cluster(text).cluster.names == ("z9", "z10", "a01", "a02")


def test_a_server_with_two_types_is_two_nodes_that_share_its_host() -> None:
    text = (
        f'{HEAD}[[nodes]]\nnodes = "n[1-2]-a100"\nhost = "n[1-2]"\ngpu_type = "a100"\ngpus = 2\n'
        'cpus = 32\n[[nodes]]\nnodes = "n[1-2]-t4"\nhost = "n[1-2]"\ngpu_type = "t4"\ngpus = 1\n'
        "cpus = 32\n"
    )
    cluster = parse_cluster(text).cluster
    assert [(node.name, node.host) for node in cluster] == [
        ("n1-a100", "n1"),
        ("n2-a100", "n2"),
        ("n1-t4", "n1"),
        ("n2-t4", "n2"),
    ]
    assert cluster.on_host("n2") == ("n2-a100", "n2-t4")


@pytest.mark.parametrize(
    ("memory", "mib"),
    [("1000", 1000), ('"512G"', 524_288), ('"514404M"', 514_404), ('"1.5T"', 1_572_864), ("0", 0)],
)
def test_memory_is_read_in_slurms_units(memory: str, mib: int) -> None:
    assert parse_cluster(f"{HEAD}{ENTRY}memory = {memory}").cluster["n1"].memory_mb == mib


def test_gpu_types_are_read_in_lower_case() -> None:
    text = HEAD + ENTRY.replace('"a100"', '"NVIDIA_H100_80gb_hbm3_3g.40gb"')
    assert parse_cluster(text).cluster.gpu_types == ("nvidia_h100_80gb_hbm3_3g.40gb",)


def entry(was: str, put: str) -> str:
    """A sound file, with something else in its one table of nodes."""
    assert was in ENTRY
    return HEAD + ENTRY.replace(was, put)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["schema is None", 'schema = "hetsched-cluster/1"']),
        ('schema = "hetsched-rules/1"', ["'hetsched-rules/1'"]),
        (HEAD + "nodes = [", ["not valid TOML", "end of document"]),
        (HEAD + "a = " + "[" * 10_000, ["not valid TOML"]),
        (HEAD, ["nodes is missing", "[[nodes]]"]),
        (HEAD + "nodes = []", ["0 GPUs"]),
        (HEAD + "nodes = 3", ["nodes is 3", "[[nodes]]"]),
        (HEAD + "nodes = [1]", ["nodes is [1]"]),
        (HEAD + "size = 3\n" + ENTRY, ["unknown key 'size'", "name, node"]),
        (HEAD + ENTRY + "gpu = 4", ["nodes 1: unknown key 'gpu'", "did you mean 'gpus'?"]),
        (HEAD + "name = 3\n" + ENTRY, ["name is 3", "text in quotes"]),
        (HEAD + ENTRY + ENTRY, ["node 'n1' is listed twice"]),
        (entry("gpus = 4", "gpus = 0"), ["gpus is 0", "1 or more"]),
        (entry("gpus = 4", "gpus = -4"), ["gpus is -4"]),
        (entry("gpus = 4", ""), ["gpus is missing; expected a whole number"]),
        (entry("gpus = 4", 'gpus = "4"'), ["gpus is '4'"]),
        (entry("gpus = 4", "gpus = 4.0"), ["gpus is 4.0"]),
        (entry("gpus = 4", "gpus = true"), ["gpus is True"]),
        (HEAD + ENTRY + "cpus = -1", ["nodes 1: cpus is -1", "0 or more"]),
        (HEAD + ENTRY + 'memory = "much"', ["memory is 'much'", "512G"]),
        (HEAD + ENTRY + 'memory = "4Gc"', ["memory is '4Gc'"]),
        (HEAD + ENTRY + 'memory = "1K"', ["memory is '1K'"]),
        (HEAD + ENTRY + "memory = -5", ["memory is -5"]),
        (entry("n[1-2]", "n[1-"), ["nodes is 'n[1-'", "n[1-8]"]),
        (entry("n[1-2]", "n[2-1]"), ["nodes is 'n[2-1]'"]),
        (entry("n[1-2]", ""), ["nodes is ''"]),
        (entry("n[1-2]", "@gpu"), ["nodes is '@gpu'"]),
        (entry("n[1-2]", "n[1-999999999]"), ["at most 65536"]),
        (HEAD + ENTRY + 'host = "h[1-3]"', ["nodes 1: host names 3 hosts for 2 nodes"]),
        (entry('"a100"', '"a 100"'), ["gpu_type: 'a 100'"]),
        (HEAD + ENTRY + '[node_types]\n"n[" = "a100"', ["node_types: 'n['"]),
        (HEAD + ENTRY + '[node_types]\n"n[1-2]*" = "a100"', ["'n[1-2]*'"]),
        (HEAD + ENTRY + '[node_types]\nn1 = ""', ["node_types: ''"]),
        (HEAD + ENTRY + "[node_types]\nn1 = 4", ["node_types is {'n1': 4}"]),
    ],
    ids=lambda of: of[-40:] if isinstance(of, str) else "",
)
def test_a_mistake_is_named_with_its_value(text: str, expected: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_cluster(text, "lab.toml")
    message = str(caught.value)
    assert message.startswith("lab.toml")
    for part in expected:
        assert part in message


@pytest.mark.parametrize("line", ["cpus = 8", 'memory = "2G"'])
def test_nodes_of_one_host_must_agree_on_what_they_share(line: str) -> None:
    text = (
        f'{HEAD}[[nodes]]\nnodes = "a"\nhost = "h"\ngpu_type = "a100"\ngpus = 1\n'
        f'[[nodes]]\nnodes = "b"\nhost = "h"\ngpu_type = "t4"\ngpus = 1\n{line}\n'
    )
    with pytest.raises(InputError, match="'a' and 'b' share host 'h'"):
        parse_cluster(text)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_bytes(b"\x80\x81")
    with pytest.raises(InputError, match="no text in UTF-8"):
        read_cluster(path)


# Untyped GPUs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "gpu_type"),
    [
        pytest.param("n1", "a100", id="the type of the node"),
        pytest.param("old-12", "k80", id="a node list"),
        pytest.param("old-13", None, id="outside the list"),
        pytest.param("dgx7", "v100", id="a star"),
        pytest.param("dgx", "v100", id="a star for nothing"),
        pytest.param("mixed", None, id="a host of two types"),
        pytest.param("elsewhere", None, id="no rule"),
    ],
)
def test_the_type_of_an_untyped_gpu_is_told_from_its_host(host: str, gpu_type: str | None) -> None:
    nodes = (
        Node("n1", "a100", 4),
        Node("mixed-a", "a100", 1, host="mixed"),
        Node("mixed-b", "t4", 1, host="mixed"),
    )
    rules = NodeTypes.of({"old-[1-12]": "K80", "dgx*": "v100", "dgx7": "t4", "n1": "t4"})
    assert ClusterFile(Cluster(nodes), rules).gpu_type_on(host) == gpu_type


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


def test_nodes_that_would_change_their_order_are_written_one_by_one() -> None:
    cluster = Cluster((Node("n2", "a100", 4), Node("n1", "a100", 4)))
    assert [part.nodes for part in fold(cluster)] == ["n2", "n1"]


def test_nodes_whose_hosts_would_change_their_order_are_written_one_by_one() -> None:
    cluster = Cluster((Node("n1", "a100", 4, host="h2"), Node("n2", "a100", 4, host="h1")))
    assert [(part.nodes, part.hosts) for part in fold(cluster)] == [("n1", "h2"), ("n2", "h1")]


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


WHOLE = format_cluster(
    ClusterFile(
        Cluster((Node("n1", "a100", 4, 64, 1024, "h1", "r"), Node("n2", "t4", 1))),
        NodeTypes.of({"dgx*": "v100"}),
    )
)


@given(st.integers(0, len(WHOLE)), st.integers(0, 30), st.text(max_size=12))
def test_a_damaged_file_is_read_or_refused_and_nothing_else(at: int, lost: int, put: str) -> None:
    refused = "cluster.toml"
    try:
        assert parse_cluster(WHOLE[:at] + put + WHOLE[at + lost :]).cluster.gpus > 0
    except InputError as error:
        refused = str(error)
    assert refused.startswith("cluster.toml")


SITE = (
    HEAD
    + """
[[nodes]]
nodes = "n[1-2]"
gpu_type = "a100"
gpus = 4
[[nodes]]
nodes = "m-v100"
host = "m"
gpu_type = "v100"
gpus = 2
[[nodes]]
nodes = "m-t4"
host = "m"
gpu_type = "t4"
gpus = 2
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
"""
)


def test_partitions_and_windows_name_nodes_or_hosts() -> None:
    site = parse_cluster(SITE)
    assert site.partitions == {
        "big": frozenset({"n1", "n2", "m-v100", "m-t4"}),
        "small": frozenset({"n2"}),
    }
    (window,) = site.windows
    assert window.nodes == frozenset({"m-v100", "m-t4"})
    assert (window.name, window.until_s - window.from_s) == ("maintenance", 3600.0)


def test_partitions_and_windows_that_are_written_are_read_again() -> None:
    site = parse_cluster(SITE)
    again = parse_cluster(format_cluster(site))
    assert (again.partitions, again.windows) == (site.partitions, site.windows)


@pytest.mark.parametrize(
    ("was", "put", "words"),
    [
        ('nodes = "n2"', 'nodes = "n9"', "partitions 2: unknown node 'n9'"),
        ('name = "small"', 'name = "big"', "a name that no other partition has"),
        ("until = 1772442000", "until = 5", "it has to end after it begins"),
        ("until = 1772442000", "until = 2026-03-02T12:00:00", "expected a time with its zone"),
        ("until = 1772442000", "", "until is missing"),
        ("until = 1772442000", "till = 1", "unknown key 'till'"),
    ],
)
def test_a_partition_or_window_that_is_wrong_is_refused(was: str, put: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_cluster(SITE.replace(was, put))
