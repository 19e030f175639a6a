"""Stands in for training: sleeps at a speed for each GPU type, and does all else that a job should.

It learns from Slurm what it holds, tells the scheduler how far it is, saves its progress now and
then and when it is told to stop, and goes on from there in its next run, on other GPUs.

    exec python -m job_wrappers.stub --samples 1e6 --speed a100=200 --speed v100=90 --spool DIR
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

if not __package__:  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from job_wrappers.allocation import Allocation
from job_wrappers.files import write_whole
from job_wrappers.moves import await_moves
from job_wrappers.outcome import Wishes
from job_wrappers.slurm import gpu_type_of
from job_wrappers.spool import SpoolWriter

MEASURED_ITERATIONS = 10
"""Iterations after which the parts of one are told."""

_TICK_S = 0.1
_PARTS = (("forward_s", 0.3), ("backward_s", 0.6), ("update_s", 0.1))


def save(path: Path, nonce: str, samples: float) -> None:
    """Write a checkpoint; whatever is killed when, the file holds this one or the one before.

    Raises:
        OSError: the file cannot be written; the checkpoint before is still there.
    """
    write_whole(path, [json.dumps({"nonce": nonce, "samples": samples}).encode()])


def load(path: Path, nonce: str) -> float:
    """Return the samples that were saved for the job of this nonce; 0 if there is nothing of it.

    Raises:
        ValueError: the file holds something else.
        OSError: it cannot be read.
    """
    try:
        state = json.loads(path.read_text())
        return float(state["samples"]) if state.get("nonce") == nonce else 0.0
    except FileNotFoundError:
        return 0.0
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is no checkpoint; move it away to begin anew") from None


class Stub:
    """One run of a job that only sleeps.

    Attributes:
        samples: done over all runs.
    """

    def __init__(self, given: argparse.Namespace, environment: Mapping[str, str]) -> None:
        """Go on from the checkpoint of the run before.

        Args:
            given: the command line.
            environment: what Slurm has given to this run.

        Raises:
            ValueError: this is no job with GPUs, or a speed or the checkpoint is none.
            OSError: the checkpoint cannot be read.
        """
        self._wishes = Wishes()
        self._wishes.listen()
        speeds = speeds_of(given.speed)
        self._given = given
        self._allocation = a = Allocation.of(environment)
        self._saved = given.checkpoint or Path(f"stub.{a.job}.json")
        self.samples = load(self._saved, a.nonce)
        self._gpu_type = given.gpu_type or gpu_type_of(a.host) or "gpu"
        per_gpu = speeds.get(self._gpu_type, speeds[""])
        self._per_gpu = per_gpu * (given.spread if a.node_count > 1 else 1)
        self._spool = SpoolWriter(given.spool, a) if given.spool else None

    def greeting(self) -> list[str]:
        """Return which run this is, what it holds, and why it is here."""
        a, given = self._allocation, self._given
        speed = self._per_gpu * a.gpus
        holds = f"{a.gpus} GPUs ({self._gpu_type}) on {a.nodes}, {speed:g} samples/s"
        done = f"{self.samples:.0f} of {given.samples:.0f} samples done"
        lines = [f"job {a.job} run {a.run}: {holds}, {done}"]
        if self._spool is not None and self._spool.why_not:
            lines.append(f"no spool file: {self._spool.why_not}")
        if given.spool and a.nonce:
            # Why the run before was stopped, and why this one was placed.
            moves = await_moves(given.spool, a)
            lines += [f"moved {m}" for m in moves if m.run == (a.run - 1 if m.before else a.run)]
        return lines

    def run(self) -> bool:
        """Work until all samples are done, or a signal stops it; return whether all are done."""
        wishes, given = self._wishes, self._given
        usual = self._per_gpu * self._allocation.gpus
        rng = random.Random(self._allocation.run)
        now = begun = reported = saved = time.monotonic()
        told = self.samples
        speed = usual * rng.lognormvariate(0.0, given.noise)
        measure_s: float | None = MEASURED_ITERATIONS * given.batch / self._per_gpu
        while self.samples < given.samples and not wishes.stop:
            left_s = (given.samples - self.samples) / speed
            time.sleep(min(_TICK_S, left_s))
            now, before = time.monotonic(), now
            self.samples = min(given.samples, self.samples + speed * (now - before))
            if measure_s is not None and now - begun >= measure_s:
                self._tell_profile()
                measure_s = None
            if now - reported >= given.report_every:
                self._tell_progress((self.samples - told) / (now - reported))
                reported, told = now, self.samples
                speed = usual * rng.lognormvariate(0.0, given.noise)
            if wishes.save or now - saved >= given.save_every:
                wishes.save = False
                self._save()
                saved = now = time.monotonic()
        done: bool = self.samples >= given.samples
        if now > reported:
            self._tell_progress((self.samples - told) / (now - reported))
        self._save()
        self._tell("end", samples=self.samples, how="completed" if done else "stopped")
        return done

    def _save(self) -> None:
        begun = time.monotonic()
        time.sleep(self._given.save_takes)
        save(self._saved, self._allocation.nonce, self.samples)
        self._tell("checkpoint", samples=self.samples, stopped_s=time.monotonic() - begun)

    def _tell_progress(self, samples_per_s: float) -> None:
        rate = {"samples": self.samples, "samples_per_s": samples_per_s}
        self._tell("progress", **rate, data_s=[], wait_s=[])

    def _tell_profile(self) -> None:
        iteration_s = self._given.batch / self._per_gpu
        self._tell(
            "profile",
            gpu_type=self._gpu_type,
            gpus=self._allocation.gpus,
            nodes=self._allocation.node_count,
            batch_size=self._given.batch,
            iterations=MEASURED_ITERATIONS,
            parameters=0,
            pattern=1,
            data_s=[0.0] * MEASURED_ITERATIONS,
            wait_s=[0.0] * MEASURED_ITERATIONS,
            **{name: share * iteration_s for name, share in _PARTS},
        )

    def _tell(self, kind: str, **values: object) -> None:
        if self._spool is not None:
            self._spool.tell(kind, **values)


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="job_wrappers.stub", description=(__doc__ or "").strip())
    add = parser.add_argument
    add("--samples", type=float, required=True, help="samples of the whole job")
    add(
        "--speed",
        action="append",
        default=[],
        metavar="TYPE=SAMPLES_PER_S",
        help="of one GPU of a type; without TYPE=, of all others (repeatable; default 100)",
    )
    add("--spread", type=float, default=1.0, help="speed over several nodes, relative to one")
    add("--noise", type=float, default=0.0, help="relative deviation of the speed (default 0)")
    add("--batch", type=int, default=32, help="samples of an iteration on one GPU (default 32)")
    add(
        "--gpu-type",
        default=os.environ.get("HETSCHED_GPU_TYPE"),
        help="type of its GPUs (default HETSCHED_GPU_TYPE, or what Slurm says of the node)",
    )
    add(
        "--spool",
        type=Path,
        default=os.environ.get("HETSCHED_SPOOL"),
        help="the spool directory (default HETSCHED_SPOOL)",
    )
    add("--checkpoint", type=Path, help="the checkpoint file (default stub.JOB.json)")
    add(
        "--save-every", type=float, default=60.0, metavar="SECONDS", help="time between checkpoints"
    )
    add("--save-takes", type=float, default=0.0, metavar="SECONDS", help="how long one takes")
    add(
        "--report-every",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="time between progress lines",
    )
    return parser.parse_args(words)


def speeds_of(texts: Sequence[str]) -> dict[str, float]:
    """Read `a100=200` and the like; the key "" is for all types that are not named.

    Raises:
        ValueError: a text is not of this form.
    """
    found = {"": 100.0}
    for text in texts:
        name, _, number = text.rpartition("=")
        found[name] = float(number)
        if not found[name] > 0:
            raise ValueError(f"--speed {text}: expected more than 0 samples/s")
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Run one run of the job; 0 when it is done or was stopped."""
    try:
        stub = Stub(_arguments(words), os.environ)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"stub: {error}\n")
        return 2
    for line in stub.greeting():
        _say(line)
    done = stub.run()
    _say(f"{'done' if done else 'stopped'} at {stub.samples:.0f} samples")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
