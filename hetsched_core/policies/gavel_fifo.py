"""Gavel_FIFO: first in, first out, on the fastest GPU type that is idle.

Source: the rival of that name in Hare's evaluations (HPDC '22, section 7.1; TCC 2024, section
VI-A): jobs in the order of arrival, each on the fastest available GPUs; if too few are idle, it
waits. After the FIFO policy of Gavel (Narayanan et al., OSDI '20, section 4.2).

It knows speeds by GPU type, and no sizes.

Deviations. Gavel's own FIFO is a linear programme solved every round; this is what it comes to when
no job is stopped. While the first in line waits, so do all behind it, where `fifo` lets
others use types that it cannot use. Jobs are rigid: the lower median of the requirement set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched_core.placement.one_type import serve_line
from hetsched_core.placement.pack import fastest_fit
from hetsched_core.policy import PolicyInfo
from hetsched_core.types import Plan, Snapshot


@dataclass(frozen=True)
class GavelFifo:
    """Serve one line, each job on the fastest idle GPUs of one type."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="gavel-fifo",
        summary="one line by submission, no preemption, fastest idle GPU type that fits",
        paper="Gavel (Narayanan et al., OSDI '20) as in Hare (HPDC '22, section 7.1)",
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Keep what runs; start what is first."""
        return serve_line(snapshot, fastest_fit)
