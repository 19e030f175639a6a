"""Slurm's texts for GPUs, nodes and their states."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection
from functools import lru_cache

from ClusterShell.NodeSet import NodeSet

from hetsched_core.types import NodeCondition

UNTYPED = "gpu"
"""The type of GPUs whose site gave them none."""

_GPU = re.compile(r"(?:^|,)(?:gres[/:])?gpu(?::([^:=(,]+)(?=[:=]\d))?[:=](\d+)")

_DOWN = frozenset({"DOWN", "FAIL", "FAILING", "UNKNOWN", "FUTURE"})
_TO_POWER_DOWN = frozenset({"POWER_DOWN", "POWERING_DOWN"})
"""Slurm starts nothing on a node that is on its way down; one that is `POWERED_DOWN` it wakes."""

_CLOSED = _TO_POWER_DOWN | {"DRAIN", "DRAINED", "DRAINING", "MAINTENANCE", "MAINT"}
_POWER_SAVING = _TO_POWER_DOWN | {"POWERING_UP", "POWER_UP", "POWERED_DOWN"}


def gpu_counts(text: str) -> tuple[tuple[str, int], ...]:
    """Read `gpu:v100:8(S:0-1)` or `gres/gpu:v100=5` into (type, count) pairs, sorted by type.

    Types of which there are none are left out.
    """
    counts: Counter[str] = Counter()
    for gpu_type, count in _GPU.findall(text):
        counts[gpu_type or UNTYPED] += int(count)
    return tuple(sorted(each for each in counts.items() if each[1]))


SHARES = ("shard", "mps")
"""What Slurm calls shares of a GPU; a GPU is given as a whole or in shares."""

_SHARED = re.compile(rf"(?:^|,)(?:{'|'.join(SHARES)})(?::([^:(,]+))?:\d+\(([-\d/,]+)\)")


def gpus_in_use(text: str) -> tuple[tuple[str, int], ...]:
    """Read `gpu:a100:1(IDX:2),shard:a100:6(4/4,2/4,-/4,0/4)` into (type, count) pairs: 3 GPUs.

    A GPU counts once a share of it is in use; `-` stands for one that is given as a whole.
    """
    counts = Counter(dict(gpu_counts(text)))
    for gpu_type, shares in _SHARED.findall(text):
        used = (share.partition("/")[0] for share in shares.split(","))
        counts[gpu_type or UNTYPED] += sum(share not in ("-", "0") for share in used)
    return tuple(sorted(each for each in counts.items() if each[1]))


@lru_cache(maxsize=4096)
def gpus_in(text: str) -> tuple[int, tuple[str, ...]]:
    """Read `cpu=8,gres/gpu=4,gres/gpu:a100=4` into how many GPUs in all, and of which types."""
    counts = dict(gpu_counts(text))
    in_all = counts.pop(UNTYPED, 0)
    typed = sum(counts.values())
    # Of a type that accounting does not track there is no count.
    return in_all or typed, tuple(counts) if typed >= in_all else ()


_MEMORY = re.compile(r"(?:^|,)mem=(\d+(?:\.\d+)?)([KMGTP]?)")
_IN_MB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


@lru_cache(maxsize=4096)
def memory_mb_in(text: str) -> int:
    """Read the MiB of `cpu=8,mem=4G,gres/gpu=4`; 0 for none."""
    found = _MEMORY.search(text)
    return 0 if found is None else math.ceil(float(found[1]) * _IN_MB[found[2]])


def gpus_per_node(count: int, gpu_type: str) -> str:
    """Write so many GPUs of a type, "" for any, as Slurm does."""
    return f"gres/gpu:{gpu_type}:{count}" if gpu_type else f"gres/gpu:{count}"


@lru_cache(maxsize=65536)
def node_names(text: str | None) -> tuple[str, ...]:
    """Expand a list such as `n[1,4]` into sorted names; one of nothing but commas is empty."""
    named = (text or "").strip(",")
    return tuple(sorted(NodeSet(named))) if named else ()


@lru_cache(maxsize=4096)
def gpu_part(text: str | None) -> str:
    """Return what a text such as `cpu=3,gres/gpu:1` says of GPUs, in the form `gres/gpu:1`."""
    pieces = (text or "").split(",")
    return ",".join(
        piece.replace("=", ":") for piece in pieces if piece.startswith(("gres/gpu", "gres:gpu"))
    )


_OTHER = re.compile(r"(?:^|,)(?:gres[/:])?(\w+)(?:[:=]([^,(]*))?")


@lru_cache(maxsize=4096)
def other_gres(text: str | None) -> tuple[tuple[str, int], ...]:
    """Read what a text such as `gres/gpu:1,gres/fpga:xc:2` says of others than GPUs: name, count.

    A count in thousands or more (`4K`), or without a number, is 1.
    """
    counts: Counter[str] = Counter()
    for name, rest in _OTHER.findall(re.sub(r"\([^)]*\)", "", text or "")):
        if name not in ("gpu", *SHARES, "license", "cpu", "mem", "node", "billing", "energy"):
            last = rest.rpartition(":")[2]
            counts[name] += int(last) if last.isdecimal() else 1
    return tuple(sorted(counts.items()))


@lru_cache(maxsize=4096)
def licenses_in(text: str | None) -> tuple[tuple[str, int], ...]:
    """Read the licences of a job, such as `cad:2,fem@db:1`; () where any of several will do."""
    found = re.findall(r"([^,;:|]+)(?::(\d+))?", text or "")
    return () if "|" in (text or "") else tuple(sorted((name, int(n or 1)) for name, n in found))


NO_LIMIT = 1_000_000
"""The most nodes of a job without a limit: Slurm has no way to take a limit away again."""


@lru_cache(maxsize=4096)
def node_range(
    count: int, most: int, cpus: int, tasks: int, tasks_per_node: int
) -> tuple[int, int]:
    """Return the least and the most nodes of a job, 0 for no most.

    It has a CPU on each, at least: Slurm's `count` takes no heed of `--overcommit`. CPUs, though,
    are told as one where the user named nodes alone; there are as many tasks as least nodes then.

    Without a most, Slurm's `count` is where it thinks that the job might run, not what it needs. So
    it is under `--spread-job` once Slurm has looked for nodes: all that the job might have.
    """
    if 0 < most < NO_LIMIT:
        return min(count, most, max(1, cpus, count if tasks == count else 0)), most
    return (math.ceil(tasks / tasks_per_node) if tasks_per_node else 1), 0


def condition(words: Collection[str]) -> NodeCondition:
    """Return what Slurm's state words of a node mean for a scheduler.

    A trailing `*` is Slurm's sign for a node that does not answer, as none does that is powered
    down. One that comes up for no job may never come: it is used once it is up.
    """
    plain = _plain(words)
    silent = "NOT_RESPONDING" in plain or any(word.strip().endswith("*") for word in words)
    if plain & _DOWN or (silent and not plain & _POWER_SAVING):
        return NodeCondition.DOWN
    closed = plain & _CLOSED or {"IDLE", "POWERING_UP"} <= plain
    return NodeCondition.DRAINED if closed else NodeCondition.UP


def is_asleep(words: Collection[str]) -> bool:
    """Whether a node is powered down, or not yet up again: a job would have to wait for it."""
    return not _plain(words).isdisjoint({"POWERED_DOWN", "POWERING_UP"})


def _plain(words: Collection[str]) -> frozenset[str]:
    return frozenset(word.strip().rstrip("*~#!%$@^-+").upper() for word in words)
