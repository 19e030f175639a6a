"""What a pool's job runs on each of its GPUs: a keeper of a member, or the member itself.

hetsched-run -- python3 -m job_wrappers.pool POOL
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable

from job_wrappers.executor.process import DeviceFailedError
from job_wrappers.offspring import adopt
from job_wrappers.outcome import Wishes
from job_wrappers.pool.folder import PoolFolder
from job_wrappers.pool.keeper import Kept, keep
from job_wrappers.pool.member import device_of, run_member
from job_wrappers.slurm import gpu_type_of

NO_TYPE = "gpu"
"""Of a GPU of which nobody says what it is."""

MOST = 10**9
"""Of each number that is given."""


def main(words: Sequence[str] | None = None) -> int:
    """Run until the pool ends or a signal says so; 2 when pool or device is no good."""
    parser = argparse.ArgumentParser(
        prog="python -m job_wrappers.pool", description="A GPU of a pool of trainings."
    )
    parser.add_argument("pool", type=Path, help="the pool's folder")
    parser.add_argument("--device", default="", help="as torch names it (default that of the rank)")
    parser.add_argument("--gpu-type", default="", help="(default what Slurm says)")
    parser.add_argument(
        "--memory-mib", type=whole(1), metavar="MIB", help="of the device, for models"
    )
    parser.add_argument(
        "--standby",
        type=whole(0),
        default=4,
        metavar="N",
        help="processes that wait for trainings to come (default 4)",
    )
    parser.add_argument(
        "--task-timeout",
        type=seconds,
        metavar="S",
        help="a task that takes longer has failed, and its training with it (default never)",
    )
    parser.add_argument("--member", action="store_true", help="be the member, without a keeper")
    parser.add_argument(
        "--scheduler",
        default="hetsched pool schedule",
        metavar="COMMAND",
        help="the first rank keeps this running, followed by the pool; '' for none "
        "(default %(default)s)",
    )
    given = list(sys.argv[1:] if words is None else words)
    options = parser.parse_args(given)
    try:
        folder = PoolFolder(options.pool).check()
    except ValueError as error:
        sys.stderr.write(f"pool: {error}\n")
        return 2
    if options.member:
        wishes = Wishes()
        wishes.listen()
        gpu_type = options.gpu_type or own_type(os.environ)
        # For the user's own code, too.
        os.environ["HETSCHED_GPU_TYPE"] = gpu_type
        try:
            device = options.device or device_of(int(os.environ.get("LOCAL_RANK", "0")))
        except DeviceFailedError as error:
            sys.stderr.write(f"pool member: {error}\n")
            return 2
        if device == "cpu" and not options.device and gpu_type != NO_TYPE:
            sys.stderr.write(
                f"pool member: torch sees no GPU where one of type {gpu_type} should be; it trains "
                "on the CPU: see CUDA_VISIBLE_DEVICES, the driver, and whether torch is built for "
                "GPUs\n"
            )
        return run_member(
            *(folder, device, gpu_type),
            memory_mib=options.memory_mib,
            standby=options.standby,
            task_timeout_s=options.task_timeout,
            stopped=lambda: wishes.stop,
        )
    rank = int(os.environ.get("RANK", "0"))
    kept = [Kept("member", [sys.executable, "-m", "job_wrappers.pool", *given, "--member"])]
    if rank == 0 and options.scheduler.split():
        kept.append(Kept("scheduler", [*options.scheduler.split(), str(folder.path)]))
    return keep(kept, rank, lambda: folder.stopped)


def whole(least: int) -> Callable[[str], int]:
    """Return what reads a whole number that is no less than this, as argparse asks it."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= MOST:
            raise argparse.ArgumentTypeError(
                f"{text!r}: expected a whole number from {least} to {MOST}"
            )
        return int(text)

    return read


def seconds(text: str) -> float:
    """Return seconds above 0, as argparse asks for them."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0.0 < found <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds above 0 and up to {MOST}")
    return found


def own_type(environment: Mapping[str, str]) -> str:
    """Return the type of this worker's GPU: a job that spans nodes may have several."""
    node = environment.get("SLURMD_NODENAME", "")
    one = environment.get("HETSCHED_NODES", "1") == "1"
    found = None if one or not node else gpu_type_of(node)
    return found or environment.get("HETSCHED_GPU_TYPE") or NO_TYPE


if __name__ == "__main__":
    adopt()
    sys.exit(main())
