"""The processes of one node: what they run, with which environment, and where they write."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from job_wrappers.launch.saying import say


@dataclass(frozen=True)
class NodeShare:
    """The part of a run that one node has.

    Attributes:
        node: which of the run's nodes this is, from 0.
        nodes: how many nodes there are.
        gpus: on each of them.
        address, port: where rank 0 waits for the others.
        first: the rank of its first worker; None where all nodes have as many.
        workers: on all nodes; None likewise.
    """

    node: int
    nodes: int
    gpus: int
    address: str
    port: int
    first: int | None = None
    workers: int | None = None

    def ranks(self) -> range:
        """Return the ranks of this node's workers."""
        first = self.node * self.gpus if self.first is None else self.first
        return range(first, first + self.gpus)

    def environment(self, rank: int) -> dict[str, str]:
        """Return what tells a worker its place, in torchrun's words."""
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank - self.ranks()[0]),
            "WORLD_SIZE": str(self.nodes * self.gpus if self.workers is None else self.workers),
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
    """A process that was started.

    Attributes:
        name: what to call it.
        process: the process.
        via: whether it is torchrun, whose children do the work: signals go past it to them.
        started: is told each process group in which there is work.
        log: the file that it writes to; None where that is the job's own output.
    """

    name: str
    process: subprocess.Popen[bytes]
    via: bool = False
    started: Callable[[int], object] = lambda _: None
    log: Path | None = None
    _children: list[int] = field(default_factory=list)
    _later: set[int] = field(default_factory=set)

    def send(self, number: int) -> None:
        """Pass a signal on, to its children where it would not pass it on itself.

        SIGUSR1 asks to save and go on, and ends whoever does not take it: it waits until one does.
        """
        for pid in self._receivers():
            if number == signal.SIGUSR1 and not _takes(pid, number):
                self._later.add(pid)
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def follow(self) -> None:
        """See to what has come since: children of torchrun, and who takes a signal by now."""
        if self.via and self.process.poll() is None:
            found = children_of(self.process.pid)
            for pid in found:
                if pid not in self._children:
                    self.started(pid)
            self._children = found or self._children
        for pid in [pid for pid in self._later if _takes(pid, signal.SIGUSR1)]:
            self._later.discard(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)

    def left(self) -> bool:
        """Whether its children are still there though it has ended: torchrun was killed."""
        return self.process.poll() is not None and any(map(_alive, self._children))

    def kill(self) -> None:
        """End it, and everything that it has started and not moved to a group of its own."""
        for pid in {*self._receivers(), self.process.pid}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def hint(self) -> str:
        """Return where to look for why it ended; "" where that is the job's own output."""
        if self.log is None:
            return ""
        try:
            disk = os.statvfs(self.log)
        except OSError as error:
            return f"; its output was in {self.log}: {error.strerror}"
        full = ", on a disk that is full: its last words are lost" * (disk.f_bavail == 0)
        return f"; its output is in {self.log}{full}"

    def _receivers(self) -> list[int]:
        # torchrun dies of SIGUSR1, and kills its workers 30 s after SIGTERM.
        if self.process.poll() is not None:
            return [pid for pid in self._children if _alive(pid)]
        children = children_of(self.process.pid) if self.via else []
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
        OSError: the command cannot be run.
    """
    if torchrun:
        words = torchrun_command(share, command)
        first = share.ranks()[0]
        process, log = _popen(words, environment, logs, f"{label}.node{share.node}")
        started(process.pid)
        name = f"torchrun of ranks {first} to {share.ranks()[-1]}"
        return [Worker(name, process, via=True, started=started, log=log)]
    workers: list[Worker] = []
    try:
        for rank in share.ranks():
            own = {**environment, **share.environment(rank)}
            process, log = _popen(command, own, logs, f"{label}.rank{rank}")
            started(process.pid)
            workers.append(Worker(f"rank {rank}", process, log=log))
    except OSError:
        for worker in workers:
            worker.kill()
        raise
    return workers


def _popen(
    command: Sequence[str], environment: Mapping[str, str], logs: Path | None, name: str
) -> tuple[subprocess.Popen[bytes], Path | None]:
    """Start a process; return it, and the file that it writes to."""
    path = None if logs is None else logs / f"{name}.log"
    output = None
    if path is not None:
        begin = f"=== job {name.partition('.')[0]} run {environment.get('HETSCHED_RESTARTS', '0')}"
        output = _opened(path, begin)
    try:
        process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            start_new_session=True,
        )
    finally:
        if output is not None:
            os.close(output)
    return process, None if output is None else path


def _opened(path: Path, begin: str) -> int | None:
    """Open a log file at its end; None, and said, where nothing can be written to it."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    output = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        os.write(output, f"{begin}, {at}\n".encode())
    except OSError as error:
        # Training is worth more than its log, and why it ends is not to be lost with the log.
        say(f"{path}: {error.strerror}; its output goes to that of the job instead")
        if output is not None:
            os.close(output)
        return None
    return output


def children_of(pid: int) -> list[int]:
    """Return the processes that one has started and that have not ended."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        found = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return [child for child in found if _alive(child)]


def _alive(pid: int) -> bool:
    try:
        said = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return said.rpartition(")")[2].split()[0] not in "ZX"


def _takes(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal; one of which that is not known has."""
    try:
        said = Path(f"/proc/{pid}/status").read_text()
        caught = int(said.partition("SigCgt:")[2].split()[0], 16)
    except (OSError, ValueError, IndexError):
        return True
    return bool(caught >> (number - 1) & 1)
