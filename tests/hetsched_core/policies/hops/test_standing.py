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


def test_within_a_round_few_jobs_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    every = standing.kept

    def counted(*args: object, **kwargs: bool) -> standing.Kept:
        looks.append(kwargs["new_round"])
        return every(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(standing, "kept", counted)
    trial = run_trial(Hops(profile_iterations=0), random_scenario(4))
    within = sum(not new_round for new_round in looks)
    assert within < len(trial.decisions) - (len(looks) - within) - within
