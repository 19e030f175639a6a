"""What trainings are asked for on their command line."""

import argparse
import os
import signal
import time
from pathlib import Path

parser = argparse.ArgumentParser()
add = parser.add_argument
add("out", type=Path)
add("--epochs", type=int, default=3)
add("--samples", type=int, default=203)
add("--global-batch", type=int)
add("--lr-scaling")
add("--workers", type=int, default=0)
add("--accumulate", type=int, default=1)
add("--dropout", type=float, default=0.0)
add("--signal-at", type=int, default=-1, help="step at which the last rank gets SIGTERM")
add("--requeue-at", type=int, default=-1, help="step at which the launcher gets SIGTERM")
add("--kill-at", type=int, default=-1, help="step at which all get SIGKILL")
add("--save-at", type=int, default=-1, help="step at which rank 0 gets SIGUSR1")
add("--nap", type=float, default=0.0, help="seconds that each step takes longer")
add("--shard", action="store_true", help="have all ranks write checkpoints")
add("--spoil", action="store_true", help="rank 1 can write no checkpoint")
given = parser.parse_args()
rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def end_step(step: int) -> None:
    """Send the signals that are due after a step, and take a nap."""
    if step == given.signal_at and rank == size - 1:
        os.kill(os.getpid(), signal.SIGTERM)
    if step == given.requeue_at and rank == 0:
        os.kill(os.getppid(), signal.SIGTERM)
    if step == given.save_at and rank == 0:
        os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(given.nap)
