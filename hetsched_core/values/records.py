"""Values of `hetsched_core.types` as JSON and back, to the last bit."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any, get_args, get_origin

import cattrs
import numpy as np

from hetsched_core.types import Configuration, ReasonCode, RequirementSet, SpeedTable, TaskTimes


def to_json(value: Any, *left_out: str) -> Any:
    """Return a value in JSON's own types, without some of its fields."""
    found = _converter().unstructure(value)
    for name in left_out:
        found.pop(name)
    return found


def from_json(value: Any, kind: Any) -> Any:
    """Return what stands in JSON as a value of a type."""
    return _converter().structure(value, kind)


def to_text(value: object) -> str:
    """Return JSON's own types, and numbers of numpy's, as text."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_number)


def table_to_json(table: SpeedTable) -> str:
    """Return a speed table as JSON text."""
    return to_text(
        {
            "gpu_types": list(table.gpu_types),
            "counts": table.counts.tolist(),
            "one_node": table.one_node.tolist(),
            "several_nodes": table.several_nodes.tolist(),
            "layers": table.layers.tolist(),
            "node_factor": dict(table.node_factor),
            "tasks": {name: to_json(times) for name, times in table.tasks.items()},
            "batch_size": table.batch_size,
        }
    )


def table_from_json(value: dict[str, Any]) -> SpeedTable:
    """Return the speed table that stands in JSON."""
    return SpeedTable(
        gpu_types=tuple(value["gpu_types"]),
        counts=np.array(value["counts"], dtype=np.int64),
        one_node=np.array(value["one_node"], dtype=np.float64),
        several_nodes=np.array(value["several_nodes"], dtype=np.float64),
        layers=np.array(value["layers"], dtype=np.int8),
        node_factor=value["node_factor"],
        tasks=from_json(value["tasks"], dict[str, TaskTimes]),
        batch_size=value["batch_size"],
    )


@cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, omit_if_default=True)
    # JSON has no infinity.
    converter.register_unstructure_hook(float, lambda v: v if math.isfinite(v) else str(v))
    converter.register_structure_hook(float, lambda value, _: float(value))
    converter.register_unstructure_hook(RequirementSet, lambda value: list(value.counts))
    converter.register_structure_hook(
        RequirementSet, lambda value, _: RequirementSet(tuple(map(int, value)))
    )
    converter.register_unstructure_hook(Configuration, lambda value: dict(value.pieces))
    converter.register_structure_hook(Configuration, lambda value, _: Configuration.of(value))
    converter.register_unstructure_hook(ReasonCode, lambda value: value.word)
    words = {code.word: code for code in ReasonCode}
    converter.register_structure_hook(ReasonCode, lambda value, _: words[value])
    converter.register_unstructure_hook_func(_is_set, sorted)
    converter.register_structure_hook_func(
        _is_set,
        lambda value, kind: frozenset(
            converter.structure(each, get_args(kind)[0]) for each in value
        ),
    )
    return converter


def _is_set(kind: Any) -> bool:
    return get_origin(kind) is frozenset


def _number(value: Any) -> object:
    """Return a number of numpy's as one of Python's."""
    return value.item()
