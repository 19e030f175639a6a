"""What goes into a store: measurements, and what the scheduler did.

Every record refuses, as it is made, what could not have been measured. So what reaches the store is
sound, and whoever reads it from a foreign file knows at once which line is at fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from hetsched_core.errors import InputError
from hetsched_core.records.runlog import PlanRecord
from hetsched_core.throughput.iteration import Pattern
from hetsched_core.throughput.moments import Moments
from hetsched_core.types import Diagnostics
from hetsched_core.types.requirement import MAX_GPU_COUNT

MAX_NAME = 256
"""Most characters in the name of a profile, its owner, a GPU type or a node."""

MIN_SPEED, MAX_SPEED = 1e-12, 1e12
"""Samples/s per GPU outside of these are no measurement."""

MAX_PART_S = 86_400.0
"""A part of an iteration that lasts longer than a day is no measurement."""

MAX_BANDWIDTH = 1e15
"""Parameters/s beyond this are no measurement."""

MAX_TIME_S = 1e11
"""Seconds UTC beyond this (the year 5138) are no time."""

SITE = ""
"""Owner of the profiles that come from the site and not from a user; everybody may read them."""


@dataclass(frozen=True, slots=True, order=True)
class ProfileKey:
    """Names what is trained and how, and whose measurements of it these are.

    Only its owner's runs add to a profile, so that nobody spoils another's estimates. Others read
    it once an admin has published it; those of the `SITE` are public.
    """

    name: str
    owner: str = SITE

    def __post_init__(self) -> None:
        """Refuse names that no listing could show."""
        check_name("profile", self.name)
        if self.owner != SITE:
            check_name("owner", self.owner)

    def __str__(self) -> str:
        """Return for example `resnet50 of alice`."""
        return f"{self.name} of {self.owner}" if self.owner else self.name


@dataclass(frozen=True, slots=True)
class Measurement:
    """Achieved speed of a profile in one configuration of one GPU type.

    Attributes:
        profile: what ran.
        gpu_type: the type of all its GPUs.
        gpus: their number, over all nodes.
        node_count: on how many nodes; 1 is an aggregated configuration, more a distributed one.
        speed: samples/s per GPU.
        at_s: when it was measured, seconds UTC.
        nodes: which nodes; empty where that is not known, and it counts for the type alone.
    """

    profile: ProfileKey
    gpu_type: str
    gpus: int
    node_count: int
    speed: Moments
    at_s: float
    nodes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what could not have been measured."""
        check_name("GPU type", self.gpu_type)
        if not 1 <= self.node_count <= self.gpus <= MAX_GPU_COUNT:
            raise InputError(
                f"{self.gpus!r:.40} GPUs on {self.node_count!r:.40} nodes; expected at least one "
                f"GPU on each of at least one node, and at most {MAX_GPU_COUNT}"
            )
        if not MIN_SPEED <= self.speed.mean <= MAX_SPEED:
            raise InputError(
                f"a speed of {self.speed.mean!r:.40} samples/s per GPU; expected {MIN_SPEED:g} to "
                f"{MAX_SPEED:g}"
            )
        check_time(self.at_s)
        if self.nodes:
            if len(self.nodes) != self.node_count or len(set(self.nodes)) < len(self.nodes):
                raise InputError(
                    f"{len(self.nodes)} names for {self.node_count} nodes: {self.nodes!r:.80}; "
                    "name each once, or none"
                )
            for node in self.nodes:
                check_name("node", node)


@dataclass(frozen=True, slots=True)
class BasicTimes:
    """Basic times of an iteration on one GPU of a type, as the profiler measures them (Hops 3.2).

    `forward_s`, `backward_s`, `update_s` are T_f, T_b and T_u, in seconds, over the same profiling
    runs; `batch_size` is per GPU, `parameters` the size of the model.
    """

    profile: ProfileKey
    gpu_type: str
    batch_size: int
    parameters: int
    pattern: Pattern
    forward_s: Moments
    backward_s: Moments
    update_s: Moments
    at_s: float

    def __post_init__(self) -> None:
        """Refuse what could not have been measured."""
        check_name("GPU type", self.gpu_type)
        if not (1 <= self.batch_size <= 10**9 and 0 <= self.parameters <= 10**15):
            raise InputError(
                f"a batch of {self.batch_size!r:.40} and {self.parameters!r:.40} parameters; "
                "expected 1 to 1e9 samples and 0 to 1e15 parameters"
            )
        for part in (self.forward_s, self.backward_s, self.update_s):
            if not 0.0 <= part.mean <= MAX_PART_S:
                raise InputError(
                    f"a part of {part.mean!r:.40} s of an iteration; expected 0 to {MAX_PART_S:g}"
                )
            if part.count != self.forward_s.count:
                raise InputError(
                    f"T_f was measured {self.forward_s.count} times, another part {part.count} "
                    "times; expected all three of each profiling run"
                )
        whole_s = self.forward_s.mean + self.backward_s.mean + self.update_s.mean
        if 0.0 < whole_s < self.batch_size / MAX_SPEED:
            raise InputError(
                f"{self.batch_size} samples in {whole_s:.40g} s; expected at most {MAX_SPEED:g} a "
                "second"
            )
        check_time(self.at_s)


@dataclass(frozen=True, slots=True)
class DataTimes:
    """T_d and T_w of single iterations, side by side, in seconds (Hops 3.2)."""

    profile: ProfileKey
    gpu_type: str
    data_s: tuple[float, ...]
    wait_s: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what could not have been measured."""
        check_name("GPU type", self.gpu_type)
        if len(self.data_s) != len(self.wait_s):
            raise InputError(
                f"{len(self.data_s)} data times and {len(self.wait_s)} waits; expected pairs"
            )
        for value in (*self.data_s, *self.wait_s):
            if not 0.0 <= value <= MAX_PART_S:
                raise InputError(
                    f"a data time or wait of {value!r:.40} s; expected 0 to {MAX_PART_S:g}"
                )


class BandwidthTerm(StrEnum):
    """What of `throughput.iteration.Bandwidths` was measured: `link`, `network`, or its ring share.

    Two bandwidths in parameters/s, and a share from 0 to 1.
    """

    LINK = "link"
    NETWORK = "network"
    NETWORK_RING = "network_ring"


@dataclass(frozen=True, slots=True)
class BandwidthMeasurement:
    """How fast GPUs of one type average gradients, inside a node or between nodes (Hops 3.3)."""

    gpu_type: str
    term: BandwidthTerm
    value: Moments
    at_s: float

    def __post_init__(self) -> None:
        """Refuse what could not have been measured."""
        check_name("GPU type", self.gpu_type)
        value = self.value.mean
        if self.term is BandwidthTerm.NETWORK_RING:
            if not 0.0 <= value <= 1.0:
                raise InputError(f"a network_ring of {value!r:.40}; expected a share from 0 to 1")
        elif not 0.0 < value <= MAX_BANDWIDTH:
            raise InputError(
                f"a bandwidth of {value!r:.40} parameters/s; expected more than 0, and at most "
                f"{MAX_BANDWIDTH:g}"
            )
        check_time(self.at_s)


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan that was made: when and why, how it was found, and what it takes to repeat it.

    `document` is kept as it is: JSON text, in whatever form the recorder chose.
    """

    policy: str
    plan: PlanRecord
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    document: str = ""

    def __post_init__(self) -> None:
        """Refuse a time that is none."""
        check_time(self.plan.at_s)


def check_name(kind: str, name: str) -> None:
    """Refuse a name that is empty, too long, or would spoil a listing.

    Raises:
        InputError: it is such a name.
    """
    if not _is_name(name):
        raise InputError(
            f"{kind} {ascii(name)[:60]}; expected 1 to {MAX_NAME} printable characters"
        )


def check_time(at_s: float) -> None:
    """Refuse a time that is none.

    Raises:
        InputError: it is not within 0 and `MAX_TIME_S`.
    """
    if not 0.0 <= at_s <= MAX_TIME_S:
        raise InputError(f"a time of {at_s!r:.40}; expected seconds UTC since 1970")


@lru_cache(maxsize=4096)
def _is_name(name: str) -> bool:
    # The same few names come with every measurement.
    return 0 < len(name) <= MAX_NAME and name.isprintable() and name.strip() == name
