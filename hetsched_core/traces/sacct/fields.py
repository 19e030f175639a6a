"""The values in sacct's columns, each read by one pure function.

    FieldError   a value that sacct does not write, or that cannot be understood for certain

A reader counts such a line as unusable; the error never leaves this package. Slurm's own code
(`src/sacct/print.c`, `src/common/parse_time.c`, `slurmdb_defs.c`) is what the forms come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct.allocation import GpuCounts, LoggedState
from hetsched_core.traces.sacct.report import Flaw

MAX_NODES = 65_536
"""Longest node list that is expanded; no Slurm cluster is near it."""

_MAX_VALUE = 4_096  # Characters of a TRES or duration: values that are cached must be bounded.
_QUOTED = 80


class FieldError(InputError):
    """A value that cannot be understood for certain."""

    def __init__(self, flaw: Flaw, message: str) -> None:
        super().__init__(message)
        self.flaw = flaw


def quote(text: str) -> str:
    """Return a value as a message shows it: quoted, and short."""
    return repr(text if len(text) <= _QUOTED else text[:_QUOTED] + "…")


# Job ids ------------------------------------------------------------------------------------------

_JOB_ID = re.compile(
    r"(?P<job>[0-9]{1,10})(?:_[0-9]{1,10}|_\[[^\]]*\]|\+[0-9]{1,10})?(?:\.(?P<step>[^|\s]+))?"
)


@dataclass(frozen=True, slots=True)
class JobId:
    """A displayed job id taken apart.

    Attributes:
        job: The number of the job, of the whole array, or of a heterogeneous job's first component.
        step: `batch` in `123.batch`; empty for the job itself.
    """

    job: int
    step: str


def parse_job_id(text: str) -> JobId:
    """Take a displayed job id apart.

    Raises:
        FieldError: It is none of `N`, `N_T`, `N_[T,...]`, `N+O`, with or without `.STEP`.
    """
    match = _JOB_ID.fullmatch(text)
    if match is None:
        raise FieldError(
            Flaw.JOB_ID,
            f"{quote(text)} is no job id such as 123, 123_4, 123_[5-9], 123+1 or 123.batch",
        )
    return JobId(int(match["job"]), match["step"] or "")


# States -------------------------------------------------------------------------------------------

_STATES = {str(state): state for state in LoggedState}
# What a state is combined with: JSON shows both, text only the flag.
_FLAGS = (
    LoggedState.COMPLETING,
    LoggedState.CONFIGURING,
    LoggedState.RESIZING,
    LoggedState.REQUEUED,
)


def parse_state(text: str) -> LoggedState:
    """Return the state; a word that Slurm did not have when this was written is UNKNOWN.

    Raises:
        FieldError: The word was cut to a column's width.
    """
    state = _STATES.get(text)
    if state is not None:
        return state
    if text.startswith("CANCELLED by "):
        return LoggedState.CANCELLED
    if text.endswith("+"):
        raise FieldError(
            Flaw.STATE,
            f"{quote(text)} is cut to the width of a column; export with sacct --parsable2",
        )
    return LoggedState.UNKNOWN


def combine_states(words: tuple[str, ...]) -> str:
    """Return the word that text output shows for the state and flags that JSON lists."""
    for flag in _FLAGS:
        if flag in words:
            return str(flag)
    return words[0] if words else ""


# Durations, numbers and memory --------------------------------------------------------------------

_DURATION = re.compile(
    r"(?:(?P<d>[0-9]{1,9})-)?(?:(?P<h>[0-9]{1,9}):)?(?P<m>[0-9]{1,9}):(?P<s>[0-9]{1,9}(?:\.[0-9]{1,9})?)"
)
_NOTHING = frozenset({"", "Unknown", "None", "INVALID", "UNLIMITED", "Partition_Limit"})


@lru_cache(maxsize=4_096)
def parse_duration(text: str) -> float | None:
    """Return the seconds of `[D-][HH:]MM:SS[.mmm]`; None where there is no such duration.

    Raises:
        FieldError: It is neither such a duration nor one of Slurm's words for none.
    """
    match = _DURATION.fullmatch(text)
    if match is not None:
        days, hours, minutes, seconds = match.groups("0")
        return (int(days) * 24 + int(hours)) * 3_600.0 + int(minutes) * 60 + float(seconds)
    if text in _NOTHING:
        return None
    raise FieldError(Flaw.DURATION, f"{quote(text)} is no duration of the form [D-][HH:]MM:SS")


_MOST_DIGITS = 18
"""Of a count; no clock of Slurm's gets so far."""


def parse_number(text: str) -> int | None:
    """Return a count; None where there is none.

    Raises:
        FieldError: It is not a number.
    """
    if text.isascii() and text.isdecimal():
        if len(text) > _MOST_DIGITS:
            raise FieldError(Flaw.NUMBER, f"{quote(text)} has more than {_MOST_DIGITS} digits")
        return int(text)
    if text in _NOTHING:
        return None
    raise FieldError(Flaw.NUMBER, f"{quote(text)} is no number")


_MEMORY = re.compile(r"(?P<size>[0-9]{1,15}(?:\.[0-9]{1,6})?)(?P<unit>[KMGTPE]?)(?P<per>[cn]?)")
_MIB = {"K": 2.0**-10, "": 1.0, "M": 1.0, "G": 2.0**10, "T": 2.0**20, "P": 2.0**30, "E": 2.0**40}
# Before 17.02 Slurm marked "per CPU" by this bit of a 32-bit number of MiB; newer versions show the
# marked number as it is, with an `n`.
_PER_CPU_BIT = 0x8000_0000


def parse_memory(text: str, cpus: int | None, nodes: int | None) -> float | None:
    """Return the MiB of a whole job that ReqMem asks for.

    `1000Mc` is per CPU, `2Gn` per node (before Slurm 21.08); without a letter it is for the job.
    None where it says nothing (empty, or 0: all that the nodes have), and where it is per CPU or
    node of an unknown number of them.

    Raises:
        FieldError: It is no amount of memory.
    """
    if text in ("", "0"):
        return None
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise FieldError(Flaw.MEMORY, f"{quote(text)} is no amount of memory such as 64G or 4000Mc")
    size, per = float(match["size"]) * _MIB[match["unit"]], match["per"]
    if per and _PER_CPU_BIT <= size < 2 * _PER_CPU_BIT:
        size, per = size - _PER_CPU_BIT, "c"
    if per:
        units = cpus if per == "c" else nodes
        return size * units if size and units else None
    return size or None


# TRES ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tres:
    """Trackable resources of a job: what it asked for or what it held, over all nodes.

    `part_of_gpu` is True where it held shards or MPS percentages and no whole GPU.
    """

    gpus: GpuCounts = ()
    cpus: int | None = None
    nodes: int | None = None
    memory_mb: float | None = None
    part_of_gpu: bool = False


def gpu_counts(typed: list[tuple[str, int]], total: int | None) -> GpuCounts:
    """Put together GPUs named by type and in all, which are the same GPUs.

    A total above the sum of the types leaves GPUs of a type that accounting does not track.

    Raises:
        FieldError: More GPUs are named by type than in all.
    """
    by_type: dict[str | None, int] = {}
    for name, count in typed:
        if count:
            by_type[name] = by_type.get(name, 0) + count
    named = sum(by_type.values())
    if total is not None and total != named:
        if total < named:
            raise FieldError(Flaw.TRES, f"{named} GPUs by type but {total} in all")
        by_type[None] = total - named
    return tuple(by_type.items())


_GRES_READ = ("gres/gpu:", "gres/shard", "gres/mps")
"""How the names of resources that are read begin, beside those that are read whole."""


@lru_cache(maxsize=2_048)
def parse_tres(text: str) -> Tres:
    """Read `billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1`.

    `gres/gpumem` and `gres/gpuutil` are no counts of GPUs.

    Raises:
        FieldError: It is no list of NAME=VALUE, or a count in it is none.
    """
    if not text:
        return Tres()
    if len(text) > _MAX_VALUE:
        raise FieldError(Flaw.TRES, f"{quote(text)} is too long for a list of resources")
    found: list[tuple[str, float | None]] = []
    for item in text.split(","):
        name, equals, value = item.rpartition("=")
        if not equals:
            raise FieldError(Flaw.TRES, f"{quote(item)} in {quote(text)} is not NAME=VALUE")
        try:
            if name == "mem":
                found.append((name, parse_memory(value, None, None)))
            elif name in ("cpu", "node", "gres/gpu") or name.startswith(_GRES_READ):
                found.append((name, parse_number(value)))
        except FieldError as error:
            raise FieldError(Flaw.TRES, f"{name} in {quote(text)}: {error}") from None
    return tres_of(found)


def tres_of(found: Iterable[tuple[str, float | None]]) -> Tres:
    """Put together the counts of resources, by the names that AllocTRES has for them.

    Raises:
        FieldError: More GPUs are named by type than in all.
    """
    typed: list[tuple[str, int]] = []
    counts: dict[str, float | None] = {}
    part = False
    for name, count in found:
        if name.startswith("gres/gpu:"):
            typed.append((name.removeprefix("gres/gpu:"), int(count or 0)))
        elif name.startswith(_GRES_READ):
            part = part or bool(count)
        else:
            counts[name] = count
    total, cpus, nodes = (_whole(counts.get(name)) for name in ("gres/gpu", "cpu", "node"))
    gpus = gpu_counts(typed, total)
    return Tres(gpus, cpus, nodes, counts.get("mem"), part_of_gpu=part and not gpus)


def _whole(count: float | None) -> int | None:
    return None if count is None else int(count)


def parse_gres(text: str) -> GpuCounts:
    """Read AllocGRES, the column before AllocTRES: `gpu:4`, `gpu:k80:4,craynetwork:1`, `gpu:0`.

    Raises:
        FieldError: A count of GPUs in it is none.
    """
    typed: list[tuple[str, int]] = []
    total: int | None = None
    for item in text.split(","):
        name, *parts = item.split(":")
        if name == "gpu" and parts:
            try:
                count = parse_number(parts[-1]) or 0
            except FieldError as error:
                raise FieldError(Flaw.TRES, f"{quote(item)} in {quote(text)}: {error}") from None
            if len(parts) > 1:
                typed.append((":".join(parts[:-1]), count))
            else:
                total = (total or 0) + count
    if typed and total is not None:
        total += sum(count for _, count in typed)
    return gpu_counts(typed, total)


# Nodes --------------------------------------------------------------------------------------------

NO_NODES = frozenset({"", "None assigned", "None", "(null)"})
_NODE_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_NODE_LIST = re.compile(
    r"(?:[A-Za-z0-9_.-]|\[[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*\]|,(?!$))+"
)
_RANGES = re.compile(r"\[([0-9,-]+)\]")


def expand_nodes(text: str) -> tuple[str, ...]:
    """Return the names in a node list such as `n[1-3,7],m0[01-12]`, sorted; none for no nodes.

    Raises:
        FieldError: It is no node list, or names more than `MAX_NODES` nodes.
    """
    if text in NO_NODES:
        return ()
    if _NODE_NAME.fullmatch(text):
        return (text,)
    if not _NODE_LIST.fullmatch(text):
        raise FieldError(Flaw.NODE_LIST, f"{quote(text)} is no node list such as n[1-3,7],m1")
    # Counted before they are expanded: a few characters can name a billion nodes.
    if sum(map(_count_nodes, re.split(r",(?![^\[]*\])", text))) > MAX_NODES:
        raise FieldError(Flaw.NODE_LIST, f"{quote(text)} names more than {MAX_NODES} nodes")
    try:
        # Without a resolver: a name must never be looked up among the groups of this machine.
        return tuple(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise FieldError(Flaw.NODE_LIST, f"{quote(text)}: {error}") from None


class NodeLists:
    """Expands node lists and keeps the short ones, which come again and again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}

    def expand(self, text: str) -> tuple[str, ...]:
        """Return `expand_nodes(text)`."""
        nodes = self._known.get(text)
        if nodes is None:
            nodes = expand_nodes(text)
            if len(text) + len(nodes) <= 256:
                if len(self._known) >= 8_192:
                    self._known.clear()
                self._known[text] = nodes
        return nodes


def _count_nodes(folded: str) -> int:
    """Return how many nodes one folded name such as `r[1-2]n[1-3]` stands for, or more."""
    sizes = []
    for ranges in _RANGES.findall(folded):
        size = 0
        for item in ranges.split(","):
            first, _, last = item.partition("-")
            if len(item) > 32:
                return MAX_NODES + 1
            size += abs(int(last or first) - int(first)) + 1
        sizes.append(size)
    return prod(sizes)
