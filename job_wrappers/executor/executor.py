"""Tasks of several jobs on one device, in a given order, with short switches between them.

Whose models stay on the device is Hare's speculative memory management (HPDC '22, section 4): what
comes next has priority, and models are kept greedily until they cannot be accommodated.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from job_wrappers.executor.footprint import Footprint, host_bytes
from job_wrappers.executor.job import Task, TaskJob
from job_wrappers.executor.order import FixedOrder, Order
from job_wrappers.executor.process import LOOK_S, DeviceFailedError, JobFailedError, Process
from job_wrappers.guardian import Guardian
from job_wrappers.offspring import Strays

START_TIMEOUT_S = 600.0
"""Within which a process gets ready and its job's model is made."""

TRY_TIMEOUT_S = 60.0
"""Within which a process that is ready shows that it can use the device."""

ROUND_TIMEOUT_S = 600.0
"""For which a task waits until other executors have done the tasks of the round before."""


@dataclass(frozen=True)
class Outcome:
    """What became of a task.

    Attributes:
        task: which.
        loss: of its batch; None where it failed, or had been done before.
        failed: why its job failed; "" where it did not. All later tasks of the job fail with it.
        began_s, ended_s: of its forward and backward pass, on the machine's monotonic clock; 0
            where there was none.
        switch_s: seconds from the end of the task before to its beginning, and those for which its
            forward pass waited for layers; of the first task, 0.
        kept: whether its model was on the device, or on its way, when the task before ended.
        held: bytes of models on the device while it ran, of all jobs.
        working: bytes that it took beside its model.
    """

    task: Task
    loss: float | None = None
    failed: str = ""
    began_s: float = 0.0
    ended_s: float = 0.0
    switch_s: float = 0.0
    kept: bool = False
    held: int = 0
    working: int = 0


class Executor(AbstractContextManager["Executor"]):
    """The processes of one device.

    Each job has a process of its own, which it is given from those that stand by, and loses when
    its last task is done, or when it fails. Models go to the device and leave it as `kept` says.
    What runs next is asked anew after each task (`Order`), so that it may change meanwhile.

        with Executor(folder, jobs, device="cuda:0", limit=30 << 30) as executor:
            for outcome in executor.run(order):
                ...

    Attributes:
        most_processes: with more, those go whose jobs have no task ahead and ran longest ago; they
            come back by what is in the folder. None for no limit.
    """

    def __init__(
        self,
        folder: Path,
        jobs: Sequence[TaskJob],
        *,
        device: str = "cpu",
        limit: int | None = None,
        standby: int = 2,
        expected: int = 0,
        most_processes: int | None = None,
        task_timeout_s: float | None = None,
        ended: Callable[[str], bool] = lambda _: False,
        strays: Strays | None = None,
    ) -> None:
        """Start the processes that stand by.

        Args:
            folder: where the jobs' rounds are, shared by all executors that run tasks of them.
            jobs: of which tasks may come; more may be admitted.
            device: as torch names it.
            limit: bytes on the device that models, and what the running task takes beside its own,
                may fill; None for no limit. The context of each process comes on top.
            standby: processes that wait for a job, as far as jobs without one are there.
            expected: jobs beyond those that are there, for which processes wait, too.
            most_processes: the attribute.
            task_timeout_s: after which a task has failed; None for never.
            ended: whether a job was ended by others; what it still does is not waited for.
            strays: those of this process, where it adopts: what a job's process leaves behind that
                ended by itself.
        """
        self._folder = folder
        self._jobs = {job.name: job for job in jobs}
        self._device = device
        self._limit = limit
        self._task_timeout_s = task_timeout_s
        self._ended = ended
        self._strays = strays
        self._most_standby = standby
        self._expected = expected
        self.most_processes = most_processes
        self._standby: deque[Process] = deque()
        self._running: dict[str, Process] = {}
        self._failed: dict[str, str] = {}
        self._begun: set[str] = set()
        self._working: dict[str, int] = {}
        # A job that hangs does not see that the executor is gone.
        self._guardian = Guardian(kill_after_s=0.0)
        self._stand_by()

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        for process in [*self._standby, *self._running.values()]:
            with suppress(DeviceFailedError):
                process.kill()
        self._standby.clear()
        self._running.clear()
        self._end_strays()
        self._guardian.close()

    @property
    def processes(self) -> Mapping[str, int]:
        """Process id of each job that has a process."""
        return {name: process.pid for name, process in self._running.items()}

    def await_standby(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait until the processes that stand by are ready, or `stopped` says so.

        Raises:
            DeviceFailedError: one of them cannot use the device, or is not ready in time, or all is
                to stop.
        """
        try:
            for process in self._standby:
                usual, process.unwanted = process.unwanted, stopped
                process.settle(START_TIMEOUT_S)
                process.unwanted = usual
        except JobFailedError as error:
            raise self._broken(error) from None

    def footprint(self) -> Footprint:
        """Return what a process without a job takes, by those that stand by, which are ready."""
        host = max((host_bytes(process.pid) for process in self._standby), default=0)
        total = max((process.device_total for process in self._standby), default=0)
        used = total - min((process.device_free for process in self._standby), default=0)
        return Footprint(host, used // max(1, len(self._standby)), total)

    @property
    def failed(self) -> Mapping[str, str]:
        """Why each job failed that did."""
        return dict(self._failed)

    def admit(self, job: TaskJob) -> None:
        """Let tasks of another job come."""
        self._jobs[job.name] = job
        self._stand_by()

    def heed(self) -> None:
        """Take the answers that have come, so that `failed` names whatever has failed since.

        Raises:
            DeviceFailedError: as `run`.
        """
        for name in list(self._running):
            self._try(name, Process.idle)

    def run(self, tasks: Sequence[Task] | Order) -> Iterator[Outcome]:
        """Run tasks in this order and yield what becomes of each.

        A job that fails takes no other with it; its tasks are passed over. In the end the gradients
        of all tasks are written.

        Raises:
            ValueError: a task is of no job of this executor, or of no round of its job.
            DeviceFailedError: a task failed, and the device cannot be used without its job either,
                which then has not failed; or none of those that stand by gets ready.
        """
        order = FixedOrder(tasks) if isinstance(tasks, Sequence) else tasks
        for known in order.ahead():
            self._check(known)
        ended_s = 0.0
        while (task := order.next()) is not None:
            self._check(task)
            if task.job not in self._failed:
                try:
                    outcome = self._run(task, order, ended_s)
                except JobFailedError as error:
                    self._fail(task.job, str(error))
                else:
                    ended_s = outcome.ended_s or ended_s
                    yield outcome
                    continue
            yield Outcome(task, failed=self._failed[task.job])
        for name in list(self._running):
            self._try(name, lambda process: process.settle(self._task_timeout_s))

    def _check(self, task: Task) -> None:
        job = self._jobs.get(task.job)
        if job is None or task.round >= job.rounds or task.number >= job.scale:
            raise ValueError(f"{task} is no task of {', '.join(self._jobs)}")

    def _run(self, task: Task, order: Order, ended_s: float) -> Outcome:
        ahead = order.ahead()
        names = [task.job, *(t.job for t in ahead)]
        process = self._of(task.job)
        process.settle(self._task_timeout_s if process.size else START_TIMEOUT_S)
        was_kept = process.held > 0
        self._make_room(names)
        about = [task.round, task.number]
        process.ask("train", answers=(about, None), round=task.round, number=task.number)
        process.held = process.size
        # The one that ran last is the last to go.
        self._running[task.job] = self._running.pop(task.job)
        self._prepare_next(process, names, ahead)
        trained = process.answer(self._task_timeout_s)["trained"]
        self._working[task.job] = max(self._working.get(task.job, 0), trained["working"])
        held = sum(p.held for p in self._running.values())
        if order.over(task.job):
            # Its last gradients are written and its model overwritten before it goes.
            self._end(process)
            del self._running[task.job]
        self._let_go(order, names)
        began_s = float(trained["began_s"])
        waited_s = began_s - ended_s + trained["stalled_s"] if ended_s else 0.0
        return Outcome(
            task,
            loss=trained["loss"],
            began_s=began_s,
            ended_s=float(trained["ended_s"]),
            switch_s=max(0.0, waited_s),
            kept=was_kept,
            held=held,
            working=trained["working"],
        )

    def _let_go(self, order: Order, names: Sequence[str]) -> None:
        """End the processes of other jobs that are over, and of those beyond the limit."""
        spare = [name for name in self._running if name not in names]
        beyond = len(self._running) - (self.most_processes or len(self._running))
        for name in spare:
            if beyond > 0 or order.over(name):
                beyond -= 1
                self._try(name, self._end)
                self._running.pop(name, None)

    def _end(self, process: Process) -> None:
        process.ask("evict")
        process.settle(self._task_timeout_s)
        process.kill()
        self._end_strays()

    def _make_room(self, names: Sequence[str]) -> None:
        """Take from the device what is not to stay there while the first of these jobs runs."""
        stay = self._kept(names)
        if not stay:
            need = self._running[names[0]].size + self._working.get(names[0], 0)
            raise JobFailedError(f"it needs {need} bytes of the {self._limit} there are")
        leave = [name for name, p in self._running.items() if p.held and name not in stay]
        for name in leave:
            self._try(name, lambda process: process.ask("evict"))
        for name in leave:
            # One that has failed has no process, and gets none.
            if name in self._running:
                self._try(name, lambda process: process.settle(self._task_timeout_s))

    def _kept(self, names: Sequence[str]) -> list[str]:
        sizes = {name: process.size for name, process in self._running.items() if process.size}
        # After what is known to come, what ran last: it may come again.
        order = [*names, *reversed(self._running)]
        return kept(order, sizes, self._working.get(names[0]), self._limit)

    def _prepare_next(self, running: Process, names: Sequence[str], ahead: Sequence[Task]) -> None:
        """Let the next task of another job get ready while the first runs, unless that ends."""
        then = next((t for t in ahead if t.job not in (names[0], *self._failed)), None)
        if then is None:
            return

        def ready(process: Process) -> bool:
            deadline = time.monotonic() + (self._task_timeout_s or math.inf)
            while not process.idle():
                told = wait([running.connection, process.connection], LOOK_S)
                if running.connection in told or running.unwanted():
                    return False
                if time.monotonic() >= deadline:
                    return False
            return True

        def prepare(process: Process) -> None:
            if not ready(process):
                return
            stay = self._kept(names)
            # What must leave first is taken from the device before the task itself.
            room = all(name in stay for name, p in self._running.items() if p.held)
            load = room and then.job in stay
            process.ask("prepare", round=then.round, number=then.number, load=load)
            if load:
                # From now on, whenever it says so.
                process.held = process.size

        try:
            # One that is not ready yet is not given a job, nor waited for, while another trains.
            if then.job not in self._running and not ready(self._first()):
                return
        except JobFailedError:
            # Not the job's fault: another is found when its task comes.
            self._standby.popleft()
            self._stand_by()
            return
        self._try(then.job, prepare)

    def _of(self, name: str) -> Process:
        """Return the process of a job, given one from those that stand by if need be."""
        if name not in self._running:
            job, folder = asdict(self._jobs[name]), str(self._folder.resolve())
            process = self._asked("take", job=job, folder=folder, timeout_s=ROUND_TIMEOUT_S)
            self._standby.popleft()
            process.unwanted = partial(self._ended, name)
            self._running[name] = process
            self._begun.add(name)
            self._stand_by()
        return self._running[name]

    def _asked(self, do: str, **values: Any) -> Process:
        """Return the first of those that stand by, once it is ready and was given something to do.

        What becomes of one before, out of memory perhaps, is no job's fault: the next is asked.

        Raises:
            DeviceFailedError: that one has ended, too, or cannot use the device.
        """
        for last in (False, True):
            process = self._first()
            try:
                process.settle(START_TIMEOUT_S)
                process.ask(do, **values)
                break
            except JobFailedError as error:
                self._standby.popleft()
                if last:
                    raise self._broken(error) from None
        return process

    def _first(self) -> Process:
        if not self._standby:
            self._standby.append(self._start())
        return self._standby[0]

    def _stand_by(self) -> None:
        waiting = len(self._jobs) - len(self._begun) + self._expected
        while len(self._standby) < min(self._most_standby, waiting):
            self._standby.append(self._start())

    def _start(self) -> Process:
        return Process(self._device, self._guardian)

    def _try(self, name: str, act: Callable[[Process], object]) -> None:
        """Do something with another job's process, whose failure is not the running job's."""
        try:
            act(self._of(name))
        except JobFailedError as error:
            self._fail(name, str(error))

    def _fail(self, name: str, why: str) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            process.kill()
        self._end_strays()
        self._try_device()
        self._failed[name] = why

    def _end_strays(self) -> None:
        if self._strays is not None:
            processes = [*self._standby, *self._running.values()]
            self._strays.end({self._guardian.pid, *(process.pid for process in processes)})

    def _try_device(self) -> None:
        """Have a process without a job use the device: what breaks it breaks it for all."""
        process = self._asked("try")
        try:
            process.settle(TRY_TIMEOUT_S)
        except JobFailedError as error:
            raise self._broken(error) from None

    def _broken(self, error: JobFailedError) -> DeviceFailedError:
        return DeviceFailedError(f"{self._device} cannot be used here: {error}")


def kept(
    ahead: Iterable[str], sizes: Mapping[str, int], working: int | None, limit: int | None
) -> list[str]:
    """Return the jobs whose models may be on the device while the first of them runs.

    Args:
        ahead: jobs in the order of their tasks, the running one first; it may name one often.
        sizes: bytes of each job's model; a job that is missing is not kept.
        working: bytes that the running task takes beside its model; None if that is not known, and
            then nothing else is kept.
        limit: bytes of all together; None for no limit.

    Returns:
        The running job and those that fit beside it, the next first; nothing if it alone does not
        fit.
    """
    order = list(dict.fromkeys(ahead))
    if limit is None:
        return [job for job in order if job in sizes]
    left = limit - (working or 0)
    found: list[str] = []
    for at, job in enumerate(order):
        if job not in sizes or sizes[job] > left:
            if at == 0:
                return []
            continue
        found.append(job)
        left -= sizes[job]
        if working is None:
            break
    return found
