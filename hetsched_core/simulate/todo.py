"""What a GPU still has to run of its task sequence, in run-length form."""

from __future__ import annotations

from dataclasses import dataclass, field

from hetsched_core.types import TaskBlock

Task = tuple[str, int]
"""(job, training round)."""


@dataclass(slots=True)
class Todo:
    """The blocks of a sequence, and where in them its GPU is.

    Attributes:
        blocks: what the GPU was given.
        next: the next task, None at the end.
    """

    blocks: tuple[TaskBlock, ...] = ()
    next: Task | None = None
    _back: list[Task] = field(default_factory=list)
    _block: int = 0
    _repetition: int = 0
    _item: int = 0
    _task: int = 0

    @classmethod
    def of(cls, blocks: tuple[TaskBlock, ...]) -> Todo:
        """Begin a sequence."""
        todo = cls(blocks)
        todo._look()
        return todo

    def advance(self) -> None:
        """Take the next task as done with."""
        if self._back:
            self._back.pop()
        elif self.next is not None:
            self._task += 1
        self._look()

    def put_back(self, task: Task) -> None:
        """Have a task be the next one, before all others."""
        self._back.append(task)
        self.next = task

    def ahead(self) -> tuple[int, int]:
        """Return (tasks, times) where a repetition of a block of one item begins, else (0, 0).

        The item's tasks come in a row, and so once for each of the `times` next training rounds.
        """
        if self._back or self._task or self._item or self._block >= len(self.blocks):
            return 0, 0
        block = self.blocks[self._block]
        if len(block.items) > 1:
            return 0, 0
        return block.items[0].tasks, block.times - self._repetition

    def skip(self, repetitions: int) -> None:
        """Leave out so many repetitions of a block that is at the begin of one."""
        self._repetition += repetitions
        self._look()

    def _look(self) -> None:
        """Find the next task, past what is empty."""
        if self._back:
            self.next = self._back[-1]
            return
        while self._block < len(self.blocks):
            block = self.blocks[self._block]
            if self._repetition >= block.times:
                self._block, self._repetition, self._item = self._block + 1, 0, 0
            elif self._item >= len(block.items):
                self._repetition, self._item = self._repetition + 1, 0
            elif self._task >= block.items[self._item].tasks:
                self._item, self._task = self._item + 1, 0
            else:
                item = block.items[self._item]
                self.next = item.job, item.training_round + self._repetition
                return
        self.next = None
