"""The cluster as the scheduler sees it: nodes of one GPU type each, and GPUs held on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from hetsched_core.errors import InputError, unknown
from hetsched_core.types.making import cheaply_made, maker

MAX_GPUS_PER_NODE = 4096

SLACK = 1e-6
"""Slack for sums of CPUs and MiB, which are products of fractions per GPU."""

_MOST_MASKS = 4096
"""So many sets of nodes are remembered by a cluster: windows that come and go bring new ones."""

_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Node:
    """One scheduling node: a server, or the GPUs of one type in a server with several types.

    Nodes with the same `host` share its CPUs and memory. `group` names the topology group (a rack
    or switch) inside which a distributed job finds its neighbours. `memory_mb` is in MiB.
    Zero CPUs or memory means that this resource is not counted on the node.
    """

    name: str
    gpu_type: str
    gpus: int
    cpus: int = 0
    memory_mb: int = 0
    host: str = ""
    group: str = ""

    def __post_init__(self) -> None:
        """Refuse impossible sizes; a node without a host is its own host."""
        if self.gpus < 0 or self.cpus < 0 or self.memory_mb < 0:
            raise InputError(
                f"node {self.name!r} has a negative size (gpus={self.gpus}, cpus={self.cpus}, "
                f"memory_mb={self.memory_mb}); sizes count from 0"
            )
        if self.gpus > MAX_GPUS_PER_NODE:
            raise InputError(
                f"node {self.name!r} has {self.gpus} GPUs; at most {MAX_GPUS_PER_NODE} are "
                "possible: give the GPUs of one server"
            )
        if not self.host:
            object.__setattr__(self, "host", self.name)


def part_name(host: str, gpu_type: str) -> str:
    """Return the name of the scheduling node that one of a host's several GPU types makes."""
    return f"{host}-{gpu_type}"


def nodes_of_host(
    host: str, gpus: Mapping[str, int], cpus: int, memory_mb: int
) -> tuple[Node, ...]:
    """Return the scheduling nodes of a host: one for each of its GPU types, `{type: GPUs}`.

    One alone has the host's name.
    """
    return tuple(
        Node(part_name(host, kind) if len(gpus) > 1 else host, kind, count, cpus, memory_mb, host)
        for kind, count in sorted(gpus.items())
    )


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Cluster:
    """All nodes, in a fixed order that every tie break follows. Compared by identity."""

    nodes: tuple[Node, ...]
    name: str = "cluster"
    _index: dict[str, int] = field(init=False, repr=False)
    _hosts: dict[str, tuple[str, ...]] = field(init=False, repr=False)
    _shared: dict[str, tuple[int, int]] = field(init=False, repr=False)
    _gpu_types: tuple[str, ...] = field(init=False, repr=False)
    _masks: dict[tuple[frozenset[str] | None, frozenset[str]], int] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        """Refuse duplicate names and a cluster without GPUs."""
        index = {node.name: at for at, node in enumerate(self.nodes)}
        if len(index) < len(self.nodes):
            seen: set[str] = set()
            twice = next(n.name for n in self.nodes if n.name in seen or seen.add(n.name))  # type: ignore[func-returns-value]
            raise InputError(f"node {twice!r} is listed twice; every node needs its own name")
        hosts: dict[str, tuple[str, ...]] = {}
        shared: dict[str, tuple[int, int]] = {}
        for node in self.nodes:
            hosts[node.host] = (*hosts.get(node.host, ()), node.name)
            cpus, memory_mb = shared.get(node.host, (0, 0))
            shared[node.host] = max(cpus, node.cpus), max(memory_mb, node.memory_mb)
        object.__setattr__(self, "_index", index)
        object.__setattr__(self, "_hosts", hosts)
        object.__setattr__(self, "_shared", shared)
        types = tuple(dict.fromkeys(node.gpu_type for node in self.nodes))
        object.__setattr__(self, "_gpu_types", types)
        if self.gpus == 0:
            raise InputError(
                f"cluster {self.name!r} has 0 GPUs in {len(self.nodes)} nodes; "
                "list at least one node with gpus of 1 or more"
            )

    def mask(self, nodes: frozenset[str] | None, closed: frozenset[str] = _NONE) -> int:
        """Return a set of nodes less those that are closed: bit k stands for node number k.

        None stands for all nodes; names that no node here has are passed over. There are few
        different sets, and each is looked at once.
        """
        mask = self._masks.get((nodes, closed))
        if mask is None:
            if len(self._masks) >= _MOST_MASKS:
                self._masks.clear()
            mask = sum(
                1 << at
                for at, node in enumerate(self.nodes)
                if (nodes is None or node.name in nodes) and node.name not in closed
            )
            self._masks[nodes, closed] = mask
        return mask

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes, in order."""
        return tuple(self._index)

    @property
    def gpus(self) -> int:
        """Number of GPUs in all nodes."""
        return sum(node.gpus for node in self.nodes)

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """The GPU types, in the order in which the nodes first name them."""
        return self._gpu_types

    def gpus_by_type(self) -> dict[str, int]:
        """Return the number of GPUs of each type."""
        totals: dict[str, int] = {}
        for node in self.nodes:
            totals[node.gpu_type] = totals.get(node.gpu_type, 0) + node.gpus
        return totals

    def index(self, name: str) -> int:
        """Return the position of a node in `nodes`.

        Raises:
            UnknownNameError: no node has this name.
        """
        try:
            return self._index[name]
        except KeyError:
            raise unknown("node", name, self._index) from None

    def on_host(self, host: str) -> tuple[str, ...]:
        """Return the names of the nodes that share this host's CPUs and memory."""
        return self._hosts[host]

    def called(self, name: str) -> tuple[str, ...]:
        """Return the node of this name, else the nodes on the host of this name; () for none."""
        return (name,) if name in self._index else self._hosts.get(name, ())

    def shared_on(self, host: str) -> tuple[int, int]:
        """Return the CPUs and the memory (MiB) of a host; 0 where they are not counted."""
        return self._shared[host]

    def get(self, name: str) -> Node | None:
        """Return the node of this name, None if there is none."""
        at = self._index.get(name)
        return None if at is None else self.nodes[at]

    def __getitem__(self, name: str) -> Node:
        """Return the node of this name."""
        # The index is asked here, since every start and end of a run comes by.
        at = self._index.get(name)
        return self.nodes[self.index(name) if at is None else at]

    def __contains__(self, name: object) -> bool:
        """Whether a node has this name."""
        return name in self._index

    def __iter__(self) -> Iterator[Node]:
        """Yield the nodes in order."""
        return iter(self.nodes)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.nodes)


@cheaply_made
@dataclass(frozen=True, slots=True)
class Configuration:
    """GPUs held on nodes; iterating yields the pieces, and its length is the number of nodes.

    Attributes:
        pieces: (node, GPUs) pairs, sorted by node, each node once, counts >= 1.
    """

    pieces: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, pieces: Mapping[str, int] | Iterable[tuple[str, int]]) -> Configuration:
        """Build a configuration from {node: gpus}.

        Raises:
            InputError: no piece, a node named twice, or a count below 1.
        """
        items = tuple(sorted(pieces.items() if isinstance(pieces, Mapping) else pieces))
        if not items or any(gpus < 1 for _, gpus in items):
            raise InputError(f"a configuration needs at least one GPU on each node, not {items}")
        if len({node for node, _ in items}) < len(items):
            raise InputError(f"a configuration names a node twice: {items}")
        return cls(items)

    @property
    def gpus(self) -> int:
        """Number of GPUs over all nodes."""
        return sum(gpus for _, gpus in self.pieces)

    @property
    def aggregated(self) -> bool:
        """Whether all GPUs are on one node (Hops)."""
        return len(self.pieces) == 1

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yield (node, GPUs) pairs."""
        return iter(self.pieces)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.pieces)

    def __str__(self) -> str:
        """Return for example `n0:2+n1:4`."""
        return "+".join(f"{node}:{gpus}" for node, gpus in self.pieces)


class Shape(StrEnum):
    """What a configuration looks like; a cluster backend may be able to realise only some."""

    SINGLE_NODE = "single-node"
    EVEN = "even"
    UNEVEN = "uneven"
    MIXED_TYPES = "mixed-types"


ALL_SHAPES = frozenset(Shape)
"""Every shape: what the simulator realises."""


def shape_of(configuration: Configuration, cluster: Cluster) -> Shape:
    """Return the shape of a configuration: the most demanding word that describes it."""
    if configuration.aggregated:
        return Shape.SINGLE_NODE
    if len({cluster[node].gpu_type for node, _ in configuration}) > 1:
        return Shape.MIXED_TYPES
    if len({gpus for _, gpus in configuration}) > 1:
        return Shape.UNEVEN
    return Shape.EVEN


class NodeCondition(Enum):
    """Whether a node takes work."""

    UP = "up"
    DRAINED = "drained"
    DOWN = "down"


@cheaply_made
@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as it stands now.

    `foreign_*` is in use by jobs that are not ours to move, `held_*` by runs of ours, those being
    drained included. `left_out` is why nothing is to start on a node that is up, in words; "" where
    that is not so.
    """

    node: Node
    condition: NodeCondition = NodeCondition.UP
    foreign_gpus: int = 0
    foreign_cpus: float = 0.0
    foreign_memory_mb: float = 0.0
    held_gpus: int = 0
    held_cpus: float = 0.0
    held_memory_mb: float = 0.0
    left_out: str = ""

    @property
    def capacity(self) -> int:
        """GPUs that managed jobs may hold here, whatever its condition: what runs may stay."""
        return self.node.gpus - self.foreign_gpus

    def holding(self, gpus: int, cpus: float, memory_mb: float) -> NodeView:
        """Return the node with so much more (or, below 0, less) held by runs of ours."""
        # Built by hand: this happens at every start and end of a run.
        return _make_node_view(
            self.node,
            self.condition,
            self.foreign_gpus,
            self.foreign_cpus,
            self.foreign_memory_mb,
            self.held_gpus + gpus,
            self.held_cpus + cpus,
            self.held_memory_mb + memory_mb,
            self.left_out,
        )

    @property
    def open(self) -> bool:
        """Whether new work may start here."""
        return self.condition is NodeCondition.UP and not self.left_out

    @property
    def word(self) -> str:
        """How it stands: its condition, or `left out`."""
        return "left out" if self.left_out else self.condition.value


_make_node_view = maker(NodeView)
