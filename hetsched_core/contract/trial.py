"""Run a policy through a scenario and keep everything it was shown and answered."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from hetsched_core.contract.scenario import Scenario
from hetsched_core.errors import PlanError
from hetsched_core.policy import Policy, PolicyInfo
from hetsched_core.records.runlog import RunEnd, RunLog, RunRecord
from hetsched_core.simulate import simulate
from hetsched_core.types import Entry, Placed, Plan, ProfilePlacement, Snapshot

MAX_DECISIONS = 2000
"""A policy that is still asked after so many plans moves its jobs about without getting on."""

ASKED_AGAIN = 20
"""Of how many decisions of a trial a contract asks the policy once more."""


class _EnoughError(Exception):
    """Raised out of a simulation that has shown what it was run for."""


class TooManyDecisionsError(Exception):
    """A trial did not come to an end."""


@dataclass(frozen=True, slots=True)
class TrialDecision:
    """One call of `plan`: what was shown, what came back, and what it changed in between."""

    snapshot: Snapshot
    plan: Plan
    mutation: str

    def __str__(self) -> str:
        """Return when and why the policy was asked."""
        return f"t={self.snapshot.now:.3f} s ({', '.join(sorted(self.snapshot.triggers))})"


@dataclass(frozen=True)
class Trial:
    """A scenario run with a policy.

    `log` is None where the run did not come to its end, and `error` is why not. `preempts` says
    whether the policy ever stopped a run, in this or any other trial of the same suite.
    """

    policy: Policy
    scenario: Scenario
    decisions: tuple[TrialDecision, ...]
    log: RunLog | None
    error: Exception | None = None
    preempts: bool = True

    @property
    def stops(self) -> bool:
        """Whether the policy stopped a run here that it might have let go on."""
        chosen = (RunEnd.PREEMPTED, RunEnd.MOVED)
        return self.log is not None and any(
            run.ended_by in chosen and not self._had_to_leave(run) for run in self.log.runs
        )

    def _had_to_leave(self, run: RunRecord) -> bool:
        """Whether a window is ahead of where a run was when it was stopped."""
        names = {name for name, _ in run.configuration}
        return any(
            not names.isdisjoint(window.nodes)
            and window.from_s - self.scenario.settings.lead_s <= run.freed_s <= window.until_s
            for window in self.scenario.settings.windows
        )

    @property
    def sample(self) -> tuple[TrialDecision, ...]:
        """A few of the decisions, in an order of no meaning."""
        valid = self.decisions[:-1] if isinstance(self.error, PlanError) else self.decisions
        return tuple(Random(self.scenario.seed).sample(valid, min(len(valid), ASKED_AGAIN)))


def run_trial(
    policy: Policy,
    scenario: Scenario,
    *,
    shown: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
    enough: Callable[[Snapshot], bool] = lambda _: False,
) -> Trial:
    """Run a policy through a scenario.

    Whatever goes wrong, in the policy or with its plans, ends the trial and is its `error`.

    Args:
        policy: the policy.
        scenario: the cluster, the jobs and what happens to them.
        shown: what the policy sees in place of each snapshot.
        enough: told each snapshot before the policy is; True ends the trial there.
    """
    decisions: list[TrialDecision] = []

    @dataclass(frozen=True)
    class Observed:
        info: ClassVar[PolicyInfo] = policy.info

        def plan(self, snapshot: Snapshot) -> Plan:
            if enough(snapshot):
                raise _EnoughError
            if len(decisions) == MAX_DECISIONS:
                raise TooManyDecisionsError(f"after {MAX_DECISIONS} plans jobs still wait or run")
            seen = shown(snapshot)
            before = describe_changeable(seen)
            plan: object = policy.plan(seen)
            if not isinstance(plan, Plan):
                raise PlanError(f"plan() returned a {type(plan).__name__}, not a Plan")
            mutation = first_difference(before, describe_changeable(seen))
            decisions.append(TrialDecision(seen, plan, mutation))
            return plan

    log: RunLog | None = None
    error: Exception | None = None
    try:
        log = simulate(
            scenario.submissions,
            scenario.cluster,
            Observed(),
            scenario.truth,
            scenario.settings,
            estimates=scenario.estimates,
            incidents=scenario.incidents,
        )
    except _EnoughError:
        pass
    except Exception as raised:  # Reporting whatever the policy does wrong is what this is for.
        error = raised
    return Trial(policy, scenario, tuple(decisions), log, error)


def describe_plan(plan: Plan) -> tuple[str, ...]:
    """Return what a plan says, a line for each thing said: equal plans give equal lines.

    Diagnostics are left out: they may name solvers' times, and decide nothing.
    """
    return (
        *(f"job {job}: {_entry(entry)}" for job, entry in sorted(plan.entries.items())),
        *(f"profile {_profile(profile)}" for profile in plan.profiles),
        *(str(sequence) for sequence in plan.sequences),
        *(str(reservation) for reservation in plan.reservations),
        f"valid from {plan.valid_from_s!r}",
        f"replan on {sorted(plan.replan.on)} or at {plan.replan.at_s!r}",
        f"ends with room {plan.replan.room!r}",
        f"memory {json.dumps(plan.memory, sort_keys=True, default=repr)}",
    )


def describe_changeable(snapshot: Snapshot) -> tuple[str, ...]:
    """Return what a policy could change about a snapshot, most of which is frozen: a line each."""
    speeds = snapshot.speeds
    return (
        f"memory {json.dumps(snapshot.previous.memory, sort_keys=True, default=repr)}",
        f"prices {sorted(snapshot.previous.diagnostics.prices.items())}",
        *(
            f"speeds of {name}: {table.one_node.tobytes()!r} {table.several_nodes.tobytes()!r} "
            f"{sorted(table.node_factor.items())} {sorted(table.tasks)}"
            for name, table in ((name, speeds.table(name)) for name in speeds.profiles)
        ),
    )


def first_difference(before: Iterable[str], after: Iterable[str]) -> str:
    """Return the first line of `after` that is not in its place in `before`; "" if all are."""
    one, other = list(before), list(after)
    for at in range(max(len(one), len(other))):
        was, now = (lines[at] if at < len(lines) else "nothing" for lines in (one, other))
        if was != now:
            return f"{was!r} became {now!r}"
    return ""


def _entry(entry: Entry) -> str:
    if not isinstance(entry, Placed):
        return f"waits, {entry.reason.code.word} {entry.reason.behind} {entry.reason.detail}"
    return "placed " + "; ".join(
        f"copy {p.copy} on {p.configuration}, {p.purpose}, budget {p.budget}, until {p.until_s}"
        for p in entry.placements
    )


def _profile(profile: ProfilePlacement) -> str:
    return f"{profile.job} {profile.placement}"
