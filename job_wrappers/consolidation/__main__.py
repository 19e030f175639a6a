"""The tracker as a command, for a scheduler that has no torch: each call prints a line of JSON.

python -m job_wrappers.consolidation FOLDER begin n0=120 n1=60
python -m job_wrappers.consolidation FOLDER show
python -m job_wrappers.consolidation FOLDER consolidate
python -m job_wrappers.consolidation FOLDER finish

or all of it, to the end of the job, beside each of its copies:

python -m job_wrappers.consolidation FOLDER track --steps 100000 --round 360 --name n0

The one beside element 0 of a job of copies tells the scheduler how far the job is (HETSCHED_SPOOL).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Callable

from job_wrappers.allocation import Allocation
from job_wrappers.consolidation.rounds import RoundRules, Standing
from job_wrappers.consolidation.tracker import Averaging, Done, Tracker, track
from job_wrappers.spool import SpoolWriter


def main(words: Sequence[str] | None = None) -> int:
    """Do one thing and return 0, or say on stderr why not and return 1."""
    parser = argparse.ArgumentParser(
        prog="python -m job_wrappers.consolidation", description="Rounds of a job with copies."
    )
    parser.add_argument("folder", type=Path, help="what the copies were given")
    parser.add_argument(
        "--nonce", default=os.environ.get("HETSCHED_NONCE", ""), help="default HETSCHED_NONCE"
    )
    acts = parser.add_subparsers(dest="act", required=True)
    begin = acts.add_parser("begin", help="begin a round")
    begin.add_argument("steps", nargs="+", metavar="COPY=STEPS", help="how many steps each does")
    begin.add_argument(
        "--ends", type=float, metavar="SECONDS", help="when copies report at the latest, UTC"
    )
    acts.add_parser("show", help="the newest round and the steps reported of it")
    consolidate = acts.add_parser("consolidate", help="average what was reported")
    acts.add_parser("finish", help="tell the copies that the job is over")
    every = acts.add_parser("track", help="run the rounds to the end of the job")
    every.add_argument("--steps", type=int, required=True, help="of the whole job")
    times = (
        ("round", RoundRules.round_s, "how long a round lasts at most"),
        ("late", RoundRules.late_s, "how long after its end reports are waited for"),
        ("gather", RoundRules.gather_s, "how long the first round waits for more copies"),
        ("poll", 1.0, "how often to look"),
    )
    for name, default, meaning in times:
        every.add_argument(
            f"--{name}",
            type=float,
            default=default,
            metavar="SECONDS",
            help=f"{meaning} (default {default:g})",
        )
    every.add_argument(
        "--batch",
        type=float,
        default=1.0,
        metavar="SAMPLES",
        help="of a step, as --total-samples of the job counts them (default 1)",
    )
    every.add_argument("--name", help="the copy beside which this runs (default: it runs alone)")
    for act in (consolidate, every):
        act.add_argument(
            "--averaging",
            type=Averaging,
            default=Averaging.STEPS,
            metavar="|".join(a.value for a in Averaging),
            help="what a copy's parameters count by (default steps)",
        )
    given = parser.parse_args(words)
    try:
        if given.act in ("begin", "track"):
            given.folder.mkdir(parents=True, exist_ok=True)
        elif not given.folder.is_dir():
            raise ValueError(
                f"{given.folder} is no folder: name the one that the copies were given"
            )
        said = _act(Tracker(given.folder, given.nonce), given)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"consolidation: {error}\n")
        return 1
    _say(said)
    return 0


def _act(tracker: Tracker, given: argparse.Namespace) -> object:
    if given.act == "begin":
        return asdict(tracker.begin(_steps(given.steps), given.ends))
    if given.act == "finish":
        return asdict(tracker.begin({}))
    if given.act == "track":
        rules = RoundRules(given.steps, given.round, given.late, given.gather)
        averaging, poll_s = given.averaging, given.poll
        watch = _watching(given.name or "", given.batch, os.environ)
        done = track(tracker, rules, given.name, averaging, tell=_tell, watch=watch, poll_s=poll_s)
        return {"done": done}
    if given.act == "consolidate":
        return asdict(tracker.consolidate(given.averaging))
    now = tracker.round()
    return {"round": asdict(now) if now else None, "arrived": tracker.arrived()}


@dataclass
class _Spooled:
    """Tells in the spool file of this run how many samples the job has done, and how fast it is."""

    spool: SpoolWriter
    name: str
    batch: float
    told: int = -1

    def watch(self, seen: Standing) -> None:
        """Tell of what has become part of the model since."""
        if seen.done is None or seen.done <= self.told:
            return
        self.told = seen.done
        rate = seen.rates.get(self.name, 0.0)
        values = {"samples": seen.done * self.batch, "samples_per_s": rate * self.batch}
        self.spool.tell("progress", data_s=[], wait_s=[], **values)


def _watching(
    name: str, batch: float, environment: Mapping[str, str]
) -> Callable[[Standing], None]:
    """Return what tells the scheduler; None but beside the element that speaks for the job."""
    folder = environment.get("HETSCHED_SPOOL", "")
    leads = environment.get("SLURM_ARRAY_TASK_ID") == "0" and "HETSCHED_COPIES" in environment
    if not (folder and leads):
        return lambda _: None
    spool = SpoolWriter(Path(folder), Allocation.of(environment))
    if spool.why_not:
        sys.stderr.write(f"consolidation: {spool.why_not}\n")
    return _Spooled(spool, name, batch).watch


def _tell(done: Done) -> None:
    _say({"act": type(done.act).__name__.lower(), **asdict(done.result)})


def _say(said: object) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def _steps(texts: Sequence[str]) -> dict[str, int]:
    found = {}
    for text in texts:
        copy, _, steps = text.rpartition("=")
        if not copy or not steps.isdecimal():
            raise ValueError(f"{text}: expected COPY=STEPS")
        found[copy] = int(steps)
    return found


if __name__ == "__main__":
    sys.exit(main())
