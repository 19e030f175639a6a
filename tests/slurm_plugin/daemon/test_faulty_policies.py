"""Policies that make no valid plan, or cannot run live, on a fake Slurm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from hetsched_core.errors import InputError
from hetsched_core.policy import Policy, PolicyInfo
from hetsched_core.types import EMPTY_PLAN, ExecutionModel, Plan, Snapshot, Waiting
from slurm_plugin.backend import Hold
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import WAITING, Clock, Evict, daemon_of, state


@dataclass(frozen=True)
class Forgetful:
    """A policy that plans for nobody, which is no valid plan."""

    info: ClassVar[PolicyInfo] = PolicyInfo("forgetful", "", "")
    asked: list[float] = field(default_factory=list)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Forget all jobs."""
        self.asked.append(snapshot.now)
        return EMPTY_PLAN


def test_of_an_invalid_plan_only_what_breaks_no_rule_is_in_force() -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock, Forgetful())
    report = daemon.cycle()
    assert report.violations
    assert report.decision is not None
    assert {job: type(entry) for job, entry in daemon.plan.entries.items()} == {"1": Waiting}
    assert backend.calls == []


@dataclass(frozen=True)
class Failing(Forgetful):
    """A policy with a mistake in it."""

    info: ClassVar[PolicyInfo] = PolicyInfo("failing", "", "")

    def plan(self, snapshot: Snapshot) -> Plan:
        """Fail on whatever job comes first."""
        self.asked.append(snapshot.now)
        raise KeyError(next(iter(snapshot.jobs)))


@pytest.mark.parametrize(("policy", "says"), [(Failing(), "KeyError: '1'"), (Forgetful(), "1")])
def test_a_policy_that_makes_no_plan_is_asked_now_and_then_and_the_nodes_stay_held(
    policy: Forgetful, says: str
) -> None:
    backend, clock = FakeBackend(state(WAITING, reservations=())), Clock()
    daemon = daemon_of(backend, clock, policy)
    report = daemon.cycle()
    assert says in report.violations[0]
    assert backend.calls == [Hold("hetsched", ("n0",), 60)]
    backend.state = state(WAITING)
    for _ in range(20):
        clock.now += 1
        daemon.cycle()
    assert policy.asked == [1000.0, 1010.0, 1020.0]


@dataclass(frozen=True)
class Tasks(Evict):
    """A policy of another execution model."""

    info: ClassVar[PolicyInfo] = PolicyInfo("tasks", "", "", model=ExecutionModel.TASKS)


@dataclass(frozen=True)
class ReplayOnly(Evict):
    """A policy that cannot run live."""

    info: ClassVar[PolicyInfo] = PolicyInfo("past", "", "", replay_only="it knows the future")


@pytest.mark.parametrize(
    ("policy", "says"),
    [(Tasks(), "only gangs and copies run live"), (ReplayOnly(), "it knows the future")],
)
def test_a_policy_that_cannot_run_live_is_refused(policy: Policy, says: str) -> None:
    with pytest.raises(InputError, match=says):
        daemon_of(FakeBackend(), Clock(), policy)
