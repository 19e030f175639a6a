"""A copy that only sleeps: takes its turns, counts its steps, and reports; it needs no torch.

python -m job_wrappers.consolidation.stub FOLDER --speed a100=20 --speed t4=5

Told to stop by SIGTERM it reports what it has done so far and leaves.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from job_wrappers.consolidation.copy import Copy, Turn
from job_wrappers.outcome import Wishes
from job_wrappers.slurm import gpu_type_of
from job_wrappers.stub import speeds_of

_POLL_S = 0.1


def main(words: Sequence[str] | None = None) -> int:
    """Be a copy to the end of the job, or until told to stop; 0 for both."""
    parser = argparse.ArgumentParser(
        prog="python -m job_wrappers.consolidation.stub", description="A copy that only sleeps."
    )
    host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    parser.add_argument("folder", type=Path, help="of the job")
    parser.add_argument(
        "--nonce", default=os.environ.get("HETSCHED_NONCE", ""), help="default HETSCHED_NONCE"
    )
    job = os.environ.get("SLURM_JOB_ID")
    parser.add_argument(
        "--name",
        default=f"{host}-{job}" if job else host,
        help="of the copy (default: the node and the job, of which one node may have several)",
    )
    parser.add_argument(
        "--speed",
        action="append",
        default=[],
        metavar="TYPE=STEPS_PER_S",
        help="on nodes of a GPU type; without TYPE=, on all others (repeatable; default 100)",
    )
    given = parser.parse_args(words)
    wishes = Wishes()
    wishes.listen()
    try:
        speeds = speeds_of(given.speed)
        copy = Copy(given.folder, given.nonce, given.name)
        copy.offer({"steps": 0})
        per_s = speeds.get(gpu_type_of(host) or "", speeds[""])
        while not wishes.stop:
            try:
                turn = copy.await_turn(timeout_s=_POLL_S, poll_s=_POLL_S)
            except TimeoutError:
                continue
            if turn is None:
                done, _ = copy.newest_model()
                sys.stdout.write(f"done at {done} steps\n")
                return 0
            steps = _worked(turn, per_s, wishes)
            copy.report(turn, steps, {"steps": turn.done + steps})
            told = {"copy": given.name, "round": turn.number, "first": turn.first, "steps": steps}
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()
        copy.leave()
    except (ValueError, OSError) as error:
        sys.stderr.write(f"stub: {error}\n")
        return 2
    sys.stdout.write("stopped\n")
    return 0


def _worked(turn: Turn, per_s: float, wishes: Wishes) -> int:
    """Sleep through steps until the turn is over; return how many."""
    step, due_s = 0, time.monotonic()
    while not turn.over(step, time.time()) and not wishes.stop:
        due_s += 1.0 / per_s
        time.sleep(max(0.0, due_s - time.monotonic()))
        step += 1
    return step


if __name__ == "__main__":
    sys.exit(main())
