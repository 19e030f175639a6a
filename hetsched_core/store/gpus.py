"""What is known of GPU types, whatever runs on them: bandwidths and published rates."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from hetsched_core.store.database import Transaction, texts
from hetsched_core.store.merge import BANDWIDTH, replace
from hetsched_core.store.names import gpu_type_ids
from hetsched_core.store.records import BandwidthMeasurement, BandwidthTerm
from hetsched_core.throughput.gpus import GpuSpec
from hetsched_core.throughput.iteration import Bandwidths

_RATES = tuple(f.name for f in fields(GpuSpec) if f.name not in ("name", "aliases", "source"))


def record_bandwidths(
    transaction: Transaction, measurements: Sequence[BandwidthMeasurement]
) -> None:
    """Merge measured bandwidths into what is known of their GPU types."""
    types = gpu_type_ids(transaction, (m.gpu_type for m in measurements))
    at_s = np.array([m.at_s for m in measurements])
    BANDWIDTH.merge(
        transaction,
        {
            "gpu_type": np.array([types[m.gpu_type] for m in measurements], dtype=np.int32),
            "term": texts([m.term.value for m in measurements]),
            "count": np.array([m.value.count for m in measurements], dtype=np.int64),
            "mean": np.array([m.value.mean for m in measurements]),
            "m2": np.array([m.value.m2 for m in measurements]),
            "first_s": at_s,
            "last_s": at_s,
        },
    )


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


def record_gpu_specs(transaction: Transaction, specs: Sequence[GpuSpec]) -> None:
    """Keep published rates; those of a type that is there already are replaced."""
    if not specs:
        return
    specs = list({spec.name: spec for spec in specs}.values())
    rates = {name: np.array([getattr(spec, name) for spec in specs]) for name in _RATES}
    replace(
        transaction,
        "gpu_spec",
        {
            "name": texts([spec.name for spec in specs]),
            **rates,
            "aliases": texts([json.dumps(spec.aliases) for spec in specs]),
            "source": texts([spec.source for spec in specs]),
        },
    )


def read_gpu_specs(transaction: Transaction) -> tuple[GpuSpec, ...]:
    """Return the published rates that are kept, by name."""
    rows = transaction.rows(
        f"SELECT name, aliases, source, {', '.join(_RATES)} FROM gpu_spec ORDER BY name"
    )
    return tuple(
        GpuSpec(
            name=name,
            aliases=tuple(json.loads(aliases)),
            source=source,
            **dict(zip(_RATES, rates, strict=True)),
        )
        for name, aliases, source, *rates in rows
    )
