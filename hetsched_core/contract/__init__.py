"""What every policy must keep to, as checks that anybody can run over theirs.

`check_policy(policy)` runs a policy through small random clusters and workloads in which jobs are
withdrawn and crash and nodes are lost, and holds it to every contract. It needs nothing but the
policy: no test framework, no files.
"""

from hetsched_core.contract.scenario import Scenario, random_scenario
from hetsched_core.contract.suite import (
    CONTRACTS,
    DEFAULT_SEEDS,
    Breach,
    Contract,
    Verdict,
    check_policy,
)
from hetsched_core.contract.trial import Trial, TrialDecision, run_trial

__all__ = [
    "CONTRACTS",
    "DEFAULT_SEEDS",
    "Breach",
    "Contract",
    "Scenario",
    "Trial",
    "TrialDecision",
    "Verdict",
    "check_policy",
    "random_scenario",
    "run_trial",
]
