"""Fair Tree as slurmctld computes it after real jobs, against that of the core."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product

import pytest

from hetsched_core.site import fair_tree
from hetsched_core.types.site import Association
from slurm_plugin.backend.shares import read_shares
from slurm_plugin.backend.with_commands import read_configuration
from slurm_plugin.testbed import FakeSite, Installation, Partition, Testbed, fake_nodes
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.clusters import under_limits

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

PARENTS = {
    "bio": "root",
    "phys": "root",
    "chem": "root",
    "cells": "bio",
    "genes": "bio",
    "optics": "phys",
    "lasers": "optics",
    "nobody_here": "root",
}
"""Account -> the one that it is in. Slurm reads accounts as children of a later one, too."""

USERS = ("root", "daemon", "bin", "sys", "games", "man", "lp", "mail", "news", "uucp")
"""Users that every system has; each is in several accounts."""

SITE = FakeSite(
    fake_nodes(3),
    # Slurm prints use in whole units: let them be small ones.
    (Partition("cpu", default=True, settings=("TRESBillingWeights=CPU=10000",)),),
    (
        "PriorityType=priority/multifactor",
        "PriorityWeightFairshare=100000",
        "PriorityCalcPeriod=00:01:00",
        "PriorityDecayHalfLife=00:10:00",
    ),
)


def test_fifty_users_in_eight_accounts_have_slurm_s_own_factors(
    installation: Installation, testbed: Testbed
) -> None:
    del testbed
    draw = random.Random(4)
    members = draw.sample(sorted(product(PARENTS, USERS)), 50)
    tell = [
        *(
            f"add account {name} parent={above} fairshare={draw.randint(1, 5)}"
            for name, above in PARENTS.items()
        ),
        *(
            f"add user {user} account={account} fairshare={draw.choice((1, 1, 2, 3, 5))}"
            for account, user in members
        ),
    ]
    with under_limits(installation, SITE, *tell) as cluster:
        # A few have used nothing.
        jobs = [
            cluster.command(
                *("sbatch", "--parsable", f"--uid={user}", f"--account={account}", "--chdir=/"),
                *(f"--cpus-per-task={draw.randint(1, 6)}", "--output=/dev/null"),
                f"--wrap=sleep {draw.uniform(0.5, 8.0):.1f}",
            )
            for account, user in members[:44]
        ]
        assert len(jobs) == 44
        wait_until(lambda: not cluster.command("squeue", "--noheader"), "all jobs to end", 120)
        # Slurm charges a job when it ends, and ranks users once a minute.
        wait_until(lambda: len({*factors(cluster).values()}) > 1, "a ranking", 150, every_s=1.0)
        shares = read_shares(read_configuration())
        theirs = factors(cluster)
    assert shares is not None
    assert shares.tree is not None
    assert sum(amount > 0 for amount in shares.used.values()) == 44
    ours = fair_tree(shares.tree, shares.used)
    assert theirs.keys() == ours.keys()
    assert len(theirs) >= 50
    assert ours == pytest.approx(theirs, abs=1e-3)
    assert in_order(ours) == in_order(theirs)
    assert len(set(theirs.values())) >= 44


def in_order(factors: Mapping[Association, float]) -> list[Association]:
    return sorted(factors, key=lambda each: (factors[each], each))


def factors(cluster: Testbed) -> dict[Association, float]:
    """Return Slurm's fair-share factor of each user, from 0 to 1."""
    told = cluster.command("sshare", "--all", "-P", "--noheader", "--format=Account,User,FairShare")
    rows = (line.split("|") for line in told.splitlines())
    return {(account.strip(), user): float(factor) for account, user, factor in rows if user}
