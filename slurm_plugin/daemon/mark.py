"""The mark that job_submit.lua leaves in AdminComment: what a job can use, and its nonce.

Only lua writes it, but it is read as data from outside: bounded, and validated once more.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

import cattrs

from hetsched_core.errors import InputError
from hetsched_core.types import LearningRate, LearningRateScaling, RequirementSet

PREFIX = "hetsched/1 "
MAX_CHARACTERS = 1024
MAX_ELEMENTS = 16


@dataclass(frozen=True, slots=True)
class Mark:
    """What a job asked for. `nonce` names it for good, since Slurm hands ids out again.

    `default_count` GPUs are spread evenly over `default_nodes` nodes while the job waits.

    `begin_s` is when its user lets it start at the earliest, 0 for at once. `submitted_s` is when
    it was submitted, 0 if not told: Slurm's own time of that is the last requeue's.
    `can_checkpoint` is the user's word for it, `signal` what `#SBATCH --signal` says, "" without.
    `limit_s` is the time limit that the user gave for the default count, None for none.
    `cpus_per_gpu` and `memory_mb_per_gpu` are what the user asked for in just that way,
    `least_gpu_memory_mb` what each GPU must have of its own, 0 for any. Of a job with `shadow` the
    script has changed nothing: it starts by itself, in the shape that its user gave it. `any_shape`
    is whether it takes uneven and mixed shapes; it is then a gang of so many `elements`. Of a job
    of copies each element is one.
    """

    nonce: str
    requirements: RequirementSet
    default_count: int
    gpu_types: frozenset[str] | None
    profile: str
    total_samples: float | None
    learning_rate: LearningRate | None
    movable: bool
    begin_s: float = 0.0
    submitted_s: float = 0.0
    can_checkpoint: bool = False
    signal: str = ""
    limit_s: float | None = None
    default_nodes: int = 1
    cpus_per_gpu: int = 0
    least_gpu_memory_mb: int = 0
    shadow: bool = False
    any_shape: bool = False
    elements: int = 1
    copies: bool = False

    @property
    def default_gpus_per_node(self) -> int:
        """How many GPUs it asks for on each node while it waits."""
        return self.default_count // self.default_nodes

    @property
    def default_type(self) -> str:
        """The GPU type that it asks for while it waits: the only one that it accepts, or ""."""
        return next(iter(self.gpu_types)) if self.gpu_types and len(self.gpu_types) == 1 else ""


@dataclass(frozen=True, slots=True)
class _Document:
    nonce: str
    default: int
    gpu_set: str
    gpu_types: str = ""
    gpu_mem: str = ""
    gpu_shapes: str = "even"
    learning_rate: float = 0.0
    lr_scaling: str = LearningRateScaling.NONE.value
    profile_key: str = ""
    total_samples: float = 0.0
    no_move: bool = False
    can_checkpoint: bool = False
    signal: str = ""
    limit: float = 0.0
    nodes: int = 1
    elements: int = 1
    copies: int = 0
    cpus: int = 0
    begin: float = 0.0
    submitted: float = 0.0
    shadow: bool = False


_MOST = {
    "begin": math.inf,
    "submitted": 1e11,
    "limit": 1e11,
    "learning_rate": math.inf,
    "total_samples": math.inf,
}
"""The numbers of a mark and what they stay below, in its units."""

_MEMORY = re.compile(r"(?:(\d{1,9})([MG]))?")

_CONVERTER = cattrs.Converter(forbid_extra_keys=True)


def read_mark(text: str) -> Mark | None:
    """Read an AdminComment; None where it is somebody else's.

    Raises:
        InputError: it begins like a mark and is none.
    """
    if not text.startswith(PREFIX):
        return None
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"a mark of {len(text)} characters; at most {MAX_CHARACTERS} are allowed")
    try:
        fields = {
            key.replace("-", "_"): value for key, value in json.loads(text[len(PREFIX) :]).items()
        }
        found = _CONVERTER.structure(fields, _Document)
        scaling = LearningRateScaling(found.lr_scaling)
    except (
        *(ValueError, AttributeError, KeyError, TypeError, RecursionError),
        cattrs.BaseValidationError,
    ):
        raise InputError(f"{text[:80]!r} is not a mark that job_submit.lua writes") from None
    requirements = RequirementSet.parse(found.gpu_set)
    for name in ("begin", "submitted", "limit", "learning_rate", "total_samples"):
        value = getattr(found, name)
        if not 0.0 <= value < _MOST[name]:
            raise InputError(f"{name} = {value} in a mark is not from 0 to {_MOST[name]:g}")
    if found.cpus < 0:
        raise InputError(f"{found.cpus} CPUs for each GPU in a mark; they count from 0")
    if found.default not in requirements:
        raise InputError(f"the default count {found.default} is not in {requirements}")
    if found.nodes < 1 or found.default % found.nodes:
        raise InputError(f"{found.default} GPUs are not spread evenly over {found.nodes} nodes")
    if found.gpu_shapes not in ("even", "any") or not 1 <= found.elements <= MAX_ELEMENTS:
        raise InputError(f"{found.gpu_shapes!r} in {found.elements} elements is no shape of a job")
    rate = found.learning_rate
    types = frozenset(filter(None, found.gpu_types.split(",")))
    return Mark(
        nonce=found.nonce,
        requirements=requirements,
        default_count=found.default,
        gpu_types=types or None,
        profile=found.profile_key,
        total_samples=found.total_samples or None,
        learning_rate=LearningRate(((found.default, rate),), scaling) if rate else None,
        movable=not found.no_move,
        begin_s=found.begin,
        submitted_s=found.submitted,
        can_checkpoint=found.can_checkpoint,
        signal=found.signal,
        limit_s=found.limit * 60.0 or None,
        default_nodes=found.nodes,
        cpus_per_gpu=found.cpus,
        least_gpu_memory_mb=_memory_mb(found.gpu_mem),
        shadow=found.shadow,
        any_shape=found.gpu_shapes == "any",
        elements=found.elements,
        copies=found.copies > 0 and found.elements > 1,
    )


def is_of_copies(text: str) -> bool:
    """Whether an AdminComment is that of a job of copies, as far as lua's own word for it tells."""
    return text.startswith(PREFIX) and '"copies":' in text and '"elements":' in text


def read_nonce(text: str) -> str:
    """Return the nonce of an AdminComment; "" if it is no mark."""
    try:
        mark = read_mark(text)
    except InputError:
        return ""
    return "" if mark is None else mark.nonce


def _memory_mb(text: str) -> int:
    """Read `40G` or `24000M`; "" is 0."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise InputError(f"{text!r} is not the memory of a GPU, for example 40G")
    return int(match[1] or 0) * (1024 if match[2] == "G" else 1)
