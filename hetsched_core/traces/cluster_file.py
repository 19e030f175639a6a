"""`cluster.toml`, the description of a cluster (docs/formats/cluster.md)."""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from hetsched_core.errors import InputError, UnknownNameError, unknown
from hetsched_core.traces.node_types import NodeTypes, normal_gpu_type
from hetsched_core.traces.sacct.fields import MAX_NODES, FieldError, expand_nodes, parse_memory
from hetsched_core.types import Cluster, Node, Window

SCHEMA = "hetsched-cluster/1"


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """What a `cluster.toml` says.

    Attributes:
        cluster: the nodes.
        node_types: the types of GPUs that a log leaves untyped.
        partitions: the names of the nodes of each partition.
        windows: spans in which nodes are closed.
    """

    cluster: Cluster
    node_types: NodeTypes = field(default_factory=NodeTypes)
    partitions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()

    def gpu_type_on(self, host: str) -> str | None:
        """Return the type of an untyped GPU on a host; None where that cannot be told."""
        types = {node.gpu_type for node in self.cluster if node.host == host}
        return types.pop() if len(types) == 1 else self.node_types.type_on(host)


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
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{source} is not valid TOML: {error}") from None
    if document.get("schema") != SCHEMA:
        raise InputError(
            f"{source}: schema is {document.get('schema')!r}; a cluster file has the line "
            f'schema = "{SCHEMA}" (make one with: hetsched cluster infer)'
        )
    keys = ("schema", "name", "nodes", "node_types", "partitions", "windows")
    top = _Table(source, document, keys)
    entries = document.get("nodes")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{source}: nodes is {entries!r}; expected one [[nodes]] table or more")
    nodes = [
        node
        for at, entry in enumerate(entries, 1)
        for node in _nodes(f"{source}: nodes {at}", entry)
    ]
    _check_hosts(source, nodes)
    try:
        cluster = Cluster(tuple(nodes), top.text("name", "cluster"))
        node_types = _node_types(top)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    partitions: dict[str, frozenset[str]] = {}
    for table in _tables(source, document, "partitions", ("name", "nodes")):
        name = table.text("name")
        if not name or name in partitions:
            raise table.wrong("name", "a name that no other partition has")
        partitions[name] = _names_in(table, cluster)
    windows = _tables(source, document, "windows", ("name", "nodes", "from", "until"))
    return ClusterFile(
        cluster, node_types, partitions, tuple(_window(table, cluster) for table in windows)
    )


def _tables(
    source: str, document: dict[str, object], key: str, keys: tuple[str, ...]
) -> Iterator[_Table]:
    """Yield the tables of an array of tables."""
    entries = document.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{source}: {key} is {entries!r}; expected [[{key}]] tables")
    for at, entry in enumerate(entries, 1):
        yield _Table(f"{source}: {key} {at}", entry, keys)


def _names_in(table: _Table, cluster: Cluster) -> frozenset[str]:
    """Return the nodes that a table names, by their names or by those of their hosts."""
    hosts = {node.host for node in cluster}
    names: set[str] = set()
    for name in table.node_names("nodes"):
        if name in cluster:
            names.add(name)
        elif name in hosts:
            names.update(cluster.on_host(name))
        else:
            known = {*cluster.names, *hosts}
            raise UnknownNameError(f"{table.where}: {unknown('node', name, known)}")
    return frozenset(names)


def _window(table: _Table, cluster: Cluster) -> Window:
    nodes, name = _names_in(table, cluster), table.text("name", "")
    try:
        return Window(nodes, table.time_s("from"), table.time_s("until"), name)
    except InputError as error:
        raise InputError(f"{table.where}: {error}") from None


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of TOML whose keys are known; `where` opens every message."""

    where: str
    values: dict[str, object]
    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        for key in self.values:
            if key not in self.keys:
                raise UnknownNameError(f"{self.where}: {unknown('key', key, self.keys)}")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, 'text in quotes, such as "a100"')
        return value

    def count(self, key: str, least: int, default: int | None = None) -> int:
        value = self.values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.wrong(key, f"a whole number of {least} or more")
        return value

    def memory_mb(self, key: str) -> int:
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            return self.count(key, 0)
        try:
            size = parse_memory(value, None, None) if value else 0
        except FieldError:
            size = None
        if size is None or size != int(size):
            raise self.wrong(key, 'MiB, or text such as "512G" or "514404M"')
        return int(size)

    def node_names(self, key: str) -> tuple[str, ...]:
        try:
            names = expand_nodes(self.text(key))
        except FieldError:
            names = ()
        if not names:
            raise self.wrong(
                key, f"node names such as n1, n[1-8] or n[1-3,7],m[01-12], at most {MAX_NODES}"
            )
        return names

    def time_s(self, key: str) -> float:
        value = self.values.get(key)
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value.timestamp()
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return float(value)
        raise self.wrong(
            key, "a time with its zone such as 2026-03-01T08:00:00Z, or seconds since 1970, UTC"
        )

    def wrong(self, key: str, expected: str) -> InputError:
        given = f"{key} is {self.values[key]!r}" if key in self.values else f"{key} is missing"
        return InputError(f"{self.where}: {given}; expected {expected}")


def _nodes(where: str, entry: dict[str, object]) -> Iterator[Node]:
    """Yield the nodes of one [[nodes]] table."""
    keys = ("nodes", "gpu_type", "gpus", "cpus", "memory", "group", "host")
    table = _Table(where, entry, keys)
    names = table.node_names("nodes")
    hosts = table.node_names("host") if "host" in entry else names
    if len(hosts) != len(names):
        raise InputError(
            f"{where}: host is {entry['host']!r}, {len(hosts)} hosts for {len(names)} nodes; "
            "the two lists go together name by name"
        )
    try:
        gpu_type = normal_gpu_type(table.text("gpu_type"))
    except InputError as error:
        raise InputError(f"{where}: gpu_type: {error}") from None
    gpus, cpus = table.count("gpus", 1), table.count("cpus", 0, 0)
    memory_mb, group = table.memory_mb("memory"), table.text("group", "")
    for name, host in zip(names, hosts, strict=True):
        yield Node(name, gpu_type, gpus, cpus, memory_mb, host, group)


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


def _node_types(top: _Table) -> NodeTypes:
    """Read the table [node_types]."""
    rules = top.values.get("node_types", {})
    if not isinstance(rules, dict) or not all(isinstance(name, str) for name in rules.values()):
        raise top.wrong("node_types", 'a table of lines such as "gpu-[1-4]" = "a100"')
    try:
        return NodeTypes.of(rules)
    except InputError as error:
        raise InputError(f"node_types: {error}") from None


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
        blocks.append(["[[partitions]]", f"name = {_quote(name)}", f"nodes = {_quote(names)}"])
    for window in file.windows:
        names = fold_names(node for node in file.cluster.names if node in window.nodes)
        block = ["[[windows]]", f"name = {_quote(window.name)}", f"nodes = {_quote(names)}"]
        blocks.append([*block, f"from = {window.from_s!r}", f"until = {window.until_s!r}"])
    if file.node_types.rules:
        rules = [f"{_quote(key)} = {_quote(value)}" for key, value in file.node_types.rules]
        blocks.append(["[node_types]", *rules])
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
