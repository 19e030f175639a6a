"""Values of declared types, to and from JSON and TOML.

A dataclass or TypedDict says once what a record holds: the keys, their types, and in a `Form` what
else must be true of a value. `structure` reads what people and other programs write and refuses
whatever would have to be bent to fit; `from_json` reads our own records, to the last bit.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
from cattrs import Converter, ForbiddenExtraKeysError, transform_error

from hetsched_core.errors import InputError, unknown
from hetsched_core.types import Configuration, ReasonCode, RequirementSet, SpeedTable, TaskTimes
from hetsched_core.values.text import kind_of

Hook = Callable[[Any, Any], Any]
"""Returns a JSON value as a value of a type."""

LARGEST = 1e300
"""Numbers beyond this are refused: sums of them would not be finite."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a value must be beside its type: `Annotated[int, Form("1 or more", read)]`.

    A module whose dataclasses have forms does not postpone the evaluation of annotations: cattrs
    would not see them.

    `read` returns a JSON or TOML value as what it stands for. It raises ValueError where the value
    is not as `expected` says, or InputError where it has more to say.
    """

    expected: str
    read: Callable[[Any], Any]


def count(least: int) -> Form:
    """Return the form of a whole number that is at least so large."""

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError
        return value

    return Form(f"a whole number of {least} or more", read)


def tables(key: str, type_: Any, least: str = "") -> Form:
    """Return the form of TOML's tables of a name; `least` says how many there must be."""

    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise ValueError
        found = []
        for at, entry in enumerate(value, 1):
            try:
                found.append(structure(entry, type_))
            except InputError as error:
                raise _OtherFormError(f" {at}: {error}") from None
        return tuple(found)

    return Form(f"{least}[[{key}]] tables", read)


class _OtherFormError(ValueError):
    """A value that does not have its form."""


# Files of people and other programs ---------------------------------------------------------------


def structure(value: object, type_: Any, key: str = "") -> Any:
    """Return JSON as a value of a type: a dataclass, a collection, or one of JSON's own types.

    Args:
        value: What `json.loads` or `tomllib.loads` returned.
        type_: The type to return.
        key: Where the value stands, for messages.

    Raises:
        InputError: The value is not of this type; the message names its key.
    """
    return _structure(_converter(), value, type_, key)


def unstructure(value: object) -> Any:
    """Return a value as JSON, without the fields of a dataclass that have their default."""
    return _converter().unstructure(value)


def read_toml(text: str, source: str, type_: Any, schema: str, hint: str = "") -> Any:
    """Return what stands in a TOML file that names its format, such as `hetsched-rules/1`.

    Args:
        text: The file's text.
        source: Names it in messages.
        type_: What it holds; one of its fields is `schema`.
        schema: The format that this key must name.
        hint: How the file comes to have that line.

    Raises:
        InputError: The text is not of this type; the message names the key and its value.
    """
    try:
        document = tomllib.loads(text)
        if document.get("schema") != schema:
            given = document.get("schema")
            raise InputError(f'schema is {given!r}; expected the line schema = "{schema}"{hint}')
        return structure(document, type_)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{source}: not valid TOML: {error}") from None
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _structure(converter: Converter, value: object, type_: Any, key: str) -> Any:
    try:
        return converter.structure(value, type_)
    except Exception as error:  # whatever a converter raises for JSON of another shape
        # One is enough: mend it and the next shows. A key that is misspelt is missing, too.
        said = transform_error(error, key, _say)
        first = next((text for text in said if text.startswith(": unknown key")), said[0])
        message, _, path = first.rpartition(" @ ")
        path = path.removeprefix(".")
        raise InputError(path + message if path else message.removeprefix(": ")) from None


def _say(error: BaseException, type_: Any) -> str:
    """Return in words what is wrong with a value, to follow its key."""
    match error:
        case KeyError():
            return next((f" is missing; expected {f.expected}" for f in _forms(type_)), ": missing")
        case ForbiddenExtraKeysError():
            known = get_type_hints(error.cl)
            return f": {unknown('key', min(error.extra_fields), known)}"
        case _OtherFormError():
            return str(error)
        case ValueError() | InputError():
            return f": {error}"
        case _:
            return f": not of the right form ({error})"


@cache
def _converter() -> Converter:
    return _strict_converter()


def _strict_converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, omit_if_default=True)

    # Values that many jobs of a workload have in common are kept once.
    shared_set: Callable[[tuple[Any, ...]], frozenset[Any]] = lru_cache(1024)(frozenset)
    shared_requirements = lru_cache(1 << 16)(RequirementSet)

    def collection(type_: Any) -> Hook:
        """Return what reads lists of this type; all that can be known before is looked up here."""
        container, items = get_origin(type_), get_args(type_)
        hooks = [converter.get_structure_hook(item) for item in items if item is not Ellipsis]
        if container is tuple and items[-1] is not Ellipsis:

            def parts(value: object, _: Any) -> Any:
                value = _listed(value)
                if len(value) != len(items):
                    raise ValueError(f"{value!r:.60} does not have {len(items)} parts")
                return tuple(
                    hook(part, item) for hook, part, item in zip(hooks, value, items, strict=True)
                )

            return parts
        (hook,), item = hooks, items[0]
        kept: Callable[[tuple[Any, ...]], Any] = tuple if container is tuple else shared_set
        return lambda value, _: kept(tuple([hook(one, item) for one in _listed(value)]))

    def optional(type_: Any) -> Hook:
        item, _ = kind_of(type_)
        hook = converter.get_structure_hook(item)
        return lambda value, _: None if value is None else hook(value, item)

    def formed(type_: Any) -> Hook:
        (form,) = _forms(type_)

        def read(value: object, _: Any) -> Any:
            try:
                return form.read(value)
            except _OtherFormError:
                raise
            except ValueError:
                raise _OtherFormError(f" is {value!r:.200}; expected {form.expected}") from None

        return read

    def origin_is(*origins: object) -> Callable[[Any], bool]:
        return lambda type_: get_origin(type_) in origins

    converter.register_structure_hook(str, quoted)
    converter.register_structure_hook(int, _whole)
    converter.register_structure_hook(float, _finite)
    converter.register_structure_hook(bool, _flag)
    converter.register_structure_hook(StrEnum, _word)
    converter.register_structure_hook_factory(origin_is(tuple, frozenset), collection)
    converter.register_structure_hook_factory(lambda type_: kind_of(type_)[1], optional)
    converter.register_structure_hook_factory(lambda type_: bool(_forms(type_)), formed)
    converter.register_unstructure_hook_func(origin_is(frozenset), sorted)
    counts = collection(tuple[int, ...])
    converter.register_structure_hook(
        RequirementSet, lambda value, _: shared_requirements(counts(value, None))
    )
    converter.register_unstructure_hook(RequirementSet, list)
    return converter


def _forms(type_: Any) -> list[Form]:
    if get_origin(type_) is not Annotated:
        return []
    return [form for form in type_.__metadata__ if isinstance(form, Form)]


def _listed(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.60} is not a list")
    return value


def quoted(value: object, _: object = None) -> str:
    """Return a value that is text, and raise ValueError for any other."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.60} is not text")
    return value


def _word(value: object, type_: type[StrEnum]) -> StrEnum:
    if value not in list(type_):
        raise ValueError(f"{value!r:.60} is none of {', '.join(type_)}")
    return type_(str(value))


def _whole(value: object, _: object) -> int:
    # What numpy and the file's other readers hold as an integer.
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ValueError(f"{value!r:.60} is not a whole number of 64 bits")
    return value


def _finite(value: object, _: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r:.60} is not a number")
    if not -LARGEST <= value <= LARGEST:
        raise ValueError(f"{value!r:.60} is beyond {LARGEST:g}")
    return float(value)


def _flag(value: object, _: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r:.60} is not true or false")
    return value


# Our own records ----------------------------------------------------------------------------------


def to_json(value: Any, *left_out: str) -> Any:
    """Return a value in JSON's own types, without some of its fields."""
    found = _own_converter().unstructure(value)
    for name in left_out:
        found.pop(name, None)
    return found


def from_json(value: Any, kind: Any) -> Any:
    """Return what stands in JSON as a value of a type.

    Raises:
        InputError: The value is not of this type; the message names its key.
    """
    return _structure(_own_converter(), value, kind, "")


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


def table_from_json(value: Mapping[str, Any]) -> SpeedTable:
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
def _own_converter() -> Converter:
    converter = _strict_converter()
    # JSON has no infinity.
    converter.register_unstructure_hook(float, lambda v: v if math.isfinite(v) else str(v))
    converter.register_structure_hook(float, lambda value, _: float(value))
    converter.register_unstructure_hook(Configuration, lambda value: dict(value.pieces))
    converter.register_structure_hook(Configuration, lambda value, _: Configuration.of(value))
    converter.register_unstructure_hook(ReasonCode, lambda value: value.word)
    words = {code.word: code for code in ReasonCode}
    converter.register_structure_hook(ReasonCode, lambda value, _: words[value])
    return converter


def _number(value: Any) -> object:
    """Return a number of numpy's as one of Python's."""
    return value.item()
