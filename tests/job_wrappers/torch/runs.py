"""Runs of the training script through the launcher, as a job on one node would have them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetsched_core.spool import Rejection, SpoolLine, SpoolName, SpoolValidator

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = Path(__file__).with_name("train.py")
NONCE = "ab12cd34ef56"


@dataclass(frozen=True)
class Ended:
    """A run that has ended."""

    code: int
    said: str


def environment(run: int, gpus: int, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What Slurm gives to a run of job 77, which is not to ask a Slurm about it."""
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": os.environ.get("HOME", "/"),
        "PYTHONPATH": str(ROOT),
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_NODELIST": "n0",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_GPUS_ON_NODE": str(gpus),
        "SLURMD_NODENAME": "n0",
        "SLURM_RESTART_COUNT": str(run),
        "HETSCHED_NONCE": NONCE,
        "HETSCHED_GPU_TYPE": "cpu",
        "OMP_NUM_THREADS": "1",
        **(more or {}),
    }


def launch(
    folder: Path,
    *words: str,
    gpus: int = 1,
    run: int = 0,
    options: tuple[str, ...] = (),
    more: Mapping[str, str] | None = None,
    script: Path = SCRIPT,
) -> Ended:
    """Run a training script in a folder by `hetsched-run`, to its end."""
    folder.mkdir(exist_ok=True)
    (folder / "spool").mkdir(exist_ok=True)
    command = [
        *(sys.executable, "-m", "job_wrappers.launch", f"--spool={folder}/spool"),
        *("--kill-after=5", *options, "--", sys.executable, str(script), str(folder), *words),
    ]
    done = subprocess.run(
        command, env=environment(run, gpus, more), capture_output=True, text=True, timeout=120
    )
    return Ended(done.returncode, done.stdout + done.stderr)


def losses(folder: Path) -> list[tuple[int, int, float]]:
    """Step, epoch and loss of every step that was made."""
    lines = (folder / "losses.txt").read_text().splitlines()
    return [(int(a), int(b), float(c)) for a, b, c in map(str.split, lines)]


def weights(folder: Path) -> dict[str, Any]:
    """What the script left when it was done."""
    import torch

    found: dict[str, Any] = torch.load(folder / "weights.pt")
    return found


def spooled(folder: Path, run: int = 0) -> list[SpoolLine]:
    """The lines of a run's spool file, each of which the scheduler accepts."""
    name = SpoolName("77", run, 0)
    validator = SpoolValidator(name, NONCE)
    path = folder / "spool" / str(os.getuid()) / str(name)
    lines = [validator.take(line) for line in path.read_bytes().splitlines(keepends=True)]
    accepted = [line for line in lines if not isinstance(line, Rejection)]
    assert accepted == lines
    return accepted
