"""What was measured, merged into the layers: speeds, times of an iteration, what GPU types can do.

Source: Hops (SoCC '24), sections 3.2 and 3.3.

Data times are kept in bins of a quarter octave, with the exact moments of each bin: bounded in size
however long a job runs, and two histories merge exactly. Whenever the number of data times of a
pair has doubled, modes are fitted to them anew, so that wherever there are data there are modes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hetsched_core.store.database import Columns, Transaction, columns_of, types_of
from hetsched_core.store.merge import BANDWIDTH, BASIC_TIMES, DATA_TIME, SPEED, replace
from hetsched_core.store.names import NO_NODE, ids_of, profile_ids
from hetsched_core.store.records import (
    BandwidthMeasurement,
    BandwidthTerm,
    BasicTimes,
    DataTimes,
    Measurement,
)
from hetsched_core.throughput.data_time import DataMode, fit_modes
from hetsched_core.throughput.iteration import Bandwidths

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHORTEST_S = 1e-6
"""Data times below this share a bin."""

BINS_PER_OCTAVE = 4

MAX_FITTED = 512
"""Modes are fitted to at most about this many values."""

_BEGIN_ANEW = """
UPDATE basic_times
SET batch_size = batch.batch_size, parameters = batch.parameters, pattern = batch.pattern,
    count = 0, forward_mean = 0, forward_m2 = 0, backward_mean = 0, backward_m2 = 0,
    update_mean = 0, update_m2 = 0
FROM batch
WHERE basic_times.profile = batch.profile AND basic_times.gpu_type = batch.gpu_type
  AND (basic_times.batch_size <> batch.batch_size OR basic_times.parameters <> batch.parameters
       OR basic_times.pattern <> batch.pattern)
"""


def record_speeds(transaction: Transaction, measurements: Sequence[Measurement]) -> None:
    """Merge measured speeds into the entity layer, and so into the type layer.

    What was measured over several nodes stands in the row of each; what names no node, in one row
    of its type.
    """
    merge_speeds(
        transaction, [(m, node, m.at_s) for m in measurements for node in m.nodes or ("",)]
    )


def merge_speeds(transaction: Transaction, rows: Sequence[tuple[Measurement, str, float]]) -> None:
    """Merge rows of the table of speeds: (measurement, its node or "", when it was seen last)."""
    profiles = profile_ids(transaction, (m.profile for m, _, _ in rows))
    types = ids_of(transaction, "gpu_type", (m.gpu_type for m, _, _ in rows))
    nodes = {"": NO_NODE, **ids_of(transaction, "node", (node for _, node, _ in rows if node))}
    cells = [
        (
            profiles[m.profile],
            types[m.gpu_type],
            nodes[node],
            m.node_count,
            m.gpus,
            m.speed.count,
            m.speed.mean,
            m.speed.m2,
            m.at_s,
            last_s,
        )
        for m, node, last_s in rows
    ]
    SPEED.merge(transaction, columns_of(SPEED.types, cells))


def record_basic_times(transaction: Transaction, times: Sequence[BasicTimes]) -> None:
    """Merge profiling runs into what is known of their pairs.

    What is profiled with another batch size, model or pattern than before is another job under an
    old name: what was measured of that one no longer counts.
    """
    # Within one call too, the last one says what the job is now.
    now = {(t.profile, t.gpu_type): _kind(t) for t in times}
    times = [t for t in times if _kind(t) == now[t.profile, t.gpu_type]]
    if not times:
        return
    profiles = profile_ids(transaction, (t.profile for t in times))
    types = ids_of(transaction, "gpu_type", (t.gpu_type for t in times))
    rows = [
        (
            profiles[t.profile],
            types[t.gpu_type],
            t.batch_size,
            t.parameters,
            t.pattern,
            t.forward_s.count,
            *(value for m in (t.forward_s, t.backward_s, t.update_s) for value in (m.mean, m.m2)),
            t.at_s,
            t.at_s,
        )
        for t in times
    ]
    batch = columns_of(BASIC_TIMES.types, rows)
    transaction.run(_BEGIN_ANEW, batch=batch)
    BASIC_TIMES.merge(transaction, batch)


def _kind(times: BasicTimes) -> tuple[int, int, int]:
    return (times.batch_size, times.parameters, times.pattern)


def record_data_times(transaction: Transaction, times: Sequence[DataTimes]) -> None:
    """Merge data times into the bins of their pairs, and fit modes where their number doubled."""
    times = [t for t in times if t.data_s]
    if not times:
        return
    profiles = profile_ids(transaction, (t.profile for t in times))
    types = ids_of(transaction, "gpu_type", (t.gpu_type for t in times))
    sizes = [len(t.data_s) for t in times]
    profile = np.repeat(np.array([profiles[t.profile] for t in times], dtype=np.int32), sizes)
    gpu_type = np.repeat(np.array([types[t.gpu_type] for t in times], dtype=np.int32), sizes)
    data_s = np.concatenate([t.data_s for t in times])
    DATA_TIME.merge(
        transaction,
        {
            "profile": profile,
            "gpu_type": gpu_type,
            "bin": _bin(data_s),
            "count": np.ones(len(data_s), dtype=np.int64),
            "data_mean": data_s,
            "data_m2": np.zeros(len(data_s)),
            "wait_mean": np.concatenate([t.wait_s for t in times]),
            "wait_m2": np.zeros(len(data_s)),
        },
    )
    pairs, added = np.unique(np.stack([profile, gpu_type]), axis=1, return_counts=True)
    _fit(transaction, {"profile": pairs[0], "gpu_type": pairs[1], "added": added})


def _bin(data_s: Floats) -> NDArray[np.int32]:
    octaves = np.log2(np.maximum(data_s, SHORTEST_S) / SHORTEST_S)
    bins = 1 + np.floor(BINS_PER_OCTAVE * octaves)
    return np.where(data_s < SHORTEST_S, 0, bins).astype(np.int32)


def _fit(transaction: Transaction, touched: Columns) -> None:
    """Fit modes to the data times of those pairs whose number has passed a power of two."""
    bins = transaction.columns(
        """
        SELECT profile, gpu_type, added, count, data_mean, data_m2, wait_mean
        FROM data_time JOIN touched USING (profile, gpu_type) ORDER BY profile, gpu_type, bin
        """,
        touched=touched,
    )
    key = np.stack([bins["profile"], bins["gpu_type"]])
    starts = np.flatnonzero(np.r_[True, (key[:, 1:] != key[:, :-1]).any(axis=0)])
    totals = np.add.reduceat(bins["count"], starts)
    before = totals - bins["added"][starts]
    due = np.frexp(totals.astype(np.float64))[1] > np.frexp(before.astype(np.float64))[1]
    rows: list[tuple[int, int, int, DataMode]] = []
    for start, end in zip(starts[due], np.r_[starts[1:], key.shape[1]][due], strict=True):
        modes = fit_modes(*_values({name: column[start:end] for name, column in bins.items()}))
        profile, gpu_type = key[:, start].tolist()
        rows += [(profile, gpu_type, at, mode) for at, mode in enumerate(modes)]
    _replace_modes(transaction, rows)


def _values(bins: Columns) -> tuple[Floats, Floats]:
    """Return values with the moments of each bin, at most about `MAX_FITTED` of them."""
    total = int(bins["count"].sum())
    counts = np.rint(bins["count"] * min(1.0, MAX_FITTED / total)).astype(np.int64)
    deviations = np.sqrt(bins["data_m2"] / bins["count"])
    data_s = [
        np.maximum(mean + deviation * _normal_scores(count), 0.0)
        for count, mean, deviation in zip(
            counts.tolist(), bins["data_mean"], deviations, strict=True
        )
    ]
    return np.concatenate(data_s), np.repeat(bins["wait_mean"], counts)


@cache
def _normal_scores(count: int) -> Floats:
    """Return values of mean 0 and variance 1, spread like a normal: any other would show modes."""
    if count < 2:
        return np.zeros(count)
    normal = NormalDist()
    scores = np.array([normal.inv_cdf((at + 0.5) / count) for at in range(count)])
    scaled: Floats = scores / scores.std()
    return scaled


def _replace_modes(
    transaction: Transaction, rows: Sequence[tuple[int, int, int, DataMode]]
) -> None:
    if not rows:
        return
    types = {"profile": int, "gpu_type": int, "mode": int, **types_of(DataMode)}
    cells = [(*pair, *astuple(mode)) for *pair, mode in rows]
    # There may have been two modes where there is now one.
    replace(transaction, "data_mode", columns_of(types, cells), ("profile", "gpu_type"))


def record_bandwidths(
    transaction: Transaction, measurements: Sequence[BandwidthMeasurement]
) -> None:
    """Merge measured bandwidths into what is known of their GPU types."""
    types = ids_of(transaction, "gpu_type", (m.gpu_type for m in measurements))
    rows = [
        (types[m.gpu_type], m.term.value, m.value.count, m.value.mean, m.value.m2, m.at_s, m.at_s)
        for m in measurements
    ]
    BANDWIDTH.merge(transaction, columns_of(BANDWIDTH.types, rows))


def read_bandwidths(transaction: Transaction, gpu_types: Sequence[str]) -> tuple[Bandwidths, ...]:
    """Return the mean bandwidths of each GPU type: NaN, or a ring share of 0, if not measured."""
    rows = transaction.rows(
        "SELECT name, term, mean FROM bandwidth JOIN gpu_type ON gpu_type.id = bandwidth.gpu_type"
    )
    means = {(str(name), BandwidthTerm(term)): float(mean) for name, term, mean in rows}
    return tuple(
        Bandwidths(
            means.get((name, BandwidthTerm.LINK), math.nan),
            means.get((name, BandwidthTerm.NETWORK), math.nan),
            means.get((name, BandwidthTerm.NETWORK_RING), 0.0),
        )
        for name in gpu_types
    )
