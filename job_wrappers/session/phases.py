"""Where the time of a step goes: data, forward, backward, wait for the others, update.

A step is cut at five marks, so that its parts always add up to the whole. Two marks lie where user
code has no line: hooks on the model's output and on the optimiser find them. The end of a rank's
own backward pass is a callback of the autograd engine, which comes before the one in which DDP
waits for gradients of other ranks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Callable

DATA, FORWARD, BACKWARD, WAIT, UPDATE = range(5)
"""Phases of a step, in order; the next batch, and everything up to the loss's own gradient, ..."""


@dataclass(frozen=True)
class StepTimes:
    """The parts of one step in seconds: T_d, T_f, T_b, all of the wait, T_u."""

    data_s: float
    forward_s: float
    backward_s: float
    wait_s: float
    update_s: float

    @property
    def whole_s(self) -> float:
        """The step."""
        return self.data_s + self.forward_s + self.backward_s + self.wait_s + self.update_s


class CpuMarks:
    """Instants of work that is done when its call returns."""

    @staticmethod
    def mark() -> float:
        """Return now."""
        return time.perf_counter()

    @staticmethod
    def between(first: float, second: float) -> float:
        """Return seconds."""
        return second - first

    @staticmethod
    def passed(_: float) -> bool:
        """Whether the work before a mark is done."""
        return True

    @staticmethod
    def settle() -> None:
        """Wait for all work."""


class CudaMarks:
    """Instants of work that a GPU does later: events in its queue, read when they have come."""

    def __init__(self, torch: Any) -> None:
        """Mark on the current device's current stream."""
        self._cuda = torch.cuda

    def mark(self) -> Any:
        """Return an event behind all work that is queued."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    @staticmethod
    def between(first: Any, second: Any) -> float:
        """Return seconds."""
        return float(first.elapsed_time(second)) / 1000.0

    @staticmethod
    def passed(mark: Any) -> bool:
        """Whether the work before a mark is done."""
        return bool(mark.query())

    def settle(self) -> None:
        """Wait for all work."""
        self._cuda.synchronize()


class PhaseTimer:
    """Cuts steps into phases.

    Attributes:
        stepped: whether the optimiser has made a step since the last boundary.
        steps: steps that the optimiser has made in all.
    """

    def __init__(self, torch: Any, model: Any, optimizer: Any) -> None:
        """Hook on to a model and its optimiser."""
        parameter = next(iter(model.parameters()), None)
        on_gpu = parameter is not None and parameter.is_cuda
        self._marks: Any = CudaMarks(torch) if on_gpu else CpuMarks()
        # torch has no public name for it; its own DDP and FSDP take it from here, too.
        self._engine = torch.autograd.Variable._execution_engine  # noqa: SLF001
        self._is_tensor: Callable[[Any], bool] = torch.is_tensor
        self._cuts: list[tuple[int, Any]] = []
        self._finished: deque[list[tuple[int, Any]]] = deque(maxlen=64)
        self._model = model
        # accelerate's own keeps no hooks, the one in it does.
        self._optimizer = getattr(optimizer, "optimizer", optimizer)
        self._hooks: list[Any] = []
        self._away = False
        self.stepped = False
        self.steps = 0
        self._optimizer.register_step_post_hook(self._on_stepped)

    def look(self) -> None:
        """Cut steps into all phases from now on."""
        if not self._hooks:
            self._hooks = [
                self._model.register_forward_hook(lambda _model, _in, out: self.got_output(out)),
                self._optimizer.register_step_pre_hook(lambda *_: self.waited()),
            ]

    def look_away(self) -> None:
        """Cut off only the data from now on."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def pause(self) -> None:
        """Measure nothing until `resume`: the steps between count for nothing."""
        self._away = True

    def resume(self) -> None:
        """Measure again, from a step that begins here."""
        self._away = False
        self.begin()

    def begin(self) -> None:
        """Begin a step: everything before it counts for nothing."""
        if not self._away:
            self._cuts = [(UPDATE, self._marks.mark())]

    def got_data(self) -> None:
        """Note that a batch has come."""
        if not self._away:
            self._cuts.append((DATA, self._marks.mark()))

    def got_output(self, output: Any) -> None:
        """Note that the forward pass has come to this: the backward pass begins at it."""
        # The hook stays while nothing is measured: a compiled model may not like it to come and go.
        tensor = None if self._away else self._first_with_gradient(output)
        if tensor is not None:
            tensor.register_hook(self._on_backward)

    def waited(self) -> None:
        """Note that the gradients of all ranks have come."""
        if not self._away:
            self._cuts.append((WAIT, self._marks.mark()))

    def end_step(self) -> None:
        """End the step, and begin the next one at this instant."""
        self.stepped = False
        if self._away:
            return
        last = self._marks.mark()
        self._cuts.append((UPDATE, last))
        self._finished.append(self._cuts)
        self._cuts = [(UPDATE, last)]

    def settle(self) -> None:
        """Wait until all that was measured can be read."""
        self._marks.settle()

    def finished(self) -> Iterator[StepTimes]:
        """Yield the steps of which everything is known, each once."""
        while self._finished and self._marks.passed(self._finished[0][-1][1]):
            cuts = self._finished.popleft()
            sums = [0.0] * 5
            for (_, before), (phase, at) in zip(cuts, cuts[1:]):
                sums[phase] += self._marks.between(before, at)
            yield StepTimes(*sums)

    def _on_backward(self, _gradient: Any) -> None:
        self._cuts.append((FORWARD, self._marks.mark()))
        self._engine.queue_callback(self._on_backward_done)

    def _on_backward_done(self) -> None:
        self._cuts.append((BACKWARD, self._marks.mark()))

    def _on_stepped(self, *_: object) -> None:
        self.stepped = True
        self.steps += 1

    def _first_with_gradient(self, output: Any) -> Any:
        if self._is_tensor(output):
            return output if output.requires_grad else None
        values: Iterable[Any] = ()
        if isinstance(output, Mapping):
            values = output.values()
        elif isinstance(output, (tuple, list)):
            values = output
        elif hasattr(output, "__dict__"):
            values = vars(output).values()
        for value in values:
            if (found := self._first_with_gradient(value)) is not None:
                return found
        return None
