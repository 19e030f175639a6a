"""A plan of tasks as orders of the members: each gets the numbers of its tasks one after another.

A plan says how many tasks of a round a GPU runs, not which. They are numbered as they are needed,
so that nothing is done for the far end of a plan that will be replaced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from hetsched_core.types import Plan, TaskSequence
from slurm_plugin.pool.state import PoolState
from slurm_plugin.pool.station import Station, Task

AHEAD = 64
"""So many tasks stand in an order; more are added once half of them have begun."""


class _Numbers:
    """Gives each task of a round to one member."""

    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._left: dict[tuple[str, int], deque[int]] = {}

    def next(self, name: str, round_: int) -> int | None:
        if (name, round_) not in self._left:
            standing = self._state.active.get(name)
            taken = {task[2] for task in self._running() if task[:2] == (name, round_)}
            if standing is None:
                free: list[int] = []
            else:
                taken |= standing.done(round_)
                free = [k for k in range(standing.training.scale) if k not in taken]
            self._left[name, round_] = deque(free)
        left = self._left[name, round_]
        return left.popleft() if left else None

    def _running(self) -> list[Task]:
        return [s.running for s in self._state.stations.values() if s.running]


def assign(state: PoolState, plan: Plan) -> None:
    """Replace what all members are to run after their present task by what a plan says."""
    numbers = _Numbers(state)
    by_member = {sequence.node: sequence for sequence in plan.sequences}
    for id_, station in state.stations.items():
        before, station.todo = station.todo, deque()
        sequence = by_member.get(id_)
        station.rest = _tasks(sequence, numbers) if sequence is not None else iter(())
        _fill(station)
        station.dirty = station.dirty or before != station.todo


def hand_out(state: PoolState) -> None:
    """Give each idle member its next task, and write the orders that have changed.

    From here on what was given counts as running: the member begins it within a fifth of a second,
    and nothing may be planned for it, nor the task for another one.
    """
    for id_, station in state.stations.items():
        while station.todo and state.stale(station.todo[0]):
            station.todo.popleft()
        if station.given and station.running and state.stale(station.running):
            station.running, station.given, station.dirty = None, False, True
        if station.running is None and station.todo and state.open(station.todo[0]):
            station.running, station.given = station.todo.popleft(), True
            station.since_s = state.now_s
        if len(station.todo) < AHEAD // 2:
            length = len(station.todo)
            _fill(station)
            station.dirty = station.dirty or len(station.todo) > length
        if station.dirty:
            first = [station.running] if station.running and station.given else []
            state.pool.order(id_, state.begun[id_], [*first, *station.todo])
            station.dirty = False


def _fill(station: Station) -> None:
    station.todo.extend(islice(station.rest, AHEAD - len(station.todo)))


def _tasks(sequence: TaskSequence, numbers: _Numbers) -> Iterator[Task]:
    for block in sequence.blocks:
        for repetition in range(block.times):
            for item in block.items:
                round_ = item.training_round + repetition
                for _ in range(item.tasks):
                    number = numbers.next(item.job, round_)
                    if number is not None:
                        yield item.job, round_, number
