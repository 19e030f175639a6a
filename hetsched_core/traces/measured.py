"""Measured throughputs in the place of the built-in speeds (docs/formats/gavel.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hetsched_core.errors import InputError
from hetsched_core.throughput import ModelProfile, gavel_profile, match_gpu
from hetsched_core.traces.gavel import read_throughputs
from hetsched_core.traces.lines import read_lines
from hetsched_core.types import SpeedTable


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredModels:
    """Models whose speeds were measured, on the GPU types of a cluster.

    Attributes:
        tables: Speeds in steps/s per GPU, by name of the model; the types have the cluster's names.
        models: Those that a job may be taken for: the ones whose class of GPU hours is known.
        assumptions: In sentences, what was assumed.
    """

    tables: Mapping[str, SpeedTable]
    models: tuple[ModelProfile, ...]
    assumptions: tuple[str, ...]


def read_measured(path: Path, gpu_types: Iterable[str]) -> MeasuredModels:
    """Read a throughput table of Gavel's, for a cluster's or log's names of GPU types.

    A type of the cluster has the speeds of the type in the table that its name stands for
    (`tesla_v100-sxm2` those of `v100`), and none where the table has no such type.

    Raises:
        InputError: It is no such table, or has none of the types.
    """
    source = str(path)
    try:
        with path.open("rb") as file:
            read = read_throughputs("\n".join(read_lines(file, source)), source)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    known = tuple(dict.fromkeys(t for table in read.values() for t in table.gpu_types))
    names = {name: _measured_as(name, known) for name in dict.fromkeys(gpu_types)}
    found = {name: measured for name, measured in names.items() if measured}
    if not found:
        raise InputError(
            f"{path}: none of the GPU types {', '.join(names)} is measured; measured are "
            f"{', '.join(known)}"
        )
    tables = {model: _renamed(table, found) for model, table in read.items()}
    profiles = (gavel_profile(model) for model in tables)
    missing = [name for name in names if name not in found]
    assumptions = [f"Speeds are those that {path.name} has measured, in steps/s."]
    if missing:
        assumptions.append(f"{path.name} has no speeds on {', '.join(missing)}: no job runs there.")
    return MeasuredModels(
        tables, tuple(profile for profile in profiles if profile), tuple(assumptions)
    )


def _measured_as(name: str, known: Iterable[str]) -> str | None:
    """Return the type of a table that a name stands for."""
    if name in known:
        return name
    match = match_gpu(name)
    if match.assumed:
        return None
    return next((k for k in known if match_gpu(k) == replace(match, name=k)), None)


def _renamed(table: SpeedTable, names: Mapping[str, str]) -> SpeedTable:
    """Return a table whose rows are those of the types in {name: type of the table}."""
    rows = [table.gpu_types.index(measured) for measured in names.values()]
    one_node, several_nodes = table.one_node[rows], table.several_nodes[rows]
    if np.array_equal(table.counts, [1]):
        # Measured on one GPU alone: several are taken to be no slower each.
        several_nodes = one_node
    return replace(
        table,
        gpu_types=tuple(names),
        one_node=one_node,
        several_nodes=several_nodes,
        layers=table.layers[rows],
    )
