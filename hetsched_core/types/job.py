"""Jobs: what was submitted, and what is known of it now."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from enum import Enum, StrEnum
from operator import attrgetter

from hetsched_core.errors import InputError
from hetsched_core.types.cluster import Cluster, Configuration, Shape
from hetsched_core.types.making import cheaply_made, maker
from hetsched_core.types.reason import Reason
from hetsched_core.types.requirement import LearningRate, RequirementSet


class Knowledge(StrEnum):
    """What a policy must be told beyond what every policy sees."""

    TOTAL_SAMPLES = "total samples"
    TIME_LIMIT = "time limit"
    FUTURE_ARRIVALS = "future arrivals"


_SIZES = frozenset({Knowledge.TOTAL_SAMPLES, Knowledge.TIME_LIMIT})


@dataclass(frozen=True, slots=True)
class TaskShape:
    """A job as Hare sees it: training rounds of `scale` tasks, one task being a mini-batch.

    `rounds` is None where the policy may not know it. `search_group` names the hyper-parameter
    search that the job belongs to (Hare, TCC section V).
    """

    scale: int
    rounds: int | None = None
    search_group: str = ""

    def __post_init__(self) -> None:
        """Refuse counts below 1."""
        if self.scale < 1 or (self.rounds is not None and self.rounds < 1):
            raise InputError(
                f"tasks of scale {self.scale} and {self.rounds} rounds: both count from 1"
            )


@cheaply_made
@dataclass(frozen=True, slots=True)
class Job:
    """A job as submitted. What a policy may not know is None (see `hidden_from`).

    Times are seconds UTC, sizes samples, memory MiB. `gpu_types` of None means any type.
    `profile` keys the measured speeds. `assumed` names the fields that were inferred and not given.
    `shapes` are those that it takes beside the ones that can be realised for every job. `copies` is
    as how many copies it may run at a time, each with a count that it accepts; None where any job
    may be forked onto any nodes, as in replays.

    `nodes` are the names of the nodes on which it may run, the same object for all jobs that may
    run on the same ones; None means all. A configuration of it has `min_nodes` to `max_nodes` nodes
    (None: any number); where `min_nodes` is above 1, they give equal parts. `closed` are nodes that
    are closed to it now, for a window that is ahead or has begun: it neither starts nor stays
    there. Whoever shows it to a policy says so (`closed_to`), and no user.

    Jobs of a higher `tier` go strictly before those of a lower one. One that `gives_way` may be
    stopped for them though it is not `preemptible`: what it has done may be lost.
    `limits` names those of the
    site's limits that it comes under, the same object for all jobs that come under the same ones.
    `deadline_s` is when its user wants it to have ended.
    """

    id: str
    submit_s: float
    requirements: RequirementSet
    profile: str
    total_samples: float | None = None
    time_limit_s: float | None = None
    eligible_s: float | None = None
    gpu_types: frozenset[str] | None = None
    cpus_per_gpu: float = 0.0
    memory_mb_per_gpu: float = 0.0
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    weight: float = 1.0
    preemptible: bool = True
    asked_count: int | None = None
    learning_rate: LearningRate | None = None
    tasks: TaskShape | None = None
    assumed: frozenset[str] = frozenset()
    shapes: frozenset[Shape] = frozenset()
    copies: int | None = None
    nodes: frozenset[str] | None = None
    min_nodes: int = 1
    max_nodes: int | None = None
    closed: frozenset[str] = frozenset()
    tier: int = 0
    limits: tuple[str, ...] = ()
    qos: str = ""
    deadline_s: float | None = None
    gives_way: bool = False

    @property
    def eligible_from_s(self) -> float:
        """When the job may first start: at its submission, or later where `eligible_s` says so."""
        return self.submit_s if self.eligible_s is None else max(self.submit_s, self.eligible_s)

    def accepts_type(self, gpu_type: str) -> bool:
        """Whether the job may run on this GPU type."""
        return self.gpu_types is None or gpu_type in self.gpu_types

    def may_start_on(self, node: str) -> bool:
        """Whether the job may start on the node of this name, as far as the job is concerned."""
        return (self.nodes is None or node in self.nodes) and node not in self.closed

    def accepts_spread(self, configuration: Configuration) -> bool:
        """Whether a configuration has as many nodes as the job may have, and in equal parts."""
        many = len(configuration)
        if many < self.min_nodes or (self.max_nodes is not None and many > self.max_nodes):
            return False
        return self.min_nodes < 2 or len({gpus for _, gpus in configuration}) == 1

    def hidden_from(self, knows: frozenset[Knowledge]) -> Job:
        """Return the job as a policy that knows only `knows` sees it."""
        if knows >= _SIZES:
            return self
        hide_size = Knowledge.TOTAL_SAMPLES not in knows
        tasks = self.tasks
        if hide_size and tasks is not None and tasks.rounds is not None:
            tasks = replace(tasks, rounds=None)
        # What `replace` does, for every job of a replay: all fields are looked up at once.
        shown = list(_every_field(self))
        shown[_AT["total_samples"]] = None if hide_size else self.total_samples
        shown[_AT["time_limit_s"]] = self.time_limit_s if Knowledge.TIME_LIMIT in knows else None
        shown[_AT["tasks"]] = tasks
        return _make_job(*shown)


_make_job = maker(Job)
_AT = {field.name: at for at, field in enumerate(fields(Job))}
_every_field = attrgetter(*_AT)


class Purpose(StrEnum):
    """Why a placement exists."""

    RUN = "run"
    PROFILE = "profile"


class Phase(Enum):
    """Where a job or one of its runs stands."""

    WAITING = "waiting"
    PLACED = "placed"
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    PROFILING = "profiling"


_FURTHEST_ON = (
    *(Phase.RUNNING, Phase.STARTING, Phase.PLACED, Phase.DRAINING),
    *(Phase.PROFILING, Phase.WAITING),
)


@cheaply_made
@dataclass(frozen=True, slots=True)
class Run:
    """GPUs held by one copy of a job, from allocation until they are free.

    `since_s` is when the GPUs were taken, `progress_from_s` when work begins (after the restart
    cost), `speed` the achieved samples/s, `samples` what it has done at the view's `observed_s`.
    With `budget` samples done it makes no more progress, and holds its GPUs until a plan says
    otherwise. A run with `draining_until_s` makes no progress and frees its GPUs at that time. One
    that has not `begun` is placed: its GPUs are kept for it, and the job attains nothing from them
    and waits on. Replays have none, since a start there is instant.
    """

    number: int
    configuration: Configuration
    since_s: float
    progress_from_s: float
    speed: float
    copy: int = 0
    purpose: Purpose = Purpose.RUN
    samples: float = 0.0
    budget: float | None = None
    draining_until_s: float | None = None
    begun: bool = True

    def phase(self, now: float) -> Phase:
        """Return the phase of this run at time `now`."""
        if self.draining_until_s is not None:
            return Phase.DRAINING
        if not self.begun:
            return Phase.PLACED
        if self.purpose is Purpose.PROFILE:
            return Phase.PROFILING
        return Phase.STARTING if now < self.progress_from_s else Phase.RUNNING


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How far a job of tasks has come: training rounds complete, tasks of the next one done.

    `loss` holds the loss after each reported round, oldest first.
    """

    rounds_done: int = 0
    tasks_done: int = 0
    loss: tuple[float, ...] = ()


@cheaply_made
@dataclass(frozen=True, slots=True)
class JobView:
    """What is known of an active job. It is replaced only when something about it changes.

    Quantities that grow with time hold at `observed_s`; the `_at` methods carry them on.

    Attributes:
        job: the job as submitted, without what the policy may not know.
        observed_s: when all this held (seconds UTC).
        runs: the GPUs that it holds, with several where it runs as copies or is profiled.
        samples_done: the samples that all runs have done.
        wait_s: for how long it was eligible and no run of it had begun.
        attained_gpu_s: (GPU type, GPU seconds) pairs over all ended runs and, up to `observed_s`,
            the present ones.
        first_start_s: when it first started (UTC); None if it never has.
        restarts: how often it was stopped and started again.
        restart_cost_s: how long a run of it holds GPUs before it makes progress.
        blocked: why it may not start at all (held, dependency); None if it may.
        progress: how far a job of tasks has come; None for any other.
    """

    job: Job
    observed_s: float
    runs: tuple[Run, ...] = ()
    samples_done: float = 0.0
    wait_s: float = 0.0
    attained_gpu_s: tuple[tuple[str, float], ...] = ()
    first_start_s: float | None = None
    restarts: int = 0
    restart_cost_s: float = 0.0
    blocked: Reason | None = None
    progress: TaskProgress | None = None

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def waiting(self) -> bool:
        """Whether the job holds no GPUs for its own work, and none are kept for it."""
        return not any(run.purpose is Purpose.RUN for run in self.runs)

    @property
    def begun(self) -> bool:
        """Whether a run of the job has begun, so that GPUs are not only kept for it."""
        return any(run.begun for run in self.runs)

    @property
    def going_on(self) -> int:
        """How many of its runs are not being stopped."""
        return sum(run.draining_until_s is None for run in self.runs)

    @property
    def configuration(self) -> Configuration | None:
        """What a gang holds and keeps: None while it waits or drains."""
        for run in self.runs:
            if run.purpose is Purpose.RUN and run.draining_until_s is None:
                return run.configuration
        return None

    @property
    def holds(self) -> Configuration | None:
        """What all its runs hold, those that are measured, placed or drain, too; None for none."""
        pieces: dict[str, int] = {}
        for run in self.runs:
            for name, gpus in run.configuration:
                pieces[name] = pieces.get(name, 0) + gpus
        return Configuration.of(pieces) if pieces else None

    def phase(self, now: float) -> Phase:
        """Return the phase of the job at time `now`; its own work goes before profiling.

        Of several copies the one that is furthest on speaks for the job.
        """
        phases = (run.phase(now) for run in self.runs)
        return min(phases, key=_FURTHEST_ON.index, default=Phase.WAITING)

    def samples_at(self, now: float) -> float:
        """Return the samples done at `now`, at the speed seen last."""
        done = self.samples_done
        for run in self.runs:
            if run.begun and run.purpose is Purpose.RUN and run.draining_until_s is None:
                from_s = max(self.observed_s, run.progress_from_s)
                if now > from_s:
                    more = run.speed * (now - from_s)
                    left = math.inf if run.budget is None else run.budget - run.samples
                    done += min(more, left)
        return done

    def started_at(self, now: float) -> float | None:
        """Return when the job first started: now if it is placed; None if it never had GPUs."""
        if self.first_start_s is None and self.runs and not self.waiting:
            return now
        return self.first_start_s

    def wait_at(self, now: float) -> float:
        """Return the seconds for which the job was eligible and no run of it had begun."""
        if self.runs and self.begun:
            return self.wait_s
        return self.wait_s + max(0.0, now - self.observed_s)

    def service_at(self, now: float) -> float:
        """Return the GPU seconds attained, over all types."""
        service = 0.0
        for _, gpu_s in self.attained_gpu_s:
            service += gpu_s
        for run in self.runs:
            if run.begun:
                service += run.configuration.gpus * max(0.0, now - self.observed_s)
        return service

    def attained_at(self, now: float, cluster: Cluster) -> dict[str, float]:
        """Return the GPU seconds attained, by GPU type."""
        attained = dict(self.attained_gpu_s)
        for run in self.runs:
            if run.begun:
                for name, gpus in run.configuration:
                    gpu_type = cluster[name].gpu_type
                    more = gpus * max(0.0, now - self.observed_s)
                    attained[gpu_type] = attained.get(gpu_type, 0.0) + more
        return attained


class EndState(StrEnum):
    """How a job leaves the system."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NEVER = "never"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """GPUs that the site's own scheduler gave a job from `start_s` to `end_s`, seconds UTC."""

    start_s: float
    end_s: float
    gpus: int

    def __post_init__(self) -> None:
        """Refuse a run that ends before it starts, or holds nothing."""
        if not 0.0 <= self.start_s <= self.end_s or self.gpus < 1:
            raise InputError(
                f"a logged run of {self.gpus} GPUs from {self.start_s:.0f} s to {self.end_s:.0f} s;"
                " expected 1 GPU or more, and an end that is not before the start"
            )


@dataclass(frozen=True, slots=True)
class SpeedPhase:
    """A part of a job in which it is so many times as fast as its profile says.

    As jobs are that adapt their batch size while they train (Pollux, Shockwave). `until` is the
    share of its samples up to which that holds.
    """

    until: float
    factor: float


@dataclass(frozen=True, slots=True)
class LossCurve:
    """The loss of a job of training rounds: floor + (first - floor) / (1 + r / half_rounds)."""

    first: float
    floor: float
    half_rounds: float

    def __post_init__(self) -> None:
        """Refuse a curve that does not fall."""
        if not (self.first > self.floor and self.half_rounds > 0):
            raise InputError(
                f"a loss that falls from {self.first} to {self.floor}, half of it in "
                f"{self.half_rounds} rounds; it has to fall, in more than 0 rounds"
            )

    def after(self, rounds: int) -> float:
        """Return the loss after so many rounds."""
        return self.floor + (self.first - self.floor) / (1.0 + rounds / self.half_rounds)


@cheaply_made
@dataclass(frozen=True, slots=True)
class Submission:
    """A job of a workload, with what nobody tells the scheduler.

    `samples` is the work it really has, `ends_as` what becomes of it when that is done (completed,
    or failed), `cancel_s` when its user withdraws it, wherever it stands then. `logged` is what the
    site's own scheduler made of it, run by run in order, where an accounting log tells.
    `start_cost_s` is how long its first run holds GPUs before it makes progress, `restart_cost_s`
    how long each later one does, which depends on its model; None for what the simulation has for
    all. `phases`, in order, change its speed as it gets on; none is one phase of factor 1. `loss`
    is what a job of tasks reports after each training round, in workloads that are made up;
    workload files have none.
    """

    job: Job
    samples: float
    ends_as: EndState = EndState.COMPLETED
    cancel_s: float | None = None
    logged: tuple[LoggedRun, ...] = ()
    loss: LossCurve | None = None
    start_cost_s: float = 0.0
    restart_cost_s: float | None = None
    phases: tuple[SpeedPhase, ...] = ()

    @property
    def steady_samples(self) -> float:
        """The samples that would take as long if it were always as fast as its profile says."""
        begun, shares = 0.0, 0.0
        for phase in self.phases:
            shares += (phase.until - begun) / phase.factor
            begun = phase.until
        return self.samples * (shares if self.phases else 1.0)

    @property
    def whole_job(self) -> Job:
        """The job with its true size, for those who may know it."""
        if self.job.total_samples == self.samples:
            return self.job
        return replace(self.job, total_samples=self.samples)
