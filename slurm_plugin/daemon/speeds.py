"""What policies are told of speeds: what the store knows, and an assumption where it knows nothing.

Source: Hops (SoCC '24), sections 3.2 and 3.3. A profile is known by its owner and its key, so that
nobody spoils another's estimates; a published one answers on GPU types of which the owner's own
knows nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hetsched_core.errors import InputError
from hetsched_core.store import ProfileKey, Store, StoredLayers, StoreError
from hetsched_core.throughput.builtin import builtin_tables
from hetsched_core.throughput.estimate import estimate
from hetsched_core.throughput.stored import layers_of
from hetsched_core.types import Cluster, Layer, Speeds, SpeedTable

ASSUMED_PROFILE = "resnet50-imagenet"
"""The built-in profile that stands in where nothing is known of a job."""

_MOST_SETTLED = 10_000
"""Of so many profiles and GPU types it is remembered that no more is to be had."""

AS_IT_IS = ", as it is"
"""Ends the name of a profile's speeds for jobs that cannot be stopped to measure more of them."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A profile of which speeds are wanted; `measurable` if its gaps can be filled by measuring."""

    key: ProfileKey
    measurable: bool


@dataclass(frozen=True, slots=True)
class _BuiltinTheory:
    """A built-in model's speeds as the formula of profiles of its name; a `Theory`.

    `rows` are the table and the GPU type of each pair.
    """

    profile: NDArray[np.int64]
    gpu_type: NDArray[np.int64]
    rows: tuple[tuple[SpeedTable, str], ...]

    def per_gpu(
        self, row: NDArray[np.int64], gpus: NDArray[np.int64], nodes: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return samples/s per GPU of (C,) configurations."""
        columns = zip(row.tolist(), gpus.tolist(), nodes.tolist(), strict=True)
        asked = [(*self.rows[at], count, over) for at, count, over in columns]
        return np.array([table.per_gpu(name, count, over) for table, name, count, over in asked])


class LiveSpeeds:
    """Speeds by the names that live jobs carry as their profile, revised as the store learns.

    A name stands for an owner's profile. A job without a profile key has the speeds of
    `ASSUMED_PROFILE`, and teaches nothing.
    """

    def __init__(self, store: Store | None = None, *, measures: bool = False) -> None:
        """Know what is in the store.

        Args:
            store: the throughput database; None for what is assumed alone.
            measures: whether what runs is measured. If not, what is assumed has to do, and counts
                as a formula; else it is a first estimate, which a profiling run replaces.
        """
        self._store, self._measures = store, measures
        self._wanted: dict[str, _Wanted] = {}
        self._settled: dict[tuple[ProfileKey, str], None] = {}
        self._cluster: Cluster | None = None
        self._builtin: Mapping[str, SpeedTable] = {}
        self._speeds: Speeds | None = None
        self.failure: StoreError | None = None

    @property
    def speeds(self) -> Speeds | None:
        """All of them, as in a snapshot; None while no cluster is known."""
        return self._speeds

    def adopt(self, *, measures: bool) -> None:
        """Go on with another answer to whether what runs is measured."""
        if measures != self._measures:
            self._measures = measures
            self._revise(self._wanted)

    def look_up_in(self, store: Store | None, *, measures: bool) -> None:
        """Go on with what another store knows, or without one."""
        self._store, self._measures, self.failure = store, measures, None
        self._revise(self._wanted)

    def on(self, cluster: Cluster) -> None:
        """Answer for another cluster from now on."""
        self._cluster = cluster
        self._builtin = {
            name: replace(table, layers=np.full_like(table.layers, Layer.THEORY))
            for name, table in builtin_tables(cluster.gpu_types, cluster.gpus).items()
        }
        self._speeds = Speeds(cluster, {ASSUMED_PROFILE: self._builtin[ASSUMED_PROFILE]})
        self._revise(self._wanted)

    def name(self, key: str, user: str, *, measurable: bool) -> str:
        """Return under which name a job's speeds are found, which they are from now on.

        Args:
            key: its profile key; "" for none.
            user: whose job it is.
            measurable: whether the job may be stopped to measure it elsewhere.
        """
        try:
            wanted = _Wanted(ProfileKey(key, user), measurable)
        except InputError:
            # No key, or one that cannot stand in a store: it is a user's text.
            return ASSUMED_PROFILE
        name = f"{wanted.key}{'' if measurable else AS_IT_IS}"
        if name not in self._wanted:
            self._wanted[name] = wanted
            self._revise([name])
        return name

    def retain(self, names: Container[str]) -> None:
        """Forget all but some names, once those to be forgotten outnumber them."""
        kept = {name: wanted for name, wanted in self._wanted.items() if name in names}
        gone = len(self._wanted) - len(kept)
        if gone > len(kept) and self._cluster is not None and self._speeds is not None:
            tables = {name: self._speeds.table(name) for name in (*kept, ASSUMED_PROFILE)}
            self._wanted, self._speeds = kept, Speeds(self._cluster, tables)

    def learned(self, keys: Iterable[ProfileKey]) -> None:
        """Look profiles up anew of which the store knows more; the other tables stay as they are.

        A published profile answers for every owner's of its name.
        """
        learned = {key.name for key in keys}
        self._revise([name for name, w in self._wanted.items() if w.key.name in learned])

    def all_learned(self) -> None:
        """Look all profiles up anew: bandwidths were measured, which every formula has."""
        self._revise(self._wanted)

    def settle(self, name: str, gpu_type: str) -> None:
        """Let what is known of a profile on a GPU type do: it was tried, and no more is to be had.

        Until the daemon ends, no job is asked to measure it again, unless so many others were tried
        since that it is forgotten.
        """
        wanted = self._wanted.get(name)
        if wanted is not None:
            self._settled[wanted.key, gpu_type] = None
            if len(self._settled) > _MOST_SETTLED:
                del self._settled[next(iter(self._settled))]
            self.learned([wanted.key])

    def _revise(self, names: Iterable[str]) -> None:
        names = list(names)
        if self._cluster is not None and self._speeds is not None and names:
            self._speeds = self._speeds.revised(self._tables(self._cluster, names))

    def _tables(self, cluster: Cluster, names: list[str]) -> dict[str, SpeedTable]:
        keys = list(dict.fromkeys(self._wanted[name].key for name in names))
        found = {key: self._assumed(key) for key in keys}
        if self._store is not None:
            try:
                stored = self._store.layers(keys, cluster.gpu_types)
                found |= self._estimated(self._store, cluster, stored)
                self.failure = None
            except StoreError as error:
                # What is assumed has to do.
                self.failure = error
        wanted = {name: self._wanted[name] for name in names}
        return {name: self._shown(each, found[each.key]) for name, each in wanted.items()}

    def _assumed(self, key: ProfileKey) -> SpeedTable:
        table = self._builtin.get(key.name)
        if table is not None:
            return table
        assumed = self._builtin[ASSUMED_PROFILE]
        return replace(assumed, layers=np.full_like(assumed.layers, Layer.FIRST_ESTIMATE))

    def _estimated(
        self, store: Store, cluster: Cluster, stored: StoredLayers
    ) -> dict[ProfileKey, SpeedTable]:
        """Return the speeds of the profiles of which anything was measured."""
        measured = {*stored.by_type.profile.tolist(), *stored.theory.profile.tolist()}
        if not measured:
            return {}
        keys, types = stored.profiles, stored.gpu_types
        names = [str(key) for key in keys]
        layers = layers_of(stored, store.bandwidths(types), cluster, names)
        layers = replace(layers, theories=(*layers.theories, self._formula(keys, types)))
        counts = self._builtin[ASSUMED_PROFILE].counts
        found = estimate(cluster, layers, counts[counts <= cluster.gpus].tolist())
        theory = stored.theory
        batches = dict(zip(theory.profile.tolist(), theory.batch_size.tolist(), strict=True))
        tables = {}
        for at in sorted(measured):
            batch = batches.get(at, self._assumed(keys[at]).batch_size)
            tables[keys[at]] = replace(found.table(names[at]), batch_size=float(batch))
        return tables

    def _formula(self, keys: Sequence[ProfileKey], types: Sequence[str]) -> _BuiltinTheory:
        models = [at for at, key in enumerate(keys) if key.name in self._builtin]
        return _BuiltinTheory(
            np.repeat(np.array(models, dtype=np.int64), len(types)),
            np.tile(np.arange(len(types)), len(models)),
            tuple((self._builtin[keys[at].name], name) for at in models for name in types),
        )

    def _shown(self, wanted: _Wanted, table: SpeedTable) -> SpeedTable:
        """Return a table in which what cannot be measured is no first estimate any more."""
        if self._measures and wanted.measurable:
            settled = [(wanted.key, name) in self._settled for name in table.gpu_types]
        else:
            settled = [True] * len(table.gpu_types)
        least = np.where(settled, int(Layer.THEORY), int(Layer.FIRST_ESTIMATE))[:, None]
        return replace(table, layers=np.maximum(table.layers, least).astype(np.int8))
