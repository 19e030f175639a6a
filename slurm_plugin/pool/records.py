# No `from __future__ import annotations`: cattrs would not see the forms.
"""What stands in the files of a pool, `hetsched-pool/1` (docs/formats/pool.md).

They are written by the user's own processes, some of which run the user's own code. So everything
is read as one of these types, or not at all.
"""

import json
from dataclasses import dataclass, field
from typing import Annotated, Any

from hetsched_core.values.records import Form, count
from job_wrappers.pool.asked import (
    MOST_ROUNDS,
    MOST_TASKS,
    NAME_FORM,
    WEIGHT_FORM,
    is_name,
    is_weight,
)


def _name(value: Any) -> str:
    if not is_name(value):
        raise ValueError
    return str(value)


def _counted(most: int) -> Form:
    least = count(1)

    def read(value: object) -> int:
        found: int = least.read(value)
        if found > most:
            raise ValueError
        return found

    return Form(f"a whole number from 1 to {most}", read)


def _weight(value: Any) -> float:
    if not is_weight(value):
        raise ValueError
    return float(value)


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError
    # Whatever reads it again refuses NaN and infinity.
    json.dumps(value, allow_nan=False)
    return value


Name = Annotated[str, Form(NAME_FORM, _name)]
Arguments = Annotated[
    dict[str, Any], Form("arguments by keyword, without NaN and infinity", _mapping)
]


@dataclass(frozen=True)
class PoolRecord:
    """`pool.json`: the policy and its parameters, as text."""

    schema: str
    policy: str
    parameters: Annotated[dict[str, Any], Form("parameters by name", _mapping)]


@dataclass(frozen=True)
class Training:
    """`trainings/NAME.json`: what was submitted (`Asked`), and when (UTC)."""

    schema: str
    name: Name
    make: str
    rounds: Annotated[int, _counted(MOST_ROUNDS)]
    scale: Annotated[int, _counted(MOST_TASKS)] = 1
    seed: int = 0
    arguments: Arguments = field(default_factory=dict)
    group: str = ""
    weight: Annotated[float, Form(WEIGHT_FORM, _weight)] = 1.0
    key: str = ""
    submit_s: float = 0.0


@dataclass(frozen=True)
class Member:
    """`members/ID.json`: a GPU that runs tasks."""

    schema: str
    id: Name
    node: str
    pids: str
    device: str
    gpu_type: str
    pid: Annotated[int, count(1)]
    since_s: float


@dataclass(frozen=True)
class Result:
    """`results/NAME.json`: how a training ended.

    Attributes:
        schema: of the file.
        failed: why; "" where it did not.
        state: the file of its last round, relative to the pool; "" where there is none.
        losses: the mean over the tasks of each round, as far as they were told.
        submit_s, ended_s: when (UTC).
        rounds: done.
    """

    schema: str
    failed: str
    state: str
    losses: tuple[float, ...]
    submit_s: float
    ended_s: float
    rounds: int


@dataclass(frozen=True)
class Began:
    """A task has begun."""

    job: Name
    round: Annotated[int, count(0)]
    number: Annotated[int, count(0)]
    at_s: float


@dataclass(frozen=True)
class Trained:
    """A task has trained: its gradients are on their way. Without a loss it had been done before.

    Attributes:
        job: its training.
        round: from 0.
        number: of the task, from 0.
        at_s: when (UTC).
        train_s: of its forward and backward pass.
        gpu_type: of its member, of which nothing else may be left.
        switch_s: waited for before.
        kept: whether its model was on the device.
        loss: of its batch.
    """

    job: Name
    round: Annotated[int, count(0)]
    number: Annotated[int, count(0)]
    at_s: float
    train_s: float
    switch_s: float
    kept: bool
    loss: float | None
    gpu_type: str


@dataclass(frozen=True)
class Failed:
    """A training has failed on a member, and with it all of its tasks."""

    job: Name
    why: str


Line = Began | Trained | Failed

LINES: dict[str, type[Any]] = {"began": Began, "trained": Trained, "failed": Failed}
