"""The ranks of a run: what they tell each other, and what they agree to do at a step boundary."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Callable

from job_wrappers.outcome import Wishes
from job_wrappers.session.errors import SessionError

AGREE_S = 0.25
"""About how often ranks ask each other whether one was told to stop or save."""

MOST_STEPS_APART = 1000


class Peers:
    """All ranks of a run, over a process group of their own that leaves training's alone.

    Attributes:
        rank, size: this one, and how many there are.
    """

    def __init__(self, torch: Any) -> None:
        """Join the ranks; without an initialised process group there is only this one."""
        self._torch = torch
        dist = torch.distributed
        alone = not dist.is_available() or not dist.is_initialized()
        self._dist = None if alone else dist
        self.rank = 0 if alone else int(dist.get_rank())
        self.size = 1 if alone else int(dist.get_world_size())
        self._group = dist.new_group(backend="gloo") if self.size > 1 else None
        # For the threads that write checkpoints, which must not come between what training says.
        self._writers = dist.new_group(backend="gloo") if self.size > 1 else None
        told = os.environ.get("WORLD_SIZE") or "1"
        if alone and told != "1":
            raise SessionError(
                f"WORLD_SIZE={told}, but torch.distributed is not initialised; call "
                "torch.distributed.init_process_group() before you make the session, or unset it "
                "to train alone"
            )

    def from_first(self, make: Callable[[], Any]) -> Any:
        """Return what `make` returns on rank 0, to all of them.

        Raises:
            SessionError: it failed there; everywhere.
        """
        said: list[Any] = [None, None]
        if self.rank == 0:
            try:
                said[0] = make()
            except SessionError as error:
                said[1] = str(error)
            except Exception as error:
                # Whatever it is: the other ranks wait.
                said[1] = f"{type(error).__name__}: {error}"
        if self._dist is not None and self.size > 1:
            self._dist.broadcast_object_list(said, src=0, group=self._group)
        if said[1] is not None:
            raise SessionError(said[1])
        return said[0]

    def from_all(self, mine: Any) -> list[Any]:
        """Return what each rank says, by rank; only the thread that writes checkpoints may ask.

        Raises:
            RuntimeError: a rank is gone.
        """
        said = [mine] * self.size
        if self._dist is not None and self.size > 1:
            self._dist.all_gather_object(said, mine, group=self._writers)
        return said

    def most(self, values: list[int]) -> tuple[Any, Any]:
        """Begin to find the greatest of each value over all ranks; return (work, tensor)."""
        tensor = self._torch.tensor(values, dtype=self._torch.int64)
        dist = self._torch.distributed
        work = dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self._group, async_op=True)
        return work, tensor

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self._dist is not None and self.size > 1:
            self._dist.barrier(group=self._group)

    def leave(self) -> None:
        """Leave the groups, at the exit of a process that has nothing more to say in them.

        gloo's threads let go of the tensors of a work a little after it is done. Where the
        interpreter ends before that, they abort a process that has done all it had to ("terminate
        called without an active exception", PyTorch's issue 190489). A group that goes waits for
        its threads. Training's own is kept by a model in DDP, and by torch itself; but its last
        work was before all that is said here at the end.

        Training's own groups under NCCL are the program's to destroy: that may be a collective
        act, in which a rank would wait here for another that does no such thing.
        """
        dist, groups = self._dist, [self._group, self._writers]
        self._dist = self._group = self._writers = None
        if dist is None or not dist.is_initialized():
            return
        if dist.get_backend() == "gloo":
            groups = [None]  # all of them
        while groups:
            with contextlib.suppress(ValueError, AssertionError):  # others have destroyed it
                dist.destroy_process_group(groups.pop())


class Agreement:
    """Has all ranks do the same at the same step boundary, whichever was told.

    A reduction begins at one boundary and is read at the next, by when a training step has
    synchronised the ranks anyway: no rank waits for it. The ranks also agree how many steps from
    then the next one begins.
    """

    def __init__(self, peers: Peers, wishes: Wishes, clock: Callable[[], float] = time.monotonic):
        """Agree about `wishes` among `peers`."""
        self._peers = peers
        self._wishes = wishes
        self._clock = clock
        self._asked: tuple[Any, Any] | None = None
        self._steps_left = 0
        self._steps = 0
        self._since = clock()

    def at_boundary(self) -> tuple[bool, bool]:
        """Return whether all ranks stop here, and whether they save here."""
        wishes = self._wishes
        if self._peers.size == 1:
            agreed = wishes.stop, wishes.save
            wishes.save = False
            return agreed
        self._steps += 1
        if self._asked is not None:
            return self._answer(*self._asked)
        self._steps_left -= 1
        if self._steps_left <= 0:
            per_step = (self._clock() - self._since) / self._steps
            apart = int(min(MOST_STEPS_APART, AGREE_S / max(per_step, 1e-9)))
            self._asked = self._peers.most([wishes.stop, wishes.save, -max(1, apart)])
            wishes.save = False
        return False, False

    def close(self) -> tuple[bool, bool]:
        """Read what is still on its way; every rank has done as many steps."""
        return (False, False) if self._asked is None else self._answer(*self._asked)

    def _answer(self, work: Any, tensor: Any) -> tuple[bool, bool]:
        work.wait()
        self._asked = None
        stop, save, apart = tensor.tolist()
        self._steps_left, self._steps, self._since = -apart, 0, self._clock()
        return bool(stop), bool(save)
