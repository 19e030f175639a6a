"""What a store knows of many (profile, GPU type) pairs: all three layers, as columns.

Source: Hops (SoCC '24), section 3.3. A lookup goes from the top down: the entity layer, the type
layer, the theoretical layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsched_core.store.database import Columns, Transaction
from hetsched_core.store.names import NO_NODE, known_gpu_type_ids, readable_ids
from hetsched_core.store.records import ProfileKey

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SPEEDS = """
SELECT profile, gpu_type, node, nodes, gpus, count, mean, m2, first_s, last_s FROM speed
WHERE profile IN (SELECT id FROM wanted_profile) AND gpu_type IN (SELECT id FROM wanted_type)
"""

_THEORY = """
SELECT t.profile, t.gpu_type, batch_size, parameters, pattern, count,
       forward_mean, backward_mean, update_mean,
       coalesce(a.share, 1) AS share_a, coalesce(a.data_s, 0) AS data_a,
       coalesce(a.data_sd_s, 0) AS sd_a, coalesce(a.wait_s, 0) AS wait_a,
       coalesce(b.share, 0) AS share_b, coalesce(b.data_s, 0) AS data_b,
       coalesce(b.data_sd_s, 0) AS sd_b, coalesce(b.wait_s, 0) AS wait_b
FROM basic_times t
LEFT JOIN data_mode a ON a.profile = t.profile AND a.gpu_type = t.gpu_type AND a.mode = 0
LEFT JOIN data_mode b ON b.profile = t.profile AND b.gpu_type = t.gpu_type AND b.mode = 1
WHERE t.profile IN (SELECT id FROM wanted_profile)
  AND t.gpu_type IN (SELECT id FROM wanted_type)
"""


@dataclass(frozen=True, slots=True, eq=False)
class SpeedColumns:
    """Measured speeds, ascending by profile, GPU type, nodes, GPUs and entity.

    Attributes:
        profile: (R,) index into the profiles that were asked for.
        gpu_type: (R,) index into the GPU types that were asked for.
        entity: (R,) index into `StoredLayers.nodes`; -1 in the type layer.
        nodes: (R,) number of nodes: 1 in the aggregated table, more in the distributed one.
        gpus: (R,) number of GPUs over all nodes.
        count: (R,) number of measurements.
        mean: (R,) samples/s per GPU.
        m2: (R,) sum of the squared distances from the mean.
        first_s, last_s: (R,) when it was measured first and last, seconds UTC.
    """

    profile: Ints
    gpu_type: Ints
    entity: Ints
    nodes: Ints
    gpus: Ints
    count: Ints
    mean: Floats
    m2: Floats
    first_s: Floats
    last_s: Floats

    @property
    def sd(self) -> Floats:
        """(R,) sample standard deviations, samples/s per GPU; 0 for a single measurement."""
        return np.sqrt(self.m2 / np.maximum(self.count - 1, 1))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.profile)


@dataclass(frozen=True, slots=True, eq=False)
class TheoryColumns:
    """Basic times of an iteration, ascending by profile and GPU type, each pair at most once.

    Attributes:
        profile: (R,) index into the profiles that were asked for.
        gpu_type: (R,) index into the GPU types that were asked for.
        batch_size: (R,) samples per GPU and iteration.
        parameters: (R,) of the model.
        pattern: (R,) 1 or 2, see `throughput.iteration.Pattern`.
        count: (R,) number of profiling runs.
        forward_s, backward_s, update_s: (R,) T_f, T_b and T_u, seconds.
        modes: (R, 2, 4) share, mean T_d, deviation of T_d and mean T_w of each mode, the faster
            first; a share of 0 where there is none. T_d and T_w that nobody measured are 0.
    """

    profile: Ints
    gpu_type: Ints
    batch_size: Ints
    parameters: Ints
    pattern: Ints
    count: Ints
    forward_s: Floats
    backward_s: Floats
    update_s: Floats
    modes: Floats

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.profile)


@dataclass(frozen=True, slots=True, eq=False)
class StoredLayers:
    """All that is known of some profiles on some GPU types.

    Where an owner's own profile has nothing on a GPU type, and only there, the published profile of
    that name answers.
    """

    profiles: tuple[ProfileKey, ...]
    gpu_types: tuple[str, ...]
    nodes: tuple[str, ...]
    by_entity: SpeedColumns
    by_type: SpeedColumns
    theory: TheoryColumns


def read_layers(
    transaction: Transaction, profiles: Sequence[ProfileKey], gpu_types: Sequence[str]
) -> StoredLayers:
    """Return the layers of every pair of a profile and a GPU type."""
    own, published = readable_ids(transaction, profiles)
    types = known_gpu_type_ids(transaction, gpu_types)
    wanted: dict[str, Columns] = {
        "wanted_profile": {"id": np.union1d(own, published)},
        "wanted_type": {"id": types},
    }
    speeds = _sorted(transaction.columns(_SPEEDS, **wanted))
    theory = _sorted(transaction.columns(_THEORY, **wanted))
    entities = _only(speeds, speeds["node"] != NO_NODE)
    by_type = _merged_by_type(speeds)

    measured = [_pair(by_type), _pair(theory)]
    own_pairs = _pair_of(own[:, None], types[None, :])
    has_own = np.isin(own_pairs, np.concatenate(measured))
    chosen = np.where(has_own, own_pairs, _pair_of(published[:, None], types[None, :]))

    present, entity = np.unique(entities["node"], return_inverse=True)
    entities = {**entities, "entity": entity}
    names = transaction.columns(
        "SELECT name FROM node JOIN present USING (id) ORDER BY id", present={"id": present}
    )
    return StoredLayers(
        tuple(profiles),
        tuple(gpu_types),
        tuple(names["name"].tolist()),
        _speed_columns(entities, chosen),
        _speed_columns(by_type, chosen),
        _theory_columns(theory, chosen),
    )


def _sorted(rows: Columns) -> dict[str, NDArray[Any]]:
    keys = [_pair(rows)]
    if "node" in rows:
        # 20 bits hold any number of GPUs, and so of nodes; the 23 below them any node's id.
        sizes = rows["nodes"].astype(np.int64) << 20 | rows["gpus"]
        keys.insert(0, sizes << 23 | rows["node"])
    order = np.lexsort(keys)
    return {name: column[order] for name, column in rows.items()}


def _only(rows: Columns, where: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {name: column[where] for name, column in rows.items()}


def _merged_by_type(rows: Columns) -> dict[str, NDArray[Any]]:
    """Merge the rows of all nodes, by Chan's formulas; the twin of the view `speed_by_type`.

    A measurement over k nodes stands in k rows, so that each counts as 1/k.
    """
    if len(rows["count"]) == 0:
        return {**rows, "entity": rows["node"]}
    key = np.stack([rows[name] for name in ("profile", "gpu_type", "nodes", "gpus")])
    starts = np.flatnonzero(np.r_[True, (key[:, 1:] != key[:, :-1]).any(axis=0)])
    sizes = np.diff(np.r_[starts, key.shape[1]])
    share = np.where(rows["node"] == NO_NODE, 1, rows["nodes"])
    weight = rows["count"] / share
    count = np.add.reduceat(weight, starts)
    mean = np.add.reduceat(weight * rows["mean"], starts) / count
    apart = rows["mean"] - np.repeat(mean, sizes)
    merged = {name: rows[name][starts] for name in ("profile", "gpu_type", "nodes", "gpus")}
    return merged | {
        "entity": np.full(len(starts), -1),
        "count": np.rint(count).astype(np.int64),
        "mean": mean,
        "m2": np.add.reduceat((rows["m2"] + rows["count"] * apart**2) / share, starts),
        "first_s": np.minimum.reduceat(rows["first_s"], starts),
        "last_s": np.maximum.reduceat(rows["last_s"], starts),
    }


def _pair_of(profile: NDArray[Any], gpu_type: NDArray[Any]) -> Ints:
    """Return one number for a pair of ids that sorts as they do; -1 where there is no such pair."""
    number = profile.astype(np.int64) << 32 | gpu_type.astype(np.int64)
    return np.where((profile < 0) | (gpu_type < 0), -1, number)


def _pair(rows: Columns) -> Ints:
    return _pair_of(rows["profile"], rows["gpu_type"])


def _spread(rows: Columns, chosen: Ints) -> tuple[Ints, Ints, Ints]:
    """Return which rows answer which of the (K, T) chosen pairs: (row, profile, GPU type)."""
    pairs, wanted = _pair(rows), chosen.ravel()
    low = np.searchsorted(pairs, wanted, "left")
    sizes = np.searchsorted(pairs, wanted, "right") - low
    ends = np.cumsum(sizes)
    row = np.arange(ends[-1] if len(ends) else 0) + np.repeat(low - ends + sizes, sizes)
    profile, gpu_type = np.divmod(np.repeat(np.arange(len(wanted)), sizes), chosen.shape[1])
    return row, profile, gpu_type


def _speed_columns(rows: Columns, chosen: Ints) -> SpeedColumns:
    row, profile, gpu_type = _spread(rows, chosen)
    return SpeedColumns(
        profile=profile,
        gpu_type=gpu_type,
        entity=rows["entity"][row].astype(np.int64),
        nodes=rows["nodes"][row].astype(np.int64),
        gpus=rows["gpus"][row].astype(np.int64),
        count=rows["count"][row],
        mean=rows["mean"][row],
        m2=rows["m2"][row],
        first_s=rows["first_s"][row],
        last_s=rows["last_s"][row],
    )


def _theory_columns(rows: Columns, chosen: Ints) -> TheoryColumns:
    row, profile, gpu_type = _spread(rows, chosen)
    modes = [
        [rows[f"{name}_{mode}"][row] for name in ("share", "data", "sd", "wait")]
        for mode in ("a", "b")
    ]
    return TheoryColumns(
        profile=profile,
        gpu_type=gpu_type,
        batch_size=rows["batch_size"][row],
        parameters=rows["parameters"][row],
        pattern=rows["pattern"][row].astype(np.int64),
        count=rows["count"][row],
        forward_s=rows["forward_mean"][row],
        backward_s=rows["backward_mean"][row],
        update_s=rows["update_mean"][row],
        modes=np.moveaxis(np.array(modes, dtype=np.float64), 2, 0),
    )
