"""What `hetsched-run` is asked for on its command line."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from job_wrappers import learning_rate
from job_wrappers.learning_rate import SCALINGS, LearningRateRule


@dataclass(frozen=True)
class LauncherOptions:
    """One call of `hetsched-run`.

    Attributes:
        command: what each worker runs.
        torchrun: start the workers by torchrun, and not as plain processes.
        rate: the learning rate to hand on.
        spool: the spool directory; None for none.
        logs: folder for the output of each rank; None to leave it where Slurm puts it.
        gpu_type: of the GPUs; "" to ask Slurm.
        requeue: have Slurm start the job again where a run was stopped by its signal alone.
        kill_after_s: how long the others may go on where a worker has failed.
        unscaled: what to say of a learning rate that follows no rule, unasked; "" of any other.
        meet: under srun, ADDRESS:PORT of rank 0; "" where everything begins.
    """

    command: tuple[str, ...]
    torchrun: bool
    rate: LearningRateRule
    spool: Path | None
    logs: Path | None
    gpu_type: str
    requeue: bool
    kill_after_s: float
    unscaled: str
    meet: str


def read_options(words: Sequence[str] | None, environment: Mapping[str, str]) -> LauncherOptions:
    """Read the command line; ends the process with 2 where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="hetsched-run",
        description="Start one worker for each GPU that Slurm has given to this run of a job.",
        usage="hetsched-run [options] -- python train.py ...",
    )
    add = parser.add_argument
    add("--torchrun", action="store_true", help="start the workers by torchrun")
    add("--spool", type=_folder, metavar="DIR", help="the spool directory (default HETSCHED_SPOOL)")
    add("--logs", type=_folder, metavar="DIR", help="append each rank's output to a file there")
    add("--gpu-type", metavar="TYPE", help="type of the GPUs (default: Slurm is asked)")
    add("--learning-rate", type=_rate, metavar="RATE", help="(default: that of the submission)")
    add("--lr-scaling", choices=SCALINGS, help="how it follows the GPUs (default: submission's)")
    add("--lr-gpus", type=_count, metavar="COUNT", help="the GPUs that --learning-rate is for")
    add("--no-requeue", action="store_true", help="leave it to others to start a stopped job again")
    add(
        "--kill-after",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="how long the others may go on where a worker failed (default 30)",
    )
    add("--meet", default="", help=argparse.SUPPRESS)
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        parser.error("nothing to run; write for example: hetsched-run -- python train.py")
    scaling = given.lr_scaling or environment.get(learning_rate.SCALING) or ""
    follows = scaling not in ("", "none")
    known = given.lr_gpus is not None or environment.get(learning_rate.GPUS)
    if given.learning_rate is not None and follows and not known:
        parser.error(
            f"--learning-rate with --lr-scaling={scaling} needs --lr-gpus=COUNT: for how many GPUs "
            "that rate is"
        )
    if given.logs is not None and given.logs.exists() and not given.logs.is_dir():
        parser.error(f"--logs {given.logs} is a file; give a folder")
    told = dict(environment)
    for name, value in (
        (learning_rate.RATE, given.learning_rate),
        (learning_rate.SCALING, given.lr_scaling),
        (learning_rate.GPUS, given.lr_gpus),
    ):
        if value is not None:
            told[name] = str(value)
    try:
        rate = LearningRateRule.of(told)
    except ValueError as error:
        parser.error(str(error))
    unscaled = ""
    if given.learning_rate is not None and not scaling:
        unscaled = (
            f"--learning-rate={given.learning_rate:g} stays as it is on any number of GPUs; with "
            "--lr-scaling=linear (or sqrt) and --lr-gpus=COUNT it follows them, and "
            "--lr-scaling=none says that it is not to"
        )
    spool = given.spool or environment.get("HETSCHED_SPOOL") or None
    return LauncherOptions(
        command=tuple(command),
        torchrun=given.torchrun,
        rate=rate,
        spool=None if spool is None else Path(spool).absolute(),
        logs=None if given.logs is None else given.logs.absolute(),
        gpu_type=given.gpu_type or environment.get("HETSCHED_GPU_TYPE", ""),
        requeue=not given.no_requeue,
        kill_after_s=given.kill_after,
        unscaled=unscaled,
        meet=given.meet,
    )


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a folder")
    return Path(text)


def _rate(text: str) -> float:
    return _number(text, lambda value: value > 0, "a number above 0")


def _seconds(text: str) -> float:
    return _number(text, lambda value: value >= 0, "seconds, 0 or more")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of GPUs, 1 or more")
    return int(text)


def _number(text: str, fits: Callable[[float], bool], expected: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or not fits(value):
        raise argparse.ArgumentTypeError(f"{text}: expected {expected}")
    return value


def own_root() -> Path:
    """Return what has to be on the path for this package: the zip file it is in, or its folder."""
    return Path(__file__).resolve().parents[2]


def python_path(environment: Mapping[str, str]) -> str:
    """Return PYTHONPATH with this package on it, so that workers find its other half.

    An environment's site-packages stay off it: a worker may run another Python.
    """
    root, given = own_root(), environment.get("PYTHONPATH", "")
    if root.name in ("site-packages", "dist-packages") or str(root) in given.split(os.pathsep):
        return given
    return os.pathsep.join(filter(None, (str(root), given)))
