"""What the testbed tells Slurm of itself."""

from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from slurm_plugin.testbed import (
    FakeNode,
    FakeSite,
    Layout,
    Partition,
    Testbed,
    TestbedError,
    TestbedUnavailableError,
    fake_nodes,
    parse_partitions,
    usual_site,
)
from slurm_plugin.testbed.packages import debian_mirror


def layout(site: FakeSite) -> Layout:
    return Layout(Path("/b"), Path("/p"), 17000, "host", site)


def conf(site: FakeSite, first: str = "") -> list[str]:
    """The lines of a site's slurm.conf that begin with a word."""
    lines = layout(site).files()["slurm.conf"].splitlines()
    return [line for line in lines if line.startswith(first)]


def test_nodes_get_the_gpu_types_in_turn_some_of_several() -> None:
    assert fake_nodes(3, "v100:8+t4:2,1g.10gb:14") == (
        node := FakeNode("n0", "v100", 8, (("t4", 2),)),
        FakeNode("n1", "1g.10gb", 14),
        replace(node, name="n2"),
    )
    assert node.kinds == (("v100", 8), ("t4", 2))


@pytest.mark.parametrize(
    ("count", "gpus", "named"),
    [
        (0, "a100:4", "0 nodes"),
        (513, "a100:4", "513 nodes"),
        (1, "a100", "'a100' in 'a100'"),
        (1, "a100:4,v100:0", "'v100:0'"),
        (1, "a100:17", "'a100:17'"),
        (1, "a 100:4", "'a 100:4'"),
        (1, "", "''"),
        (1, "a100:4+v100", "'v100' in"),
        (1, "a100:9+v100:8", "more than 16 GPUs"),
        (1, "a100:2+a100:2", "a type twice"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(count: int, gpus: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        fake_nodes(count, gpus)


def test_every_node_has_a_port_of_its_own_within_the_range() -> None:
    site = usual_site(fake_nodes(5))
    cluster = layout(site)
    ports = [int(line.split("Port=")[1].split()[0]) for line in conf(site, "NodeName=")]
    assert len(set(ports)) == 5
    taken = {cluster.port, cluster.database_port, cluster.database_daemon_port, *ports}
    assert len(taken) == 8
    assert max(taken) < cluster.port + cluster.ports


def test_each_gpu_has_a_device_file_and_each_type_is_accounted() -> None:
    site = usual_site(fake_nodes(3, "a100:4,v100:8+t4:2"))
    assert layout(site).files()["gres.conf"].splitlines()[1:3] == [
        "NodeName=n1 Name=gpu Type=v100 File=/b/dev/nvidia[0-7]",
        "NodeName=n1 Name=gpu Type=t4 File=/b/dev/nvidia[8-9]",
    ]
    (node,) = conf(site, "NodeName=n1 ")
    assert "Gres=gpu:v100:8,gpu:t4:2 " in node
    assert conf(site, "AccountingStorageTRES=") == [
        "AccountingStorageTRES=gres/gpu,gres/gpu:a100,gres/gpu:v100,gres/gpu:t4"
    ]


BILLS = "TRESBillingWeights=GRES/gpu=1.0 State=UP"


def test_a_usual_site_has_partitions_that_share_nodes_features_a_licence_and_priorities() -> None:
    site = usual_site(fake_nodes(5))
    assert conf(site, "PartitionName=") == [
        f"PartitionName=gpu Nodes=ALL Default=YES MaxTime=7-00:00:00 PriorityTier=1 {BILLS}",
        f"PartitionName=short Nodes=n[0-2] Default=NO MaxTime=01:00:00 PriorityTier=1 {BILLS}",
    ]
    said = [line.partition(" Gres=")[2] for line in conf(site, "NodeName=")]
    assert said == [
        "gpu:a100:4 Features=ib Weight=4 State=UNKNOWN",
        "gpu:v100:8 Weight=8 State=UNKNOWN",
        "gpu:t4:4 Features=ib Weight=4 State=UNKNOWN",
        "gpu:a100:4 Features=nvme Weight=4 State=UNKNOWN",
        "gpu:v100:8 Features=ib,nvme Weight=8 State=UNKNOWN",
    ]
    assert "PriorityType=priority/multifactor" in conf(site)
    assert "Licenses=cad:2" in conf(site)
    # Slurm's own: backfill every 30 s.
    assert conf(site, "SchedulerParameters") == []


def test_a_partition_s_line_says_all_that_was_given() -> None:
    partition = Partition("low", "n1", priority_tier=7, settings=("PreemptMode=REQUEUE",))
    (line,) = conf(FakeSite(fake_nodes(2), (partition,)), "PartitionName=")
    head = "PartitionName=low Nodes=n1 Default=NO MaxTime=INFINITE"
    assert line == f"{head} PriorityTier=7 PreemptMode=REQUEUE {BILLS}"


def test_partitions_are_read_from_one_word() -> None:
    assert parse_partitions("gpu=n[0-3,5],short=n[0-2],one=n4", fake_nodes(6)) == (
        Partition("gpu", "n[0-3,5]", default=True),
        Partition("short", "n[0-2]"),
        Partition("one", "n4"),
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("gpu", "'gpu' in 'gpu' is no partition: it is not a name, =, and nodes"),
        ("gpu=", "not a name, =, and nodes"),
        ("=n0", "not a name, =, and nodes"),
        ("g pu=n0", "'g pu=n0' in"),
        ("gpu=n[0-", "'gpu=n"),
        ("gpu=n[0-2],short=n[1-3]", "there is no n3, only n"),
        ("gpu=n0,gpu=n1", "gpu is there twice"),
    ],
)
def test_partitions_that_cannot_be_are_refused(text: str, named: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_partitions(text, fake_nodes(3))
    assert named in str(raised.value)
    assert "write for example" in str(raised.value)


def test_a_testbed_of_another_version_is_not_taken_for_this_one_s(tmp_path: Path) -> None:
    (tmp_path / "testbed.json").write_text('{"prefix": "/p", "port": 1, "host": "h", "nodes": []}')
    with pytest.raises(TestbedError, match="made by another version"):
        Testbed.find(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "# a comment\ndeb http://mirror.example/debian bookworm main\n",
        "deb [signed-by=/k] http://mirror.example/debian bookworm main\n",
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\n",
    ],
)
def test_the_mirror_is_the_one_that_apt_uses(text: str) -> None:
    other = "deb http://other.example/tools stable main\n"
    assert debian_mirror([other, text]) == "http://mirror.example/debian"


def test_without_a_debian_archive_the_testbed_says_so() -> None:
    with pytest.raises(TestbedUnavailableError, match="no Debian archive"):
        debian_mirror(["deb http://archive.example/ubuntu jammy main\n"])
