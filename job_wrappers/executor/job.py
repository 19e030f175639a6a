"""What an executor is told of a job: tasks in rounds, and the user's function that makes it."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Callable

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True)
class Work:
    """What a user's function returns: a model on the host and how to train it.

    Attributes:
        model: a `torch.nn.Module`.
        optimizer: makes a `torch.optim.Optimizer` of parameters, in the order of
            `model.parameters()`; it works on the host.
        batch: (round, task of the round) -> what `loss` is given: dicts, lists and tuples of
            tensors on the host. The same for the same numbers, whenever it is asked.
        loss: (model, batch on the device) -> a tensor of one number.
    """

    model: Any
    optimizer: Callable[[list[Any]], Any]
    batch: Callable[[int, int], Any]
    loss: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class TaskJob:
    """A job whose gradients are synchronised in rounds of a fixed number of tasks.

    Attributes:
        name: of letters, digits and `.`, `_`, `-`.
        make: the user's function, `package.module:function` or `path/file.py:function`; given
            `arguments` it returns a `Work`.
        rounds: until it is done.
        scale: tasks of a round.
        seed: of all that is random in it.
        arguments: JSON values by keyword.
    """

    name: str
    make: str
    rounds: int
    scale: int = 1
    seed: int = 0
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Raise ValueError for a name or a number that is no good."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"job {self.name!r}: expected letters, digits and . _ -")
        if self.rounds < 1 or self.scale < 1:
            raise ValueError(f"job {self.name}: expected 1 round or more of 1 task or more")

    def tasks(self) -> list[Task]:
        """Return all tasks of the job in order."""
        return [Task(self.name, r, k) for r in range(self.rounds) for k in range(self.scale)]

    def work(self) -> Work:
        """Call the user's function, with everything random begun anew.

        Raises:
            ValueError: there is no such function, or it returns something else.
            Exception: whatever the function raises.
        """
        place, _, function = self.make.rpartition(":")
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            if spec is None or spec.loader is None:
                raise ValueError(f"job {self.name}: {place} is no Python file")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        if not callable(make := getattr(module, function, None)):
            raise ValueError(f"job {self.name}: {place} has no function {function!r}")
        self.begin_random("model")
        work = make(**self.arguments)
        if not isinstance(work, Work):
            raise ValueError(f"job {self.name}: {self.make} returned no Work")
        return work

    def begin_random(self, *of: object) -> None:
        """Seed what is random in a part of the job, so that it hangs on nothing before it."""
        import random

        import torch

        text = ".".join(map(str, (self.seed, *of)))
        seed = int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big")
        random.seed(seed)
        torch.manual_seed(seed)


@dataclass(frozen=True)
class Task:
    """One mini-batch of a job.

    Attributes:
        job: name of the job.
        round: from 0.
        number: within the round, from 0.
    """

    job: str
    round: int
    number: int
