"""A member of a pool as its scheduler sees it: what it runs, and what it is to run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from slurm_plugin.pool.records import Failed, Member, Trained

Task = tuple[str, int, int]
"""(training, round, number)."""


@dataclass
class Station:
    """A member and what it does.

    Attributes:
        member: which.
        running: the task that it is in, or was given to begin at once.
        since_s: since when (UTC).
        given: whether `running` has yet to begin.
        todo: what it is to run after that, as far as it stands in its order.
        rest: what comes then.
        stale_s: since when `running` need not run any more (UTC), if none has told of its end.
        busy_s: seconds for which it has trained.
        dirty: whether its order is not what the file says.
    """

    member: Member
    running: Task | None = None
    since_s: float = 0.0
    given: bool = False
    todo: deque[Task] = field(default_factory=deque)
    rest: Iterator[Task] = field(default_factory=lambda: iter(()))
    stale_s: float | None = None
    busy_s: float = 0.0
    dirty: bool = False

    def take_back(self) -> None:
        """Have it run nothing that it has not begun."""
        if self.given:
            self.running, self.given = None, False
        self.todo, self.rest, self.dirty = deque(), iter(()), True

    def begin(self, task: Task, at_s: float) -> None:
        """Note that a member has begun a task, which may be one of an older order."""
        given = self.running if self.given else None
        self.running, self.since_s, self.given = task, at_s, False
        if task == given:
            return
        if given is not None:
            self.todo.appendleft(given)
        if task in self.todo:
            # What stands before it in this order is still to be run: it followed an older one.
            self.todo.remove(task)

    def end(self, line: Failed | Trained) -> None:
        """Note that a task has trained, or that a training has failed here."""
        if isinstance(line, Failed):
            if self.running is not None and self.running[0] == line.job:
                self.running, self.given = None, False
            return
        self.busy_s += line.train_s
        if self.running == (line.job, line.round, line.number):
            self.running = None
