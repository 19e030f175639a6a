"""Policies that make no valid plan, or cannot run live, on a fake Slurm."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from io import StringIO
from typing import ClassVar

import pytest
from immutables import Map

from hetsched_core.errors import InputError
from hetsched_core.policy import PolicyInfo
from hetsched_core.types import (
    EMPTY_PLAN,
    Configuration,
    ExecutionModel,
    Placed,
    Placement,
    Plan,
    Reason,
    ReasonCode,
    Snapshot,
    Waiting,
)
from slurm_plugin.backend import Hold
from slurm_plugin.daemon.process.configuration import LogForm
from slurm_plugin.daemon.process.log import open_log, tell
from tests.slurm_plugin.daemon.fake_slurm import (
    WAITING,
    Evict,
    Site,
    held,
    node,
    places,
    running,
)


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
    runs = running(replace(WAITING, id="2", mark=WAITING.mark.replace("a1", "b2")), "n0")
    daemon = Site(WAITING, runs, policy=Forgetful()).daemon
    report = daemon.cycle()
    assert len(report.violations) == 2
    missing = Waiting(Reason(ReasonCode.INVALID_PLAN, detail="missing"))
    assert daemon.plan.entries["1"] == missing
    assert isinstance(daemon.plan.entries["2"], Placed)
    assert report.changes == ()


@dataclass(frozen=True)
class ByUser:
    """A policy that gives every job three GPUs of its user's node, which may be gone."""

    info: ClassVar[PolicyInfo] = PolicyInfo("by-user", "", "")

    def plan(self, snapshot: Snapshot) -> Plan:
        """Place all jobs."""
        nodes = {view.id: view.job.user for view in snapshot.by_submission()}
        where = {job: Configuration.of({name: 3}) for job, name in nodes.items()}
        return Plan(Map({job: Placed((Placement(at),)) for job, at in where.items()}))


def test_the_valid_rest_of_an_invalid_plan_is_applied_and_the_rules_are_named_in_the_log() -> None:
    mark = 'hetsched/2 {"nonce":"%s","gpu-set":"3"}'
    jobs = [
        replace(WAITING, id=str(number), user=user, mark=mark % number, submit_s=900.0 + number)
        for number, user in enumerate(("n0", "gone", "n0", "n1"), 1)
    ]
    site = Site(*jobs, nodes=(node("n0"), node("n1")), policy=ByUser())
    report = site.daemon.cycle()
    assert places(site.backend.calls) == {"1": ("n0",), "4": ("n1",)}
    tell(open_log(LogForm.LOGFMT, out := StringIO()), report, site.daemon.plan, 1)
    first, second = (line for line in out.getvalue().splitlines() if "event=invalid_plan" in line)
    assert 'broke="unknown-node: job 2 on node gone"' in first
    assert "6 GPUs promised on n0, which has 4, too few for 3" in second
    # It is asked again soon, though nothing has happened.
    site.cycle(9)
    assert site.report.decision is None
    site.clock.now += 1
    assert site.daemon.cycle().violations


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
    site = Site(WAITING, reservations=(), policy=policy)
    assert says in site.daemon.cycle().violations[0]
    assert site.backend.calls == [Hold("hetsched", ("n0",), 60)]
    site.show(WAITING, reservations=(held("n0"),))
    for _ in range(20):
        site.clock.now += 1
        site.daemon.cycle()
    assert policy.asked == [1000.0, 1010.0, 1020.0]


@pytest.mark.parametrize(
    ("info", "says"),
    [
        (PolicyInfo("tasks", "", "", model=ExecutionModel.TASKS), "only gangs and copies run live"),
        (PolicyInfo("past", "", "", replay_only="it knows the future"), "it knows the future"),
    ],
)
def test_a_policy_that_cannot_run_live_is_refused(
    info: PolicyInfo, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evict, "info", info)
    with pytest.raises(InputError, match=says):
        Site(policy=Evict())
