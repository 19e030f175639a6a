"""What both trainings are asked for on their command line."""

import argparse
import os
import signal
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("out", type=Path)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument(
    "--signal-at", type=int, default=-1, help="step at which the last rank gets SIGTERM"
)
parser.add_argument("--save-at", type=int, default=-1, help="step at which rank 0 gets SIGUSR1")
parser.add_argument("--nap", type=float, default=0.0, help="seconds that each step takes longer")
given = parser.parse_args()
rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def end_step(step: int) -> None:
    """Send the signals that are due after a step, and take a nap."""
    if step == given.signal_at and rank == size - 1:
        os.kill(os.getpid(), signal.SIGTERM)
    if step == given.save_at and rank == 0:
        os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(given.nap)
