"""All contracts, and running them over a policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from hetsched_core.contract import logs, plans, reruns, rules, stops
from hetsched_core.contract.scenario import random_scenario
from hetsched_core.contract.trial import Trial, run_trial
from hetsched_core.policy import Policy, failure
from hetsched_core.records.runlog import RunLog

DEFAULT_SEEDS = range(8)

SHOWN = 3
"""How many breaches of one contract a trial, or a text, reports: the first say what is wrong."""


@dataclass(frozen=True, slots=True)
class Contract:
    """What every policy must keep to: a name, a promise, and a check that yields what breaks it.

    A contract on what happened (`of_log`) can be looked at only where a run came to its end.
    """

    name: str
    promise: str
    check: Callable[[Trial], Iterable[str]]
    of_log: bool = False


@dataclass(frozen=True, slots=True)
class Breach:
    """A contract that a policy does not keep: in the scenario of which seed, and how."""

    contract: str
    seed: int
    detail: str

    def __str__(self) -> str:
        """Return all of it in one line."""
        return f"{self.contract}, seed {self.seed}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the suite found out about a policy. `str` of it is for people.

    Attributes:
        policy: the policy's name.
        seeds: the scenarios that it was run through.
        decisions: how many plans it made in them, reruns not counted.
        breaches: everything it did wrong; empty if it keeps all contracts.
        unfinished: whether a run did not come to its end, and could not be judged as a whole.
    """

    policy: str
    seeds: tuple[int, ...]
    decisions: int
    breaches: tuple[Breach, ...]
    unfinished: bool

    @property
    def kept(self) -> bool:
        """Whether the policy keeps every contract."""
        return not self.breaches

    def __str__(self) -> str:
        """Return a line for each contract, and under it how it is broken."""
        lines = []
        for contract in CONTRACTS:
            found = [breach for breach in self.breaches if breach.contract == contract.name]
            state = (
                "BROKEN" if found else "unseen" if contract.of_log and self.unfinished else "kept"
            )
            lines.append(f"{state:7} {contract.name:16} {contract.promise}")
            lines += [f"        seed {breach.seed}: {breach.detail}" for breach in found[:SHOWN]]
            if len(found) > SHOWN:
                lines.append(f"        and {len(found) - SHOWN} more")
        broken = len({breach.contract for breach in self.breaches})
        result = f"breaks {broken} of {len(CONTRACTS)}" if broken else f"keeps all {len(CONTRACTS)}"
        lines.append(
            f"{self.policy} {result} contracts, in {len(self.seeds)} scenarios with "
            f"{self.decisions} plans"
        )
        return "\n".join(lines)


def _on_plans(name: str, check: Callable[[Trial], Iterable[str]]) -> Contract:
    return Contract(name, _promise(check), check)


def _on_log(name: str, check: Callable[[Trial, RunLog], Iterable[str]]) -> Contract:
    def check_trial(trial: Trial) -> Iterable[str]:
        return () if trial.log is None else check(trial, trial.log)

    return Contract(name, _promise(check), check_trial, of_log=True)


def _promise(check: Callable[..., Iterable[str]]) -> str:
    return (check.__doc__ or "").partition("\n")[0]


CONTRACTS = (
    _on_plans("description", plans.policy_describes_itself),
    _on_plans("valid-plans", plans.plans_are_valid),
    _on_log("capacity", logs.nothing_is_held_twice),
    _on_log("whole-gangs", logs.gangs_are_whole),
    _on_log("gpu-types", logs.gpu_types_are_accepted),
    _on_log("job-nodes", logs.nodes_are_accepted),
    _on_log("node-counts", logs.node_counts_are_kept),
    _on_log("windows", logs.windows_are_kept),
    _on_plans("apart", reruns.who_wants_other_nodes_is_not_waited_for),
    _on_log("not-preemptible", logs.what_may_not_be_stopped_is_not),
    _on_plans("progress", plans.work_gets_on),
    _on_log("all-jobs-end", logs.every_job_that_fits_ends),
    _on_plans("true-reasons", plans.reasons_are_true),
    _on_plans("named-changes", plans.changes_are_named),
    _on_plans("same-answer", plans.same_snapshot_same_plan),
    _on_plans("names", reruns.names_make_no_difference),
    _on_plans("knowledge", plans.undeclared_knowledge_is_not_used),
    _on_plans("hidden-truth", reruns.hidden_truth_makes_no_difference),
    _on_plans("memory", plans.memory_is_json),
    _on_plans("lost-notes", reruns.notes_may_be_lost),
    _on_plans("new-start", plans.survives_a_new_start),
    _on_plans("blocked-jobs", plans.blocked_jobs_wait),
    _on_plans("facts", plans.what_runs_is_a_fact),
    _on_plans("shapes", plans.shapes_come_and_go),
    _on_plans("applied-twice", plans.applying_twice_changes_nothing),
    _on_plans("idle-stops", stops.stops_make_room),
    _on_plans("equal-jobs", stops.equal_jobs_are_not_swapped),
    _on_plans("shares", rules.shares_hold),
    _on_plans("limits", rules.limits_hold),
    _on_plans("tiers", rules.tiers_stop),
)
"""Every contract, in the order in which they are reported."""


def check_policy(
    policy: Policy,
    *,
    seeds: Iterable[int] = DEFAULT_SEEDS,
    contracts: Sequence[Contract] = CONTRACTS,
) -> Verdict:
    """Run a policy through random scenarios and hold it to the contracts.

    Args:
        policy: any policy, registered or not, with the parameters to test.
        seeds: one scenario for each; the same seeds always give the same scenarios.
        contracts: what to hold it to.
    """
    chosen = tuple(seeds)
    trials = [run_trial(policy, random_scenario(seed, policy.info.model)) for seed in chosen]
    preempts = any(trial.stops for trial in trials)
    trials = [replace(trial, preempts=preempts) for trial in trials]
    return Verdict(
        policy=policy.info.name,
        seeds=chosen,
        decisions=sum(len(trial.decisions) for trial in trials),
        breaches=tuple(
            Breach(contract.name, trial.scenario.seed, detail)
            for contract in contracts
            for trial in trials
            for detail in islice(_answers(contract, trial), SHOWN)
        ),
        unfinished=any(trial.log is None for trial in trials),
    )


def _answers(contract: Contract, trial: Trial) -> Iterator[str]:
    """What the contract finds; a policy that fails when it is asked again breaks it too."""
    try:
        yield from contract.check(trial)
    except Exception as error:  # Whatever a policy raises is its breach, not our end.
        yield failure(trial.policy, error)
