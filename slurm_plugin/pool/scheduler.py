"""The loop of a pool's scheduler: observe, plan where the plan in force wants it, hand out orders.

All that it knows is in the pool's folder, so it may be killed at any time: members go on with the
orders that they have, and the next scheduler goes on from there. What a policy remembers is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from hetsched_core.errors import InputError
from hetsched_core.policy import Planner, Policy, parameters_of, policy_names, policy_type
from hetsched_core.types import EMPTY_PLAN, ExecutionModel
from slurm_plugin.pool.folder import Pool
from slurm_plugin.pool.lock import lock_file
from slurm_plugin.pool.orders import assign, hand_out
from slurm_plugin.pool.snapshot import Showing
from slurm_plugin.pool.state import PoolState

POLL_S = 0.02
"""How often the pool's files are looked at while a GPU runs a task."""

IDLE_S = 0.2
"""How often at the least while none does."""

GROWTH = 1.1
"""Of the pause until then, so that nothing waits for longer than a tenth of what it has waited."""

EACH_GPU = "1000"
"""So many groups of GPUs, or as many as there are GPUs."""

LOCK_S = 1.0
"""How often the scheduler looks whether its lock is there."""

LONGEST_PAUSE_S = 5.0
"""Until the next look, while the file system is away."""


class Scheduler:
    """The scheduler of one pool.

    Attributes:
        state: what it knows of the pool.
        plans: how many plans it has made.
    """

    def __init__(
        self,
        pool: Pool,
        policy: Policy,
        say: Callable[[str], object] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Plan by this policy; `say` is told what goes wrong, `clock` gives seconds UTC.

        Raises:
            InputError: the policy schedules no tasks.
        """
        check_policy(policy)
        self.state = PoolState(pool, clock)
        self.plans = 0
        self._say = say
        self._showing = Showing(self.state, policy.info.knows)
        self._planner = Planner(policy, time.perf_counter)
        self._said: set[str] = set()

    def step(self) -> None:
        """Look at the pool once, and do what is to be done."""
        state, showing = self.state, self._showing
        self._look()
        hand_out(state)
        showing.look(state.now_s)
        if showing.cluster is not None and showing.jobs and self._planner.due(showing):
            self._plan()
            hand_out(state)

    def _look(self) -> None:
        """Take note of what has happened, and end the trainings that are done or have failed."""
        state = self.state
        state.observe()
        for name, result in state.close():
            state.pool.end(name, result)
        while state.dead:
            state.pool.forget(state.dead.pop())
        idle = state.ended and not state.active and state.pool.stops_when_done
        # One that cannot be read just now is not done.
        if idle and state.all_ended():
            state.pool.stop()
        for problem in set(state.problems.values()) - self._said:
            self._said.add(problem)
            self._say(problem)

    def run(self, told_to_stop: Callable[[], bool] = lambda: False) -> None:
        """Go on until the pool has ended, or this scheduler is told to.

        Members finish their tasks before they leave, with which trainings may be done.

        Raises:
            InputError: the file of its lock was removed or replaced, so that another scheduler may
                run beside it.
        """
        pause_s, away = POLL_S, False
        lock, looked_s = lock_file(self.state.pool.path), time.monotonic()
        while not told_to_stop():
            if lock is not None and time.monotonic() >= looked_s + LOCK_S:
                looked_s = time.monotonic()
                self._check_lock(lock)
            try:
                if not self.state.pool.stopped:
                    self.step()
                else:
                    self._look()
                    if not self.state.stations:
                        return
                busy = any(station.running for station in self.state.stations.values())
                pause_s = POLL_S if busy else min(IDLE_S, GROWTH * pause_s)
                away = False
            except (OSError, InputError) as error:
                # All that is left undone is found in the folder again.
                if not away:
                    self._say(f"the pool's files: {error}; they are tried again")
                pause_s, away = min(LONGEST_PAUSE_S, 2.0 * pause_s), True
            time.sleep(pause_s)

    def _check_lock(self, lock: int) -> None:
        path = self.state.pool.path
        with suppress(OSError):
            if lock_file(path) != lock:
                raise InputError(
                    f"{path}/scheduler.lock is not the file that this scheduler has locked: it was "
                    "removed, and another scheduler may run; this one ends"
                )

    def _plan(self) -> None:
        planner, showing = self._planner, self._showing
        answer = planner.ask(showing.snapshot(self.state.now_s, planner.plan))
        self.plans += 1
        showing.planned()
        if answer.violations:
            # What was ordered before goes on; the policy begins afresh when something happens.
            planner.plan = EMPTY_PLAN
            self._say(f"a plan was not used: {answer.violations[0]}")
            return
        planner.plan = answer.plan
        assign(self.state, answer.plan)


def check_policy(policy: Policy) -> None:
    """Refuse a policy that schedules no tasks.

    Raises:
        InputError: says which do.
    """
    info = policy.info
    if info.model is not ExecutionModel.TASKS:
        raise InputError(
            f"policy {info.name!r} places whole jobs, and a pool runs tasks; valid: "
            f"{', '.join(pool_policies())}"
        )


def with_defaults(policy: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a pool's policy: those given, and what a pool sets otherwise.

    HLAS serves one training a group of GPUs at a time, so that of trainings of one task a round
    only one GPU of a group has any. Rounds of more tasks go to several groups of one GPU.
    """
    names = {each.name for each in parameters_of(policy_type(policy))}
    return {**({"groups": EACH_GPU} if "groups" in names else {}), **given}


def pool_policies() -> list[str]:
    """Return the names of the policies that a pool can have."""
    return [n for n in policy_names() if policy_type(n).info.model is ExecutionModel.TASKS]
