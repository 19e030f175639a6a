"""How many trainings may keep a process on a GPU: as many as there is memory for.

A process that has gone comes back by importing torch again, which takes longer than most tasks. So
none goes for want of anything but memory.
"""

from __future__ import annotations

from pathlib import Path

from job_wrappers.executor.footprint import Footprint

SHARE = 0.5
"""Of the memory; the rest is for models, batches, and the page cache."""

LEAST = 4

UNMEASURED = 16
"""Where no process has shown what one takes, or nothing says how much models may take."""


def most_processes(each: Footprint, host_free: int, limit: int | None = None) -> int:
    """Return how many processes there is room for.

    Args:
        each: what one of them takes.
        host_free: bytes of the host that this GPU's may have.
        limit: bytes of the GPU that models may fill; None where nothing keeps them from all of it.
    """
    room = [SHARE * host_free / each.host if each.host else UNMEASURED]
    if each.device_total:
        left = min(SHARE * each.device_total, each.device_total - (limit or 0))
        room.append(left / max(1, each.device))
        if limit is None:
            # All of them may keep a model there, of whatever size.
            room.append(UNMEASURED)
    return max(LEAST, int(min(room)))


def host_free(root: Path = Path("/")) -> int:
    """Return the bytes that are left of the host's memory, and of what this job may have of it."""
    meminfo = (root / "proc/meminfo").read_text()
    found = [int(meminfo.partition("MemAvailable:")[2].split()[0]) << 10]
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers == "":
            top, limit, used = "sys/fs/cgroup", "memory.max", "memory.current"
            cached = "inactive_file"
        elif "memory" in controllers.split(","):
            top, limit = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            used, cached = "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        own = Path(place.lstrip("/"))
        for folder in (own, *own.parents):
            at = root / top / folder
            try:
                left = int((at / limit).read_text()) - int((at / used).read_text())
            except (OSError, ValueError):  # no such control there, or no limit: "max"
                continue
            found.append(left + _inactive(at / "memory.stat", cached))
    return max(0, min(found))


def _inactive(stat: Path, name: str) -> int:
    """Return what counts as used and goes once anything wants it: files that were read."""
    try:
        return int(stat.read_text().partition(f"\n{name} ")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return 0
