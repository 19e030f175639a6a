"""The state of a training: what its parts say of themselves, split into tensors and the rest."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from job_wrappers.session.errors import SessionError
from job_wrappers.states import leaves, mapped


@dataclass(frozen=True)
class TensorAt:
    """Stands where a tensor was taken out of a state."""

    index: int


@dataclass(frozen=True)
class Split:
    """A state without its tensors, which follow by index.

    `shared` holds the indices of tensors that are the same on all ranks.
    """

    skeleton: Any
    tensors: tuple[Any, ...]
    shared: frozenset[int]


class TrainedParts:
    """Model, optimiser and what else has a state: collected as one, and restored."""

    def __init__(self, torch: Any, model: Any, optimizer: Any, others: Mapping[str, Any]) -> None:
        """Look after these; the `others` have `state_dict` and `load_state_dict`."""
        self._torch = torch
        # DDP puts the model into one of its own, which a run on one GPU does not have.
        wrapped = isinstance(model, torch.nn.parallel.DistributedDataParallel)
        self.model = model.module if wrapped else model
        self.optimizer = optimizer
        self._others = {name: part for name, part in others.items() if part is not None}
        for name, part in self._others.items():
            if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise SessionError(f"{name} has no state_dict and load_state_dict to save it by")

    @property
    def in_parts(self) -> bool:
        """Whether each rank has a part of the model alone, as in FSDP."""
        # By name, for that module is imported by those alone who use it.
        kinds = {type(module).__name__ for module in self.model.modules()}
        of_dtensors = any(hasattr(each, "device_mesh") for each in self.model.parameters())
        return of_dtensors or "FullyShardedDataParallel" in kinds

    def split(self) -> Split:
        """Return the state as it is now; its tensors are the live ones."""
        torch = self._torch
        tensors: list[Any] = []

        def taken_out(leaf: Any) -> Any:
            known = type(leaf) in (torch.Tensor, torch.nn.Parameter)
            if not known or leaf.layout is not torch.strided:
                return leaf
            tensors.append(leaf.detach())
            return TensorAt(len(tensors) - 1)

        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "others": {name: part.state_dict() for name, part in self._others.items()},
        }
        skeleton = mapped(state, taken_out)
        # Buffers differ from rank to rank until the next forward pass; rank 0's are the true ones.
        trained = {p.data_ptr() for p in self.model.parameters()}
        optimised = [leaf for _, leaf in leaves(skeleton["optimizer"])]
        in_optimizer = {leaf.index for leaf in optimised if isinstance(leaf, TensorAt)}
        shared = frozenset(
            index
            for index, tensor in enumerate(tensors)
            if index in in_optimizer or tensor.data_ptr() in trained
        )
        return Split(skeleton, tuple(tensors), shared)

    def restore(self, skeleton: Any, tensors: Mapping[int, Any]) -> None:
        """Put a state back.

        Raises:
            SessionError: it is of another model, optimiser or set of parts.
        """
        state = mapped(
            skeleton, lambda leaf: tensors[leaf.index] if isinstance(leaf, TensorAt) else leaf
        )
        missing = self._others.keys() ^ state["others"].keys()
        if missing:
            raise SessionError(
                f"the checkpoint and this session differ in {', '.join(sorted(missing))}; make the "
                "session with the same parts, or with another checkpoint directory"
            )
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            for name, part in self._others.items():
                part.load_state_dict(state["others"][name])
        except (RuntimeError, ValueError, KeyError) as error:
            raise SessionError(
                f"the checkpoint is of another model or optimiser: {error}; name another "
                "checkpoint directory to begin anew"
            ) from error

    def scale_learning_rate(self, factor: float) -> None:
        """Multiply the learning rates, and those that schedulers go by."""
        for group in self.optimizer.param_groups:
            for key in ("lr", "initial_lr"):
                if key in group:
                    group[key] = group[key] * factor
        for part in self._others.values():
            for key in ("base_lrs", "_last_lr"):
                rates = getattr(part, key, None)
                if rates is not None:
                    setattr(part, key, [rate * factor for rate in rates])


def random_state(torch: Any) -> dict[str, Any]:
    """Return the state of all sources of chance of this rank."""
    state = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state["numpy"] = numpy.random.get_state()
    return state


def set_random_state(torch: Any, state: Mapping[str, Any]) -> None:
    """Put such a state back, as far as it has a place here."""
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    numpy = sys.modules.get("numpy")
    if "numpy" in state and numpy is not None:
        numpy.random.set_state(state["numpy"])


def new_random_state(torch: Any, seed: int, rank: int, steps: int) -> None:
    """Seed a rank that the run before did not have: by where training is, and by its rank."""
    own = (seed * 1_000_003 + steps) * 65_537 + rank + 1
    torch.manual_seed(own % 2**63)
    random.seed(own)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(own % 2**32)
