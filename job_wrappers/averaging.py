"""The weighted mean of several states of one model, tensor by tensor.

What becomes of each kind of leaf, for parameters, buffers and optimiser state alike:

floating point: the weighted mean. Of parameters that is HadarE's consolidation (section V-B). Of a
    normalisation layer's running mean and variance it is the mean of estimates that were made with
    almost the same weights. Of momentum and Adam's second moment, themselves means over past
    gradients, it is the mean over the gradients of all copies, and stays non-negative.
whole numbers: what each state added to the start adds up, as batches counted by a normalisation
    layer do; indices that no process changes stay as they are.
anything else (bool, text, learning rate): that of the first state.
"""

from __future__ import annotations

from typing import Any

from job_wrappers.states import Path, leaves, mapped


class Mean:
    """A mean to which states are added one by one, so that few are in memory at once.

    Sums are kept in double precision as differences from the first state: the mean of equal states
    is that state, bit for bit, and so is the mean of one.
    """

    def __init__(self, start: object) -> None:
        """Begin with the state from which all others came; it has no weight itself."""
        self._start = dict(leaves(start))
        self._first: Any | None = None
        self._leaves: dict[Path, Any] = {}
        self._sums: dict[Path, Any] = {}
        self._weight = 0.0

    def add(self, state: object, weight: float) -> None:
        """Add a state with a weight above 0.

        Raises:
            ValueError: it is not of the form of the others, or holds numbers that are not finite;
                it was not added.
        """
        own = dict(leaves(state))
        self._check(own)
        if self._first is None:
            self._first, self._leaves = state, own
        for path, leaf in own.items():
            if _is_mean(leaf):
                change = (leaf.to(_double(leaf)) - self._leaves[path].to(_double(leaf))) * weight
            elif _is_count(leaf) and path in self._start:
                change = leaf - self._start[path]
            else:
                continue
            self._sums[path] = self._sums[path] + change if path in self._sums else change
        self._weight += weight

    def result(self) -> Any:
        """Return the mean, with tensors of its own.

        Raises:
            ValueError: nothing was added.
        """
        if self._first is None:
            raise ValueError("nothing was added: there is no mean")
        found = iter([self._mean(path, leaf) for path, leaf in self._leaves.items()])
        return mapped(self._first, lambda _: next(found))

    def _mean(self, path: Path, leaf: Any) -> Any:
        if _is_mean(leaf):
            mean = leaf.to(_double(leaf)) + self._sums[path] / self._weight
            return mean.to(leaf.dtype)
        if path in self._sums:
            return self._start[path] + self._sums[path]
        return leaf.clone() if hasattr(leaf, "clone") else leaf

    def _check(self, own: dict[Path, Any]) -> None:
        if self._first is not None and own.keys() != self._leaves.keys():
            odd = sorted(map(_name, own.keys() ^ self._leaves.keys()))
            raise ValueError(f"not of the form of the others: {', '.join(odd[:3])}")
        for path, leaf in own.items():
            for other in (self._start.get(path), self._leaves.get(path)):
                if other is not None and _form(other) != _form(leaf):
                    raise ValueError(f"{_name(path)} is {_form(leaf)}, not {_form(other)}")
            if _is_mean(leaf) and not bool(leaf.isfinite().all()):
                raise ValueError(f"{_name(path)} is not finite")


def _is_mean(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and bool(leaf.is_floating_point() or leaf.is_complex())


def _is_count(leaf: Any) -> bool:
    if not hasattr(leaf, "dtype") or _is_mean(leaf):
        return False
    import torch

    return isinstance(leaf, torch.Tensor) and leaf.dtype != torch.bool


def _double(leaf: Any) -> Any:
    import torch

    return torch.complex128 if leaf.is_complex() else torch.float64


def _form(leaf: Any) -> str:
    if hasattr(leaf, "dtype"):
        return f"{str(leaf.dtype).rpartition('.')[2]} of {'×'.join(map(str, leaf.shape)) or 'one'}"
    return type(leaf).__name__


def _name(path: Path) -> str:
    return ".".join(map(str, path))
