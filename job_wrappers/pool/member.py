"""A member of a pool: one GPU that runs tasks of trainings in the order that it is given."""

from __future__ import annotations

import math
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable

from job_wrappers.executor import Executor
from job_wrappers.executor.executor import START_TIMEOUT_S
from job_wrappers.executor.process import KILLED_S, DeviceFailedError
from job_wrappers.offspring import Strays
from job_wrappers.outcome import STOPPED
from job_wrappers.pool.folder import Desk, Place, PoolFolder
from job_wrappers.pool.order import PoolOrder, words_of
from job_wrappers.pool.room import host_free, most_processes

BEAT_S = 1.0
"""How often a member shows that it is alive."""


def run_member(
    folder: PoolFolder,
    device: str,
    gpu_type: str,
    *,
    memory_mib: int | None = None,
    standby: int = 4,
    task_timeout_s: float | None = None,
    stopped: Callable[[], bool],
) -> int:
    """Run tasks until the pool ends, or `stopped` says so; what runs then is finished.

    Args:
        folder: the pool.
        device: as torch names it.
        gpu_type: of the device.
        memory_mib: of the device, for models; None for all.
        standby: processes that wait for trainings still to come: each has imported torch already.
        task_timeout_s: after which a task has failed; None for never.
        stopped: whether to stop.

    Returns:
        0 at the pool's end, `STOPPED` when it was told to stop before, 2 when the device cannot be
        used, 1 when it could and no longer can.
    """
    limit = memory_mib << 20 if memory_mib else None
    with Executor(
        *(folder.rounds, []),
        device=device,
        limit=limit,
        standby=standby,
        expected=standby,
        task_timeout_s=task_timeout_s,
        ended=folder.ended,
        strays=Strays(),
    ) as executor:
        try:
            executor.await_standby(stopped)
        except DeviceFailedError as error:
            if stopped():
                return STOPPED
            sys.stderr.write(f"pool member: {error}\n")
            return 2
        # Of the memory that this host's members share.
        free = host_free() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        executor.most_processes = most_processes(executor.footprint(), free, limit)
        node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
        id_ = f"{node}-{device.replace(':', '')}-{os.getpid()}-{secrets.token_hex(3)}"
        place = Place(id_, node, process_space(), device, gpu_type, os.getpid(), time.time())
        desk = Desk(folder, place)
        over = threading.Event()
        heart = threading.Thread(target=_beat, args=(desk, over), daemon=True)
        heart.start()
        try:
            order = PoolOrder(folder, desk, executor, stopped)
            for outcome in executor.run(order):
                if not outcome.failed:
                    desk.tell(
                        "trained",
                        **words_of(outcome.task),
                        loss=_finite(outcome.loss),
                        train_s=outcome.ended_s - outcome.began_s,
                        switch_s=outcome.switch_s,
                        kept=outcome.kept,
                        gpu_type=gpu_type,
                        at_s=time.time(),
                    )
            # What was told to stop may have failed by that: Slurm signals all processes of a step.
            # Its next run shows whether it fails by itself.
            if not stopped():
                order.tell_failures()
        except DeviceFailedError as error:
            # The task is not at fault, and goes to another member.
            sys.stderr.write(f"pool member: {error}\n")
            return STOPPED if stopped() else 1
        finally:
            over.set()
            heart.join()
            desk.close()
    return 0 if folder.stopped else STOPPED


def device_of(local_rank: int) -> str:
    """Return the device of a worker, as torch names it: its GPU, or the CPU where there is none.

    Asked of a process of its own, since one that has looked holds on to what it has found.

    Raises:
        DeviceFailedError: there is no answer.
    """
    look = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    null = subprocess.DEVNULL
    process = subprocess.Popen(look, stdin=null, stdout=subprocess.PIPE, stderr=null, text=True)
    try:
        said, _ = process.communicate(timeout=START_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        # A driver may have it.
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=KILLED_S)
        why = f"torch does not say in {START_TIMEOUT_S:g} s which GPUs it sees"
        raise DeviceFailedError(why) from None
    count = said.strip()
    return f"cuda:{local_rank % int(count)}" if count.isdecimal() and int(count) else "cpu"


def process_space() -> str:
    """Return what names the machine and its process numbers, as the pool's scheduler does."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return f"{socket.gethostname()} {space}"


def _finite(loss: float | None) -> float | None:
    # JSON has no infinity, and a training with one fails by its gradients.
    return loss if loss is not None and math.isfinite(loss) else None


def _beat(desk: Desk, over: threading.Event) -> None:
    while not over.wait(BEAT_S):
        # A file system that is away for a while is no reason to stop.
        with suppress(OSError):
            desk.beat()
