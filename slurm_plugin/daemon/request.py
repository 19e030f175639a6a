"""What a job asks for: its user's options, and the shape in which it was submitted.

Options come from the mark that job_submit.lua leaves in AdminComment, where a site has the script;
else from the `#HETSCHED` lines of the job's own script. A job without options is rigid: it runs in
the shape in which it was submitted, or not at all.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hetsched_core.errors import InputError
from hetsched_core.types import LearningRate, RequirementSet
from slurm_plugin.backend import Asked, SlurmJob
from slurm_plugin.submit.options import NO_OPTIONS, Options, read_options

PREFIX = "hetsched/2 "
MAX_CHARACTERS = 1024
MAX_ELEMENTS = 16


@dataclass(frozen=True, slots=True)
class Mark:
    """What job_submit.lua says of a job.

    Attributes:
        nonce: names the job for good, since Slurm hands ids out again; "" without the script.
        options: what its user lets it be given.
        submitted_s: when it was submitted, seconds UTC; 0 where that is not told. Slurm's own time
            of that is the last requeue's.
        signal: what `#SBATCH --signal` says, "" without.
        elements: of how many elements of an array it is made; 1 for none.
    """

    nonce: str = ""
    options: Options = NO_OPTIONS
    submitted_s: float = 0.0
    signal: str = ""
    elements: int = 1

    @property
    def copies(self) -> bool:
        """Whether each of its elements is a copy of the job."""
        return self.elements > 1 and self.options.copies > 1


NO_MARK = Mark()
"""Of a job that says nothing."""


def is_mark(text: str) -> bool:
    """Whether an AdminComment is one of job_submit.lua's."""
    return text.startswith(PREFIX)


@lru_cache(maxsize=16_384)
def read_mark(text: str) -> Mark:
    """Read an AdminComment; `NO_MARK` where it is somebody else's.

    Raises:
        InputError: it begins like a mark and is none.
    """
    if not is_mark(text):
        return NO_MARK
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"a mark of {len(text)} characters; at most {MAX_CHARACTERS} are allowed")
    try:
        said = json.loads(text[len(PREFIX) :])
        mark = Mark(
            nonce=_text(said, "nonce"),
            submitted_s=_number(said, "submitted"),
            signal=_text(said, "signal"),
            elements=int(_number(said, "elements") or 1),
            options=read_options({name: _option(value) for name, value in said.items()}),
        )
    except (ValueError, AttributeError, TypeError, RecursionError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{text[:80]!r} is not a mark that job_submit.lua writes") from None
    if not 1 <= mark.elements <= MAX_ELEMENTS:
        raise InputError(f"a job of {mark.elements} elements; at most {MAX_ELEMENTS} are allowed")
    return mark


def nonce_of(text: str) -> str:
    """Return the nonce of an AdminComment; "" if it is no mark."""
    try:
        return read_mark(text).nonce
    except InputError:
        return ""


def elements_of_mark(text: str) -> int:
    """Return of how many elements of an array a marked job is made; 1 if it is no such job."""
    try:
        return read_mark(text).elements
    except InputError:
        return 1


def is_of_copies(text: str) -> bool:
    """Whether an AdminComment is that of a job of copies."""
    try:
        return read_mark(text).copies
    except InputError:
        return False


def _text(said: dict[str, Any], name: str) -> str:
    value = said.pop(name, "")
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}")
    return value


def _number(said: dict[str, Any], name: str) -> float:
    value = float(said.pop(name, 0.0))
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{name} is {value}")
    return value


def _option(value: object) -> str:
    return "" if value is True else f"{value}"


@dataclass(frozen=True, slots=True)
class Request:
    """What a job may be given.

    Attributes:
        key: names the job for good.
        mark: what was said of it.
        own: the shape in which it was submitted, to which it goes back; None for a rigid job, whose
            shape is never changed.
        counts: the GPU counts that it accepts.
        default_count: the GPUs of its own shape, for which its time limit is meant.
        gpu_types: the types that it accepts; None for all.
        least_nodes, most_nodes: on how many nodes it may run; None for any number.
        nodes: those that its user named, sorted; () for any.
        cpus_per_gpu, memory_mb_per_gpu: what Slurm will enforce for each GPU, whatever the shape.
        movable: whether it may be stopped, to go on elsewhere.
        why_not: why it can be placed in no way, "" if it can.
    """

    key: str
    mark: Mark
    own: Asked | None
    counts: RequirementSet
    default_count: int
    gpu_types: frozenset[str] | None
    least_nodes: int
    most_nodes: int | None
    nodes: tuple[str, ...]
    cpus_per_gpu: int
    memory_mb_per_gpu: int
    movable: bool
    why_not: str = ""

    @property
    def rigid(self) -> bool:
        """Whether it runs in the shape in which it was submitted alone."""
        return self.mark.options.counts is None

    @property
    def learning_rate(self) -> LearningRate | None:
        """The rate that its user gave for the default count, if any."""
        options = self.mark.options
        if options.learning_rate is None:
            return None
        return LearningRate(((self.default_count, options.learning_rate),), options.lr_scaling)


def rigid_request(key: str, mark: Mark, seen: SlurmJob, nodes: tuple[str, ...] = ()) -> Request:
    """Return the request of a job that runs as it was submitted, or not at all.

    Args:
        key: names it for good.
        mark: what was said of it.
        seen: the job, as Slurm shows it.
        nodes: those that its user named.
    """
    gpus = max(1, seen.gpus)
    return Request(
        key=key,
        mark=mark,
        own=None,
        counts=RequirementSet.rigid(gpus),
        default_count=gpus,
        gpu_types=frozenset(seen.gpu_types) or None,
        least_nodes=seen.least_nodes,
        most_nodes=seen.most_nodes,
        nodes=nodes,
        cpus_per_gpu=math.ceil(seen.cpus / gpus),
        memory_mb_per_gpu=math.ceil(seen.memory_mb / gpus),
        movable=False,
        why_not=_why_not(seen),
    )


def elastic_request(
    key: str, mark: Mark, seen: SlurmJob, own: Asked, nodes: tuple[str, ...] = ()
) -> Request:
    """Return the request of a job that accepts several GPU counts.

    Args:
        key: names it for good.
        mark: what its user said, with counts.
        seen: the job, as Slurm shows it.
        own: the shape in which it was submitted.
        nodes: those that its user named.

    Raises:
        InputError: it asks for a GPU type that its options leave out.
    """
    options = mark.options
    assert options.counts is not None
    types = options.gpu_types
    if own.gpu_type:
        if types is not None and own.gpu_type not in types:
            raise InputError(
                f"GPUs of type {own.gpu_type} are asked for, and --gpu-types="
                f"{','.join(sorted(types))} leaves them out"
            )
        types = types or frozenset({own.gpu_type})
    default = options.counts.default_count(own.gpus or None)
    gpus = own.gpus or default
    cpus = own.cpus_per_gpu or math.ceil(own.tasks * own.cpus_per_task / gpus)
    memory_mb = (
        math.ceil(own.memory_mb_per_node * own.least_nodes / gpus)
        or own.memory_mb_per_cpu * cpus
        or own.memory_mb_per_gpu
    )
    return Request(
        key=key,
        mark=mark,
        own=own,
        counts=options.counts,
        default_count=default,
        gpu_types=types,
        # On how many nodes the default count is spread says nothing of the other counts.
        least_nodes=1,
        most_nodes=1 if own.most_nodes == 1 else None,
        nodes=nodes,
        cpus_per_gpu=cpus,
        memory_mb_per_gpu=memory_mb,
        movable=options.movable and seen.batch,
        why_not=_why_not(seen),
    )


def _why_not(seen: SlurmJob) -> str:
    if seen.het:
        return "hetsched places no heterogeneous jobs; submit it to nodes that it does not manage"
    if len(seen.gpu_types) > 1:
        return f"hetsched places no job on GPUs of {' and '.join(seen.gpu_types)} at once"
    return ""
