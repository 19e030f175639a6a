"""The tracker as a command, for a scheduler that has no torch: each call prints a line of JSON.

python -m job_wrappers.consolidation FOLDER begin n0=120 n1=60
python -m job_wrappers.consolidation FOLDER show
python -m job_wrappers.consolidation FOLDER consolidate
python -m job_wrappers.consolidation FOLDER finish
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from job_wrappers.consolidation.tracker import Averaging, Tracker


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
    begin.add_argument("steps", nargs="+", metavar="COPY=STEPS", help="who does how many steps")
    begin.add_argument(
        "--ends", type=float, metavar="SECONDS", help="when copies report at the latest, UTC"
    )
    acts.add_parser("show", help="the newest round and the steps reported of it")
    consolidate = acts.add_parser("consolidate", help="average what was reported")
    consolidate.add_argument(
        "--averaging",
        type=Averaging,
        default=Averaging.STEPS,
        metavar="|".join(a.value for a in Averaging),
        help="what a copy's parameters count by (default steps)",
    )
    acts.add_parser("finish", help="tell the copies that the job is over")
    given = parser.parse_args(words)
    try:
        said = _act(Tracker(given.folder, given.nonce), given)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"consolidation: {error}\n")
        return 1
    sys.stdout.write(json.dumps(said) + "\n")
    return 0


def _act(tracker: Tracker, given: argparse.Namespace) -> object:
    if given.act == "begin":
        return asdict(tracker.begin(_steps(given.steps), given.ends))
    if given.act == "finish":
        return asdict(tracker.begin({}))
    if given.act == "consolidate":
        return asdict(tracker.consolidate(given.averaging))
    now = tracker.round()
    return {"round": asdict(now) if now else None, "arrived": tracker.arrived()}


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
