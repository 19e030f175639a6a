"""Gradients averaged by real processes, and what the scheduler is told of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hetsched_core.records.spool import AllReduce, End
from job_wrappers.bandwidths import ITERATIONS, groups_of
from tests.job_wrappers.worlds import environment, spooled

SIZES = (1000, 1_000_000)


def measure(folder: Path, gpus: int, node: str) -> tuple[int, str]:
    """Run the job by `hetsched-run`, each worker on this node; return its end and its words."""
    sizes = " ".join(map(str, SIZES))
    worker = f"GROUP_RANK={node} exec {sys.executable} -m job_wrappers.bandwidths"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "job_wrappers.launch", f"--spool={folder}/spool"),
            *("--no-requeue", "--", "sh", "-c", f"{worker} --parameters {sizes}"),
        ],
        # It is not to ask a Slurm about the job.
        env=environment(gpus=gpus, more={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(("node", "nodes"), [("0", 1), ("$RANK", 2)])
def test_two_processes_average_and_the_scheduler_is_told_how_long_it_took(
    tmp_path: Path, node: str, nodes: int
) -> None:
    (tmp_path / "spool").mkdir()
    code, said = measure(tmp_path, 2, node)
    assert code == 0, said
    _, *lines, end = spooled(tmp_path)
    assert isinstance(end, End)
    told = [line for line in lines if isinstance(line, AllReduce)]
    assert told == lines
    assert [(t.backend, t.gpus, t.nodes, t.parameters, t.iterations) for t in told] == [
        ("gloo", 2, nodes, size, ITERATIONS) for size in SIZES
    ]
    # A thousand times as much takes longer, whatever else the machine does.
    assert 0 < told[0].seconds < told[1].seconds
    assert said.count("processes without a GPU") == len(SIZES)


def test_one_process_has_nobody_to_average_with(tmp_path: Path) -> None:
    code, said = measure(tmp_path, 1, "0")
    assert code == 2
    assert "one GPU has no other to average with" in said


def test_the_gpus_of_each_node_are_timed_and_those_of_each_node_and_the_next() -> None:
    assert groups_of([0, 0, 1, 1, 2]) == [[0, 1], [2, 3], [0, 2], [2, 4]]
    assert groups_of([0, 0, 0]) == [[0, 1, 2]]
    assert groups_of([4, 2]) == [[0, 1]]
