"""What a pool's job runs on each of its GPUs: a keeper of a member, or the member itself.

hetsched-run -- python3 -m job_wrappers.pool POOL
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from job_wrappers.outcome import Wishes
from job_wrappers.pool.folder import PoolFolder
from job_wrappers.pool.keeper import Kept, keep
from job_wrappers.pool.member import device_of, run_member


def main(words: Sequence[str] | None = None) -> int:
    """Run until the pool ends or a signal says so; 2 when pool or device is no good."""
    parser = argparse.ArgumentParser(
        prog="python -m job_wrappers.pool", description="A GPU of a pool of trainings."
    )
    parser.add_argument("pool", type=Path, help="the pool's folder")
    parser.add_argument("--device", default="", help="as torch names it (default that of the rank)")
    parser.add_argument("--gpu-type", default=os.environ.get("HETSCHED_GPU_TYPE", "gpu"))
    parser.add_argument("--memory-mib", type=int, metavar="MIB", help="of the device, for models")
    parser.add_argument("--task-timeout", type=float, metavar="S", help="a task that takes longer "
                        "has failed, and its training with it (default never)")  # fmt: skip
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
        device = options.device or device_of(int(os.environ.get("LOCAL_RANK", "0")))
        return run_member(
            *(folder, device, options.gpu_type),
            memory_mib=options.memory_mib,
            task_timeout_s=options.task_timeout,
            stopped=lambda: wishes.stop,
        )
    rank = int(os.environ.get("RANK", "0"))
    kept = [Kept("member", [sys.executable, "-m", "job_wrappers.pool", *given, "--member"])]
    if rank == 0 and options.scheduler:
        kept.append(Kept("scheduler", [*options.scheduler.split(), str(folder.path)]))
    return keep(kept, rank)


if __name__ == "__main__":
    sys.exit(main())
