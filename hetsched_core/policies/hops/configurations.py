"""Configurations of Hops (SoCC '24, section 3.6): what jobs could get, and how fast they are there.

For each GPU type and requirement: one node that has so many GPUs idle; for jobs that suffer little
from being spread, or that no single node of the type could ever hold, also several nodes, as few as
possible, each filled as far as possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose.problem import bundle_codes, runs_of, starts_of
from hetsched_core.kernels.configurations import of_jobs, on_classes
from hetsched_core.placement.free import PerGpu
from hetsched_core.policies.hops.demand import HopsDemand
from hetsched_core.policies.hops.room import (
    Classes,
    ClusterLayout,
    NodeSpeeds,
    Room,
    classes_of,
    node_speeds,
)
from hetsched_core.types import SpeedTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ANY_NUMBER = 1 << 30
"""Stands for as many nodes as there are."""

MOST_SPREADS = 64
"""Distributed configurations of one count in one pool; how few nodes hold it is exact."""

FEWER = 4
"""So many times fewer of them there are where jobs have too many options, and again."""

MOST_PIECES = 1_000_000
"""Pieces of all configurations, some 0.1 GiB in a plan: with more, there are fewer of them, too."""

_MOST_KNOWN = 1 << 14
"""Beyond so many kinds of jobs that are remembered all are forgotten."""


class Neighbours(StrEnum):
    """Which nodes a distributed configuration may take.

    `any`: nodes of one pool, interchangeable ones counted once. `id`: nodes that follow each other
    in the cluster's order, full ones passed over, without wrapping round, as the paper has it.
    """

    ANY = "any"
    ID = "id"


@dataclass(frozen=True, slots=True, eq=False)
class Catalogue:
    """All configurations on the idle nodes, for each (need, GPU type, want) in turn.

    Attributes:
        starts: (D T U + 1,) where the configurations of each triple begin.
        spread_from: (D T U,) where the distributed ones among them begin.
        piece_from: (Q+1,) where the pieces of each configuration begin.
        pieces: (P, 3) class and GPUs of each piece, ascending, and on how many nodes it is.
    """

    starts: Ints
    spread_from: Ints
    piece_from: Ints
    pieces: Ints

    def code(self) -> Ints:
        """Return (Q,) numbers that are equal where the pieces are."""
        return bundle_codes(self.piece_from, *np.ascontiguousarray(self.pieces.T))

    def with_more(self, configurations: Sequence[Sequence[tuple[int, int]]]) -> Catalogue:
        """Return the catalogue with more configurations, (class, GPUs) by node, behind it."""
        counted = [Counter(configuration) for configuration in configurations]
        pieces = [(*piece, nodes) for each in counted for piece, nodes in sorted(each.items())]
        ends = self.piece_from[-1] + starts_of([len(each) for each in counted])
        return Catalogue(
            self.starts,
            self.spread_from,
            np.concatenate([self.piece_from, ends[1:]]),
            np.concatenate([self.pieces, np.array(pieces, np.int64).reshape(-1, 3)]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ClusterLimits:
    """What a healthy, idle cluster holds, for jobs of each of D needs.

    Attributes:
        largest_node: (D, T) most GPUs that a job can use of one node of each type.
        in_pool: (D T, U) 1 where one pool of the type can hold a want, else 0.
        shape: (D,) what its configurations may look like (`kernels.configurations`).
        least, most: (D,) on how many nodes a job has to, and may be.
    """

    largest_node: Ints
    in_pool: Ints
    shape: Ints
    least: Ints
    most: Ints


@lru_cache(maxsize=64)
def limits_of(
    layout: ClusterLayout,
    needs: tuple[PerGpu, ...],
    shapes: tuple[int, ...],
    wants: tuple[int, ...],
    neighbours: Neighbours,
) -> ClusterLimits:
    """Return what the cluster holds when it is healthy and idle.

    Args:
        layout: the cluster.
        needs: D needs.
        shapes: what configurations of each may look like.
        wants: U ascending GPU counts.
        neighbours: which nodes belong together.
    """
    room, types = Room.healthy(layout), len(layout.gpu_types)
    largest = np.zeros((len(needs), types), np.int64)
    for row, usable in zip(largest, room.usable(needs), strict=True):
        np.maximum.at(row, layout.type_of, usable)
    equal = node_speeds((), layout, 0.0)
    classes = classes_of(room, needs, equal, by_node=neighbours is Neighbours.ID)
    least = np.array([need.min_nodes for need in needs], np.int64)
    most = np.array([need.max_nodes or _ANY_NUMBER for need in needs], np.int64)
    everywhere = np.ones((len(needs) * types, len(wants)), np.int64)
    anywhere = ClusterLimits(largest, everywhere, np.array(shapes, np.int64), least, most)
    found = catalogue_of(classes, np.array(wants, np.int64), anywhere, neighbours)
    in_pool = (np.diff(found.starts) > 0).astype(np.int64).reshape(-1, len(wants))
    return replace(anywhere, in_pool=in_pool)


def catalogue_of(
    classes: Classes,
    wants: Ints,
    limits: ClusterLimits,
    neighbours: Neighbours,
    spreads: int = MOST_SPREADS,
) -> Catalogue:
    """Return every configuration on idle nodes.

    Args:
        classes: the nodes; with `Neighbours.ID` each must be a class of its own.
        wants: (U,) ascending GPU counts.
        limits: what the healthy, idle cluster holds.
        neighbours: which nodes belong together.
        spreads: how many distributed ones there are of a count in a pool, at most.
    """
    entries = classes.usable.shape[0] * (len(classes.type_from) - 1) * len(wants)
    starts, spread_from = np.zeros(entries + 1, np.int64), np.zeros(entries, np.int64)
    size = np.zeros(2, np.int64)
    ends, pieces = np.zeros(0, np.int64), np.zeros((0, 3), np.int64)
    for write in (False, True):
        on_classes(
            wants,
            classes.usable,
            classes.nodes.count,
            classes.type_from,
            classes.pool_from,
            classes.type_pools,
            limits.in_pool,
            limits.least,
            limits.most,
            limits.shape,
            neighbours is Neighbours.ID,
            spreads,
            write,
            size,
            starts,
            spread_from,
            ends,
            pieces,
        )
        if not write:
            ends, pieces = np.zeros(size[0], np.int64), np.zeros((size[1], 3), np.int64)
    return Catalogue(starts, spread_from, np.concatenate([np.zeros(1, np.int64), ends]), pieces)


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """What each kind can take of a catalogue, a segment for one count on one GPU type.

    Attributes:
        start: (K+1,) where the segments of each kind begin.
        begin, end: (S,) first configuration of each segment, and the one after its last.
        speed: (S,) samples/s there on nodes of the type's own speed, above 0.
    """

    start: Ints
    begin: Ints
    end: Ints
    speed: Floats

    @property
    def possible(self) -> NDArray[np.bool_]:
        """(K,) whether each kind can run in any configuration."""
        return np.diff(self.start) > 0

    def sums(self, values: Ints) -> Ints:
        """Return (K,) the sum of (S,) values over the segments of each kind."""
        return np.diff(starts_of(values)[self.start])


def segments_of(
    demand: HopsDemand, catalogue: Catalogue, limits: ClusterLimits, most_sensitive: float
) -> Segments:
    """Return what each kind can take.

    Args:
        demand: the kinds.
        catalogue: all configurations.
        limits: what the healthy, idle cluster holds.
        most_sensitive: jobs more sensitive than this (sigma) are kept on one node, where one node
            of the type could hold them.
    """
    kind, gpu_type = np.nonzero(demand.types)
    row, nth = runs_of(demand.want_from, kind)
    kind, gpu_type, want = kind[row], gpu_type[row], demand.want[nth]
    need, profile = demand.need[kind], demand.profile[kind]
    types = demand.types.shape[1]
    entry = (need * types + gpu_type) * len(demand.wants) + want
    spreads = (demand.sensitivity[profile, gpu_type] <= most_sensitive) | (
        demand.smallest[kind] > limits.largest_node[need, gpu_type]
    )
    spreads |= limits.least[need] > 1
    gpus = demand.wants[want]
    middle, last = catalogue.spread_from[entry], catalogue.starts[entry + 1]
    begin = np.stack([catalogue.starts[entry], middle], axis=1).ravel()
    end = np.stack([middle, np.where(spreads, last, middle)], axis=1).ravel()
    speed = (demand.per_gpu[profile, gpu_type, :, want] * gpus[:, None]).ravel()
    keep = (end > begin) & (speed > 0)
    segments = np.bincount(np.repeat(kind, 2)[keep], minlength=len(demand.profile))
    return Segments(starts_of(segments), begin[keep], end[keep], speed[keep])


@dataclass(frozen=True, slots=True, eq=False)
class IdleConfigurations:
    """All configurations on what is idle, with the nodes' classes and what each kind can take."""

    classes: Classes
    catalogue: Catalogue
    segments: Segments


@dataclass(frozen=True, eq=False)
class Generator:
    """What configurations depend on besides what is idle.

    Attributes:
        demand: what the jobs ask for; jobs are known by their positions in it.
        layout: the cluster.
        neighbours: which nodes a distributed configuration may take.
        most_sensitive: sensitivity up to which a job may be spread (sigma).
        speed_step: by what part the mean speeds of interchangeable nodes may differ.
    """

    demand: HopsDemand
    layout: ClusterLayout
    neighbours: Neighbours
    most_sensitive: float
    speed_step: float

    @cached_property
    def speeds(self) -> NodeSpeeds:
        """Those of single nodes."""
        return node_speeds(self.demand.tables, self.layout, self.speed_step)

    @cached_property
    def limits(self) -> ClusterLimits:
        """What the healthy, idle cluster holds."""
        demand, wants = self.demand, tuple(self.demand.wants.tolist())
        return limits_of(self.layout, demand.needs, demand.shapes, wants, self.neighbours)

    def on(self, room: Room, spreads: int = MOST_SPREADS) -> IdleConfigurations:
        """Return the configurations on what is idle, so many distributed ones of a count."""
        demand, by_node = self.demand, self.neighbours is Neighbours.ID
        classes = classes_of(room, demand.needs, self.speeds, by_node=by_node)
        catalogue = catalogue_of(classes, demand.wants, self.limits, self.neighbours, spreads)
        segments = segments_of(demand, catalogue, self.limits, self.most_sensitive)
        return IdleConfigurations(classes, catalogue, segments)

    def within(self, room: Room, jobs: Ints, most: int) -> tuple[IdleConfigurations, int]:
        """Return the configurations, and how many of the first jobs have `most` options together.

        It is one job at least. Where all have more, or the configurations more than `MOST_PIECES`,
        there are fewer distributed ones of a count.
        """
        spreads = MOST_SPREADS
        while True:
            found = self.on(room, spreads)
            segments = found.segments
            options = segments.sums(segments.end - segments.begin)[self.demand.kind[jobs]].cumsum()
            spreads //= FEWER
            few = not len(jobs) or options[-1] <= most
            if not spreads or (few and len(found.catalogue.pieces) <= MOST_PIECES):
                break
        return found, min(len(jobs), max(1, int(np.searchsorted(options, most, "right"))))


@dataclass(slots=True, eq=False)
class PossibleKinds:
    """Which kinds of jobs a room could hold; remembered for as long as the room is the same.

    What a kind can have does not depend on what others ask for.
    """

    _room: Room | None = None
    # By what is asked and in which shapes, each with the speeds by which it was found.
    _known: dict[tuple[object, ...], tuple[SpeedTable, bool]] = field(default_factory=dict)

    def on(self, room: Room, generator: Generator) -> NDArray[np.bool_]:
        """Return (K,) whether each kind can run in any configuration on this room.

        Args:
            room: what there is; it stays as it is.
            generator: of a policy whose parameters stay as they are.
        """
        if room is not self._room or len(self._known) > _MOST_KNOWN:
            self._room, self._known = room, {}
        demand, known = generator.demand, self._known
        of_kind = zip(demand.asked, demand.profile.tolist(), demand.need.tolist(), strict=True)
        kinds = [
            ((asked, demand.shapes[need]), demand.tables[profile])
            for asked, profile, need in of_kind
        ]
        # Speeds that were learned since are another table.
        if not all(key in known and known[key][0] is table for key, table in kinds):
            found = generator.on(room).segments.possible.tolist()
            known |= {
                key: (table, possible) for (key, table), possible in zip(kinds, found, strict=True)
            }
        return np.array([known[key][1] for key, _ in kinds], np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class JobOptions:
    """What each of J jobs could get: Q options, those of one job together.

    Attributes:
        job: (Q,) whose option it is.
        stays: (Q,) 1 where it is what the job has, else 0.
        speed: (Q,) samples/s.
        configuration: (Q,) which of the catalogue's it is.
        catalogue: the configurations.
    """

    job: Ints
    stays: Ints
    speed: Floats
    configuration: Ints
    catalogue: Catalogue

    def gain(self) -> Floats:
        """Return (Q,) speed over the least speed of the same job's options (G, section 3.6)."""
        first = np.flatnonzero(np.diff(self.job, prepend=-1))
        if not len(first):
            return self.speed.copy()
        least = np.minimum.reduceat(self.speed, first)
        gain: Floats = self.speed / np.repeat(least, np.diff(first, append=len(self.job)))
        return gain


def options_of(
    generator: Generator, generated: IdleConfigurations, jobs: Ints, own: Ints, own_speed: Floats
) -> JobOptions:
    """Return what each job could get.

    Args:
        generator: what the jobs ask for, and on what nodes.
        generated: the configurations, those among them that jobs have.
        jobs: (J,) positions of the jobs.
        own: (J,) the configuration that each job has, -1 for none.
        own_speed: (J,) samples/s there.
    """
    demand, kind = generator.demand, generator.demand.kind[jobs]
    classes, catalogue, segments = generated.classes, generated.catalogue, generated.segments
    slowest = np.minimum.reduceat(
        classes.factor[:, catalogue.pieces[:, 0]], catalogue.piece_from[:-1], axis=1
    )
    most = segments.sums(segments.end - segments.begin)[kind].sum() + (own >= 0).sum()
    found = JobOptions(
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most),
        np.empty(most, np.int64),
        catalogue,
    )
    size = np.zeros(1, np.int64)
    of_jobs(
        kind,
        segments.start,
        segments.begin,
        segments.end,
        segments.speed,
        generator.speeds.row[demand.profile],
        slowest,
        catalogue.code(),
        own,
        own_speed,
        found.job,
        found.stays,
        found.speed,
        found.configuration,
        size,
    )
    many = int(size[0])
    return JobOptions(
        found.job[:many],
        found.stays[:many],
        found.speed[:many],
        found.configuration[:many],
        catalogue,
    )
