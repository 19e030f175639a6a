"""What slurmctld says of shares and tiers, as its commands print it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.site import fair_tree, level_fairshare
from slurm_plugin.backend.shares import (
    SlurmShares,
    parse_qos,
    parse_requeued,
    parse_shares,
    parse_tiers,
    unbilled,
    weighs,
)

# What sshare of Slurm 26.05 prints.
SSHARE = """\
root|||14279
 root|root|1|0
 chem||3|3539
  chem|alice|parent|0
  chem|man|2|3000
  chem|man|1|539
  lab||1|0
   lab|eve|1|0
 phys||1|10740
  phys|games|1|10594
  phys|mail|5|146
"""


def test_accounts_are_in_those_that_they_are_indented_under() -> None:
    tree, used = parse_shares(SSHARE)
    assert tree.parents == {"chem": "root", "lab": "chem", "phys": "root"}
    assert tree.shares["chem", "alice"] is None
    assert (tree.shares["chem", ""], tree.shares["phys", "mail"]) == (3, 5)
    # A user with several associations has used what is charged to all of them.
    assert used["chem", "man"] == 3539.0
    assert tree.path(("lab", "eve")) == (("chem", ""), ("lab", ""), ("lab", "eve"))
    level = level_fairshare(tree, used)
    assert level["chem", ""] == pytest.approx(3 / 5 / (3539 / 14279))


def test_fifty_users_in_eight_accounts_have_slurm_s_own_factors() -> None:
    # What sshare said after 44 jobs of as many of them, its own FairShare last.
    lines = Path(__file__).with_name("sshare.txt").read_text().splitlines()
    tree, used = parse_shares("\n".join(line.rpartition("|")[0] for line in lines))
    rows = (line.strip().split("|") for line in lines)
    theirs = {(account, user): float(factor) for account, user, _, _, factor in rows if user}
    ours = fair_tree(tree, used)
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert len(set(theirs.values())) >= 44


@given(st.text(alphabet=" |root\nab12-.", max_size=60))
def test_other_text_is_refused_or_read_and_never_worse(text: str) -> None:
    try:
        tree, used = parse_shares(text)
    except ValueError:
        return
    assert set(used) <= set(tree.shares)


def test_a_partition_that_bills_no_gpus_is_told() -> None:
    told = "PartitionName={} AllowGroups=ALL TRES=cpu=9,gres/gpu=4{}\n"
    weights = {"a": "", "b": " TRESBillingWeights=CPU=1.0,Mem=0.2G", "c": ""}
    weights |= {"d": " TRESBillingWeights=CPU=0.1,GRES/gpu=1.0"}
    lines = "".join(told.format(name, said) for name, said in weights.items())
    assert unbilled(lines) == {"a", "b", "c"}


def test_tiers_are_the_partition_s_and_then_the_qos_s_priority() -> None:
    line = "PartitionName={} AllowGroups=ALL Nodes=n[0-5] PriorityJobFactor=1 PriorityTier={} X=Y"
    tiers = parse_tiers("\n".join([line.format("gpu", 1), line.format("short", 10)]))
    shares = SlurmShares(partitions=tiers, qos={"normal": 0, "high": 1000, "scavenger": -5})
    order = [("gpu", "scavenger"), ("gpu", "normal"), ("gpu", "high"), ("short", "scavenger")]
    assert [shares.tier(*each) for each in order] == [0, 1, 2, 3]
    assert shares.tier("gone", "unknown") == shares.tier("gpu", "normal")
    assert SlurmShares(partitions={"gpu": 1}).ranks is False
    assert shares.ranks


def test_a_factor_counts_where_it_has_a_weight() -> None:
    configuration = "PriorityWeightFairShare = 100000\nPriorityWeightQOS       = 0\n"
    assert weighs(configuration, "FairShare")
    assert not weighs(configuration, "QOS")
    assert not weighs(configuration, "Age")


QOS = """\
normal|0||cluster|
high|9|normal,scav,lost,spared|cluster|
scav|0||requeue|00:00:00
lost|0||cancel|
spared|0||requeue|01:00:00
"""
PARTITIONS = """\
PartitionName=gpu Nodes=n[0-5] PreemptMode=REQUEUE PriorityTier=1 X=Y
PartitionName=rest Nodes=n[0-5] PreemptMode=GANG,REQUEUE PriorityTier=1 X=Y
PartitionName=own Nodes=n[0-5] PreemptMode=OFF PriorityTier=1 X=Y
"""


@pytest.mark.parametrize(
    ("preempts", "mode", "exempt", "partitions", "qos"),
    [
        ("(null)", "REQUEUE", "00:00:00", set(), set()),
        ("preempt/partition_prio", "OFF", "00:00:00", {"gpu", "rest"}, set()),
        ("preempt/partition_prio", "OFF", "00:01:00", set(), set()),
        ("preempt/qos", "OFF", "00:00:00", set(), {"scav"}),
        ("preempt/qos", "GANG,REQUEUE", "00:00:00", set(), {"scav", "normal"}),
        # A QOS' own time goes before that of all.
        ("preempt/qos", "GANG,REQUEUE", "00:01:00", set(), {"scav"}),
    ],
)
def test_what_gives_way_is_what_the_site_s_preemption_requeues(
    preempts: str, mode: str, exempt: str, partitions: set[str], qos: set[str]
) -> None:
    configuration = "".join(
        f"{name:24}= {value}\n"
        for name, value in (
            ("PreemptMode", mode),
            ("PreemptType", preempts),
            ("PreemptExemptTime", exempt),
        )
    )
    assert parse_requeued(PARTITIONS, configuration) == partitions
    priorities, requeued = parse_qos(QOS, configuration)
    assert priorities["high"] == 9
    assert requeued == qos
    shares = SlurmShares(requeued_partitions=frozenset(partitions))
    assert shares.gives_way("gpu", "high") is ("gpu" in partitions)
    assert shares.gives_way("own", "high") is False
    assert not partitions or not shares.ranks_as(SlurmShares())
    # With QOS that go before others partitions alone do not say who is stopped for whom.
    shares = replace(shares, qos=priorities, requeued_qos=requeued)
    assert shares.gives_way("gpu", "scav") is ("scav" in qos)
    assert replace(shares, partitions={"gpu": 1, "vip": 2}).gives_way("gpu", "scav") is False


def test_a_qos_gives_way_where_each_of_a_higher_priority_stops_it() -> None:
    configuration = "PreemptMode = REQUEUE\nPreemptType = preempt/qos\n"
    told = "low|0||cluster|\nmid|5||cluster|\nhigh|9|low,mid|cluster|\n"
    assert parse_qos(told, configuration)[1] == {"mid"}
    assert parse_qos(told.replace("mid|5||", "mid|5|low|"), configuration)[1] == {"low", "mid"}
