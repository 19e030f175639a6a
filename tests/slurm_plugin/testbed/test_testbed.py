"""The private Slurm: real daemons, real jobs."""

import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from slurm_plugin.testbed import (
    Installation,
    Testbed,
    TestbedError,
    default_cache,
    fake_nodes,
    install,
)
from slurm_plugin.testbed.processes import wait_until
from slurm_plugin.testbed.pyslurm_build import why_no_pyslurm
from tests.slurm_plugin.jobs import end_all
from tests.slurm_plugin.submit.asking import sbatch, shown

pytestmark = pytest.mark.slurm

SCRIPT = Path(sysconfig.get_path("scripts")) / "hetsched"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="hs-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def hetsched(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *words], capture_output=True, text=True, timeout=500, check=False
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def test_all_nodes_are_idle_with_their_gpus(testbed: Testbed) -> None:
    # An earlier test may have left jobs.
    end_all(testbed)
    testbed.await_idle()
    status = testbed.status()
    assert status.up
    listing = testbed.command("sinfo", "--noheader", "--Node", "--format=%N %G")
    told = dict(line.split() for line in listing.splitlines())
    assert told == {node.name: f"gpu:{node.gpu_type}:{node.gpus}" for node, _ in status.nodes}


def test_a_site_runs_jobs_of_each_partition_as_they_were_asked(
    testbed: Testbed, pytestconfig: pytest.Config
) -> None:
    cluster = testbed
    assert cluster.installed.release == pytestconfig.getoption("--slurm")
    assert Testbed.find(cluster.layout.base) == cluster
    wants = {
        "gpu": ("--constraint=ib&nvme", "--gpus-per-node=v100:5", "--time=2:00:00"),
        "short": ("--constraint=ib", "--gpus-per-node=2", "--licenses=cad:2", "--time=20"),
    }
    jobs = {
        partition: sbatch(cluster, f"--partition={partition}", *words, "--wrap=sleep 600")
        for partition, words in wants.items()
    }
    try:
        listed = ("squeue", "--noheader", "--states=RUNNING", "--format=%i")
        wait_until(lambda: len(cluster.command(*listed).split()) == 2, "both jobs running", 120)
        gpu, short = (shown(cluster, jobs[partition]) for partition in wants)
        assert {gpu["Partition"], short["Partition"]} == set(wants)
        assert (gpu["NodeList"], gpu["TimeLimit"]) == ("n4", "02:00:00")
        assert (gpu["Features"], gpu["TresPerNode"]) == ("ib&nvme", "gres/gpu:v100:5")
        assert gpu["AllocTRES"].endswith("gres/gpu=5,gres/gpu:v100=5")
        assert short["NodeList"] in ("n0", "n2")
        assert (short["Features"], short["TresPerNode"]) == ("ib", "gres/gpu:2")
        assert (short["Licenses"], short["TimeLimit"]) == ("cad:2", "00:20:00")
        assert "Used=2 Free=0" in cluster.command("scontrol", "show", "licenses")
        # Of the weights' sum of 112,100 a new account has at least those of its whole share.
        assert 100_000 < int(gpu["Priority"]) <= 112_100
    finally:
        end_all(cluster)


def test_the_prefix_is_used_again_without_asking_the_network(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_plugin.testbed.packages.run", lambda *_, **__: pytest.fail("run"))
    assert install(default_cache(), release=installation.release) == installation


def test_nothing_of_it_is_installed_on_the_host(installation: Installation) -> None:
    known = subprocess.run(
        ["dpkg", "--search", installation.program("slurmctld")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert known.returncode == 1, known.stdout


def test_a_slurm_of_another_version_says_why_there_is_no_pyslurm() -> None:
    assert why_no_pyslurm((26, 5, 5)) == ""
    assert "no pyslurm is known to fit Slurm 27.11.1" in why_no_pyslurm((27, 11, 1))


def test_the_command_line_brings_a_cluster_up_shows_it_and_takes_it_down(
    installation: Installation, folder: Path
) -> None:
    base = folder / "tb"
    at = f"--directory={base}"
    partitions = "--partitions=big=n[0-1],small=n0"
    up = hetsched("testbed", "up", "--nodes=2", "--gpus=h100:2+t4:1", partitions, at)
    try:
        assert up.returncode == 0, up.stderr
        tell = 'eval "$1"; sbatch -o /dev/null --wrap "sleep 100" >&2; squeue -h -o %P'
        words = ["bash", "-c", tell, "-", up.stdout]
        ran = subprocess.run(words, capture_output=True, text=True, check=True)
        assert ran.stdout.split() == ["big"]
        status = hetsched("testbed", "status", at)
        assert status.returncode == 0, status.stderr
        assert "n1         h100:2+t4:1  " in status.stdout
        again = hetsched("testbed", "up", at)
        assert again.returncode == 1
        assert "is not empty" in again.stderr
    finally:
        down = hetsched("testbed", "down", at)
    assert down.returncode == 0, down.stderr
    assert not base.exists()
    left = [
        command
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if str(base) in (command := _read(path)) and str(SCRIPT) not in command
    ]
    assert left == []
    gone = hetsched("testbed", "status", at)
    assert gone.returncode == 1
    assert "hetsched testbed up" in gone.stderr


@pytest.mark.smoke
@pytest.mark.slow
def test_the_demo_places_and_moves_six_jobs(installation: Installation) -> None:
    done = hetsched("testbed", "demo")
    assert done.returncode == 0, done.stdout + done.stderr
    for job in range(1, 7):
        assert f" event=place job={job} " in done.stderr
    assert " event=requeue job=" in done.stderr
    assert done.stdout.endswith("all done; the testbed is down\n")


def test_a_directory_that_cannot_hold_a_testbed_is_refused(
    installation: Installation, folder: Path
) -> None:
    (folder / "file").touch()
    with pytest.raises(InputError, match="is not empty"):
        Testbed.create(installation, folder, fake_nodes(1))
    with pytest.raises(InputError, match="at most 60"):
        Testbed.create(installation, folder / ("x" * 60), fake_nodes(1))
    with pytest.raises(TestbedError, match="there is no testbed in"):
        Testbed.find(folder / "none")
