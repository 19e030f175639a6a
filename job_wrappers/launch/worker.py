"""The processes of one node: what they run, with which environment, and where they write."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable


@dataclass(frozen=True)
class NodeShare:
    """The part of a run that one node has.

    Attributes:
        node: which of the run's nodes this is, from 0.
        nodes: how many nodes there are.
        gpus: on each of them.
        address, port: where rank 0 waits for the others.
    """

    node: int
    nodes: int
    gpus: int
    address: str
    port: int

    def ranks(self) -> range:
        """Return the ranks of this node's workers."""
        return range(self.node * self.gpus, (self.node + 1) * self.gpus)

    def environment(self, rank: int) -> dict[str, str]:
        """Return what tells a worker its place, in torchrun's words."""
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank % self.gpus),
            "WORLD_SIZE": str(self.nodes * self.gpus),
            "LOCAL_WORLD_SIZE": str(self.gpus),
            "GROUP_RANK": str(self.node),
            "GROUP_WORLD_SIZE": str(self.nodes),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }


def torchrun_command(share: NodeShare, command: Sequence[str]) -> list[str]:
    """Return the command that has torchrun start a node's workers.

    `python` at its front names the interpreter; what is no Python script is run as it is.
    """
    python, rest = "python3", list(command)
    how = ["--no-python"]
    if Path(rest[0]).name.startswith("python") and len(rest) > 1:
        if rest[1] == "-m":
            python, rest, how = rest[0], rest[2:], ["--module"]
        elif not rest[1].startswith("-"):
            python, rest, how = rest[0], rest[1:], []
    return [
        *(python, "-m", "torch.distributed.run", f"--nnodes={share.nodes}"),
        *(f"--nproc-per-node={share.gpus}", f"--node-rank={share.node}"),
        *(f"--master-addr={share.address}", f"--master-port={share.port}", "--max-restarts=0"),
        *how,
        *rest,
    ]


@dataclass
class Worker:
    """A process that was started; `name` is what to call it, `via` whether signals go past it."""

    name: str
    process: subprocess.Popen[bytes]
    via: bool = False

    def send(self, number: int) -> None:
        """Pass a signal on, to its children where it would not pass it on itself."""
        for pid in self._receivers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """End it, and everything that it has started and not moved to a group of its own."""
        for pid in {*self._receivers(), self.process.pid}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def _receivers(self) -> list[int]:
        # torchrun dies of SIGUSR1, and kills its workers 30 s after SIGTERM.
        if self.process.poll() is not None:
            return []
        children = _children(self.process.pid) if self.via else []
        return children or [self.process.pid]


@dataclass
class Step(Worker):
    """The step of all nodes, which srun waits for; `job` names it to Slurm."""

    job: str = ""

    def send(self, number: int) -> None:
        """Have Slurm pass a signal on: srun itself kills its step when it gets SIGTERM."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                name = signal.Signals(number).name
                subprocess.Popen(["scancel", f"--signal={name}", self.job])


def start(
    share: NodeShare,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    torchrun: bool,
    logs: Path | None,
    label: str,
    started: Callable[[int], object],
) -> list[Worker]:
    """Start the workers of a node, each in a process group of its own.

    Args:
        share: which part of the run this is.
        command: what each worker runs.
        environment: what all of them get.
        torchrun: let torchrun start them.
        logs: folder in which to append their output; None to leave it as it is.
        label: begins the name of a log file, and names the run in it.
        started: is told each process group at once.

    Raises:
        OSError: the command cannot be run, or a log not be written.
    """
    if torchrun:
        words = torchrun_command(share, command)
        first = share.ranks()[0]
        process = _popen(words, environment, logs, f"{label}.node{share.node}", label)
        started(process.pid)
        return [Worker(f"torchrun of ranks {first} to {share.ranks()[-1]}", process, via=True)]
    workers: list[Worker] = []
    try:
        for rank in share.ranks():
            own = {**environment, **share.environment(rank)}
            process = _popen(command, own, logs, f"{label}.rank{rank}", label)
            started(process.pid)
            workers.append(Worker(f"rank {rank}", process))
    except OSError:
        for worker in workers:
            worker.kill()
        raise
    return workers


def _popen(
    command: Sequence[str], environment: Mapping[str, str], logs: Path | None, name: str, label: str
) -> subprocess.Popen[bytes]:
    output: IO[bytes] | None = None
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
        output = (logs / f"{name}.log").open("ab")
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        restarts = environment.get("HETSCHED_RESTARTS", "0")
        output.write(f"=== job {label} run {restarts}, {at}\n".encode())
        output.flush()
    try:
        return subprocess.Popen(
            list(command),
            env=dict(environment),
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            start_new_session=True,
        )
    finally:
        if output is not None:
            output.close()


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
