"""The result of a comparison of policies, and its file (docs/formats/result.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from hetsched_core.errors import HetschedError, InputError
from hetsched_core.measures.accounts import AccountMeasures
from hetsched_core.measures.logged import Closeness, LoggedMeasures
from hetsched_core.measures.metrics import Measures, PlanTimes
from hetsched_core.measures.widths import WidthMeasures
from hetsched_core.records.files import replacing
from hetsched_core.values.json import plain, strict_json
from hetsched_core.values.records import structure

SCHEMA = 1

SITE_POLICY = "slurm"
"""The policy that stands for a site's own scheduler."""

_Type = TypeVar("_Type")


@dataclass(frozen=True, slots=True)
class ResultInput:
    """What a result came from.

    Attributes:
        sources: the files of the workload.
        cluster: the cluster's name.
        nodes: number of nodes.
        gpus: number of GPUs by type.
        jobs: number of jobs.
        rejected: number of jobs and lines that could not be used, by reason.
        settings: what was chosen, by option: seed, round_s, restart_cost_s and so on.
        parameters: the parameters of each policy, by its name in the result.
        assumptions: in sentences, what was assumed to get from the sources to the jobs.
    """

    sources: tuple[str, ...]
    cluster: str
    nodes: int
    gpus: Mapping[str, int]
    jobs: int
    rejected: Mapping[str, int]
    settings: Mapping[str, object]
    parameters: Mapping[str, Mapping[str, object]]
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The measures of several policies on one input, in the order in which they were named.

    Attributes:
        input: what they came from.
        policies: the measures of each policy, under the seed of the settings.
        other_seeds: the same for each further seed.
        logged: the measures of what the site's own scheduler did, where a log tells; over the jobs
            that complete under the first policy.
        closeness: how close each policy comes to that, under the seed of the settings.
        accounts: what accounts and users had and were due under each policy, those that had most
            first, under the seed of the settings.
        reordered: the measures of the site's own policy where the cluster names its GPU types the
            other way round, if that could matter.
        widths: under each policy the measures of the jobs of each number of GPUs, ascending.
    """

    input: ResultInput
    policies: Mapping[str, Measures]
    other_seeds: Mapping[int, Mapping[str, Measures]] = field(default_factory=dict)
    logged: LoggedMeasures | None = None
    closeness: Mapping[str, Closeness] = field(default_factory=dict)
    accounts: Mapping[str, tuple[AccountMeasures, ...]] = field(default_factory=dict)
    reordered: Measures | None = None
    widths: Mapping[str, tuple[WidthMeasures, ...]] = field(default_factory=dict)

    @property
    def by_seed(self) -> tuple[Mapping[str, Measures], ...]:
        """The measures of each policy under each seed, that of the settings first."""
        return (self.policies, *self.other_seeds.values())


def to_json(result: Result) -> str:
    """Return the text of the result file: keys in a fixed order, finite numbers only.

    Raises:
        HetschedError: a measure is not finite.
    """
    given = {field.name: plain(getattr(result.input, field.name)) for field in fields(ResultInput)}
    whole = {
        "schema": SCHEMA,
        "input": given,
        "policies": _each_json(result.policies),
        "other_seeds": {
            str(seed): _each_json(policies) for seed, policies in result.other_seeds.items()
        },
        "logged": _one_json("logged", result.logged),
        "closeness": _each_json(result.closeness),
        "accounts": _rows_json(result.accounts),
        "reordered": _one_json("reordered", result.reordered),
        "widths": _rows_json(result.widths),
    }
    return json.dumps(whole, indent=2) + "\n"


def _each_json(
    policies: Mapping[str, Measures] | Mapping[str, LoggedMeasures] | Mapping[str, Closeness],
) -> dict[str, dict[str, Any]]:
    return {name: _finite(name, asdict(measures)) for name, measures in policies.items()}


def _rows_json(
    policies: Mapping[str, tuple[AccountMeasures, ...]] | Mapping[str, tuple[WidthMeasures, ...]],
) -> dict[str, list[dict[str, Any]]]:
    return {
        policy: [_finite(policy, asdict(row)) for row in rows] for policy, rows in policies.items()
    }


def _one_json(name: str, measures: Measures | LoggedMeasures | None) -> dict[str, Any] | None:
    return None if measures is None else _finite(name, asdict(measures))


def _finite(policy: str, measures: dict[str, Any]) -> dict[str, Any]:
    for key, value in _numbers(measures):
        if not math.isfinite(value):
            raise HetschedError(
                f"policy {policy!r}: measure {key} is {value}, where a finite number or "
                "nothing was expected; please report this as a defect of hetsched"
            )
    return measures


def write_result(result: Result, path: Path) -> None:
    """Write the result file; it appears once it is complete.

    Raises:
        InputError: the file cannot be written.
    """
    text = to_json(result)
    with replacing(path) as file:
        file.write(text)


def read_result(path: Path) -> Result:
    """Read a result file. Keys of later versions are passed over.

    Raises:
        InputError: the file cannot be read or is no result; the message names the key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8; expected a result file") from None
    try:
        return _result(strict_json(text))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON ({error})") from None


def _result(value: object) -> Result:
    whole = _object(value, "the file")
    if whole.get("schema") != SCHEMA:
        raise InputError(f"schema is {whole.get('schema')!r:.40}; this version reads {SCHEMA}")
    seeds = _object(whole.get("other_seeds", {}), "other_seeds")
    logged, reordered = whole.get("logged"), whole.get("reordered")
    return Result(
        _input(_object(whole.get("input"), "input")),
        _each(Measures, whole.get("policies"), "policies"),
        {_seed(seed): _each(Measures, one, f"other_seeds.{seed}") for seed, one in seeds.items()},
        None if logged is None else _known(LoggedMeasures, logged, "logged"),
        _each(Closeness, whole.get("closeness", {}), "closeness"),
        _each_row(AccountMeasures, whole.get("accounts", {}), "accounts"),
        None if reordered is None else _known(Measures, reordered, "reordered"),
        _each_row(WidthMeasures, whole.get("widths", {}), "widths"),
    )


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"other_seeds.{text:.40}: {text!r:.40} is not a whole number")
    return int(text)


def _each(type_: type[_Type], value: object, key: str) -> dict[str, _Type]:
    each = _object(value, key)
    return {name: _known(type_, one, f"{key}.{name}") for name, one in each.items()}


def _each_row(type_: type[_Type], value: object, key: str) -> dict[str, tuple[_Type, ...]]:
    found = {}
    for policy, rows in _object(value, key).items():
        if not isinstance(rows, list):
            raise InputError(f"{key}.{policy}: {rows!r:.40} is no JSON list [...]")
        of_policy = enumerate(rows)
        found[policy] = tuple(_known(type_, row, f"{key}.{policy}[{at}]") for at, row in of_policy)
    return found


def _input(given: dict[str, Any]) -> ResultInput:
    def read(key: str, type_: type[_Type] | Any) -> Any:
        if key not in given:
            raise InputError(f"input.{key}: missing")
        return structure(given[key], type_, f"input.{key}")

    parameters = _object(given.get("parameters"), "input.parameters")
    return ResultInput(
        sources=read("sources", tuple[str, ...]),
        cluster=read("cluster", str),
        nodes=read("nodes", int),
        gpus=read("gpus", dict[str, int]),
        jobs=read("jobs", int),
        rejected=read("rejected", dict[str, int]),
        settings=_object(given.get("settings"), "input.settings"),
        parameters={
            policy: _object(values, f"input.parameters.{policy}")
            for policy, values in parameters.items()
        },
        assumptions=read("assumptions", tuple[str, ...]),
    )


def _known(type_: type[_Type], value: object, key: str) -> _Type:
    given = _without_later_keys(type_, _object(value, key))
    if isinstance(plan_s := given.get("plan_s"), dict):
        given["plan_s"] = _without_later_keys(PlanTimes, plan_s)
    known: _Type = structure(given, type_, key)
    return known


def _without_later_keys(type_: Any, given: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(type_)}
    return {key: value for key, value in given.items() if key in names}


def _object(value: object, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{key}: {value!r:.40} is no JSON object {{...}}")
    return value


def _numbers(measures: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in measures.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{inner}", number) for inner, number in _numbers(value))
        elif value is not None and not isinstance(value, str):
            yield key, value
