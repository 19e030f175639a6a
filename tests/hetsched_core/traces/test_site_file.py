"""Shares, QOS and limits in a `cluster.toml`: read, refused and written."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hetsched_core.errors import InputError
from hetsched_core.traces.cluster_file import ClusterFile, format_cluster, parse_cluster
from hetsched_core.traces.site_file import (
    AccountTable,
    PartitionRules,
    QosTable,
    ShareSettings,
    SiteTables,
    UserTable,
)
from hetsched_core.types import Cluster, Node

HEAD = 'schema = "hetsched-cluster/1"\n[[nodes]]\nnodes = "n1"\ngpu_type = "a100"\ngpus = 8\n'
SITE = """
[[partitions]]
name = "gpu"
nodes = "n1"
tier = 10
max_jobs_per_user = 4

[shares]
half_life = "7-0"
period = 60

[[accounts]]
name = "science"
shares = 3

[[accounts]]
name = "physics"
parent = "science"
shares = "parent"
max_gpus = 16
users = { alice = 2, bob = { max_gpus = 4 }, eve = "parent" }

[[qos]]
name = "high"
priority = 1000
max_gpus_per_account = 8
"""
TABLES = SiteTables(
    ShareSettings(604_800.0, 60.0),
    (
        AccountTable(name="science", shares=3),
        AccountTable(
            name="physics",
            parent="science",
            shares=None,
            max_gpus=16,
            users={"alice": UserTable(2), "bob": UserTable(max_gpus=4), "eve": UserTable(None)},
        ),
    ),
    (QosTable(name="high", priority=1000, max_gpus_per_account=8),),
    {"gpu": PartitionRules(tier=10, max_jobs_per_user=4)},
)


def test_a_site_is_read_table_by_table() -> None:
    file = parse_cluster(HEAD + SITE)
    assert file.site == TABLES
    assert file.partitions == {"gpu": {"n1"}}
    tree = TABLES.tree()
    assert tree.shares[("science", "")] == 3
    # Who is in physics competes beside it, in science.
    assert tree.path(("physics", "alice")) == (("science", ""), ("physics", "alice"))


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("3600", 3_600.0),
        ('"14-0"', 1_209_600.0),
        ('"1-12:30"', 131_400.0),
        ('"2-00:00:10"', 172_810.0),
        ('"12:00:00"', 43_200.0),
    ],
)
def test_times_are_seconds_or_as_slurm_writes_them(said: str, seconds: float) -> None:
    found = parse_cluster(f"{HEAD}[shares]\nhalf_life = {said}\n").site.shares
    assert found == ShareSettings(half_life=seconds)


@pytest.mark.parametrize(
    ("was", "put", "expected"),
    [
        ('"7-0"', '"7 days"', ["shares.half_life is '7 days'", '"7-0"', "seconds"]),
        ('"7-0"', "0", ["half_life is 0", "more than 0"]),
        ("shares = 3", "shares = -3", ["accounts 1: shares is -3", '"parent"']),
        ("shares = 3", "share = 3", ["accounts 1: unknown key 'share'", "did you mean 'shares'"]),
        ('name = "science"', 'name = ""', ["accounts 1: name is ''", "expected a name"]),
        (
            'parent = "science"',
            'parent = "sience"',
            ["accounts 2: parent: unknown account 'sience'", "did you mean 'science'"],
        ),
        ('parent = "science"', 'parent = "physics"', ["account physics is in itself"]),
        ('name = "physics"', 'name = "science"', ["accounts: name 'science' comes twice"]),
        ('name = "physics"', 'name = "root"', ["account root holds all others"]),
        ("alice = 2", "alice = -2", ["users", "alice is -2", "a whole number of shares"]),
        ("max_gpus = 4", "max_gpu = 4", ["alice", "unknown key 'max_gpu'"][1:]),
        ("max_gpus = 4", "max_gpus = 1.5", ["bob.max_gpus is 1.5", "a whole number of 0 or more"]),
        ("priority = 1000", 'priority = "high"', ["qos 1: priority is 'high'"]),
    ],
)
def test_a_mistake_is_named_with_its_value(was: str, put: str, expected: list[str]) -> None:
    assert was in SITE
    with pytest.raises(InputError) as caught:
        parse_cluster(HEAD + SITE.replace(was, put, 1), "c.toml")
    message = str(caught.value)
    assert message.startswith("c.toml: ")
    assert not [part for part in expected if part not in message], message


NAMES = st.text(min_size=1, max_size=8)
COUNTS = st.none() | st.integers(0, 99)
SHARES = st.none() | st.integers(0, 10_000)
LIMITS = dict.fromkeys(("max_gpus", "max_jobs", "max_gpus_per_user", "max_jobs_per_user"), COUNTS)
ACCOUNT_LIMITS = LIMITS | dict.fromkeys(("max_gpus_per_account", "max_jobs_per_account"), COUNTS)
USERS = st.dictionaries(NAMES, st.builds(UserTable, SHARES, COUNTS, COUNTS), max_size=3)
SITES = st.builds(
    SiteTables,
    st.none() | st.builds(ShareSettings, st.floats(1.0, 1e9), st.floats(1.0, 1e9)),
    st.lists(
        st.builds(AccountTable, name=NAMES, shares=SHARES, users=USERS, **LIMITS),
        max_size=3,
        unique_by=lambda account: account.name,
    ).map(lambda found: tuple(each for each in found if each.name != "root")),
    st.lists(
        st.builds(
            QosTable,
            name=NAMES,
            priority=st.integers(0, 9),
            gives_way=st.booleans(),
            **ACCOUNT_LIMITS,
        ),
        max_size=3,
        unique_by=lambda qos: qos.name,
    ).map(tuple),
    st.dictionaries(
        st.just("gpu"), st.builds(PartitionRules, tier=st.integers(2, 9), **ACCOUNT_LIMITS)
    ),
)


@given(SITES)
def test_what_is_written_reads_back_the_same(site: SiteTables) -> None:
    cluster = Cluster((Node("n1", "a100", 8),))
    file = ClusterFile(cluster, partitions={"gpu": frozenset({"n1"})}, site=site)
    assert parse_cluster(format_cluster(file)).site == site
