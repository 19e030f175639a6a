"""The contract suite finds out every policy that is wrong, and every registered one is right."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.contract import CONTRACTS, check_policy, plans
from hetsched_core.policy import Action, Policy, Start, diff, make_policy, policy_names
from hetsched_core.simulate.state import Active
from hetsched_core.types import (
    JobView,
    Knowledge,
    NodeCondition,
    Plan,
    Reason,
    ReasonCode,
    Snapshot,
    Waiting,
)
from tests.hetsched_core.contract import broken
from tests.hetsched_core.contract.broken import (
    NEVER,
    NO_ROOM,
    Claims,
    Ignores,
    IgnoresOfNodes,
    Says,
    described,
)

PROJECT = Path(__file__).parents[3]
BEHIND_NOBODY = Waiting(Reason(ReasonCode.AHEAD, behind=("nobody",)))
SAYS_NEVER = Says(NO_ROOM, NEVER)
READS_RESTART_COST = broken.OrdersBy("restart_cost_s")


@pytest.mark.parametrize("name", policy_names())
def test_every_registered_policy_keeps_every_contract(name: str) -> None:
    verdict = check_policy(make_policy(name), seeds=range(5))
    assert verdict.kept, str(verdict)
    assert not verdict.unfinished


@pytest.mark.parametrize("policy", [broken.Sound(), READS_RESTART_COST], ids=repr)
def test_a_sound_policy_keeps_every_contract(policy: Policy) -> None:
    verdict = check_policy(policy, seeds=range(4))
    assert verdict.kept, str(verdict)
    assert verdict.decisions > 100


def found_by(contract: str, policy: Policy, seeds: range = range(4)) -> str:
    """What one contract has to say about a policy."""
    (chosen,) = (c for c in CONTRACTS if c.name == contract)
    verdict = check_policy(policy, seeds=seeds, contracts=[chosen])
    return "\n".join(map(str, verdict.breaches))


def notes(**memory: object) -> Claims:
    return Claims({"memory": memory})


AS_IF_UP = IgnoresOfNodes({"condition": NodeCondition.UP})
PROPHET = described("LiveProphet", knows=frozenset({Knowledge.FUTURE_ARRIVALS}))
WRONG = [
    (Ignores({"gpu_types": None}), "valid-plans", "gpu-type: "),
    (Ignores({"nodes": None}), "valid-plans", "job-nodes: "),
    (Ignores({"min_nodes": 1, "max_nodes": None}), "valid-plans", "node-count: "),
    (Ignores({"closed": frozenset()}), "valid-plans", "closed: "),
    (broken.WaitsForAll(), "apart", "which has a node to itself, starts at"),
    (AS_IF_UP, "valid-plans", "node-closed: "),
    (broken.Raises(), "valid-plans", "ZeroDivisionError: four jobs"),
    (broken.AnswersNothing(), "valid-plans", "returned a NoneType, not a Plan"),
    (SAYS_NEVER, "true-reasons", "fits and is told 'never"),
    (Says(NEVER, NO_ROOM), "true-reasons", "fits nowhere, is told 'not yet"),
    (Says(NO_ROOM, BEHIND_NOBODY), "true-reasons", "behind nobody, which is not active"),
    (broken.Starves(), "all-jobs-end", "fits and has not ended"),
    (broken.Thrashes(), "progress", "plans jobs still wait or run"),
    (broken.StopsWhatMayNotBeStopped(), "not-preemptible", "not preemptible, is preempted"),
    (broken.OrdersBy("total_samples"), "knowledge", "it declares nothing; told more, "),
    (
        broken.KnowsSizes("time_limit_s"),
        "knowledge",
        "it declares total samples; told more, ",
    ),
    (broken.InOrderOfASet(), "names", "with every name prefixed, "),
    (broken.Counts(), "same-answer", "asked again, "),
    (broken.WritesIntoMemory(), "same-answer", "plan() changed the snapshot: 'memory"),
    (broken.WritesIntoSpeeds(), "same-answer", "plan() changed the snapshot: 'speeds of"),
    (Claims({"changed": frozenset()}), "named-changes", "changed and `changed` does not name it"),
    (Claims({"base": "another"}), "named-changes", "revises one that is not in force"),
    (broken.NeedsItsNotes(), "lost-notes", "with notes lost, KeyError: 'jobs'"),
    (notes(version=1, jobs=("a", "b")), "memory", "not the same when it has been JSON"),
    (notes(version=1, jobs={"a"}), "memory", "memory is no JSON"),
    (notes(jobs=["a"]), "memory", "memory has no version"),
    (broken.StartsAfresh(), "new-start", "the plan in force forgotten, job"),
    (Ignores({}), "blocked-jobs", "is placed but may not start"),
    (broken.GivesAnotherReason(), "blocked-jobs", "is told 'not yet: too few GPUs"),
    (IgnoresOfNodes({"foreign_gpus": 0}), "blocked-jobs", "capacity: "),
    (AS_IF_UP, "facts", "with nodes closed under runs: node-closed: "),
    (broken.IgnoresLostShapes(), "shapes", "with shapes lost: shape: "),
    (broken.NeverAgain(), "shapes", "with shapes had again: job "),
    (broken.StopsForNobody(), "idle-stops", "is stopped, and no job gets its "),
    (broken.MovesForNobody(), "idle-stops", "and no job gets what it had"),
    (broken.SwapsEquals(), "equal-jobs", "of equal jobs "),
    (broken.SwapsWithinRounds(), "equal-jobs", "ends within a round"),
    (broken.NotFrozen(), "description", "is no frozen dataclass"),
    (described("BadName", name="My Policy"), "description", "is not one lower-case word"),
    (described("TwoLines", summary="whoever\nfits"), "description", "is not one line"),
    (PROPHET, "description", "replay_only does not say"),
]


@pytest.mark.parametrize(("policy", "contract", "words"), WRONG, ids=repr)
def test_a_policy_that_is_wrong_in_one_way_is_told_so_by_the_contract_about_it(
    policy: Policy, contract: str, words: str
) -> None:
    assert words in found_by(contract, policy)


def test_notes_of_more_than_the_limit_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    too_long = notes(version=1, text=" " * 1000)
    assert found_by("memory", too_long) == ""
    monkeypatch.setattr(plans, "MAX_MEMORY_BYTES", 500)
    assert "more than 500" in found_by("memory", too_long)


def test_a_simulator_that_gave_sizes_away_would_be_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The policy is sound; what it is shown as the restart cost is the true size."""
    policy = READS_RESTART_COST
    assert found_by("hidden-truth", policy) == ""
    seen = Active.seen

    def leaking(active: Active) -> JobView:
        return replace(seen(active), restart_cost_s=active.submission.samples)

    monkeypatch.setattr(Active, "seen", leaking)
    assert "with other hidden sizes and limits, " in found_by("hidden-truth", policy)


def test_a_diff_that_starts_jobs_on_gpus_that_drain_would_be_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if every start were ready at once."""

    def hasty(snapshot: Snapshot, plan: Plan) -> list[Action]:
        return [
            replace(action, ready=True) if isinstance(action, Start) else action
            for action in diff(snapshot, plan)
        ]

    policy = make_policy("las")
    assert found_by("applied-twice", policy) == ""
    monkeypatch.setattr(plans, "diff", hasty)
    assert "carried out, " in found_by("applied-twice", policy)


def test_a_diff_that_stops_what_drains_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no run were ever seen to drain."""

    def blind(snapshot: Snapshot, plan: Plan) -> tuple[Action, ...]:
        for job, view in snapshot.jobs.items():
            runs = tuple(replace(run, draining_until_s=None) for run in view.runs)
            snapshot = replace(snapshot, jobs=snapshot.jobs.set(job, replace(view, runs=runs)))
        return diff(snapshot, plan)

    monkeypatch.setattr(plans, "diff", blind)
    assert "asks for more: Stop" in found_by("applied-twice", make_policy("las"))


def test_a_verdict_says_for_each_contract_whether_it_is_kept_and_how_to_see_it_broken() -> None:
    verdict = check_policy(broken.Starves(), seeds=[3, 5])
    assert not verdict.kept
    lines = str(verdict).splitlines()
    assert len([line for line in lines if not line.startswith(" ")]) == len(CONTRACTS) + 1
    (at,) = (n for n, line in enumerate(lines) if line.startswith("BROKEN  all-jobs-end"))
    assert lines[at + 1].startswith("        seed 3: job j")
    assert lines[-1].startswith("sound breaks ")
    assert lines[-1].endswith(f"contracts, in 2 scenarios with {verdict.decisions} plans")
    kept = check_policy(broken.Sound(), seeds=[0])
    assert str(kept).splitlines()[-1] == (
        f"sound keeps all {len(CONTRACTS)} contracts, in 1 scenarios with {kept.decisions} plans"
    )
    # What could not be seen is not claimed.
    silent = check_policy(broken.AnswersNothing(), seeds=[0])
    assert silent.unfinished
    assert all(f"unseen  {name}" in str(silent) for name in ("capacity", "all-jobs-end"))


def test_a_verdict_shows_the_first_breaches_and_counts_the_others() -> None:
    verdict = check_policy(SAYS_NEVER, seeds=range(4))
    count = sum(breach.contract == "true-reasons" for breach in verdict.breaches)
    assert count > 3
    assert f"        and {count - 3} more" in str(verdict)


def test_every_contract_has_a_name_of_its_own_and_a_sentence() -> None:
    assert len({contract.name for contract in CONTRACTS}) == len(CONTRACTS)
    assert all(contract.promise.endswith(".") for contract in CONTRACTS)


PRINT_RUNS = """
from hetsched_core.contract import random_scenario, run_trial
from hetsched_core.contract.trial import describe_plan
from hetsched_core.policy import make_policy, policy_names

for policy in map(make_policy, policy_names()):
    for seed in range(2):
        trial = run_trial(policy, random_scenario(seed, policy.info.model))
        for decision in trial.decisions:
            print(decision, *describe_plan(decision.plan), sep="\\n")
        print(*trial.log.runs, sep="\\n")
        print(*((r.job.id, r.end_s, r.end_state, r.wait_s) for r in trial.log.jobs), sep="\\n")
"""


def test_every_policy_runs_the_same_under_another_hash_seed() -> None:
    outputs = []
    for seed in ("1", "2"):
        result = subprocess.run(
            [sys.executable, "-c", PRINT_RUNS],
            cwd=PROJECT,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        outputs.append(result.stdout)
    assert outputs[0].count("replan on") > 200
    assert outputs[0] == outputs[1]
