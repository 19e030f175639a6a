"""Whether a user's function is there and takes its arguments, by its text: nothing is imported."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from hetsched_core.errors import InputError, unknown

_Definition = ast.FunctionDef | ast.AsyncFunctionDef

_BINDS_UNSEEN = {"globals", "locals", "vars", "exec", "setattr", "__getattr__"}
"""A file that names one of these may have functions that its text does not show."""


def check_function(make: str, given: Iterable[str]) -> None:
    """Refuse a function that cannot be called so.

    What its text does not tell is let pass: a function of a package, one with decorators, one that
    is imported or made by other code.

    Args:
        make: where it is, as `place_of` returns it.
        given: the names of its arguments.

    Raises:
        InputError: the file is no Python, has no such function, or that takes other arguments.
    """
    place, _, function = make.rpartition(":")
    if not place.endswith(".py"):
        return
    tree = _parsed(Path(place))
    bound = list(_bound(tree.body))
    if function not in [name for name, _ in bound]:
        if "*" in [name for name, _ in bound] or _binds_unseen(tree):
            return
        functions = [name for name, definition in bound if definition is not None]
        raise InputError(
            f"{place} has no function {function!r} at its top level; it has: "
            f"{', '.join(functions) or 'none'}"
        )
    definitions = [definition for name, definition in bound if name == function]
    only = definitions[0]
    if len(definitions) == 1 and only is not None and not only.decorator_list:
        _check_arguments(make, only.args, list(given))


def _parsed(path: Path) -> ast.Module:
    try:
        with warnings.catch_warnings():
            # Whoever runs the file is told of what it warns of.
            warnings.simplefilter("ignore")
            return ast.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (SyntaxError, ValueError, RecursionError) as error:
        at = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InputError(f"{path}{at}: {said}; mend it, and submit again") from None


def _bound(body: Iterable[ast.stmt]) -> Iterator[tuple[str, _Definition | None]]:
    """Yield the names that a file binds at its top level, with the definition of functions."""
    for statement in body:
        if isinstance(statement, _Definition):
            yield statement.name, statement
        elif isinstance(statement, ast.ClassDef):
            yield statement.name, None
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                yield alias.asname or alias.name.partition(".")[0], None
        else:
            yield from _bound_within(statement)


def _bound_within(statement: ast.stmt) -> Iterator[tuple[str, _Definition | None]]:
    """Yield what an assignment, an `if`, a `try` and so on bind."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from _bound([child])
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from _bound(child.body)
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, None


def _binds_unseen(tree: ast.Module) -> bool:
    nodes = list(ast.walk(tree))
    if any(isinstance(node, ast.Global) for node in nodes):
        return True
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return bool(_BINDS_UNSEEN & (names | {name for name, _ in _bound(tree.body)}))


def _check_arguments(make: str, parameters: ast.arguments, given: list[str]) -> None:
    by_position = [each.arg for each in parameters.posonlyargs]
    positional = [*by_position, *(each.arg for each in parameters.args)]
    needed = positional[: len(positional) - len(parameters.defaults)]
    for each, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
        if default is None:
            needed.append(each.arg)
    taken = [each.arg for each in (*parameters.args, *parameters.kwonlyargs)]
    unnamed = next((name for name in needed if name in by_position), None)
    if unnamed is not None:
        raise InputError(
            f"{make} takes {unnamed!r} by position only, and a pool gives arguments by name"
        )
    for name in given:
        if name not in taken and parameters.kwarg is None:
            raise unknown(f"argument of {make}", name, taken)
    missing = [name for name in needed if name not in given]
    if missing:
        raise InputError(
            f"{make} needs {', '.join(map(repr, missing))}; give it with "
            f"--set {missing[0]}=VALUE or --each {missing[0]}=VALUE,VALUE"
        )
