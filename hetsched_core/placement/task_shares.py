"""CPUs and memory beside GPUs on which tasks of many jobs take turns.

A sequence of tasks may be of any job, so that each GPU gets a share of its host that holds
whatever runs there: all GPUs an equal one, but that a job too hungry for any equal share has one
GPU reserved for it, as far as the host's other GPUs can give way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched_core.placement.free import host_room
from hetsched_core.placement.task_gpus import Gpu
from hetsched_core.types import SLACK, Job, Snapshot

Floats = NDArray[np.float64]


@dataclass(slots=True)
class _Host:
    """What a host has, which of the GPUs are its own, and what some of them have reserved."""

    has: Floats
    gpus: list[int]
    reserved: dict[int, Floats]

    def equal_share(self) -> Floats:
        """(2,) CPUs and MiB of each GPU that has nothing reserved."""
        rest = self.has - sum(self.reserved.values(), np.zeros(2))
        others = len(self.gpus) - len(self.reserved)
        with np.errstate(invalid="ignore"):
            return np.maximum(rest, 0.0) / others if others else np.zeros(2)

    def reserve(self, gpu: int, needs: Floats) -> bool:
        """Reserve for a GPU what a job needs, and what it had before; False if there is none."""
        wanted = {**self.reserved, gpu: np.maximum(needs, self.reserved.get(gpu, 0.0))}
        if np.any(sum(wanted.values(), np.zeros(2)) > self.has + SLACK):
            return False
        self.reserved = wanted
        return True


def runs_beside(
    snapshot: Snapshot,
    gpus: Sequence[Gpu],
    jobs: Sequence[Job],
    accepts: Callable[[Job, str], bool],
) -> NDArray[np.bool_]:
    """Return which jobs' tasks may take turns on which GPUs, whatever else runs then.

    Args:
        snapshot: the nodes as they stand.
        gpus: the M GPUs that take tasks.
        jobs: the N jobs, those that are to be served first in front.
        accepts: whether a job runs on GPUs of a node, CPUs and memory aside.

    Returns:
        (N, M); a row without True is of a job that cannot be served along with those before it.
    """
    hosts = _hosts(snapshot, gpus)
    host_of = [snapshot.cluster[gpu.node].host for gpu in gpus]
    able = np.array([[accepts(job, gpu.node) for gpu in gpus] for job in jobs], np.bool_)
    able = able.reshape(len(jobs), len(gpus))
    needs = np.array([(j.cpus_per_gpu, j.memory_mb_per_gpu) for j in jobs]).reshape(-1, 2)
    for n in range(len(jobs)):
        if needs[n].any() and not (able[n] & _fits(hosts, host_of, needs[n])).any():
            for m in np.flatnonzero(able[n]).tolist():
                if hosts[host_of[m]].reserve(m, needs[n]):
                    break
    for n in range(len(jobs)):
        if needs[n].any():
            able[n] &= _fits(hosts, host_of, needs[n])
    return able


def _fits(hosts: dict[str, _Host], host_of: Sequence[str], needs: Floats) -> NDArray[np.bool_]:
    """(M,) whether each GPU's share holds what a job needs."""
    fits = np.zeros(len(host_of), np.bool_)
    for host in hosts.values():
        share = host.equal_share()
        for m in host.gpus:
            fits[m] = bool(np.all(needs <= host.reserved.get(m, share) + SLACK))
    return fits


def _hosts(snapshot: Snapshot, gpus: Sequence[Gpu]) -> dict[str, _Host]:
    cpus, memory_mb = host_room(snapshot.cluster, snapshot.node_views())
    hosts: dict[str, _Host] = {}
    for m, gpu in enumerate(gpus):
        name = snapshot.cluster[gpu.node].host
        if name not in hosts:
            hosts[name] = _Host(np.array([cpus[name], memory_mb[name]]), [], {})
        hosts[name].gpus.append(m)
    return hosts
