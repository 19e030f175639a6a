"""JSON values to typed values and back, refusing whatever would have to be bent to fit."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from cattrs import Converter, ForbiddenExtraKeysError, transform_error

from hetsched_core.errors import InputError
from hetsched_core.types import RequirementSet

Hook = Callable[[Any, Any], Any]
"""Returns a JSON value as a value of a type."""

LARGEST = 1e300
"""Numbers beyond this are refused: sums of them would not be finite."""


def structure(value: object, type_: Any, key: str = "") -> Any:
    """Return JSON as a value of a type: a dataclass, a collection, or one of JSON's own types.

    Args:
        value: What `json.loads` returned.
        type_: The type to return.
        key: Where the value stands, for messages.

    Raises:
        InputError: The value is not of this type; the message names its key.
    """
    try:
        return _converter().structure(value, type_)
    except Exception as error:  # whatever a converter raises for JSON of another shape
        # The first is enough: mend it and the next shows.
        message, _, path = transform_error(error, key, _say)[0].rpartition(" @ ")
        path = path.removeprefix(".")
        raise InputError(f"{path}: {message}" if path else message) from None


def unstructure(value: object) -> Any:
    """Return a value as JSON, without the fields of a dataclass that have their default."""
    return _converter().unstructure(value)


def _say(error: BaseException, _type: object) -> str:
    """Return in words what is wrong with a value."""
    match error:
        case KeyError():
            return "missing"
        case ForbiddenExtraKeysError():
            return f"unknown key {min(error.extra_fields)!r}"
        case ValueError() | InputError():
            return str(error)
        case _:
            return f"not of the right form ({error})"


@cache
def _converter() -> Converter:
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
        (item,) = (arg for arg in get_args(type_) if arg is not type(None))
        hook = converter.get_structure_hook(item)
        return lambda value, _: None if value is None else hook(value, item)

    def origin_is(*origins: object) -> Callable[[Any], bool]:
        return lambda type_: get_origin(type_) in origins

    converter.register_structure_hook(str, _text)
    converter.register_structure_hook(int, _whole)
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook(bool, _flag)
    converter.register_structure_hook(StrEnum, _word)
    converter.register_structure_hook_factory(origin_is(tuple, frozenset), collection)
    converter.register_structure_hook_factory(_optional, optional)
    converter.register_unstructure_hook_func(origin_is(frozenset), sorted)
    counts = collection(tuple[int, ...])
    converter.register_structure_hook(
        RequirementSet, lambda value, _: shared_requirements(counts(value, None))
    )
    converter.register_unstructure_hook(RequirementSet, list)
    return converter


def _optional(type_: Any) -> bool:
    """Whether a type is some other one or None."""
    return isinstance(type_, UnionType) and len(args := get_args(type_)) == 2 and NoneType in args


def _listed(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.60} is not a list")
    return value


def _text(value: object, _: object) -> str:
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


def _number(value: object, _: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r:.60} is not a number")
    if not -LARGEST <= value <= LARGEST:
        raise ValueError(f"{value!r:.60} is beyond {LARGEST:g}")
    return float(value)


def _flag(value: object, _: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r:.60} is not true or false")
    return value
