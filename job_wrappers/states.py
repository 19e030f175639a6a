"""States of models and optimisers: dicts, lists and tuples down to tensors and plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Callable

Path = tuple[Any, ...]


def leaves(state: object, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield what is not a dict, list or tuple, with its path of keys and indices."""
    if isinstance(state, Mapping):
        for key, part in state.items():
            yield from leaves(part, (*path, key))
    elif type(state) in (list, tuple):
        for at, part in enumerate(state):  # type: ignore[arg-type]
            yield from leaves(part, (*path, at))
    else:
        yield path, state


def mapped(state: Any, make: Callable[[Any], Any]) -> Any:
    """Return a state of the same form whose leaves `make` has made, in the order of `leaves`."""
    if isinstance(state, Mapping):
        return {key: mapped(part, make) for key, part in state.items()}
    if type(state) in (list, tuple):
        return type(state)(mapped(part, make) for part in state)
    return make(state)
