"""Sweeps as job arrays on Slurm, through submitit."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hetsched_core.errors import HetschedError, InputError, unknown
from hetsched_core.sweep.local import Command, CommandEnd, last_line, perform
from hetsched_core.values.text import from_text

POLL_S = 1.0
"""Seconds between two looks at what has ended."""

LEFT_AFTER_S = 15.0
"""A job that has left Slurm's queue for so long without a result will not bring one."""

MOST_ELEMENTS = 500
"""Elements of one array: Slurm's MaxArraySize is 1,001 where nobody changed it."""


class SlurmSweepError(HetschedError):
    """Slurm, or submitit, did not do as it was told."""


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """How the jobs of a sweep are submitted; "" and 0 leave it to the site.

    Attributes:
        partition, account, qos: as of sbatch.
        time: minutes that one run may take.
        mem_mb: MiB of memory of a run.
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    time: int = 240
    mem_mb: int = 0

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SubmitOptions:
        """Return the options that are written as text.

        Raises:
            InputError: one is unknown, or not of its type.
        """
        types = {field.name: type(field.default) for field in fields(cls)}
        for name in given:
            if name not in types:
                raise unknown("option of sbatch", name, types)
        return cls(**{key: from_text(key, text, types[key]) for key, text in given.items()})

    def parameters(self) -> dict[str, Any]:
        """Return them as submitit's."""
        found: dict[str, Any] = {
            key: value
            for key in ("partition", "account", "qos")
            if (value := getattr(self, key)) != ""
        }
        return found | {"time": self.time} | ({"mem": f"{self.mem_mb}M"} if self.mem_mb else {})


@dataclass(frozen=True, slots=True)
class SlurmRunner:
    """Carries out each command as an element of a job array, so many at a time.

    The sweep's folder, and this Python with hetsched in it, must be where the jobs run, too.

    Attributes:
        folder: the sweep's folder; scripts, output and answers of the jobs go into `slurm` there.
        at_once: elements that may run at a time.
        options: how they are submitted.
    """

    folder: Path
    at_once: int
    options: SubmitOptions

    @property
    def name(self) -> str:
        """The name of the jobs in Slurm, the same for every sweep into this folder."""
        return "hetsched-sweep-" + hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]

    def settle(self, say: Callable[[str], None]) -> None:
        """Wait for jobs that an earlier sweep into this folder has left, so as to run none twice.

        Raises:
            SlurmSweepError: Slurm does not answer.
        """
        left = self._in_queue()
        if left:
            say(
                f"waiting for {len(left)} runs of an earlier sweep into this folder "
                f"(scancel --name={self.name} to give them up)"
            )
        while self._in_queue():
            time.sleep(POLL_S)

    def run(self, commands: Sequence[Command]) -> Iterator[CommandEnd]:
        """Carry out commands; those of a job that is lost are told as failed.

        Whoever stops listening cancels what has not ended.

        Raises:
            InputError: submitit, or Slurm's commands, are not there.
            SlurmSweepError: Slurm does not take a job, or does not answer.
        """
        if not commands:
            return
        executor = self._executor()
        # Element k does every `most`-th command from k on, one after another.
        most = min(len(commands), MOST_ELEMENTS)
        parts = [range(first, len(commands), most) for first in range(most)]
        try:
            jobs = executor.map_array(
                perform_all, [[commands[at] for at in part] for part in parts]
            )
        except Exception as error:
            raise SlurmSweepError(
                f"Slurm takes no job array: {last_line(str(error), repr(error))}"
            ) from error
        waiting = {job.job_id: (job, part) for job, part in zip(jobs, parts, strict=True)}
        gone_since: dict[str, float] = {}
        try:
            while waiting:
                here = self._in_queue()
                now = time.monotonic()
                for name, (job, part) in list(waiting.items()):
                    lost = name not in here and now - gone_since.setdefault(name, now)
                    if job.paths.result_pickle.exists() or lost > LEFT_AFTER_S:
                        del waiting[name]
                        yield from _ended(job, part)
                if waiting:
                    time.sleep(POLL_S)
        finally:
            if waiting:
                _slurm("scancel", *{name.partition("_")[0] for name in waiting})

    def _executor(self) -> Any:
        try:
            import submitit
        except ImportError:
            raise InputError(
                "sweeps on Slurm need submitit, which is not installed: "
                "pip install 'hetsched[slurm-sweep]'"
            ) from None
        try:
            executor = submitit.SlurmExecutor(
                self.folder / "slurm", python=shlex.quote(sys.executable)
            )
        except RuntimeError as error:
            raise InputError(
                f"this is no host from which jobs can be submitted to Slurm: {error}"
            ) from None
        executor.update_parameters(
            job_name=self.name,
            array_parallelism=self.at_once,
            cpus_per_task=1,
            use_srun=False,
            **self.options.parameters(),
        )
        return executor

    def _in_queue(self) -> frozenset[str]:
        """Return the ids of jobs of this sweep that are waiting or running."""
        listed = _slurm("squeue", "--noheader", "--me", "--array", f"--name={self.name}", "-o%i")
        return frozenset(listed.split())


def slurm_runner(folder: Path, at_once: int, given: Mapping[str, str]) -> SlurmRunner:
    """Return the runner named `slurm` (entry-point group `hetsched.runners`)."""
    return SlurmRunner(folder, at_once, SubmitOptions.of(given))


def perform_all(commands: Sequence[Command]) -> list[str]:
    """Carry out commands of `hetsched` one after another; return the error of each, or ""."""
    return [perform(command) for command in commands]


def _ended(job: Any, part: Sequence[int]) -> Iterator[CommandEnd]:
    """Say how the commands of a job ended."""
    if not job.paths.result_pickle.exists():
        log = f"; its output is in {job.paths.stderr}" if job.paths.stderr.exists() else ""
        errors = [f"its Slurm job {job.job_id} ended without a result{log}"] * len(part)
    else:
        try:
            errors = job.result()
        except Exception as error:  # submitit tells what the job raised in several types.
            errors = [last_line(str(error), repr(error))] * len(part)
    yield from (CommandEnd(at, error) for at, error in zip(part, errors, strict=True))


def _slurm(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise InputError(
            f"this is no host from which jobs can be submitted to Slurm: there is no {command[0]}"
        ) from None
    except subprocess.CalledProcessError as error:
        raise SlurmSweepError(
            f"{command[0]} failed: {error.stderr.strip() or error.returncode}; "
            "the same command goes on when Slurm answers again"
        ) from None
    return done.stdout
