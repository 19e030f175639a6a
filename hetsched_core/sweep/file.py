"""The sweep file: what is varied (docs/formats/sweep.md)."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from hetsched_core.errors import InputError, unknown
from hetsched_core.policy.from_file import file_and_class

SCHEMA = "hetsched-sweep/1"

Value = bool | int | float | str
OptionValues = Mapping[str, Value]

PATHS = ("cluster", "rules", "throughputs")
"""Options that name a file, relative to the sweep file."""


@dataclass(frozen=True, slots=True)
class SweepWorkload:
    """A workload of a sweep: log files, or the options with which one is generated for each seed.

    Attributes:
        name: its name in the results.
        logs: the files; () if it is generated.
        generated: options of `hetsched workload generate`; {} if there are files.
        options: options of `hetsched replay` that say how to read it, `cluster` above all.
        seeds: under which it runs, its own or those of the sweep.
    """

    name: str
    logs: tuple[Path, ...]
    generated: OptionValues
    options: OptionValues
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy with one choice of parameters; `varied` are those that the sweep varies.

    `policy` is its name; `source` is how it is asked for, which may be the file that it is in.
    Before that file is loaded both are the same.
    """

    policy: str
    source: str
    parameters: OptionValues
    varied: OptionValues

    @property
    def label(self) -> str:
        """The policy's name, with what is varied of its parameters."""
        return _label(self.policy, self.varied)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is compared: every contender on every workload, under all options and its seeds.

    Each of `options` is one choice of the options of `hetsched replay` that hold for every run;
    `varied` names those that differ.
    """

    workloads: tuple[SweepWorkload, ...]
    contenders: tuple[Contender, ...]
    options: tuple[OptionValues, ...] = field(default=({},))
    varied: tuple[str, ...] = ()


def _label(name: str, varied: OptionValues) -> str:
    return " ".join((name, *(f"{key}={value}" for key, value in varied.items())))


def read_sweep(path: Path, replay: Collection[str], generate: Collection[str]) -> Sweep:
    """Read a sweep file.

    Args:
        path: the file.
        replay: the options that `hetsched replay` has, with underscores.
        generate: those of `hetsched workload generate`.

    Raises:
        InputError: it is no sweep; the message names the key, and what is allowed.
        OSError: it cannot be opened.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    try:
        return _sweep(document, path.parent, replay, generate)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _sweep(
    document: Mapping[str, object],
    folder: Path,
    replay: Collection[str],
    generate: Collection[str],
) -> Sweep:
    _known("key", document, ("schema", "seeds", "workloads", "policies", "options"))
    if document.get("schema") != SCHEMA:
        raise InputError(
            f'schema is {document.get("schema")!r}; a sweep has the line schema = "{SCHEMA}"'
        )
    seeds = _seeds("seeds", document.get("seeds", 1))
    workloads = tuple(
        _workload(table, folder, seeds, replay, generate)
        for table in _tables(document, "workloads")
    )
    _distinct("workload", [workload.name for workload in workloads])
    contenders = tuple(
        contender
        for table in _tables(document, "policies")
        for contender in _contenders(table, folder)
    )
    check_labels(contenders)
    options = document.get("options", {})
    if not isinstance(options, dict):
        raise InputError(f"options is {options!r}; expected a table [options]")
    _known("option of hetsched replay", options, replay)
    choices = _choices("options", options)
    return Sweep(
        workloads,
        contenders,
        tuple(choices),
        tuple(name for name, value in options.items() if isinstance(value, list)),
    )


def _workload(
    table: Mapping[str, object],
    folder: Path,
    seeds: tuple[int, ...],
    replay: Collection[str],
    generate: Collection[str],
) -> SweepWorkload:
    name = table.get("name")
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        raise InputError(f"workload name {name!r}: expected a name without a slash")
    where = f"workload {name!r}"
    logs, generated = table.get("logs", []), table.get("generate", {})
    if bool(logs) == bool(generated):
        raise InputError(f"{where}: give logs = [FILE, ...], or a table generate, and not both")
    if not isinstance(logs, list) or not all(isinstance(log, str) for log in logs):
        raise InputError(f"{where}: logs is {logs!r}; expected a list of files")
    if not isinstance(generated, dict):
        raise InputError(f"{where}: generate is {generated!r}; expected a table of options")
    options = {
        key: value
        for key, value in table.items()
        if key not in ("name", "logs", "generate", "seeds")
    }
    _known(f"option of hetsched replay in {where}", options, replay)
    _known(f"option of hetsched workload generate in {where}", generated, generate)
    if generated and "cluster" not in options:
        raise InputError(f"{where}: a generated workload needs cluster = FILE")
    files = tuple((folder / log).resolve() for log in logs)
    for file in files:
        if not file.is_file():
            raise InputError(f"{where}: there is no file {file}")
    return SweepWorkload(
        name,
        files,
        _fixed(where, generated, folder),
        _fixed(where, options, folder),
        _seeds(f"{where}: seeds", table["seeds"]) if "seeds" in table else seeds,
    )


def check_labels(contenders: Iterable[Contender]) -> None:
    """Refuse two contenders of one label.

    Raises:
        InputError: there are two of that label.
    """
    _distinct("policy", [contender.label for contender in contenders])


def _contenders(table: Mapping[str, object], folder: Path) -> list[Contender]:
    _known("key of a policy", table, ("name", "parameters"))
    name, parameters = table.get("name"), table.get("parameters", {})
    if not isinstance(name, str) or not name:
        raise InputError(f"policy name {name!r}: expected text in quotes")
    if not isinstance(parameters, dict):
        raise InputError(f"policy {name!r}: parameters is {parameters!r}; expected a table")
    varied = [key for key, value in parameters.items() if isinstance(value, list)]
    file, _ = file_and_class(name)
    source = name if file is None else str(folder.resolve() / name)
    if "," in source:
        raise InputError(f"policy {name!r}: commas part policies, and {source!r} has one")
    return [
        Contender(source, source, choice, {key: choice[key] for key in varied})
        for choice in _choices(f"policy {name!r}", parameters)
    ]


def _choices(where: str, table: Mapping[str, object]) -> list[OptionValues]:
    """Return all choices of one value for each key, where a list stands for its items."""
    columns = [
        [(key, item) for item in (value if isinstance(value, list) else [value])]
        for key, value in table.items()
    ]
    for column in columns:
        if not column:
            raise InputError(f"{where}: an empty list leaves nothing to run")
    return [
        {key: _value(f"{where}: {key}", value) for key, value in choice}
        for choice in product(*columns)
    ]


def _fixed(where: str, table: Mapping[str, object], folder: Path) -> OptionValues:
    found = {key: _value(f"{where}: {key}", value) for key, value in table.items()}
    for key in PATHS:
        if key in found:
            found[key] = str((folder / str(found[key])).resolve())
            if not Path(str(found[key])).is_file():
                raise InputError(f"{where}: {key}: there is no file {found[key]}")
    return found


def _value(where: str, value: object) -> Value:
    if not isinstance(value, bool | int | float | str):
        raise InputError(f"{where} is {value!r}; expected one value")
    return value


def _seeds(where: str, value: object) -> tuple[int, ...]:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10_000:
        return tuple(range(value))
    if isinstance(value, list) and value and all(type(seed) is int and seed >= 0 for seed in value):
        return tuple(dict.fromkeys(value))
    raise InputError(f"{where} is {value!r}; expected how many, or a list of whole numbers")


def _tables(document: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    found = document.get(key)
    if not isinstance(found, list) or not found or not all(isinstance(t, dict) for t in found):
        raise InputError(f"{key} is {found!r:.60}; expected one [[{key}]] table or more")
    return found


def _known(kind: str, table: Mapping[str, object], valid: Collection[str]) -> None:
    for key in table:
        if key not in valid:
            raise unknown(kind, key, valid)


def _distinct(kind: str, names: list[str]) -> None:
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise InputError(f"{kind} {twice!r} is there twice; every one needs a name of its own")
