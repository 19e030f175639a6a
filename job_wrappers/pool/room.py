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


def most_processes(each: Footprint, host_free: int) -> int:
    """Return how many processes there is room for.

    Args:
        each: what one of them takes.
        host_free: bytes of the host that this GPU's may have.
    """
    room = [SHARE * host_free / each.host] if each.host else []
    if each.device:
        room.append(SHARE * each.device_total / each.device)
    return max(LEAST, int(min(room, default=LEAST)))


def host_free(root: Path = Path("/")) -> int:
    """Return the bytes that are left of the host's memory, and of what this job may have of it."""
    meminfo = (root / "proc/meminfo").read_text()
    found = [int(meminfo.partition("MemAvailable:")[2].split()[0]) << 10]
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers == "":
            top, limit, used = "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top, limit = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            used = "memory.usage_in_bytes"
        else:
            continue
        own = Path(place.lstrip("/"))
        for folder in (own, *own.parents):
            at = root / top / folder
            try:
                found.append(int((at / limit).read_text()) - int((at / used).read_text()))
            except (OSError, ValueError):  # no such control there, or no limit: "max"
                continue
    return max(0, min(found))
