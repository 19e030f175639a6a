"""Policies that make no valid plan, or cannot run live, on a fake Slurm."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from io import StringIO
from typing import ClassVar

import pytest
from immutables import Map

from hetsched_core.errors import InputError
from hetsched_core.policy import Policy, PolicyInfo
from hetsched_core.types import (
    EMPTY_PLAN,
    Configuration,
    Entry,
    ExecutionModel,
    JobView,
    Placed,
    Placement,
    Plan,
    Reason,
    ReasonCode,
    Snapshot,
    Waiting,
)
from slurm_plugin.backend import Enter, Hold
from slurm_plugin.daemon.configuration import LogForm
from slurm_plugin.daemon.log import open_log, tell
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    WAITING,
    Clock,
    Evict,
    daemon_of,
    node,
    running,
    state,
)

OTHER = WAITING.mark.replace("a1", "b2")


@dataclass(frozen=True)
class Forgetful:
    """A policy that plans for nobody, which is no valid plan."""

    info: ClassVar[PolicyInfo] = PolicyInfo("forgetful", "", "")
    asked: list[float] = field(default_factory=list)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Forget all jobs."""
        self.asked.append(snapshot.now)
        return EMPTY_PLAN


def test_of_an_invalid_plan_with_no_valid_entry_the_cluster_stays_as_it_is() -> None:
    runs = running(replace(WAITING, id="2", mark=OTHER), "n0")
    backend, clock = FakeBackend(state(WAITING, runs)), Clock()
    daemon = daemon_of(backend, clock, Forgetful())
    report = daemon.cycle()
    assert len(report.violations) == 2
    assert daemon.plan.entries["1"] == refused("missing")
    assert isinstance(daemon.plan.entries["2"], Placed)
    assert backend.calls == []


@dataclass(frozen=True)
class SameNode:
    """A policy that places all jobs on the first node, in its own words."""

    info: ClassVar[PolicyInfo] = PolicyInfo("same-node", "", "")

    def plan(self, snapshot: Snapshot) -> Plan:
        """Give every job three GPUs of the first node, and that of user eve a node that is gone."""
        entries: dict[str, Entry] = {
            view.id: Placed((Placement(Configuration.of({self.node(view): 3})),))
            for view in snapshot.by_submission()
        }
        return Plan(Map(entries))

    @staticmethod
    def node(view: JobView) -> str:
        """Return where a job is to be."""
        return {"eve": "gone", "bob": "n1"}.get(view.job.user, "n0")


def test_the_valid_rest_of_an_invalid_plan_is_applied_and_the_rules_are_named_in_the_log() -> None:
    mark = 'hetsched/2 {"nonce":"%s","gpu-set":"3"}'
    jobs = [
        replace(WAITING, id=str(number), user=user, mark=mark % number, submit_s=900.0 + number)
        for number, user in enumerate(("ann", "eve", "ann", "bob"), 1)
    ]
    backend, clock = FakeBackend(state(*jobs, nodes=(node("n0"), node("n1")))), Clock()
    daemon = daemon_of(backend, clock, SameNode())
    report = daemon.cycle()
    placed = [(call.job, call.nodes) for call in backend.calls if isinstance(call, Enter)]
    assert placed == [("1", ("n0",)), ("4", ("n1",))]
    tell(open_log(LogForm.LOGFMT, out := StringIO()), report, daemon.plan, 1)
    first, second = (line for line in out.getvalue().splitlines() if "event=invalid_plan" in line)
    assert 'broke="unknown-node: job 2 on node gone"' in first
    assert "6 GPUs promised on n0, which has 4, too few for 3" in second
    # It is asked again soon, though nothing has happened.
    clock.now += 9
    assert daemon.cycle().decision is None
    clock.now += 1
    assert daemon.cycle().violations


def refused(rule: str) -> Waiting:
    return Waiting(Reason(ReasonCode.INVALID_PLAN, detail=rule))


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
