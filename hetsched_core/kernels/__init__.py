"""Compiled loops over arrays: the only place that imports numba, and the one way to compile.

A kernel has one signature, so that it is compiled once whatever it is called with, and compiles at
its first call, so that importing it costs nothing. What was compiled is kept on disk
(`NUMBA_CACHE_DIR`, else `__pycache__` beside the source, else the user's cache directory).

Two rules, both held by tests:

- A kernel calls `scalar`s of its own file only, and takes constants from other files as arguments:
  the cache sees a change in the kernel's own file and in no other.
- A kernel has a naive twin in `tests/`, plain Python that is obviously right.

What a kernel takes is said by its annotations: `int`, `float`, `bool`, and the arrays below.

Example:
    >>> @kernel()
    ... def scaled(values: Floats, factor: float, out: FloatsOut) -> None:
    ...     for i in range(len(values)):
    ...         out[i] = values[i] * factor
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Annotated, Any, Generic, ParamSpec, TypeVar, get_type_hints

import numba
import numpy as np
from numba import boolean, float64, int64, void
from numba.core import event
from numpy.typing import NDArray

__all__ = [
    "BYTES",
    "BYTES_OUT",
    "FLOATS",
    "FLOATS_OUT",
    "INTS",
    "INTS_OUT",
    "FloatTable",
    "FloatTableOut",
    "Floats",
    "FloatsOut",
    "IntTable",
    "IntTableOut",
    "Ints",
    "IntsOut",
    "Kernel",
    "announce_with",
    "boolean",
    "compile_imported",
    "cube",
    "float64",
    "int64",
    "kernel",
    "record",
    "scalar",
    "table",
    "void",
]

P = ParamSpec("P")
R = TypeVar("R")

FLOATS = numba.types.Array(float64, 1, "C", readonly=True)
"""A contiguous float64 array that is only read; read-only and writable ones are both taken."""

INTS = numba.types.Array(int64, 1, "C", readonly=True)
BYTES = numba.types.Array(numba.int8, 1, "C", readonly=True)
FLOATS_OUT = float64[::1]
INTS_OUT = int64[::1]
BYTES_OUT = numba.int8[::1]


def table(dtype: Any = float64, *, out: bool = False) -> Any:
    """Return the type of a contiguous two-dimensional array, written to if `out`."""
    return numba.types.Array(dtype, 2, "C", readonly=not out)


def cube(dtype: Any = float64, *, out: bool = False) -> Any:
    """Return the type of a contiguous three-dimensional array, written to if `out`."""
    return numba.types.Array(dtype, 3, "C", readonly=not out)


Floats = Annotated[NDArray[np.float64], FLOATS]
"""An array as an annotation: contiguous, one-dimensional, only read. `Out` ones are written to."""

FloatsOut = Annotated[NDArray[np.float64], FLOATS_OUT]
FloatTable = Annotated[NDArray[np.float64], table()]
FloatTableOut = Annotated[NDArray[np.float64], table(out=True)]
Ints = Annotated[NDArray[np.int64], INTS]
IntsOut = Annotated[NDArray[np.int64], INTS_OUT]
IntTable = Annotated[NDArray[np.int64], table(int64)]
IntTableOut = Annotated[NDArray[np.int64], table(int64, out=True)]

_NUMBERS = {int: int64, float: float64, bool: boolean}


def record(cls: type[tuple[Any, ...]], *fields: Any) -> Any:
    """Return the type of a `typing.NamedTuple`, from the types of its fields in order."""
    return numba.types.NamedTuple(fields, cls)  # type: ignore[no-untyped-call]


def _to_stderr(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


class _Announcer:
    """Tells what is being compiled: at length the first time in a process."""

    def __init__(self) -> None:
        self.say: Callable[[str], None] = _to_stderr
        self.said = False

    def announce(self, name: str) -> None:
        if self.said:
            self.say(f"hetsched: compiling one more kernel, {name}")
            return
        self.said = True
        self.say(
            "hetsched: compiling numeric kernels; this takes a moment, and for each kernel "
            "only the first time that it is used after an installation"
        )


_announcer = _Announcer()


def announce_with(say: Callable[[str], None]) -> None:
    """Send the announcements of compiles to `say` instead of stderr.

    It is called before each kernel is compiled, and not at all where they come from the cache.
    """
    _announcer.say = say


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

    def __init__(self, function: Callable[P, R], signature: Any, *, allocates: bool) -> None:
        """Hold the function; nothing is compiled yet."""
        functools.update_wrapper(self, function)
        self.py_func = function
        self._signature = signature
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
        dispatcher = counted(error_model="numpy")(self.py_func)
        # Where neither the installation nor the user's cache can be written, it has to do without.
        with contextlib.suppress(RuntimeError):
            dispatcher.enable_caching()
        with event.install_listener("numba:compile", _OnCompile(self.py_func.__name__)):
            dispatcher.compile(self._signature or _signature_of(self.py_func))
        dispatcher.disable_compile()
        compiled: Callable[P, R] = dispatcher
        self._compiled = compiled
        return compiled


_imported: list[Kernel[Any, Any]] = []


def compile_imported() -> None:
    """Compile the kernels of all modules that are imported, for processes that are to come."""
    for each in _imported:
        each.compile()


def _signature_of(function: Callable[..., Any]) -> Any:
    """Return the signature that the annotations of a function say."""
    hints = get_type_hints(function, include_extras=True)
    del hints["return"]
    types = (
        _NUMBERS[hint] if hint in _NUMBERS else hint.__metadata__[0] for hint in hints.values()
    )
    return void(*types)


def kernel(
    signature: Any = None, *, allocates: bool = True
) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Make a function a kernel, of this signature or of that which its annotations say.

    It returns nothing and fills its `out` arrays. One that allocates no array of its own can say
    so: then no references to arrays are counted, at every view of one, which is a fifth of the
    time of a kernel that makes many.
    """
    return lambda function: Kernel(function, signature, allocates=allocates)


def scalar(function: Callable[P, R]) -> Callable[P, R]:
    """Let kernels of the same file call this function; from Python it is a plain function."""
    compiled: Callable[P, R] = numba.extending.register_jitable(function)
    return compiled
