"""The site's word on who comes first: tiers, shares against what was used, and limits."""

from hetsched_core.site.fair_tree import fair_tree, level_fairshare
from hetsched_core.site.limits import LimitsLeft, within_limits, without_excess
from hetsched_core.site.turns import in_turn, portions, wanted_gpus, weights
from hetsched_core.site.usage import Ledger, Usage

__all__ = [
    "Ledger",
    "LimitsLeft",
    "Usage",
    "fair_tree",
    "in_turn",
    "level_fairshare",
    "portions",
    "wanted_gpus",
    "weights",
    "within_limits",
    "without_excess",
]
