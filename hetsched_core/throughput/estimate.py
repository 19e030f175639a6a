"""What is known of every speed, from the highest layer that knows it.

Source: Hops (SoCC '24), sections 3.3 and 3.5: a speed is looked up for the node, then for the GPU
type, then in the formula; Hadar's formula (10) answers where none of them can. Beyond Hops, a layer
corrects the ones below it: the formula is scaled by what it is known to be off for this profile
and type, and a node's own runs hold for all GPU counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hetsched_core.errors import InputError, unknown
from hetsched_core.kernels import lookup as kernels
from hetsched_core.throughput.first_estimate import GpuFacts, ProfileFacts, first_estimate
from hetsched_core.throughput.measured import Axes, NodeFactors, SpeedRows, combine
from hetsched_core.throughput.theory import Theory
from hetsched_core.types import Cluster, Configuration, Layer, Speeds, SpeedTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """All that is known about speeds; every part may be empty but `profiles`.

    Attributes:
        profiles: P profile keys, in the order that the columns count them.
        gpu_types: T GPU types, in the order that the columns count them; those of the cluster that
            are missing here are appended.
        by_node: the entity layer; its places are positions in the cluster's nodes.
        by_type: the type layer, of which every entity record is part.
        theories: the theoretical layer; for a pair that several know, the first one counts.
        profile_facts: of each profile, or empty: nothing is known about any.
    """

    profiles: tuple[str, ...]
    gpu_types: tuple[str, ...] = ()
    by_node: SpeedRows = field(default_factory=SpeedRows.none)
    by_type: SpeedRows = field(default_factory=SpeedRows.none)
    theories: Sequence[Theory] = ()
    profile_facts: Sequence[ProfileFacts] = ()


@dataclass(frozen=True, slots=True)
class SpeedEstimate:
    """An estimated speed of the whole job, and the least certain layer that it came from."""

    samples_per_s: float
    layer: Layer


@dataclass(frozen=True, slots=True, eq=False)
class SpeedEstimates:
    """Estimated speeds of all profiles on one cluster.

    Attributes:
        cluster: the nodes.
        profiles: P profile keys.
        gpu_types: T GPU types, the cluster's among them.
        counts: (K,) ascending GPU counts.
        per_gpu: (P, T, 2, K) samples/s per GPU of an ordinary node; on one node, on several.
        layers: (P, T, 2, K) `Layer` of each speed.
        factors: speeds of single nodes relative to their type.
    """

    cluster: Cluster
    profiles: tuple[str, ...]
    gpu_types: tuple[str, ...]
    counts: Ints
    per_gpu: Floats
    layers: NDArray[np.int8]
    factors: NodeFactors
    _index: dict[str, int] = field(init=False, repr=False)
    _type_of_node: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Index the profiles and the nodes' types."""
        object.__setattr__(self, "_index", {name: at for at, name in enumerate(self.profiles)})
        object.__setattr__(self, "_type_of_node", _types_of(self.cluster, self.gpu_types))

    def index(self, profile: str) -> int:
        """Return the position of a profile.

        Raises:
            UnknownNameError: there is no such profile.
        """
        try:
            return self._index[profile]
        except KeyError:
            raise unknown("profile", profile, self._index) from None

    def table(self, profile: str) -> SpeedTable:
        """Return the speeds of one profile as policies see them.

        A table has one layer for both halves: the less certain one.
        """
        at = self.index(profile)
        nodes = self.cluster.nodes
        return SpeedTable(
            gpu_types=self.gpu_types,
            counts=self.counts,
            one_node=self.per_gpu[at, :, 0],
            several_nodes=self.per_gpu[at, :, 1],
            layers=self.layers[at].min(axis=1),
            node_factor={nodes[node].name: f for node, f in self.factors.of(at).items()},
        )

    def speeds(self) -> Speeds:
        """Return all of it as policies see it."""
        return Speeds(self.cluster, {profile: self.table(profile) for profile in self.profiles})

    def answer(self, profile: str, configuration: Configuration) -> SpeedEstimate:
        """Return the speed of one configuration, and the layer that it came from.

        It is the entity layer if the type's speed was measured and every node has runs of its own;
        else the least certain of what the nodes' types have at the nearest counts.
        """
        at = self.index(profile)
        speeds = Speeds(self.cluster, {profile: self.table(profile)})
        nodes = [self.cluster.index(node) for node, _ in configuration]
        half = 0 if configuration.aggregated else 1
        right = min(int(np.searchsorted(self.counts, configuration.gpus)), len(self.counts) - 1)
        exact = self.counts[right] <= configuration.gpus
        columns = [right] if exact or right == 0 else [right - 1, right]
        kinds = [int(self._type_of_node[node]) for node in nodes]
        layer = Layer(min(int(self.layers[at, kind, half, k]) for kind in kinds for k in columns))
        if layer is Layer.GPU_TYPE and self.factors.of(at).keys() >= set(nodes):
            layer = Layer.ENTITY
        return SpeedEstimate(speeds.speed(profile, configuration), layer)


def estimate(cluster: Cluster, layers: Layers, counts: Iterable[int] = (1,)) -> SpeedEstimates:
    """Return the speeds of every profile on every GPU type, from the layers that know them.

    Args:
        cluster: the nodes that the entity layer counts.
        layers: what is known.
        counts: GPU counts to have a speed for, beside those that were measured. Between two of
            them speeds are interpolated.
    """
    gpu_types = tuple(dict.fromkeys((*layers.gpu_types, *cluster.gpu_types)))
    asked = np.array(list(counts), np.int64)
    every = np.unique(np.concatenate([[1], asked, layers.by_node.gpus, layers.by_type.gpus]))
    axes = Axes(len(layers.profiles), len(gpu_types), every, _types_of(cluster, gpu_types))
    measured, factors = combine(layers.by_type, layers.by_node, axes)
    pairs = (axes.profiles * axes.gpu_types, 2, len(every))
    speed, layer = np.empty(pairs), np.empty(pairs, dtype=np.int64)
    kernels.fill_from_above(
        measured.reshape(pairs), _theory(layers, axes).reshape(pairs), every, speed, layer
    )
    speed, layer = speed.reshape(axes.shape), layer.reshape(axes.shape)
    _fill_unknown_types(speed, layer, layers, gpu_types)
    levels = layer.astype(np.int8)
    speed.flags.writeable = levels.flags.writeable = False
    return SpeedEstimates(cluster, layers.profiles, gpu_types, every, speed, levels, factors)


def _types_of(cluster: Cluster, gpu_types: Sequence[str]) -> Ints:
    """Return the position of each node's type."""
    at = {name: position for position, name in enumerate(gpu_types)}
    return np.array([at[node.gpu_type] for node in cluster], dtype=np.int64)


def _theory(layers: Layers, axes: Axes) -> Floats:
    """Return (P, T, 2, K) what the formulas say, NaN where there is none."""
    out = np.full(axes.shape, np.nan)
    width = len(axes.counts)
    for theory in reversed(layers.theories):
        rows = len(theory.profile)
        said = theory.per_gpu(
            np.repeat(np.arange(rows), 2 * width),
            np.tile(axes.counts, 2 * rows),
            np.tile(np.repeat([1, 2], width), rows),
        ).reshape(rows, 2, width)
        if np.any(said < 0) or np.any(np.isinf(said)):
            raise InputError(
                f"{type(theory).__name__} gives a speed that is infinite or below 0; expected "
                "samples/s per GPU, 0 where a job cannot run, NaN where it cannot say"
            )
        out[theory.profile, theory.gpu_type] = said
    return out


def _fill_unknown_types(
    speed: Floats, layer: Ints, layers: Layers, gpu_types: tuple[str, ...]
) -> None:
    """Fill the types on which nothing is known of a profile, in proportion to formula (10).

    Scaled from the types on which something is known; as it stands where there are none.
    """
    gap = np.isnan(speed)
    if not gap.any():
        return
    facts = [GpuFacts.published(t) for t in gpu_types]
    profiles = layers.profile_facts or [ProfileFacts()] * len(layers.profiles)
    # The formula is a product of what it knows of the GPU and of the profile.
    on_each = np.array([first_estimate(gpu, ProfileFacts()) for gpu in facts])
    of_each = np.array([first_estimate(facts[0], profile) for profile in profiles]) / on_each[0]
    first = np.outer(of_each, on_each)[:, :, None, None]
    known = ~gap & (speed > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.where(known, np.log(speed / first), 0.0).sum(axis=1)
        scale = np.exp(logs / known.sum(axis=1))
    scale = np.where(np.isnan(scale), 1.0, scale)[:, None]
    np.copyto(speed, first * scale, where=gap)
    layer[gap] = Layer.FIRST_ESTIMATE
