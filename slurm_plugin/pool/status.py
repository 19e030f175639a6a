"""What a pool is doing, by its files: for its user, whether its scheduler runs or not."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hetsched_core.errors import InputError
from slurm_plugin.pool.folder import FOLDERS, Pool
from slurm_plugin.pool.lock import scheduled
from slurm_plugin.pool.notes import notes
from slurm_plugin.pool.state import PoolState

NO_GPU = "no GPU serves the pool now: one takes a minute to start, else see the job's output"

REJECTED = "lines of outcomes were torn or of another form, and count nothing"

NEXT = 8
"""So many tasks of an order are told."""


@dataclass(frozen=True)
class TrainingStatus:
    """How far a training is: `state` is waiting, running, done or failed, with why.

    It is unreadable where the training has ended and its result is damaged.
    """

    name: str
    group: str
    state: str
    rounds: int
    of: int
    loss: float | None
    submit_s: float
    why: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


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
    """A pool: its policy, whether it is scheduled now, its trainings and GPUs.

    It is `stopped` once it is to end, and `ended` once it has. `problems` are what stands in its
    way, and what its scheduler said last.
    """

    policy: str
    scheduled: bool
    stopped: bool
    ended: bool
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
    found = (_training(pool, state, name) for name in pool.names("trainings"))
    runs = scheduled(pool.path)
    return PoolStatus(
        policy=pool.record().policy,
        scheduled=runs,
        stopped=pool.stopped,
        ended=pool.stopped and not runs and not state.stations,
        trainings=tuple(sorted(filter(None, found), key=lambda each: (each.submit_s, each.name))),
        members=tuple(_member(pool, state, id_) for id_ in sorted(state.stations)),
        problems=(
            *state.problems.values(),
            *([f"{state.rejected} {REJECTED}"] if state.rejected else []),
            *_closed(pool),
            *([NO_GPU] if runs and not state.stations else []),
            *notes(pool.path),
        ),
    )


def _closed(pool: Pool) -> Iterator[str]:
    """Yield which of the pool's folders cannot be written, without which it stands still."""
    for path in (pool.path, *(pool.path / name for name in FOLDERS)):
        if not os.access(path, os.W_OK | os.X_OK):
            yield f"{path} cannot be written: see its owner, its mode and the room on its disk"


def _training(pool: Pool, state: PoolState, name: str) -> TrainingStatus | None:
    standing, result = state.active.get(name), pool.result(name)
    if standing is not None:
        training, losses, rounds, why = standing.training, standing.loss(), standing.rounds, ""
        word = "running" if state.runs(name) else "waiting"
    elif name in state.unreadable:
        return TrainingStatus(name, "", "failed", 0, 0, None, state.now_s, state.unreadable[name])
    elif result is not None:
        losses, rounds, why = result.losses, result.rounds, result.failed
        word = "failed" if why else "done"
        try:
            training = pool.training(name)
        except (OSError, InputError):
            return TrainingStatus(name, "", word, rounds, 0, None, result.submit_s, why)
    elif name in state.ended:
        return _of_damaged_result(pool, state, name)
    else:
        return None
    return TrainingStatus(
        *(name, training.group, word, rounds, training.rounds, losses[-1] if losses else None),
        *(training.submit_s, why, training.arguments),
    )


def _of_damaged_result(pool: Pool, state: PoolState, name: str) -> TrainingStatus:
    try:
        pool.end_of(name)
        why = "its result cannot be read just now"
    except (OSError, InputError) as error:
        why = str(error)
    return TrainingStatus(name, "", "unreadable", 0, 0, None, state.now_s, why)


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
