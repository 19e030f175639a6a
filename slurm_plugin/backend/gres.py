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

_DOWN = frozenset(
    {"DOWN", "FAIL", "FAILING", "NOT_RESPONDING", "POWERED_DOWN", "UNKNOWN", "FUTURE"}
)
# A node that is only reserved is open to what is placed in the reservation.
_CLOSED = frozenset({"DRAIN", "DRAINED", "DRAINING", "MAINTENANCE", "MAINT"})


def gpu_counts(text: str) -> tuple[tuple[str, int], ...]:
    """Read `gpu:v100:8(S:0-1)` or `gres/gpu:v100=5` into (type, count) pairs, sorted by type."""
    counts: Counter[str] = Counter()
    for gpu_type, count in _GPU.findall(text):
        counts[gpu_type or UNTYPED] += int(count)
    return tuple(sorted(counts.items()))


@lru_cache(maxsize=4096)
def gpus_in(text: str) -> tuple[int, tuple[str, ...]]:
    """Read `cpu=8,gres/gpu=4,gres/gpu:a100=4` into how many GPUs in all, and of which types."""
    counts = dict(gpu_counts(text))
    in_all = counts.pop(UNTYPED, 0)
    return in_all or sum(counts.values()), tuple(counts)


_MEMORY = re.compile(r"(?:^|,)mem=(\d+(?:\.\d+)?)([KMGTP]?)")
_IN_MB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


@lru_cache(maxsize=4096)
def memory_mb_in(text: str) -> int:
    """Read the MiB of `cpu=8,mem=4G,gres/gpu=4`; 0 for none."""
    found = _MEMORY.search(text)
    return 0 if found is None else math.ceil(float(found[1]) * _IN_MB[found[2]])


def gpus_per_node(count: int, gpu_type: str) -> str:
    """Write such a request, without Slurm's prefix for generic resources."""
    return f"gpu:{gpu_type}:{count}" if gpu_type else f"gpu:{count}"


@lru_cache(maxsize=65536)
def node_names(text: str | None) -> tuple[str, ...]:
    """Expand a list such as `n[1,4]` into sorted names; one of nothing but commas is empty."""
    named = (text or "").strip(",")
    return tuple(sorted(NodeSet(named))) if named else ()


def condition(words: Collection[str]) -> NodeCondition:
    """Return what Slurm's state words of a node mean for a scheduler.

    A trailing `*` is Slurm's sign for a node that does not answer.
    """
    plain = {word.strip().rstrip("*~#!%$@^-").upper() for word in words}
    if any(word.strip().endswith("*") for word in words) or plain & _DOWN:
        return NodeCondition.DOWN
    return NodeCondition.DRAINED if plain & _CLOSED else NodeCondition.UP
