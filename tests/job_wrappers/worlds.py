"""A run of job 77 for tests of job wrappers: what it is told, what it says, how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from hetsched_core.records.spool import Rejection, SpoolLine, SpoolName, SpoolValidator
from job_wrappers.allocation import Allocation
from job_wrappers.consolidation import Copy, Tracker
from job_wrappers.states import leaves

ROOT = Path(__file__).resolve().parents[2]
NONCE = "ab12cd34ef56"
JOB_PYTHON = os.environ.get("HETSCHED_JOB_PYTHON", sys.executable)
"""A job's own Python may be older than that of these tests."""
DEVICE = os.environ.get("HETSCHED_DEVICE", "cpu")
"""On which the tests with torch train: `make test-gpu` says cuda."""


def environment(
    run: int = 0, gpus: int = 2, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What Slurm gives to a run of job 77."""
    own = {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n0", "SLURM_JOB_NUM_NODES": "1"}
    own |= {"SLURM_GPUS_ON_NODE": str(gpus), "HETSCHED_NONCE": NONCE, "SLURMD_NODENAME": "n0"}
    if run:
        own["SLURM_RESTART_COUNT"] = str(run)
    return own | {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)} | dict(more or {})


def allocation(**changes: str) -> Allocation:
    """What that run holds."""
    return Allocation.of(environment(more=changes))


def wait_for(path: Path, text: str = "") -> str:
    """Wait until a file is there and holds a text; return all of it."""
    deadline = time.monotonic() + 60
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.02)
    return path.read_text()


def tool(folder: Path, name: str, script: str) -> Path:
    """Write a command, of Slurm's for example, that answers by a shell script."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def spool_of(folder: Path, run: int = 0) -> Path:
    """The spool file of a run's first rank."""
    return folder / "spool" / str(os.getuid()) / str(SpoolName("77", run, 0))


def accepted(path: Path) -> list[SpoolLine]:
    """The lines of a spool file, each of which the scheduler accepts."""
    _, run, _, _ = path.name.split(".")
    validator = SpoolValidator(SpoolName("77", int(run), 0), NONCE)
    lines = [validator.take(line) for line in path.read_bytes().splitlines(keepends=True)]
    found = [line for line in lines if not isinstance(line, Rejection)]
    assert found == lines
    return found


def spooled(folder: Path, run: int = 0) -> list[SpoolLine]:
    """What a run has told the scheduler."""
    return accepted(spool_of(folder, run))


# -- copies ----------------------------------------------------------------------------------------


def begun(folder: Path, start: object, **steps: int) -> tuple[Tracker, dict[str, Copy]]:
    """A job whose first round has begun, and its copies, each of which takes part."""
    tracker = Tracker(folder, NONCE)
    copies = {name: Copy(folder, NONCE, name) for name in steps}
    for copy in copies.values():
        copy.offer(start)
        with pytest.raises(TimeoutError):
            copy.await_turn(0.0)
    tracker.begin(steps)
    return tracker, copies


# -- the launcher ----------------------------------------------------------------------------------

MODULE = (JOB_PYTHON, "-m", "job_wrappers.launch")
SHOW = "import os, json; print(json.dumps(dict(os.environ)))"


def launched(
    *words: str, gpus: int = 2, more: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start it."""
    return subprocess.Popen(
        [*MODULE, *words],
        env=environment(gpus=gpus, more=more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for its end; return its exit code and what it said."""
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


def run(*words: str, gpus: int = 2, more: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run it to its end; return its exit code and what it said."""
    return ended(launched(*words, gpus=gpus, more=more))


def shown(
    *words: str, gpus: int = 2, more: Mapping[str, str] | None = None
) -> list[dict[str, str]]:
    """Return the environment of each worker, by rank."""
    process = launched(*words, "--", sys.executable, "-c", SHOW, gpus=gpus, more=more)
    out, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    return sorted(map(json.loads, out.splitlines()), key=lambda one: int(one["RANK"]))


# -- with torch ------------------------------------------------------------------------------------

SCRIPT = Path(__file__).parent / "torch" / "train.py"


def launch(
    folder: Path,
    *words: str,
    gpus: int = 1,
    run: int = 0,
    options: tuple[str, ...] = (),
    script: Path = SCRIPT,
    code: int | Collection[int] = 0,
) -> str:
    """Run a training by `hetsched-run` to its end with (one of) this code; return its words."""
    (folder / "spool").mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "job_wrappers.launch", f"--spool={folder}/spool"),
        *("--kill-after=5", *options, "--", sys.executable, str(script), str(folder), *words),
    ]
    # It is not to ask a Slurm about the job.
    own = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HETSCHED_GPU_TYPE": "cpu"}
    own["HETSCHED_DEVICE"] = DEVICE
    own |= {"HOME": os.environ.get("HOME", "/"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment(run, gpus, own), capture_output=True, text=True, timeout=120
    )
    said = done.stdout + done.stderr
    assert done.returncode in ((code,) if isinstance(code, int) else code), said
    return said


def losses(folder: Path) -> list[tuple[int, int, float]]:
    """Step, epoch and loss of every step that was made."""
    lines = (folder / "losses.txt").read_text().splitlines()
    return [(int(a), int(b), float(c)) for a, b, c in map(str.split, lines)]


def weights(folder: Path) -> dict[str, Any]:
    """What the script left when it was done."""
    import torch

    found: dict[str, Any] = torch.load(folder / "weights.pt")
    return found


def same(left: object, right: object) -> bool:
    """Whether two states are equal bit for bit."""
    import torch

    ours, others = dict(leaves(left)), dict(leaves(right))
    return ours.keys() == others.keys() and all(
        torch.equal(leaf, others[path]) if isinstance(leaf, torch.Tensor) else leaf == others[path]
        for path, leaf in ours.items()
    )


def assert_same_training(one: Path, other: Path, rel: float) -> None:
    """Check that two trainings are the same, but for sums in another order."""
    found, expected = losses(one), losses(other)
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in expected], rel=rel)
    a, b = weights(one), weights(other)
    assert a["lr"] == b["lr"]
    for name, tensor in b["model"].items():
        near = pytest.approx(tensor.flatten().tolist(), rel=10 * rel, abs=rel / 100)
        assert a["model"][name].flatten().tolist() == near
