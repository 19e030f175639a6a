"""The bitset of free GPUs, against a scan that looks at every node."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched_core.placement import FreeGpus
from hetsched_core.types import (
    Cluster,
    Configuration,
    Job,
    Node,
    NodeCondition,
    NodeView,
)
from tests.hetsched_core.worlds import cluster_of, on, snapshot_of, submission

TYPES = ("v100", "k80")


class NaiveFree:
    """What is free, by subtraction, from all that was taken."""

    def __init__(self, cluster: Cluster, views: dict[str, NodeView]) -> None:
        self.cluster = cluster
        self.views = views
        self.taken: list[tuple[Job, Configuration]] = []

    def gpus(self, name: str) -> int:
        taken = sum(g for _, what in self.taken for node, g in what if node == name)
        return max(0, self.views[name].capacity) - taken

    def on_host(self, host: str, need: str, per_gpu: str) -> float:
        """CPUs or memory (the field `need`) that a host has left; infinite if not counted."""
        siblings = [n for n in self.cluster if n.host == host]
        most = max(getattr(n, need) for n in siblings) or math.inf
        foreign = sum(getattr(self.views[n.name], f"foreign_{need}") for n in siblings)
        taken = sum(
            g * getattr(job, per_gpu)
            for job, what in self.taken
            for node, g in what
            if self.cluster[node].host == host
        )
        return float(most - foreign - taken)

    def fits(self, job: Job, what: Configuration) -> bool:
        if any(gpus > self.gpus(name) for name, gpus in what):
            return False
        for host in {self.cluster[name].host for name, _ in what}:
            wanted = sum(gpus for name, gpus in what if self.cluster[name].host == host)
            for need, per_gpu in (("cpus", "cpus_per_gpu"), ("memory_mb", "memory_mb_per_gpu")):
                each = getattr(job, per_gpu)
                if each and wanted * each > self.on_host(host, need, per_gpu) + 1e-6:
                    return False
        return True

    def open(self, name: str) -> bool:
        return self.views[name].condition is NodeCondition.UP

    def nodes(self, job: Job, *types: str) -> list[Node]:
        """The open nodes of these types that a job may use."""
        mine = [n for n in self.cluster if n.gpu_type in types and self.open(n.name)]
        return [n for n in mine if job.may_start_on(n.name)]

    def one_node(self, job: Job, gpu_type: str, count: int) -> Configuration | None:
        """The node of the job's that is left with the fewest free GPUs, the first of equals."""
        best = None
        for node in self.nodes(job, gpu_type):
            what = Configuration(((node.name, count),))
            if job.min_nodes > 1 or not self.fits(job, what):
                continue
            if best is None or self.gpus(node.name) < self.gpus(best.pieces[0][0]):
                best = what
        return best

    def spreads(
        self, job: Job, types: tuple[str, ...], count: int, nodes: int, even: bool
    ) -> Iterator[Configuration]:
        """Every configuration of `count` GPUs on exactly so many of the job's nodes."""
        for chosen in combinations((n.name for n in self.nodes(job, *types)), nodes):
            for parts in _parts(count, nodes):
                what = Configuration.of(zip(chosen, parts, strict=True))
                if (not even or len(set(parts)) == 1) and self.fits(job, what):
                    yield what


def _parts(count: int, nodes: int) -> Iterator[tuple[int, ...]]:
    if nodes == 1:
        yield (count,)
        return
    for first in range(1, count - nodes + 2):
        for rest in _parts(count - first, nodes - 1):
            yield (first, *rest)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[FreeGpus, NaiveFree]:
    """A cluster with shared hosts, closed nodes and foreign use, some of it taken."""
    nodes: list[Node] = []
    for number in range(draw(st.integers(2, 5))):
        shared = nodes and nodes[-1].host == nodes[-1].name and draw(st.booleans())
        cpus, memory_mb, host = (
            (nodes[-1].cpus, nodes[-1].memory_mb, nodes[-1].host)
            if shared
            else (draw(st.sampled_from([0, 4, 9])), draw(st.sampled_from([0, 40, 90])), "")
        )
        gpu_type, gpus = draw(st.sampled_from(TYPES)), draw(st.integers(0, 4))
        nodes.append(Node(f"n{number}", gpu_type, gpus, cpus, memory_mb, host))
    cluster = Cluster((*nodes, Node("last", "v100", 2)))
    views = {
        node.name: NodeView(
            node,
            condition=draw(st.sampled_from([NodeCondition.UP] * 4 + list(NodeCondition))),
            foreign_gpus=draw(st.sampled_from([0] * 4 + [min(1, node.gpus)])),
            foreign_cpus=draw(st.sampled_from([0.0, 0.0, 1.5])),
            foreign_memory_mb=draw(st.sampled_from([0.0, 0.0, 7.0])),
        )
        for node in cluster
    }
    free = FreeGpus(cluster, tuple(views[node.name] for node in cluster))
    naive = NaiveFree(cluster, views)
    for _ in range(draw(st.integers(0, 4))):
        job = draw(jobs())
        pieces = draw(
            st.dictionaries(
                st.sampled_from(cluster.names), st.integers(1, 2), min_size=1, max_size=2
            )
        )
        what = Configuration.of(pieces)
        assert free.fits(job, what) is naive.fits(job, what)
        if naive.fits(job, what):
            free.take(job, what)
            naive.taken.append((job, what))
            if draw(st.integers(0, 3)) == 0:
                free.give(*naive.taken.pop(0))
    return free, naive


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    names = st.frozensets(st.sampled_from(["n0", "n1", "n2", "last"]))
    return submission(
        "j",
        1.0,
        cpus_per_gpu=draw(st.sampled_from([0.0, 0.0, 0.7, 2.0, 4.5])),
        memory_mb_per_gpu=draw(st.sampled_from([0.0, 0.0, 9.0, 33.3])),
        nodes=draw(st.none() | st.none() | names),
        closed=draw(st.just(frozenset[str]()) | names),
        min_nodes=(least := draw(st.sampled_from([1, 1, 1, 2, 3]))),
        max_nodes=draw(st.sampled_from([None, None, least, least + 1])),
    ).job


@settings(max_examples=60)
@given(worlds(), jobs(), st.sampled_from(TYPES), st.integers(1, 4))
def test_one_node_is_what_a_scan_of_all_nodes_finds(
    world: tuple[FreeGpus, NaiveFree], job: Job, gpu_type: str, count: int
) -> None:
    free, naive = world
    found = free.one_node(job, gpu_type, count)
    assert found == naive.one_node(job, gpu_type, count)
    if found:
        free.take(job, found)
        free.give(job, found)
        assert free.one_node(job, gpu_type, count) == found


@given(worlds())
def test_idle_and_full_count_the_free_gpus_of_open_nodes(
    world: tuple[FreeGpus, NaiveFree],
) -> None:
    free, naive = world
    for gpu_type in TYPES:
        of_type = [n.name for n in naive.cluster if n.gpu_type == gpu_type and naive.open(n.name)]
        assert free.idle(gpu_type) == sum(naive.gpus(name) for name in of_type)
    open_nodes = [node.name for node in naive.cluster if naive.open(node.name)]
    assert free.full is (not any(naive.gpus(name) for name in open_nodes))


@settings(max_examples=60)
@given(worlds(), jobs(), st.sampled_from([("v100",), TYPES]), st.integers(2, 7), st.booleans())
def test_several_nodes_are_found_whenever_there_are_any(
    world: tuple[FreeGpus, NaiveFree], job: Job, types: tuple[str, ...], count: int, even: bool
) -> None:
    free, naive = world
    found = free.fewest_nodes(job, types, count, even=even)
    # Who asks for two nodes gets equal parts, also where one would do.
    even = even or job.min_nodes > 1
    limit = min(count, len(naive.cluster), job.max_nodes or count)
    several = range(max(2, job.min_nodes), limit + 1)
    possible = [n for n in several if any(naive.spreads(job, types, count, n, even))]
    assert (found is not None) is bool(possible)
    if found is None:
        return
    assert found.gpus == count
    assert naive.fits(job, found)
    assert {name for name, _ in found} <= {node.name for node in naive.nodes(job, *types)}
    assert not even or len({gpus for _, gpus in found}) == 1
    if len({node.host for node in naive.cluster}) == len(naive.cluster):
        # Where no host is shared, filling the fullest nodes first takes the fewest.
        assert len(found) == possible[0]


@settings(max_examples=300)
@given(worlds(), jobs(), st.sampled_from([("v100",), TYPES]))
def test_the_most_on_several_nodes_says_which_counts_are_found_there(
    world: tuple[FreeGpus, NaiveFree], job: Job, types: tuple[str, ...]
) -> None:
    free, _ = world
    job = replace(job, min_nodes=1)
    most = free.most_spread(job, types)
    for count in range(2, 24):
        assert (free.fewest_nodes(job, types, count) is not None) is (count <= most)


def test_fractions_of_a_cpu_add_up_to_a_whole_node() -> None:
    """3 - 4 x 0.6 leaves a little less than 0.6 in floats."""
    cluster = Cluster((Node("a", "v100", 5, cpus=3),))
    free, job = FreeGpus.empty(cluster), submission("j", 1.0, cpus_per_gpu=0.6).job
    for _ in range(5):
        found = free.one_node(job, "v100", 1)
        assert found is not None
        free.take(job, found)
    assert free.full


def test_what_runs_on_a_node_beyond_what_others_leave_takes_no_room_elsewhere() -> None:
    cluster = cluster_of(a=("v100", 4), b=("v100", 4))
    free = FreeGpus.of(snapshot_of(cluster, [], nodes={"a": {"foreign_gpus": 3}}))
    job = submission("j", 1.0).job
    free.take(job, on(a=3))
    assert (free.idle("v100"), free.nodes_with("v100", 4)) == (4, 1)
    assert free.one_node(job, "v100", 1) == on(b=1)
    free.give(job, on(a=3))
    assert (free.idle("v100"), free.one_node(job, "v100", 1)) == (5, on(a=1))


def test_the_fullest_nodes_are_filled_first_and_two_nodes_are_used_at_least() -> None:
    cluster = cluster_of(a=("v100", 2), b=("v100", 8), c=("v100", 4))
    free, job = FreeGpus.empty(cluster), submission("j", 1.0).job
    assert free.fewest_nodes(job, ("v100",), 10) == on(b=8, c=2)
    assert free.fewest_nodes(job, ("v100",), 14) == on(a=2, b=8, c=4)
    assert free.fewest_nodes(job, ("v100",), 8) == on(b=7, c=1)
    assert free.fewest_nodes(job, ("v100",), 8, even=True) == on(b=4, c=4)
    assert free.fewest_nodes(job, ("v100",), 6, even=True) == on(b=3, c=3)
    assert free.fewest_nodes(job, ("v100",), 15) is None
    assert free.fewest_nodes(job, ("v100",), 9, even=True) is None


def test_nodes_of_which_as_much_can_be_used_are_filled_in_their_order() -> None:
    """Four CPUs make four GPUs of each node, whatever else is free there."""
    cluster = Cluster((Node("a", "v100", 4, cpus=4), Node("b", "v100", 8, cpus=4)))
    free, job = FreeGpus.empty(cluster), submission("j", 1.0, cpus_per_gpu=1.0).job
    assert free.fewest_nodes(job, ("v100",), 6) == on(a=4, b=2)
    cluster = Cluster(cluster.nodes[::-1])
    assert FreeGpus.empty(cluster).fewest_nodes(job, ("v100",), 6) == on(a=2, b=4)
