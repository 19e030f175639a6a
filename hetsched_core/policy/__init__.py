"""The policy interface: what a policy is, which exist, and what their plans must keep to."""

from hetsched_core.policy.check import PlanChecker, Violation, check_plan
from hetsched_core.policy.diff import Action, Grant, RunKey, Start, Stop, StopCause, diff
from hetsched_core.policy.failure import failure
from hetsched_core.policy.from_file import find_policy
from hetsched_core.policy.news import News
from hetsched_core.policy.planner import Planner, plan_by
from hetsched_core.policy.protocol import Policy, PolicyInfo
from hetsched_core.policy.registry import (
    make_policy,
    parameter,
    parameters_of,
    policy_names,
    policy_of,
    policy_type,
    settings_of,
)
from hetsched_core.policy.salvage import ASK_AGAIN_S, as_it_is, salvaged

__all__ = [
    "ASK_AGAIN_S",
    "Action",
    "Grant",
    "News",
    "PlanChecker",
    "Planner",
    "Policy",
    "PolicyInfo",
    "RunKey",
    "Start",
    "Stop",
    "StopCause",
    "Violation",
    "as_it_is",
    "check_plan",
    "diff",
    "failure",
    "find_policy",
    "make_policy",
    "parameter",
    "parameters_of",
    "plan_by",
    "policy_names",
    "policy_of",
    "policy_type",
    "salvaged",
    "settings_of",
]
