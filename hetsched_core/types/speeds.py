"""How fast each profile runs in each configuration: the truth of a simulation, or an estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hetsched_core.errors import InputError, unknown
from hetsched_core.types.cluster import Cluster, Configuration

Floats = NDArray[np.float64]


class Layer(IntEnum):
    """Where a speed comes from, the least certain first (Hops section 3.3)."""

    FIRST_ESTIMATE = 0
    THEORY = 1
    GPU_TYPE = 2
    ENTITY = 3
    TRUTH = 4


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """One mini-batch on one GPU: seconds of training and of synchronisation (Hare's T^c, T^s)."""

    train_s: float
    sync_s: float

    def __post_init__(self) -> None:
        """Refuse times that no task can take."""
        if not (0 < self.train_s < math.inf and 0 <= self.sync_s < math.inf):
            raise InputError(
                f"a task of {self.train_s} s training and {self.sync_s} s synchronisation: "
                "training takes more than 0 s, synchronisation 0 s or more"
            )


@dataclass(frozen=True, slots=True, eq=False)
class SpeedTable:
    """Speeds of one profile, samples/s per GPU.

    Between two measured counts the per-GPU speed is interpolated linearly; outside them the nearest
    one holds. A speed of 0 means that the job cannot run there.

    Attributes:
        gpu_types: the T types that the rows stand for.
        counts: (K,) ascending GPU counts that the columns stand for.
        one_node: (T, K) with all GPUs on one node.
        several_nodes: (T, K) with the GPUs on two or more nodes.
        layers: (T, K) `Layer` of each entry.
        node_factor: speed of single nodes relative to their type; a node left out counts as 1.
        tasks: GPU type -> times of one task, for profiles that can run as tasks (Hare).
        batch_size: samples of one iteration on one GPU; 1 where speeds are in iterations/s.
    """

    gpu_types: tuple[str, ...]
    counts: NDArray[np.int64]
    one_node: Floats
    several_nodes: Floats
    layers: NDArray[np.int8]
    node_factor: Mapping[str, float] = field(default_factory=dict)
    tasks: Mapping[str, TaskTimes] = field(default_factory=dict)
    batch_size: float = 1.0

    def __post_init__(self) -> None:
        """Refuse tables whose parts do not match or whose speeds are not finite and >= 0."""
        shape = (len(self.gpu_types), len(self.counts))
        for part in (self.one_node, self.several_nodes, self.layers):
            if part.shape != shape:
                raise InputError(f"a speed table of shape {part.shape} should have shape {shape}")
        if len(self.counts) == 0 or np.any(np.diff(self.counts) <= 0) or self.counts[0] < 1:
            raise InputError(f"the GPU counts {self.counts.tolist()} are not ascending from 1")
        for part in (self.one_node, self.several_nodes):
            if not np.all(np.isfinite(part)) or np.any(part < 0):
                raise InputError("a speed table holds a speed that is not a finite number >= 0")
        for node, factor in self.node_factor.items():
            if not 0 < factor < math.inf:
                raise InputError(f"node {node!r} has the speed factor {factor}; more than 0 counts")
        if not 0 < self.batch_size < math.inf:
            raise InputError(f"a batch of {self.batch_size} samples; expected more than 0")

    def per_gpu(self, gpu_type: str, count: int, nodes: int) -> float:
        """Return samples/s per GPU for `count` GPUs of one type on `nodes` nodes."""
        try:
            row = self.gpu_types.index(gpu_type)
        except ValueError:
            return 0.0
        table = self.one_node if nodes == 1 else self.several_nodes
        return float(np.interp(count, self.counts, table[row]))

    def per_gpu_at(self, gpu_types: Sequence[str], counts: NDArray[np.int64]) -> Floats:
        """Return samples/s per GPU for many counts on each of many GPU types, as `per_gpu` does.

        Args:
            gpu_types: T types; on one that is not in the table every speed is 0.
            counts: (U,) GPU counts, in any order.

        Returns:
            (T, 2, U); with all GPUs on one node, and on several.
        """
        place = np.interp(counts, self.counts, np.arange(len(self.counts)))
        left = place.astype(np.int64)
        right = np.minimum(left + 1, len(self.counts) - 1)
        speeds = np.stack([self.one_node, self.several_nodes], axis=1)
        found = speeds[..., left] + (speeds[..., right] - speeds[..., left]) * (place - left)
        every = np.zeros((len(gpu_types), 2, len(counts)))
        for at, gpu_type in enumerate(gpu_types):
            if gpu_type in self.gpu_types:
                every[at] = found[self.gpu_types.index(gpu_type)]
        return every

    def runs_on(self, gpu_type: str) -> bool:
        """Whether the profile makes progress on this GPU type at any count."""
        return gpu_type in self.gpu_types and bool(
            np.any(self.one_node[self.gpu_types.index(gpu_type)] > 0)
        )

    def profiled(self, gpu_type: str) -> bool:
        """Whether the profile needs no profiling run on this GPU type any more (Hops section 3.2).

        It is profiled once no speed there is a first estimate: the formula answers for every count
        that was not measured. What was measured at some counts only does not make it so.
        """
        return gpu_type in self.gpu_types and bool(
            np.all(self.layers[self.gpu_types.index(gpu_type)] > Layer.FIRST_ESTIMATE)
        )


@dataclass(slots=True)
class _Answers:
    """What was asked of one table before."""

    table: SpeedTable
    by_pieces: dict[tuple[tuple[str, int], ...], float] = field(default_factory=dict)
    by_type: dict[tuple[str, int, int], float] = field(default_factory=dict)
    fastest: dict[int, tuple[str, ...]] = field(default_factory=dict)


class Speeds:
    """The speed tables of all profiles on one cluster.

    The simulator holds one as the truth and shows the policy another as the estimate; both answer
    through the same rules. It never changes; `revised` returns another that shares what is equal.
    Answers are kept, since policies ask the same question every round.
    """

    def __init__(self, cluster: Cluster, tables: Mapping[str, SpeedTable]) -> None:
        """Hold `tables` by profile key."""
        self._cluster = cluster
        self._answers = {profile: _Answers(table) for profile, table in tables.items()}

    def revised(self, tables: Mapping[str, SpeedTable]) -> Speeds:
        """Return these speeds with other tables for some profiles; the rest are the same objects.

        Which profiles differ between two revisions is told by `table(profile) is not`.
        """
        revision = Speeds(self._cluster, {})
        new = {profile: _Answers(table) for profile, table in tables.items()}
        revision._answers = {**self._answers, **new}
        return revision

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profile keys, sorted."""
        return tuple(sorted(self._answers))

    def table(self, profile: str) -> SpeedTable:
        """Return the table of a profile.

        Raises:
            UnknownNameError: there is no such profile.
        """
        return self._of(profile).table

    def per_gpu(self, profile: str, gpu_type: str, count: int, nodes: int = 1) -> float:
        """Return samples/s per GPU for `count` GPUs of one type on `nodes` ordinary nodes."""
        answers, key = self._of(profile), (gpu_type, count, 1 if nodes == 1 else 2)
        speed = answers.by_type.get(key)
        if speed is None:
            speed = answers.by_type[key] = answers.table.per_gpu(gpu_type, count, nodes)
        return speed

    def speed(self, profile: str, configuration: Configuration) -> float:
        """Return samples/s of the whole job: slowest per-GPU speed over its nodes x GPUs.

        The slowest link decides: a configuration over several nodes is slow on all of them
        (Hops section 3.5; the same rule for same and mixed types).
        """
        answers = self._of(profile)
        speed = answers.by_pieces.get(configuration.pieces)
        if speed is None:
            table = answers.table
            gpus, nodes = configuration.gpus, len(configuration)
            speed = gpus * min(
                self.per_gpu(profile, self._cluster[node].gpu_type, gpus, nodes)
                * table.node_factor.get(node, 1.0)
                for node, _ in configuration
            )
            answers.by_pieces[configuration.pieces] = speed
        return speed

    def fastest_types(self, profile: str, count: int) -> tuple[str, ...]:
        """Return the cluster's GPU types on which the profile runs, fastest per GPU first.

        Equal speeds keep the cluster's order of types.
        """
        answers = self._of(profile)
        types = answers.fastest.get(count)
        if types is None:
            speeds = {t: self.per_gpu(profile, t, count) for t in self._cluster.gpu_types}
            types = tuple(sorted((t for t in speeds if speeds[t] > 0), key=lambda t: -speeds[t]))
            answers.fastest[count] = types
        return types

    def placement_blind(self) -> Speeds:
        """Return the speeds of a world in which spreading a job over nodes costs nothing."""
        return Speeds(
            self._cluster,
            {
                profile: replace(answers.table, several_nodes=answers.table.one_node)
                for profile, answers in self._answers.items()
            },
        )

    def _of(self, profile: str) -> _Answers:
        try:
            return self._answers[profile]
        except KeyError:
            raise unknown("profile", profile, self._answers) from None
