"""Sweeps on a real Slurm: job arrays, killed half-way and taken up again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hetsched_core.cli import main
from hetsched_core.errors import InputError
from hetsched_core.store.parquet import read_columns
from slurm_plugin.sweep import SlurmRunner, SubmitOptions, slurm_runner
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.jobs import deadline

HETSCHED = (sys.executable, "-c", "import sys, hetsched_core.cli as c; sys.exit(c.main())")

CLUSTER = """\
schema = "hetsched-cluster/1"
[[nodes]]
nodes = "n[1-2]"
gpu_type = "v100"
gpus = 4
"""
SWEEP = """\
schema = "hetsched-sweep/1"
seeds = 3

[[workloads]]
name = "drawn"
generate = { jobs = 20, load = 1.0 }
cluster = "cluster.toml"

[[policies]]
name = "fifo"

[[policies]]
name = "las"
"""


@pytest.fixture
def sweep(tmp_path: Path) -> list[str]:
    """The arguments of a sweep of six runs, two at a time, on Slurm."""
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    (tmp_path / "try.toml").write_text(SWEEP)
    out = f"--out={tmp_path / 'out'}"
    return ["sweep", str(tmp_path / "try.toml"), out, "--on=slurm", "--at-once=2"]


def done(folder: Path) -> set[Path]:
    """The results that are there."""
    return set((folder / "runs").glob("[!.]*.json"))


@pytest.mark.slurm
def test_a_sweep_on_slurm_that_was_killed_goes_on_with_the_runs_that_are_missing(
    testbed: Testbed, tmp_path: Path, sweep: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    killed = subprocess.Popen([*HETSCHED, *sweep], start_new_session=True)
    latest = deadline(120)
    while len(done(out)) < 2:
        assert killed.poll() is None, capfd.readouterr().err
        assert time.monotonic() < latest
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    # Two elements may be under way. They go on without the sweep; the others are taken away.
    name = slurm_runner(out, 2, {}).name
    testbed.command("scancel", "--state=PENDING", f"--name={name}")
    assert 2 <= len(done(out)) < 6
    assert main(sweep) == 0
    assert len(done(out)) == 6
    rows = read_columns(out / "results.parquet")
    assert rows["policy"] == ["fifo", "las"] * 3
    # Each generation and each replay was an element once: none was done anew. The last ones' jobs
    # end, and are accounted for, a moment after their results are there.

    def completed() -> int:
        told = testbed.command("sacct", "-X", "-n", "-P", f"--name={name}", "-oState")
        return told.split().count("COMPLETED")

    wait_until(lambda: completed() >= 3 + 6, "the accounts of all elements", 120)
    assert completed() == 3 + 6


@pytest.mark.slurm
def test_runs_that_an_earlier_sweep_left_under_way_are_waited_for(
    testbed: Testbed, tmp_path: Path
) -> None:
    runner, said = SlurmRunner(tmp_path, 2, SubmitOptions()), list[str]()
    runner.settle(said.append)
    assert said == []
    ended = tmp_path / "ended"
    line = f"--wrap=sleep 2; touch {ended}"
    testbed.command("sbatch", f"--job-name={runner.name}", "--output=/dev/null", line)
    runner.settle(said.append)
    assert ended.exists()
    assert "waiting for 1 runs" in said[0]


@pytest.mark.slurm
def test_a_run_whose_job_is_taken_away_is_told_as_failed(
    testbed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_plugin.sweep.LEFT_AFTER_S", 1.0)
    runner = SlurmRunner(tmp_path, 2, SubmitOptions(time=5))
    testbed.command("scontrol", "update", "partitionname=gpu", "state=down")
    try:
        script = f"until squeue -h --name={runner.name} | grep -q .; do sleep 0.1; done"
        taking = subprocess.Popen(["sh", "-c", f"{script}; scancel --name={runner.name}"])
        found = list(runner.run([("policies",), ("policies",)]))
        assert taking.wait() == 0
    finally:
        testbed.command("scontrol", "update", "partitionname=gpu", "state=up")
    assert sorted(end.at for end in found) == [0, 1]
    assert all("ended without a result" in end.error for end in found)


@pytest.mark.slurm
def test_commands_that_fail_on_slurm_say_what_they_said(testbed: Testbed, tmp_path: Path) -> None:
    runner = SlurmRunner(tmp_path, 2, SubmitOptions(time=5))
    found = {end.at: end.error for end in runner.run([("policies",), ("polices",)])}
    assert found[0] == ""
    assert "No such command 'polices'" in found[1]


def test_a_wrong_option_of_sbatch_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'partition'"):
        slurm_runner(tmp_path, 1, {"partion": "cpu"})
    with pytest.raises(InputError, match="time"):
        slurm_runner(tmp_path, 1, {"time": "soon"})
    options = slurm_runner(tmp_path, 1, {"partition": "cpu", "mem_mb": "2000"}).options
    assert options.parameters() == {"partition": "cpu", "time": 240, "mem": "2000M"}


def test_without_submitit_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(InputError, match=r"pip install 'hetsched\[slurm-sweep\]'"):
        list(slurm_runner(tmp_path, 1, {}).run([("policies",)]))


def test_without_slurm_it_is_said_before_anything_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="there is no squeue"):
        slurm_runner(tmp_path, 1, {}).settle(print)
    with pytest.raises(InputError, match="no host from which jobs can be submitted"):
        list(slurm_runner(tmp_path, 1, {}).run([("policies",)]))
