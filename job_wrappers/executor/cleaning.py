"""Early cleaning: what a layer keeps for its backward pass is overwritten as soon as that is done.

Source: Hare, HPDC '22, section 4: not only the pointers are given up, but the content too, so that
the process that gets the memory next cannot read it.

Autograd gives up what a node has saved right after the node has run. Where nothing else holds that
memory then, it is set to zero, on the stream on which the node ran. Parameters, and whatever the
job holds itself, are held by others and stay. Results of operations that no backward pass needs are
freed in the forward pass and not overwritten; only their own process can get at them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any


class Cleaner:
    """Counts and overwrites what the backward pass of one task gives up.

    Attributes:
        held: bytes that are kept for the backward pass now, each memory counted once.
        peak: most bytes so far.
        cleaned: bytes overwritten so far.
    """

    def __init__(self) -> None:
        """Raises ImportError where this torch cannot tell what holds a memory."""
        import torch

        try:
            self._users = torch._C._storage_Use_Count  # noqa: SLF001
        except AttributeError:
            raise ImportError(f"torch {torch.__version__} is too old for the executor") from None
        self._own: set[int] = set()
        self._saved: dict[int, int] = {}
        self.held = self.peak = self.cleaned = 0

    def spare(self, tensors: Any) -> None:
        """Neither count nor overwrite the memory of these tensors: parameters and buffers."""
        self._own |= {tensor.untyped_storage().data_ptr() for tensor in tensors}

    def watch(self) -> AbstractContextManager[Any]:
        """Return the context in which a forward pass saves what is to be cleaned."""
        import torch

        hooks: AbstractContextManager[Any] = torch.autograd.graph.saved_tensors_hooks(
            self._pack, _Saved.again
        )
        return hooks

    def _pack(self, tensor: Any) -> _Saved:
        saved = _Saved(tensor, self)
        if saved.key is not None:
            count = self._saved.get(saved.key, 0)
            if not count:
                self.held += saved.size
                self.peak = max(self.peak, self.held)
            self._saved[saved.key] = count + 1
        return saved

    def key_of(self, storage: Any) -> int | None:
        """Return what names a memory; None for one that is spared."""
        at: int = storage.data_ptr()
        return None if at in self._own or not storage.nbytes() else at

    def give_up(self, saved: _Saved) -> None:
        """Overwrite what was saved where nothing but its last user holds it."""
        import torch

        if saved.key is None:
            return
        self._saved[saved.key] -= 1
        if self._saved[saved.key]:
            return
        del self._saved[saved.key]
        self.held -= saved.size
        storage = saved.tensor.untyped_storage()
        # One user is the saved tensor, the other the object that was asked for just now.
        if self._users(storage._cdata) == 2:  # noqa: SLF001
            raw = torch.empty(0, dtype=torch.uint8, device=saved.tensor.device)
            raw.set_(storage).zero_()
            self.cleaned += saved.size


class _Saved:
    """A tensor that a node of the graph has saved.

    It is given out as new tensors, so that a node whose gradient is what it had saved counts as a
    user of the memory.
    """

    def __init__(self, tensor: Any, cleaner: Cleaner) -> None:
        self.tensor = tensor.detach()
        self._cleaner = cleaner
        storage = self.tensor.untyped_storage()
        self.key = cleaner.key_of(storage)
        self.size: int = storage.nbytes()

    def again(self) -> Any:
        return self.tensor.detach()

    def __del__(self) -> None:
        self._cleaner.give_up(self)
