"""What a job asks for: its user's options, and the shape in which it was submitted.

Options come from the mark that hetsched.lua leaves in AdminComment, where a site has the script;
else from the `#HETSCHED` lines of the job's own script. A job without options is rigid: it runs in
the shape in which it was submitted, or not at all.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from hetsched_core.errors import InputError
from hetsched_core.types import LearningRate, RequirementSet
from slurm_plugin.backend import HostRequest, JobState, Leave, Resources, SlurmJob, Terms
from slurm_plugin.backend.gres import gpus_in
from slurm_plugin.submit.options import NO_OPTIONS, Options, read_options

PREFIX = "hetsched/2 "
MAX_CHARACTERS = 1024
MAX_ELEMENTS = 16


@dataclass(frozen=True, slots=True)
class Mark:
    """What hetsched.lua says of a job.

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
    """Whether an AdminComment is one of hetsched.lua's."""
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
        raise InputError(f"{text[:80]!r} is not a mark that hetsched.lua writes") from None
    if not 1 <= mark.elements <= MAX_ELEMENTS:
        raise InputError(f"a job of {mark.elements} elements; at most {MAX_ELEMENTS} are allowed")
    return mark


def mark_in(text: str) -> Mark:
    """Return the mark that an AdminComment is; `NO_MARK` if it is none, or a wrong one."""
    try:
        return read_mark(text)
    except InputError:
        return NO_MARK


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
class Own:
    """The shape in which a job was submitted, to which it goes back.

    Attributes:
        resources, asked: how it asks for nodes, tasks and GPUs, and for CPUs and memory.
        gpus, gpu_types: how many GPUs that is in all, and of which types; () for any.
        cpus, memory_mb: likewise.
        nodes: those that its user named, sorted; () for any.
        partitions: those that it may run in.
        time_limit_s: None for none.
        tasks_per_node: 0 for no word on that.
    """

    resources: Resources
    asked: HostRequest
    gpus: int
    gpu_types: tuple[str, ...]
    cpus: int
    memory_mb: int
    nodes: tuple[str, ...]
    partitions: tuple[str, ...]
    time_limit_s: float | None
    tasks_per_node: int = 0

    @property
    def least_nodes(self) -> int:
        """On how many nodes it runs at the least."""
        return (self.resources.nodes or (1, 0))[0] or 1

    @property
    def most_nodes(self) -> int | None:
        """On how many it runs at the most, None for any number."""
        return (self.resources.nodes or (1, 0))[1] or None

    @property
    def gpus_on_each(self) -> int:
        """How many GPUs it has on each node, if it asks for them by node alone; 0 else."""
        texts = self.resources
        if texts.per_job or texts.per_socket or texts.per_task:
            return 0
        return gpus_in(texts.per_node or "")[0]

    def gpus_in_all(self, nodes: int) -> int:
        """Return how many GPUs it has on so many nodes; Slurm gives one on each at the least."""
        return self.gpus_on_each * nodes or (self.gpus and max(self.gpus, nodes))

    @property
    def terms(self) -> Terms:
        """The limit, tasks, CPUs and memory that a change of shape may have changed."""
        limit_s = self.time_limit_s
        return Terms(
            None if limit_s is None else math.ceil(limit_s / 60.0),
            self.asked.cpus_per_task or None,
            self.asked.memory_mb_per_node or None,
            self.cpus if self.asked.cpus_per_task else None,
            self.tasks_per_node if self.tasks_per_node > 1 or self.tasks_by_gpu else None,
        )

    @property
    def tasks_by_gpu(self) -> bool:
        """Whether it has more tasks than one on each node."""
        return (self.resources.tasks or 1) > self.least_nodes


_own = lru_cache(maxsize=4096)(Own)  # many jobs ask for the same, and share it


def own_of(seen: SlurmJob, mark: Mark) -> Own:
    """Return the shape in which a job is shown."""
    # What is in the reservation was put on its nodes by a daemon.
    named = () if seen.entered or seen.nodes else seen.pinned
    texts = seen.resources
    asked = (texts.per_job, texts.per_node, texts.per_socket, texts.per_task)
    types = {each for text in asked for each in gpus_in(text or "")[1]}
    if seen.in_hold and mark.options.counts is not None:
        # So were those GPUs given to it.
        types = set()
    return _own(
        seen.resources,
        seen.asked,
        seen.gpus,
        tuple(sorted(types)),
        seen.cpus,
        seen.memory_mb,
        named,
        seen.partitions,
        seen.time_limit_s,
        seen.tasks_per_node,
    )


@dataclass(frozen=True, slots=True)
class Request:
    """What a job may be given.

    Attributes:
        key: names the job for good.
        mark: what was said of it.
        own: the shape in which it was submitted.
        counts: the GPU counts that it accepts.
        default_count: the GPUs of its own shape, for which its time limit is meant.
        gpu_types: the types that it accepts; None for all.
        least_nodes, most_nodes: on how many nodes it may run; None for any number.
        cpus_per_gpu, memory_mb_per_gpu: what Slurm will enforce for each GPU, whatever the shape.
        movable: whether it may be stopped, to go on elsewhere.
        why_not: why it can be placed in no way, "" if it can.
    """

    key: str
    mark: Mark
    own: Own
    counts: RequirementSet
    default_count: int
    gpu_types: frozenset[str] | None
    least_nodes: int
    most_nodes: int | None
    cpus_per_gpu: int
    memory_mb_per_gpu: int
    movable: bool
    why_not: str = ""

    @property
    def rigid(self) -> bool:
        """Whether it runs in the shape in which it was submitted alone."""
        return self.mark.options.counts is None

    @property
    def nodes_range(self) -> tuple[int, int] | None:
        """The range of nodes of which Slurm would take as many as it can get; None for none.

        Of a job that names no nodes Slurm shows as many as it has tasks for the most.
        """
        (least, most), tasks = self.own.resources.nodes or (1, 0), self.own.resources.tasks
        return (least, most) if self.rigid and least < most != tasks else None

    @property
    def learning_rate(self) -> LearningRate | None:
        """The rate that its user gave for the default count, if any."""
        options = self.mark.options
        if options.learning_rate is None:
            return None
        return LearningRate(((self.default_count, options.learning_rate),), options.lr_scaling)

    def placed(self, seen: SlurmJob) -> bool:
        """Whether a waiting job is in the reservation, or was when that ended: it stays pinned."""
        return seen.state is JobState.PENDING and (seen.entered or seen.pinned != self.own.nodes)

    def tasks_on(self, gpus: int) -> int:
        """Return how many tasks it has on a node with so many GPUs.

        That is one, or as many for each GPU as were submitted where those were more than nodes.
        """
        own = self.own
        if not own.tasks_by_gpu:
            return 1
        in_all = max(own.gpus, own.gpus_in_all(own.least_nodes)) or self.default_count
        return max(1, gpus * (own.resources.tasks or 1) // in_all)

    def leave(self, job: str, partitions: tuple[str, ...], *, typed: bool = False) -> Leave:
        """Return what lets it wait again, in the shape in which it was submitted.

        Args:
            job: under which id Slurm changes it.
            partitions: those that it has now.
            typed: whether it was placed with a type written that its user has not asked for.
        """
        own = self.own
        partitions = own.partitions if own.partitions != partitions else ()
        if self.rigid:
            own_nodes = Resources(self.nodes_range) if self.nodes_range else None
            back = replace(own.resources, tasks=None) if typed else own_nodes
            return Leave(job, own.nodes, back, partitions=partitions)
        return Leave(job, own.nodes, own.resources, own.terms, partitions)


def request_of(key: str, mark: Mark, seen: SlurmJob, own: Own) -> Request:
    """Return what a job may be given: what its user says, or just what was submitted.

    Args:
        key: names it for good.
        mark: what was said of it.
        seen: the job, as Slurm shows it.
        own: the shape in which it was submitted.

    Raises:
        InputError: it asks for a GPU type that its options leave out.
    """
    if mark.options.counts is not None:
        return _elastic(key, mark, mark.options.counts, seen, own)
    least = max(own.gpus // (own.gpus_on_each or own.gpus or 1), own.least_nodes, len(own.nodes))
    request = Request(
        key=key,
        mark=mark,
        own=own,
        counts=RequirementSet.rigid(max(1, own.gpus)),
        default_count=max(1, own.gpus),
        gpu_types=frozenset(own.gpu_types) or None,
        least_nodes=least,
        most_nodes=own.most_nodes,
        cpus_per_gpu=own.cpus,
        memory_mb_per_gpu=own.memory_mb,
        movable=False,
        why_not=_why_not(seen),
    )
    return on_nodes(request, least)


def on_nodes(request: Request, least: int) -> Request:
    """Return a job without a set as Slurm runs it if it needs so many nodes.

    Slurm shows its GPUs for the fewest nodes that it asks for. Where it needs more, for its CPUs or
    its memory, it has on each what it asks for by node, and else one at the least.
    """
    own = request.own
    gpus = own.gpus_in_all(least) or 1
    memory_mb = max(own.memory_mb, own.asked.memory_mb_per_node * least)
    return replace(
        request,
        counts=RequirementSet.rigid(gpus),
        default_count=gpus,
        least_nodes=least,
        most_nodes=least if own.gpus_on_each else own.most_nodes,
        cpus_per_gpu=max(math.ceil(own.cpus / gpus), own.asked.cpus_per_gpu),
        memory_mb_per_gpu=max(math.ceil(memory_mb / gpus), own.asked.memory_mb_per_gpu),
    )


def _elastic(key: str, mark: Mark, counts: RequirementSet, seen: SlurmJob, own: Own) -> Request:
    options, asked = mark.options, own.asked
    types = options.gpu_types
    if own.gpu_types:
        if types is not None and not types.issuperset(own.gpu_types):
            raise InputError(
                f"GPUs of type {own.gpu_types[0]} are asked for, and --gpu-types="
                f"{','.join(sorted(types))} leaves them out"
            )
        types = types or frozenset(own.gpu_types)
    # Of what runs Slurm shows no number of nodes.
    gpus = max(own.gpus, own.gpus_in_all(own.least_nodes))
    default = counts.default_count(gpus or None)
    gpus = gpus or default
    cpus = asked.cpus_per_gpu or math.ceil(own.cpus / gpus)
    memory_mb = (
        math.ceil(asked.memory_mb_per_node * own.least_nodes / gpus)
        or asked.memory_mb_per_cpu * cpus
        or asked.memory_mb_per_gpu
        # What Slurm takes for it all the same: a whole node's (`--mem=0`), or the site's default.
        or math.ceil(own.memory_mb / gpus)
    )
    return Request(
        key=key,
        mark=mark,
        own=own,
        counts=counts,
        default_count=default,
        gpu_types=types,
        # On how many nodes the default count is spread says nothing of the other counts.
        least_nodes=1,
        most_nodes=1 if own.most_nodes == 1 else None,
        cpus_per_gpu=cpus,
        memory_mb_per_gpu=memory_mb,
        movable=options.movable and seen.requeues,
        why_not=_why_not(seen),
    )


def _why_not(seen: SlurmJob) -> str:
    if seen.nodes:
        return ""
    if seen.het_job:
        return "hetsched places no heterogeneous jobs; submit it to nodes that it does not manage"
    if seen.cron:
        return (
            "Slurm lets nobody change, and so nobody place, what a scrontab starts; let it submit "
            "the job with sbatch, or run on nodes that hetsched does not manage"
        )
    if "*" in seen.constraint:
        return "hetsched places no job whose constraint counts nodes; Slurm takes none with a list"
    if len(seen.gpu_types) > 1:
        return f"hetsched places no job on GPUs of {' and '.join(seen.gpu_types)} at once"
    return ""
