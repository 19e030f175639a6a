"""Whose models stay on a device: speculative memory management.

Source: Hare, HPDC '22, section 4: what comes next has priority, and models are kept greedily until
they cannot be accommodated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def kept(
    ahead: Iterable[str], sizes: Mapping[str, int], working: int | None, limit: int | None
) -> list[str]:
    """Return the jobs whose models may be on the device while the first of them runs.

    Args:
        ahead: jobs in the order of their tasks, the running one first; it may name one often.
        sizes: bytes of each job's model; a job that is missing is not kept.
        working: bytes that the running task takes beside its model; None if that is not known, and
            then nothing else is kept.
        limit: bytes of all together; None for no limit.

    Returns:
        The running job and those that fit beside it, the next first; nothing if it alone does not
        fit.
    """
    order = list(dict.fromkeys(ahead))
    if limit is None:
        return [job for job in order if job in sizes]
    left = limit - (working or 0)
    found: list[str] = []
    for at, job in enumerate(order):
        if job not in sizes or sizes[job] > left:
            if at == 0:
                return []
            continue
        found.append(job)
        left -= sizes[job]
        if working is None:
            break
    return found
