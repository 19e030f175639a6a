"""`cluster.toml`, the description of a cluster (docs/formats/cluster.md)."""

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from hetsched_core.errors import InputError, UnknownNameError, unknown
from hetsched_core.traces.node_types import NodeTypes, normal_gpu_type
from hetsched_core.traces.sacct.fields import MAX_NODES, FieldError, expand_nodes, parse_memory
from hetsched_core.traces.site_file import (
    AccountTable,
    PartitionRules,
    QosTable,
    ShareSettings,
    SiteTables,
    rule_lines,
    site_blocks,
)
from hetsched_core.types import Cluster, Node, Window
from hetsched_core.values.records import Form, count, quoted, read_toml, tables

SCHEMA = "hetsched-cluster/1"


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """What a `cluster.toml` says.

    Attributes:
        cluster: the nodes.
        node_types: the types of GPUs that a log leaves untyped.
        partitions: the names of the nodes of each partition.
        windows: spans in which nodes are closed.
        site: shares, QOS and limits.
    """

    cluster: Cluster
    node_types: NodeTypes = field(default_factory=NodeTypes)
    partitions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    site: SiteTables = field(default_factory=SiteTables)

    def gpu_type_on(self, host: str) -> str | None:
        """Return the type of an untyped GPU on a host; None where that cannot be told."""
        types = {node.gpu_type for node in self.cluster if node.host == host}
        return types.pop() if len(types) == 1 else self.node_types.type_on(host)


# The form -----------------------------------------------------------------------------------------


def _names(value: object) -> tuple[str, ...]:
    try:
        names = expand_nodes(quoted(value))
    except FieldError:
        names = ()
    if not names:
        raise ValueError
    return names


def _memory_mb(value: object) -> int:
    if not isinstance(value, str):
        whole: int = count(0).read(value)
        return whole
    try:
        size = parse_memory(value, None, None) if value else 0
    except FieldError:
        size = None
    if size is None or size != int(size):
        raise ValueError
    return int(size)


def _time_s(value: object) -> float:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.timestamp()
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    raise ValueError


def _node_types(value: object) -> NodeTypes:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value.values()):
        raise ValueError
    return NodeTypes.of(value)


_TEXT = 'text in quotes, such as "a100"'
_Text = Annotated[str, Form(_TEXT, quoted)]
_GpuType = Annotated[str, Form(_TEXT, lambda value: normal_gpu_type(quoted(value)))]
_NodeNames = Annotated[
    tuple[str, ...],
    Form(f"node names such as n1, n[1-8] or n[1-3,7],m[01-12], at most {MAX_NODES}", _names),
]
_Memory = Annotated[int, Form('MiB, or text such as "512G" or "514404M"', _memory_mb)]
_Time = Annotated[
    float,
    Form("a time with its zone such as 2026-03-01T08:00:00Z, or seconds since 1970, UTC", _time_s),
]
TypesByName = Annotated[
    NodeTypes, Form('a table of lines such as "gpu-[1-4]" = "a100"', _node_types)
]


@dataclass(frozen=True, slots=True)
class _Nodes:
    nodes: _NodeNames
    gpu_type: _GpuType
    gpus: Annotated[int, count(1)]
    cpus: Annotated[int, count(0)] = 0
    memory: _Memory = 0
    group: _Text = ""
    host: _NodeNames = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partition(PartitionRules):
    name: _Text
    nodes: _NodeNames

    def rules(self) -> PartitionRules:
        own = (each.name for each in fields(PartitionRules))
        return PartitionRules(**{name: getattr(self, name) for name in own})


# `from` cannot be the name of a field.
_Window = TypedDict(
    "_Window",
    {
        "name": NotRequired[_Text],
        "nodes": _NodeNames,
        "from": _Time,
        "until": _Time,
        "strict": NotRequired[bool],
    },
)


@dataclass(frozen=True, slots=True)
class _Document:
    schema: str
    nodes: Annotated[tuple[_Nodes, ...], tables("nodes", _Nodes, "one or more ")]
    name: _Text = "cluster"
    node_types: TypesByName = field(default_factory=NodeTypes)
    partitions: Annotated[tuple[_Partition, ...], tables("partitions", _Partition)] = ()
    windows: Annotated[tuple[_Window, ...], tables("windows", _Window)] = ()
    shares: ShareSettings | None = None
    accounts: Annotated[tuple[AccountTable, ...], tables("accounts", AccountTable)] = ()
    qos: Annotated[tuple[QosTable, ...], tables("qos", QosTable)] = ()


# Reading ------------------------------------------------------------------------------------------


def read_cluster(path: Path) -> ClusterFile:
    """Read a `cluster.toml`.

    Raises:
        InputError: The file is not of this format; the message names the key and its value.
        OSError: The file cannot be opened.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(
            f"{path} is no text in UTF-8; expected a cluster.toml (docs/formats/cluster.md)"
        ) from None
    return parse_cluster(text, str(path))


def parse_cluster(text: str, source: str = "cluster.toml") -> ClusterFile:
    """Read the text of a `cluster.toml`; `source` names it in messages.

    Raises:
        InputError: The text is not of this format; the message names the key and its value.
    """
    hint = " (make one with: hetsched cluster infer)"
    said: _Document = read_toml(text, source, _Document, SCHEMA, hint)
    nodes = [node for at, entry in enumerate(said.nodes, 1) for node in _nodes(at, entry, source)]
    _check_hosts(source, nodes)
    try:
        cluster = Cluster(tuple(nodes), said.name)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    partitions: dict[str, frozenset[str]] = {}
    for at, partition in enumerate(said.partitions, 1):
        where = f"{source}: partitions {at}"
        if not partition.name or partition.name in partitions:
            raise InputError(
                f"{where}: name is {partition.name!r}; expected a name that no other partition has"
            )
        partitions[partition.name] = _known_names(where, partition.nodes, cluster)
    windows = []
    for at, window in enumerate(said.windows, 1):
        where = f"{source}: windows {at}"
        closed = _known_names(where, window["nodes"], cluster)
        try:
            windows.append(
                Window(
                    closed,
                    window["from"],
                    window["until"],
                    window.get("name", ""),
                    window.get("strict", False),
                )
            )
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    rules = {partition.name: partition.rules() for partition in said.partitions}
    told = {name: each for name, each in rules.items() if each != PartitionRules()}
    site = SiteTables(said.shares, said.accounts, said.qos, told)
    site.check(source)
    return ClusterFile(cluster, said.node_types, partitions, tuple(windows), site)


def _known_names(where: str, given: Iterable[str], cluster: Cluster) -> frozenset[str]:
    """Return the nodes that a table names, by their names or by those of their hosts."""
    names: set[str] = set()
    for name in given:
        called = cluster.called(name)
        if not called:
            known = {*cluster.names, *(node.host for node in cluster)}
            raise UnknownNameError(f"{where}: {unknown('node', name, known)}")
        names.update(called)
    return frozenset(names)


def _nodes(at: int, entry: _Nodes, source: str) -> Iterator[Node]:
    """Yield the nodes of one [[nodes]] table."""
    hosts = entry.host or entry.nodes
    if len(hosts) != len(entry.nodes):
        raise InputError(
            f"{source}: nodes {at}: host names {len(hosts)} hosts for {len(entry.nodes)} nodes; "
            "the two lists go together name by name"
        )
    for name, host in zip(entry.nodes, hosts, strict=True):
        yield Node(name, entry.gpu_type, entry.gpus, entry.cpus, entry.memory, host, entry.group)


def _check_hosts(source: str, nodes: Iterable[Node]) -> None:
    """Refuse nodes that share a host and do not agree on its CPUs and memory."""
    first: dict[str, Node] = {}
    for node in nodes:
        other = first.setdefault(node.host, node)
        if (node.cpus, node.memory_mb) != (other.cpus, other.memory_mb):
            raise InputError(
                f"{source}: nodes {other.name!r} and {node.name!r} share host {node.host!r} but "
                f"have cpus {other.cpus} and {node.cpus}, memory {other.memory_mb} and "
                f"{node.memory_mb} MiB; give both what the host has"
            )


# Writing ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeRange:
    """Nodes that follow each other and differ only in their names.

    `nodes` and `hosts` are folded, as in `n[1-8]`; `hosts` is empty where every node is its own.
    `gpus`, `cpus` and `memory_mb` are those of each node.
    """

    nodes: str
    count: int
    hosts: str
    gpu_type: str
    gpus: int
    cpus: int
    memory_mb: int
    group: str


def fold(cluster: Cluster) -> Iterator[NodeRange]:
    """Yield the nodes of a cluster in order, folded to ranges.

    Raises:
        InputError: The name of a node or host cannot stand in a node list.
    """
    for _, run in groupby(cluster, _attributes):
        nodes = list(run)
        names, hosts = [node.name for node in nodes], [node.host for node in nodes]
        # What would unfold in another order, or loses a host that comes twice, stays apart.
        together = _unfold(fold_names(names)) == names and _unfold(fold_names(hosts)) == hosts
        for part in [nodes] if together else [[node] for node in nodes]:
            own_host = part[0].host == part[0].name
            yield NodeRange(
                fold_names(node.name for node in part),
                len(part),
                "" if own_host else fold_names(node.host for node in part),
                part[0].gpu_type,
                part[0].gpus,
                part[0].cpus,
                part[0].memory_mb,
                part[0].group,
            )


def _attributes(node: Node) -> tuple[str, int, int, int, str, bool]:
    """Return what all nodes of a range have in common."""
    own_host = node.host == node.name
    return node.gpu_type, node.gpus, node.cpus, node.memory_mb, node.group, own_host


def fold_names(names: Iterable[str]) -> str:
    """Return names as a node list such as `n[1-8]`, in Slurm's order.

    Raises:
        InputError: A name cannot stand in a node list.
    """
    names = list(names)
    for name in names:
        try:
            plain = expand_nodes(name) == (name,)
        except FieldError:
            plain = False
        if not plain:
            raise InputError(
                f"node name {name!r} cannot stand in a node list; names are of letters, "
                "digits, '_', '.' and '-'"
            )
    return str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))


def _unfold(folded: str) -> list[str]:
    return list(expand_nodes(folded))


def format_cluster(file: ClusterFile, comments: Iterable[str] = ()) -> str:
    """Return the text of a `cluster.toml`; comments stand above the nodes.

    Raises:
        InputError: The name of a node or host cannot stand in a node list.
    """
    head = [f"schema = {_quote(SCHEMA)}", f"name = {_quote(file.cluster.name)}"]
    blocks = [head, [_comment(text) for text in comments]]
    for part in fold(file.cluster):
        block = ["[[nodes]]", f"nodes = {_quote(part.nodes)}"]
        block += [f"host = {_quote(part.hosts)}"] if part.hosts else []
        block += [f"gpu_type = {_quote(part.gpu_type)}", f"gpus = {part.gpus}"]
        block += [f"cpus = {part.cpus}"] if part.cpus else []
        block += [f"memory = {_quote(format_memory(part.memory_mb))}"] if part.memory_mb else []
        block += [f"group = {_quote(part.group)}"] if part.group else []
        blocks.append(block)
    for name, members in file.partitions.items():
        names = fold_names(node for node in file.cluster.names if node in members)
        block = ["[[partitions]]", f"name = {_quote(name)}", f"nodes = {_quote(names)}"]
        rules = file.site.partitions.get(name)
        blocks.append([*block, *(rule_lines(rules, _quote) if rules else ())])
    for window in file.windows:
        names = fold_names(node for node in file.cluster.names if node in window.nodes)
        block = ["[[windows]]", f"name = {_quote(window.name)}", f"nodes = {_quote(names)}"]
        block += [f"from = {window.from_s!r}", f"until = {window.until_s!r}"]
        blocks.append([*block, "strict = true"] if window.strict else block)
    blocks += site_blocks(file.site, _quote)
    if file.node_types.rules:
        lines = [f"{_quote(key)} = {_quote(value)}" for key, value in file.node_types.rules]
        blocks.append(["[node_types]", *lines])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def format_memory(memory_mb: int) -> str:
    """Return MiB as Slurm writes them: `512G` where that is exact, else `514404M`."""
    return f"{memory_mb}M" if memory_mb % 1024 else f"{memory_mb // 1024}G"


def _comment(text: str) -> str:
    return textwrap.fill(
        # A file's name may hold anything; a comment may not.
        "".join(c if c.isprintable() else " " for c in text),
        99,
        initial_indent="# ",
        subsequent_indent="#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _quote(text: str) -> str:
    # TOML's basic strings are JSON's, but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
