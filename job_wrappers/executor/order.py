"""What an executor runs next: a list, or an order whose tail changes while it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from job_wrappers.executor.job import Task


class Order(Protocol):
    """The tasks of one device, taken one by one."""

    def next(self) -> Task | None:
        """Take the next task, waiting until there is one; None once there will be no more."""
        ...

    def ahead(self) -> Sequence[Task]:
        """Return what comes after the task that was taken last, as it stands now.

        It decides which models stay on the device and whose batch is prepared, and nothing else.
        """
        ...

    def over(self, job: str) -> bool:
        """Whether no more tasks of a job will come, so that its process can go."""
        ...


class FixedOrder:
    """An order that is known to its end."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        """Have these tasks run in this order."""
        self._left = deque(tasks)

    def next(self) -> Task | None:
        """Take the next task; None at the end."""
        return self._left.popleft() if self._left else None

    def ahead(self) -> Sequence[Task]:
        """Return what is left."""
        return tuple(self._left)

    def over(self, job: str) -> bool:
        """Whether no task that is left is of this job."""
        return all(task.job != job for task in self._left)
