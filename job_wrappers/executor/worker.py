"""A process that stands by with its context made until it is given a job, which it keeps.

    python -m job_wrappers.executor.worker DESCRIPTOR DEVICE

The descriptor is one end of a socket: messages of JSON, one answer to each but `train`, which has
two. A process serves one job in its life, so that nothing of a job is ever in reach of another.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import traceback
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from job_wrappers import offspring
from job_wrappers.executor.job import TaskJob
from job_wrappers.executor.process import DEAF_TO
from job_wrappers.executor.reason import reason
from job_wrappers.executor.trainer import Trainer


def main(words: list[str]) -> int:
    """Serve until the other end is closed, or the job fails."""
    # An interrupt goes to every process on the terminal, and what tells a job of Slurm to stop to
    # all of its processes; the executor closes the other end. It began deaf to them, which what the
    # job's code starts is not to be.
    for number in DEAF_TO.split():
        signal.signal(signal.Signals[f"SIG{number}"], _deaf)
    descriptor = int(words[0])
    # A helper that had it would keep the other end from seeing that this process is gone.
    os.set_inheritable(descriptor, False)
    connection = Connection(descriptor)
    # What the job's code starts ends with this process, and never answers for it.
    own = os.getpid()
    offspring.adopt()
    os.register_at_fork(after_in_child=connection.close)
    _mind_forks()
    code = _answer_all(connection, words[1])
    if os.getpid() != own:
        # What is left of this training is its parent's.
        os._exit(code)
    offspring.end_below(own)
    return code


def _deaf(*_: object) -> None:
    pass


def _mind_forks() -> None:
    """Have what is forked end by SIGTERM, which `multiprocessing` ends its workers with.

    One that comes before the new process has undone what it was forked with waits until then.
    """
    held = threading.local()

    def hold() -> None:
        held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, held.mask)

    def heed() -> None:
        if signal.getsignal(signal.SIGTERM) is _deaf:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        release()

    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=heed)


def _answer_all(connection: Connection, device: str) -> int:
    """Serve until the other end is closed, or the job fails; return the exit code."""
    names: list[str] = []
    try:
        try:
            free, total = _use(device)
        except (
            Exception
        ) as error:  # not the job's fault, and nothing that its code is to be seen in
            _say(connection, failed=str(error)[:2000])
            return 1
        _say(connection, device_free=free, device_total=total)
        _serve(connection, device, names)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return 0
    except BaseException as error:
        forked = connection.closed
        if forked and isinstance(error, SystemExit):
            return error.code if isinstance(error.code, int) else int(error.code is not None)
        # Whatever a job's code raises, SystemExit too, ends this process and no other.
        sys.stderr.write("".join(f"training {name}:\n" for name in names))
        traceback.print_exc()
        if not forked:
            with contextlib.suppress(OSError):
                _say(connection, failed=reason(error))
        return 1
    return 0


def _use(device: str) -> tuple[int, int]:
    """Make the context, and what is made at the first use of it.

    Returns:
        Bytes of the device that are free then, and all of them; 0 where it is the host.
    """
    import torch

    # On the host: a process of each job works there, one at a time.
    torch.set_num_threads(1)
    where = torch.device(device)
    if where.type == "cuda":
        count, index = torch.cuda.device_count(), where.index or 0
        if index >= count:
            raise ValueError(f"torch {torch.__version__} sees {count} CUDA devices")
        torch.cuda.set_device(index)
    some = torch.randn(32, 32, device=where, requires_grad=True)
    (some @ some).sum().backward()
    if where.type != "cuda":
        return 0, 0
    torch.cuda.synchronize(where)
    free, total = torch.cuda.mem_get_info(where)
    return int(free), int(total)


def _serve(connection: Connection, device: str, names: list[str]) -> None:
    """Do what is asked, and note of which job."""
    trainer: Trainer | None = None
    while True:
        said = json.loads(connection.recv_bytes())
        act = said["do"]
        if act == "try":
            _use(device)
            _say(connection, works=True)
            continue
        if act == "take":
            job = TaskJob(**said["job"])
            names.append(job.name)
            trainer = Trainer(job, Path(said["folder"]), device, said["timeout_s"])
        assert trainer is not None, "a process is given its job first"
        if act == "prepare":
            trainer.prepare(said["round"], said["number"], said["load"])
        elif act == "evict":
            trainer.layers.evict()
        elif act == "train":
            trained, made = trainer.train(said["round"], said["number"])
            about = [said["round"], said["number"]]
            _answer(connection, trainer, trained=asdict(trained), task=about)
            # The next task of another job may begin while this one's gradients are written.
            trainer.store(made)
            made = None  # its gradients are in pinned memory, which the next task's can have
        _answer(connection, trainer)
        offspring.reap_adopted()


def _answer(connection: Connection, trainer: Trainer, **values: Any) -> None:
    layers = trainer.layers
    _say(connection, size=layers.size, held=layers.size if layers.resident else 0, **values)


def _say(connection: Connection, **values: Any) -> None:
    if connection.closed:
        sys.stderr.write("a process that a training has forked returned from its code; it ends\n")
        raise SystemExit(1)
    connection.send_bytes(json.dumps(values).encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
