"""What a pool is doing, by its files: for its user, whether its scheduler runs or not."""

from __future__ import annotations

import time
from dataclasses import dataclass

from slurm_plugin.pool.folder import Pool
from slurm_plugin.pool.lock import scheduled
from slurm_plugin.pool.state import PoolState

NEXT = 8
"""So many tasks of an order are told."""


@dataclass(frozen=True)
class TrainingStatus:
    """How far a training is: `state` is waiting, running, done or failed, with why."""

    name: str
    group: str
    state: str
    rounds: int
    of: int
    loss: float | None
    submit_s: float
    why: str = ""


@dataclass(frozen=True)
class MemberStatus:
    """A GPU of the pool: what it runs, what comes then, and the share of its time in training."""

    id: str
    node: str
    device: str
    gpu_type: str
    runs: str
    next: tuple[str, ...]
    tasks: int
    used: float


@dataclass(frozen=True)
class PoolStatus:
    """A pool: its policy, whether it is scheduled now, its trainings and GPUs."""

    policy: str
    scheduled: bool
    stopped: bool
    trainings: tuple[TrainingStatus, ...]
    members: tuple[MemberStatus, ...]
    problems: tuple[str, ...]


def status(pool: Pool) -> PoolStatus:
    """Return what a pool is doing.

    Raises:
        InputError: it is none.
    """
    state = PoolState(pool, time.time)
    state.observe()
    found = []
    for name in sorted(pool.names("trainings")):
        result, standing = pool.result(name), state.active.get(name)
        if standing is not None:
            training, losses = standing.training, standing.loss()
            running = bool(state.runs(name))
            word, why, rounds = "running" if running else "waiting", "", standing.rounds
        elif result is not None:
            training, losses = pool.training(name), result.losses
            word, why = "failed" if result.failed else "done", result.failed
            rounds = result.rounds
        else:
            continue
        loss = losses[-1] if losses else None
        found.append(
            TrainingStatus(
                *(name, training.group, word, rounds, training.rounds, loss),
                *(training.submit_s, why),
            )
        )
    return PoolStatus(
        policy=pool.record().policy,
        scheduled=scheduled(pool.path),
        stopped=pool.stopped,
        trainings=tuple(sorted(found, key=lambda each: (each.submit_s, each.name))),
        members=tuple(_member(pool, state, id_) for id_ in sorted(state.stations)),
        problems=tuple(state.problems.values()),
    )


def _member(pool: Pool, state: PoolState, id_: str) -> MemberStatus:
    station = state.stations[id_]
    member = station.member
    ahead = [t for t in pool.ordered(id_) if t != station.running and not state.stale(t)]
    for_s = max(1e-9, state.now_s - member.since_s)
    return MemberStatus(
        *(id_, member.node, member.device, member.gpu_type),
        runs="{} {} {}".format(*station.running) if station.running else "",
        next=tuple("{} {} {}".format(*task) for task in ahead[:NEXT]),
        tasks=state.begun[id_],
        used=min(1.0, station.busy_s / for_s),
    )
