"""The tasks of one job on one device, in the process that is the job's own."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from job_wrappers.executor.cleaning import Cleaner
from job_wrappers.executor.job import TaskJob
from job_wrappers.executor.layers import ModelLayers
from job_wrappers.executor.rounds import Advance, Gradient, Rounds
from job_wrappers.states import leaves, mapped


@dataclass(frozen=True)
class TaskResult:
    """What a task has come to.

    Attributes:
        loss: of its batch before the round's step; None where the task had been done before.
        began_s, ended_s: of its forward and backward pass, on the machine's monotonic clock; on a
            GPU with what is left of the batch's transfer.
        stalled_s: seconds in between for which the forward pass waited for layers on the host's
            side; a GPU waits for them by itself, which is in none of these.
        working: bytes on the device beside the model: gradients, batch, and what was kept for the
            backward pass at its most.
    """

    loss: float | None
    began_s: float
    ended_s: float
    stalled_s: float = 0.0
    working: int = 0


class Trainer:
    """Trains a job's tasks.

    A task's random numbers, buffers and parameters are those of its round and number, whatever ran
    before it.

    Attributes:
        layers: its model.
    """

    def __init__(self, job: TaskJob, folder: Path, device: str, timeout_s: float) -> None:
        """Make the model on the host, and leave the job's start where none is.

        Args:
            job: whose tasks.
            folder: in which every job has its own folder.
            device: as torch names it.
            timeout_s: how long to wait for tasks of other executors.

        Raises:
            ValueError: as `TaskJob.work`, or what is in the folder is of another model.
        """
        import torch

        self._job = job
        self._device = device
        self._timeout_s = timeout_s
        self._work = job.work()
        self.layers = ModelLayers(self._work.model, device)
        wanted = {name: p.requires_grad for name, p in self._work.model.named_parameters()}
        # They share memory with the host's side of the layers: one step changes both.
        self._parameters = {
            name: torch.nn.Parameter(host, requires_grad=wanted[name])
            for name, host in self.layers.parameters().items()
        }
        self._optimizer = self._work.optimizer(list(self._parameters.values()))
        self._rounds = Rounds(folder / job.name, job.scale)
        self._rounds.begin(self._state())
        self._round: int | None = None
        self._loss = 0.0
        self._batch: tuple[int, int, Any] | None = None

    def prepare(self, round_: int, number: int, load: bool) -> None:
        """Get ready for a task: its batch, and its round's model as far as there is one.

        Args:
            round_: the round.
            number: of the task within it.
            load: whether the model may go to the device already.
        """
        self._batch_of(round_, number)
        if self._rounds.newest() == round_:
            self._take(round_)
            if load:
                self.layers.load()

    def train(self, round_: int, number: int) -> tuple[TaskResult, Any]:
        """Run a task and return what came of it, and what `store` is to be given."""
        now = time.monotonic()
        if self._rounds.has(round_, number):
            # The process that left the round's last gradient may have been killed before its step.
            if self._rounds.newest() == round_ and self._advance(round_) == Advance.OWN:
                self._round = round_ + 1
            return TaskResult(None, now, now), None
        self._take(round_)
        host = self._batch_of(round_, number)
        self._batch = None
        self.layers.load()
        batch = _moved(host, self._device)
        cleaner = Cleaner()
        cleaner.spare([*self.layers.tensors(), *_tensors(batch)])
        self._job.begin_random("task", round_, number)
        began = time.monotonic()
        with self.layers.forward_pass(), cleaner.watch():
            loss = self._work.loss(self._work.model, batch)
        if not _is_tensor(loss) or loss.numel() != 1:
            given = f"a tensor of {loss.numel()}" if _is_tensor(loss) else type(loss).__name__
            raise TypeError(f"the loss must be a tensor of one number; it is {given}")
        # Before the backward pass, after which nothing may be left of it.
        value = self._loss = float(loss.detach())
        loss.backward()
        del loss
        gradients = self.layers.take_gradients()
        buffers = self.layers.buffers()
        ended = time.monotonic()
        kept = [g for g in gradients.values() if g is not None] + _tensors(batch)
        working = cleaner.peak + sum(t.numel() * t.element_size() for t in kept)
        for tensor in _tensors(batch):
            tensor.zero_()
        stalled = self.layers.stalled_s
        found = TaskResult(value, began, ended, stalled, working)
        return found, (round_, number, gradients, buffers)

    def store(self, made: Any) -> None:
        """Leave the gradients of a task, and begin the next round if they were the last.

        Raises:
            ValueError: they are not finite, or do not fit those of the round's other tasks.
            OSError: they cannot be written.
        """
        if made is not None:
            self._rounds.put(*made)
            # Where another process was quicker, its own counts: it is read when it is needed.
            try:
                advance = self._advance(made[0])
            except ValueError as error:
                if math.isfinite(self._loss):
                    raise
                told = f"the loss of its task {made[1]} was {self._loss}"
                raise ValueError(f"{error}; {told}") from None
            if advance == Advance.OWN:
                self._round = made[0] + 1

    def _advance(self, round_: int) -> Advance:
        return self._rounds.advance(round_, self._step)

    def _take(self, round_: int) -> None:
        """Set the host's side to what a round begins with."""
        if self._round != round_:
            self._rounds.await_round(round_, self._step, self._timeout_s)
            self._put(self._rounds.state(round_))
            self._round = round_

    def _step(self, state: Any, mean: Gradient) -> object:
        """Return what the next round begins with."""
        self._put(state)
        for name, parameter in self._parameters.items():
            parameter.grad = mean.parameters.get(name)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.layers.put(mean.buffers)
        self._round = None
        return self._state()

    def _put(self, state: Any) -> None:
        self.layers.put(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])

    def _state(self) -> dict[str, Any]:
        return {"model": self.layers.state(), "optimizer": self._optimizer.state_dict()}

    def _batch_of(self, round_: int, number: int) -> Any:
        if self._batch is None or self._batch[:2] != (round_, number):
            self._job.begin_random("batch", round_, number)
            self._batch = (round_, number, self._pinned(self._work.batch(round_, number)))
        return self._batch[2]

    def _pinned(self, batch: Any) -> Any:
        """Return a batch in memory from which a GPU takes it fast, if it is to go to one."""
        if not self._device.startswith("cuda"):
            return batch
        return mapped(batch, lambda leaf: leaf.pin_memory() if _is_tensor(leaf) else leaf)


def _tensors(state: Any) -> list[Any]:
    return [leaf for _, leaf in leaves(state) if _is_tensor(leaf)]


def _is_tensor(leaf: Any) -> bool:
    return hasattr(leaf, "untyped_storage")


def _moved(state: Any, device: str) -> Any:
    """Return a copy that is on its way to the device, whatever device that is."""

    def moved(leaf: Any) -> Any:
        return leaf.to(device, copy=True, non_blocking=True) if _is_tensor(leaf) else leaf

    return mapped(state, moved)
