"""What a process without a job takes of the memory of its host and its device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Footprint:
    """What a process without a job takes, in bytes.

    Attributes:
        host: of the host's memory; what it shares with others counts in parts.
        device: of the device's memory, 0 where that is the host's.
        device_total: what the device has.
    """

    host: int
    device: int = 0
    device_total: int = 0


def host_bytes(pid: int) -> int:
    """Return what a process takes of the host's memory; 0 where that cannot be told."""
    try:
        said = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(said.partition("\nPss:")[2].split()[0]) << 10
    except (OSError, IndexError, ValueError):
        return 0
