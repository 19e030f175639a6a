"""The processes of one node: how they are started, told what comes by signals, and waited for."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from job_wrappers.launch.part import RunPart
from job_wrappers.outcome import STOPPED

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

_TO_STOP = (signal.SIGTERM, signal.SIGUSR2)
"""Signals that tell a session to save and end; until it listens they end its process."""

_POLL_S = 0.05

_MOST_SENDS = 5
"""So often is Slurm asked to pass on one signal."""

_AGAIN_S = 1.0
"""Between two times: what refuses is as a rule busy or being started, which takes some seconds."""


def say(text: str) -> None:
    """Tell the user, in the job's output."""
    sys.stderr.write(f"hetsched-run: {text}\n")
    sys.stderr.flush()


def torchrun_command(part: RunPart, gpus: int, command: Sequence[str]) -> list[str]:
    """Return the command that has torchrun start the workers of a node with so many GPUs.

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
        *(python, "-m", "torch.distributed.run", f"--nnodes={part.nodes}"),
        *(f"--nproc-per-node={gpus}", f"--node-rank={part.first_node}"),
        *(f"--master-addr={part.address}", f"--master-port={part.port}", "--max-restarts=0"),
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

        SIGUSR1 asks to save and go on, and ends a worker that does not take it yet: it waits.
        """
        for pid in self._receivers():
            if number == signal.SIGUSR1 and not _takes(pid, number):
                self._later.add(pid)
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def follow(self) -> None:
        """See to what has come since: children of torchrun, and which take a signal by now."""
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
    _asked: list[tuple[subprocess.Popen[bytes], int, int]] = field(default_factory=list)
    # When (monotonic) to ask again, for which signal, and how often at most.
    _again: list[tuple[float, int, int]] = field(default_factory=list)

    def send(self, number: int) -> None:
        """Have Slurm pass a signal on: srun itself kills its step when it gets SIGTERM."""
        self._ask(number, _MOST_SENDS)

    def follow(self) -> None:
        """Ask again where Slurm has not taken a signal: the nodes may not know of it."""
        super().follow()
        ended = [each for each in self._asked if each[0].poll() is not None]
        for asked, number, left in ended:
            self._asked.remove((asked, number, left))
            if asked.returncode and left:
                self._again.append((time.monotonic() + _AGAIN_S, number, left))
        due = [each for each in self._again if each[0] <= time.monotonic()]
        for again in due:
            self._again.remove(again)
            self._ask(*again[1:])

    def _ask(self, number: int, left: int) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                name = signal.Signals(number).name
                # One that finds the job being queued again tries anew after 5 s, and would in the
                # end stop its next run.
                words = ["timeout", "4", "scancel", f"--signal={name}", self.job]
                self._asked.append((subprocess.Popen(words), number, left - 1))


def start(
    part: RunPart,
    gpus: int,
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
        part: what the node has of the run.
        gpus: of the node.
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
        words = torchrun_command(part, gpus, command)
        process, log = _popen(words, environment, logs, f"{label}.node{part.first_node}")
        started(process.pid)
        name = f"torchrun of ranks {part.first_rank} to {part.first_rank + gpus - 1}"
        return [Worker(name, process, via=True, started=started, log=log)]
    workers: list[Worker] = []
    try:
        for local in range(gpus):
            rank, own = part.first_rank + local, {**environment, **part.environment(local, gpus)}
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


class Watch:
    """Passes signals on and waits.

    Attributes:
        heard: signals that have come so far.
    """

    def __init__(self) -> None:
        """Have nothing to pass anything on to yet."""
        self._workers: list[Worker] = []
        self.heard: list[int] = []
        self._to_stop_s: float | None = None

    def told_to_stop(self) -> bool:
        """Whether a signal has come that stops the run."""
        return any(number in _TO_STOP for number in self.heard)

    @contextlib.contextmanager
    def listening(self) -> Iterator[Watch]:
        """Take the signals while this lasts."""
        before = {number: signal.signal(number, self._take) for number in PASSED_ON}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def wait(self, workers: list[Worker], kill_after_s: float) -> int:
        """Return the exit code of a node once all its workers have ended.

        0 if all ended with 0, `STOPPED` if the others ended with that, or if one was stopped before
        it could take the signal, by which the others lose it; else the code of the worker that
        failed first, 128 + n where signal n ended it.
        """
        self._workers = workers
        for number in self.heard:  # what came before there was a worker to tell
            self._pass_on(number)
        codes: dict[str, int] = {}
        failed = 0
        unready = False
        deadline: float | None = None
        while len(codes) < len(workers) or any(worker.left() for worker in workers):
            self._tell_who_goes_on(kill_after_s)
            for worker in workers:
                worker.follow()
                code = worker.process.poll()
                if code is None or worker.name in codes:
                    continue
                code = 128 - code if code < 0 else code
                if code - 128 in _TO_STOP and code - 128 in self.heard:
                    # Before it could take the signal, and so before any progress.
                    code, unready = STOPPED, True
                codes[worker.name] = code
                if (code in (0, STOPPED) and not worker.left()) or failed:
                    continue
                failed = code
                deadline = time.monotonic() + kill_after_s
                say(_blame(worker, code, len(workers) - len(codes), kill_after_s))
                for other in workers:
                    other.send(signal.SIGTERM)
            if deadline is not None and time.monotonic() >= deadline:
                for worker in workers:
                    worker.kill()
            time.sleep(_POLL_S)
        return STOPPED if unready else failed or max(codes.values())

    def _take(self, number: int, _: object) -> None:
        self.heard.append(number)
        if number in _TO_STOP and self._to_stop_s is None:
            self._to_stop_s = time.monotonic()
        self._pass_on(number)

    def _tell_who_goes_on(self, after_s: float) -> None:
        """Say once which workers were told to stop so long ago, and are still there."""
        if self._to_stop_s is None or not 0.0 < after_s <= time.monotonic() - self._to_stop_s:
            return
        self._to_stop_s = None
        names = ", ".join(w.name for w in self._workers if w.process.poll() is None)
        if names:
            say(
                f"{names}: told to stop {after_s:g} s ago, and still there; either it takes long "
                "to save, or the script does not take the signal, as a TrainingSession would, and "
                "Slurm will kill it"
            )

    def _pass_on(self, number: int) -> None:
        for worker in self._workers:
            worker.send(number)


def _blame(worker: Worker, code: int, others: int, kill_after_s: float) -> str:
    how = f"ended with {code}" if code < 128 else f"was ended by {_signal(code - 128)}"
    rest = f"; the other {others} have {kill_after_s:g} s to end" if others else ""
    if worker.left():
        rest = f"; its workers have {kill_after_s:g} s to end"
    return f"{worker.name} {how}{rest}{worker.hint()}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
