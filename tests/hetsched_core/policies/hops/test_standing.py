"""What jobs keep is the same whether the plan before is remembered or every job is looked at."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.contract import random_scenario, run_trial
from hetsched_core.contract.trial import describe_plan, first_difference
from hetsched_core.policies.hops import standing
from hetsched_core.policies.hops.hops import Hops
from hetsched_core.policies.steady import Steady
from hetsched_core.types import Placed, Trigger


@pytest.mark.parametrize("policy", [Hops(), Hops(profile_iterations=0), Steady()], ids=repr)
@given(st.integers(0, 10_000))
def test_plans_are_those_of_a_policy_that_remembers_nothing(
    policy: Hops | Steady, seed: int
) -> None:
    trial = run_trial(replace(policy), random_scenario(seed))
    assert trial.error is None
    for decision in trial.decisions:
        afresh = replace(policy).plan(decision.snapshot)
        assert not first_difference(describe_plan(afresh), describe_plan(decision.plan))


@given(st.integers(0, 10_000))
def test_what_becomes_of_a_plan_is_seen(seed: int) -> None:
    """Profiling runs are over, and what was to move runs on where it may not be stopped."""
    trial = run_trial(Hops(), random_scenario(seed))
    for snapshot in (decision.snapshot for decision in trial.decisions[:20]):
        policy = Hops()
        plan = policy.plan(snapshot)
        moved = {
            job_id: replace(view, job=replace(view.job, preemptible=False))
            for job_id, view in snapshot.jobs.items()
            if isinstance(entry := plan.entries[job_id], Placed)
            and view.configuration not in (None, entry.placements[0].configuration)
        }
        after = replace(
            snapshot,
            triggers=frozenset({Trigger.END}),
            jobs=snapshot.jobs.update(moved),
            previous=replace(plan, profiles=()),
            changed=frozenset(moved),
            gone=frozenset(),
            nodes_changed=False,
        )
        afresh = Hops().plan(after)
        assert not first_difference(describe_plan(afresh), describe_plan(policy.plan(after)))


def test_within_a_round_few_jobs_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    every = standing.kept

    def counted(*args: object, **kwargs: bool) -> standing.Kept:
        looks.append(kwargs["new_round"])
        return every(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(standing, "kept", counted)
    trial = run_trial(Hops(profile_iterations=0), random_scenario(4))
    remembered = len(trial.decisions) - len(looks)
    assert remembered > looks.count(False)
