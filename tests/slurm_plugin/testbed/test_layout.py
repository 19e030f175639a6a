"""What the testbed tells Slurm of itself."""

from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from slurm_plugin.testbed import FakeNode, Layout, TestbedUnavailableError, fake_nodes
from slurm_plugin.testbed.packages import debian_mirror


def layout(count: int) -> Layout:
    """A cluster of some nodes, on paper."""
    return Layout(Path("/b"), Path("/p"), 17000, "host", fake_nodes(count))


def test_nodes_get_the_gpu_types_in_turn() -> None:
    assert fake_nodes(3, "a100:4,t4:2") == (
        FakeNode("n0", "a100", 4),
        FakeNode("n1", "t4", 2),
        FakeNode("n2", "a100", 4),
    )


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
    ],
)
def test_a_cluster_that_cannot_be_is_refused(count: int, gpus: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        fake_nodes(count, gpus)


def test_every_node_has_a_port_of_its_own_within_the_range() -> None:
    cluster = layout(5)
    lines = [
        line for line in cluster.files()["slurm.conf"].splitlines() if line.startswith("NodeName=")
    ]
    ports = [int(line.split("Port=")[1].split()[0]) for line in lines]
    assert len(set(ports)) == 5
    taken = {cluster.port, cluster.database_port, cluster.database_daemon_port, *ports}
    assert len(taken) == 8
    assert max(taken) < cluster.port + cluster.ports


def test_each_gpu_has_a_device_file_and_each_type_is_accounted() -> None:
    files = layout(3).files()
    assert "NodeName=n1 Name=gpu Type=v100 File=/b/dev/nvidia[0-7]" in files["gres.conf"]
    tracked = "AccountingStorageTRES=gres/gpu,gres/gpu:a100,gres/gpu:v100,gres/gpu:t4\n"
    assert tracked in files["slurm.conf"]


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
