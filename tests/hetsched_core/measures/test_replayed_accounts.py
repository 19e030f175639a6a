"""Accounts in whole replays: what is due follows the site's shares, and a policy can keep to it."""

from dataclasses import replace

import pytest

from hetsched_core.measures.accounts import AccountMeasures
from hetsched_core.policy import make_policy
from hetsched_core.replay.replay import PolicyReplay
from hetsched_core.replay.replay import replay as run_each
from hetsched_core.simulate import SimulationSettings
from hetsched_core.traces.load import ReplayInputs
from hetsched_core.traces.workload import Workload
from hetsched_core.types.site import ShareTree, SiteSettings
from tests.hetsched_core.worlds import cluster_of, linear_speeds, submission

CLUSTER = cluster_of(a0=("a100", 8))
SPEEDS = linear_speeds(CLUSTER, {"m": {"a100": 1.0}})
TREE = ShareTree({("physics", ""): 3, ("biology", ""): 1})


def replayed(settings: SimulationSettings) -> PolicyReplay:
    """Two accounts with more one-hour jobs of one GPU than there are GPUs, biology's first."""
    jobs = []
    for at in range(120):
        account = "biology" if at < 60 else "physics"
        one = submission(f"j{at:03}", 3600.0, submit_s=float(at))
        jobs.append(replace(one, job=replace(one.job, account=account, user="ann")))
    inputs = ReplayInputs(workload=Workload(tuple(jobs)), speeds=SPEEDS, cluster=CLUSTER)
    (found,) = run_each(inputs, {"fifo": make_policy("fifo")}, settings)
    return found


def accounts(one: PolicyReplay) -> dict[str, AccountMeasures]:
    return {row.account: row for row in one.use.accounts}


def test_what_is_due_in_a_replay_follows_the_shares_of_its_site() -> None:
    told = replayed(SimulationSettings(site=SiteSettings(TREE)))
    assert {name: row.shares for name, row in accounts(told).items()} == {
        "physics": 3,
        "biology": 1,
    }
    untold = replayed(SimulationSettings())
    assert {row.shares for row in untold.use.accounts} == {1}
    for one in (told, untold):
        assert one.measures.worst_share_error == one.use.worst_share_error
        assert one.measures.jain_slowdown == one.use.jain_slowdown
    # While both have work, a quarter of all is due to biology, or half of it.
    at_5_h = 5 * 3600.0
    due_gpu_h = [
        one.use.due_gpu_s["biology", ""][one.use.at_s.searchsorted(at_5_h)] / 3600.0
        for one in (told, untold)
    ]
    assert due_gpu_h == pytest.approx([10.0, 20.0], rel=0.02)
