"""Compiled loops over arrays: the only place that imports numba, and the one way to compile.

A kernel has one signature, so that it is compiled once whatever it is called with, and compiles at
its first call, so that importing it costs nothing. What was compiled is kept on disk
(`NUMBA_CACHE_DIR`, else `__pycache__` beside the source, else the user's cache directory), but not
where others could change it.

Two rules, both held by tests:

- A kernel calls `scalar`s of its own file only, and takes constants from other files as arguments:
  the cache sees a change in the kernel's own file and in no other.
- A kernel has a naive twin in `tests/`, plain Python that is obviously right.

What a kernel takes is said by its annotations: `int`, `float`, `bool`, the arrays below, and named
tuples of these.

Example:
    >>> @kernel()
    ... def scaled(values: Floats, factor: float, out: FloatsOut) -> None:
    ...     for i in range(len(values)):
    ...         out[i] = values[i] * factor
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import stat
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, Generic, ParamSpec, TypeVar, get_type_hints

import numba
import numpy as np
from numba import boolean, float64, int64, void
from numba.core import event
from numpy.typing import NDArray

__all__ = [
    "BoolTableOut",
    "BoolsOut",
    "BytesOut",
    "FloatCube",
    "FloatCubeOut",
    "FloatTable",
    "FloatTableOut",
    "Floats",
    "FloatsOut",
    "IntCube",
    "IntCubeOut",
    "IntTable",
    "IntTableOut",
    "Ints",
    "IntsOut",
    "Kernel",
    "compile_imported",
    "kernel",
    "scalar",
]

P = ParamSpec("P")
R = TypeVar("R")


def _array(dtype: Any, dimensions: int = 1, *, out: bool = False) -> Any:
    """Return the type of a contiguous array: only read, or written to if `out`."""
    return numba.types.Array(dtype, dimensions, "C", readonly=not out)


Floats = Annotated[NDArray[np.float64], _array(float64)]
"""An array as an annotation: contiguous, one-dimensional, only read; read-only and writable ones
are both taken. `Out` ones are written to, a table has two dimensions and a cube three."""

FloatsOut = Annotated[NDArray[np.float64], _array(float64, out=True)]
FloatTable = Annotated[NDArray[np.float64], _array(float64, 2)]
FloatTableOut = Annotated[NDArray[np.float64], _array(float64, 2, out=True)]
FloatCube = Annotated[NDArray[np.float64], _array(float64, 3)]
FloatCubeOut = Annotated[NDArray[np.float64], _array(float64, 3, out=True)]
Ints = Annotated[NDArray[np.int64], _array(int64)]
IntsOut = Annotated[NDArray[np.int64], _array(int64, out=True)]
IntTable = Annotated[NDArray[np.int64], _array(int64, 2)]
IntTableOut = Annotated[NDArray[np.int64], _array(int64, 2, out=True)]
IntCube = Annotated[NDArray[np.int64], _array(int64, 3)]
IntCubeOut = Annotated[NDArray[np.int64], _array(int64, 3, out=True)]
BytesOut = Annotated[NDArray[np.int8], _array(numba.int8, out=True)]
BoolsOut = Annotated[NDArray[np.bool_], _array(boolean, out=True)]
BoolTableOut = Annotated[NDArray[np.bool_], _array(boolean, 2, out=True)]

_NUMBERS = {int: int64, float: float64, bool: boolean}


def _to_stderr(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


class _Announcer:
    """Tells what is being compiled: at length the first time in a process."""

    def __init__(self) -> None:
        self.said = False

    def announce(self, name: str) -> None:
        if self.said:
            _to_stderr(f"hetsched: compiling one more kernel, {name}")
            return
        self.said = True
        _to_stderr(
            "hetsched: compiling numeric kernels; this takes a moment, and for each kernel "
            "only the first time that it is used after an installation"
        )


_announcer = _Announcer()


class _OnCompile(event.Listener):
    """Listens while one kernel is made, for which numba may compile several functions."""

    def __init__(self, name: str) -> None:
        self._name = name

    def on_start(self, event: event.Event) -> None:
        """Announce: numba has found nothing in its cache."""
        if self._name:
            _announcer.announce(self._name)
            self._name = ""

    def on_end(self, event: event.Event) -> None:
        """Nothing to say."""


class Kernel(Generic[P, R]):
    """A compiled function of one signature; `py_func` is the same as plain Python."""

    def __init__(self, function: Callable[P, R], *, allocates: bool) -> None:
        """Hold the function; nothing is compiled yet."""
        functools.update_wrapper(self, function)
        self.py_func = function
        self._allocates = allocates
        self._compiled: Callable[P, R] | None = None
        _imported.append(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the compiled function, compiling it first if this is the first call."""
        compiled = self._compiled or self.compile()
        return compiled(*args, **kwargs)

    def compile(self) -> Callable[P, R]:
        """Load the compiled function from the cache, else compile it and keep it there."""
        # An option that numba does not document: a test compiles a kernel that rests on it.
        counted = numba.njit if self._allocates else functools.partial(numba.njit, _nrt=False)
        make = counted(error_model="numpy")
        dispatcher = make(self.py_func)
        with _compiling, _others_cannot_write():
            # Where neither the installation nor the user's cache can be written, it does without.
            with contextlib.suppress(RuntimeError):
                dispatcher.enable_caching()
                folder = dispatcher.stats.cache_path
                if folder and not _is_safe(Path(folder), Path(inspect.getfile(self.py_func))):
                    dispatcher = make(self.py_func)
            with event.install_listener("numba:compile", _OnCompile(self.py_func.__name__)):
                dispatcher.compile(_signature_of(self.py_func))
        dispatcher.disable_compile()
        compiled: Callable[P, R] = dispatcher
        self._compiled = compiled
        return compiled


@contextlib.contextmanager
def _others_cannot_write() -> Iterator[None]:
    """Let no one else write what is made meanwhile, whatever the umask."""
    # First the strictest: other threads may be making files.
    before = os.umask(0o077)
    os.umask(before | 0o022)
    try:
        yield
    finally:
        os.umask(before)


@functools.cache
def _is_safe(folder: Path, source: Path) -> bool:
    """Whether what a cache folder holds, which will be run, was put there by no one else.

    Args:
        folder: where numba keeps compiled functions.
        source: the file that they are of: what its owner writes is run anyway.
    """
    try:
        ours = {os.geteuid(), 0, source.stat().st_uid}
        above = folder.resolve().parents
        for path in (folder, *folder.iterdir(), *above):
            # A file may have gone: another process puts its own in the place of it.
            if (path.exists() or path in above) and not _is_ours(path, ours, path in above):
                _to_stderr(
                    f"hetsched: compiled kernels are not kept in {folder}, and compiled each time: "
                    f"others can write {path}, and what lies there is run; chmod go-w, or remove it"
                )
                return False
    except OSError:
        return False
    return True


def _is_ours(path: Path, ours: Collection[int], above: bool) -> bool:
    """Whether these users alone can write a path, or put another in its place."""
    found = path.stat()
    # A user's own group has the user's number.
    others = stat.S_IWOTH if found.st_gid == found.st_uid else stat.S_IWOTH | stat.S_IWGRP
    sticky = above and found.st_mode & stat.S_ISVTX
    return found.st_uid in ours and (bool(sticky) or not found.st_mode & others)


_compiling = threading.RLock()
"""The umask is the whole process's."""

_imported: list[Kernel[Any, Any]] = []


def compile_imported() -> None:
    """Compile the kernels of all modules that are imported, for processes that are to come."""
    for each in _imported:
        each.compile()


def _signature_of(function: Callable[..., Any]) -> Any:
    """Return the signature that the annotations of a function say."""
    hints = get_type_hints(function, include_extras=True)
    del hints["return"]
    return void(*map(_type_of, hints.values()))


def _type_of(hint: Any) -> Any:
    """Return what numba calls the type that an annotation stands for."""
    if hint in _NUMBERS:
        return _NUMBERS[hint]
    if isinstance(hint, type) and issubclass(hint, tuple):
        fields = map(_type_of, get_type_hints(hint, include_extras=True).values())
        return numba.types.NamedTuple(tuple(fields), hint)  # type: ignore[no-untyped-call]
    return hint.__metadata__[0]


def kernel(*, allocates: bool = True) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Make a function a kernel, of the signature that its annotations say.

    It returns nothing and fills its `out` arrays. One that allocates no array of its own can say
    so: then no references to arrays are counted, at every view of one, which is a fifth of the
    time of a kernel that makes many.
    """
    return lambda function: Kernel(function, allocates=allocates)


def scalar(function: Callable[P, R]) -> Callable[P, R]:
    """Let kernels of the same file call this function; from Python it is a plain function."""
    compiled: Callable[P, R] = numba.extending.register_jitable(function)
    return compiled
