"""Jobs drawn by chance, as many as asked for, a block at a time.

Everything that is drawn has a stream of uniform numbers of its own, so that no option changes what
is drawn for another. Streams are read as often as needed and never kept: first for the work of all
jobs, from which the pace of arrivals follows, then for the jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hetsched_core.throughput import ModelProfile
from hetsched_core.traces.synthetic.arrivals import ArrivalClock, Gaps, fit_gaps
from hetsched_core.traces.synthetic.choices import Choices, most_gpus
from hetsched_core.traces.synthetic.options import SyntheticOptions
from hetsched_core.traces.synthetic.sizes import Sizes, fit_sizes
from hetsched_core.traces.synthetic.statistics import statistics_like
from hetsched_core.traces.synthetic.tasks import TaskMaker
from hetsched_core.traces.workload import Workload
from hetsched_core.types import Cluster, Job, RequirementSet, SpeedTable, Submission, TaskShape

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 1 << 16
"""Jobs that are drawn together."""

SECONDS_PER_HOUR = 3600.0
USERS_PER_ACCOUNT = 4

TIME_LIMITS_S = np.array(
    [60.0 * m for m in (10, 30, 60, 120, 240, 480, 720)]
    + [86_400.0 * d for d in (1, 2, 3, 5, 7, 14, 30)]
)
"""The time limits that users ask for; a job that needs more asks for what it needs."""

MOST_OVERESTIMATE = 10.0
"""The run time is a uniform share of the time asked for (Mu'alem and Feitelson 2001), here at
least a tenth."""


_GENERATED = "Generated, seed {}: {} jobs with run times and numbers of GPUs like those of {}."
_SCALED = "Run times are {:g} times those of the trace."
_ARRIVALS = (
    "{:.1f} jobs arrive in an hour, with a variation (CV) of {:g}, in the busiest hour {:g} times "
    "as many as in the quietest."
)
_WORK = (
    "Work is what the model does in the run time at the mean speed of the GPUs that the job may "
    "use; by that, the load of the {} GPUs is {:.2f}."
)
_LIMITS = "Time limits are up to ten times the run time on the slowest type, rounded up."
_TASKS = (
    "Jobs are training rounds of a task for each GPU. A task is as many whole iterations as take "
    "{:g} s on a GPU of mean speed; to be in step takes what the network adds to one iteration on "
    "two nodes. Work counts in whole rounds, one at least."
)
_LEFT_OUT = "Jobs on more than {} GPUs are left out: no type of the cluster has more than {} GPUs."


class _Stream(IntEnum):
    """What is drawn; the numbers go into the seeds and must not change."""

    RUN_TIME = 0
    GPUS = 1
    GAP_KIND = 2
    GAP_LENGTH = 3
    MODEL = 4
    TYPED = 5
    GPU_TYPE = 6
    ELASTIC = 7
    SET_SIZE = 8
    SET = 9
    USER = 10
    TIME_LIMIT = 11


@dataclass(frozen=True, slots=True)
class _Streams:
    """Uniform numbers in [0, 1) for the jobs of a workload."""

    seed: int
    jobs: int

    def blocks(self) -> range:
        """Return the position of the first job of each block."""
        return range(0, self.jobs, BLOCK)

    def generator(self, stream: _Stream, first: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, stream, first))

    def uniform(self, stream: _Stream, first: int) -> Floats:
        """Return one number for each job of the block that begins with `first`."""
        return self.generator(stream, first).random(min(BLOCK, self.jobs - first))

    def sizes(self, sizes: Sizes, first: int) -> tuple[Floats, Ints]:
        """Return run times in seconds, and indices of numbers of GPUs."""
        return sizes.draw(self.uniform(_Stream.RUN_TIME, first), self.uniform(_Stream.GPUS, first))

    def gaps(self, gaps: Gaps, first: int) -> Floats:
        """Return the time before each job, of mean 1; the first job has none."""
        drawn = gaps.draw(
            self.uniform(_Stream.GAP_KIND, first), self.uniform(_Stream.GAP_LENGTH, first)
        )
        if first == 0:
            drawn[0] = 0.0
        return drawn


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticWorkload:
    """A workload whose jobs are drawn when they are asked for, the same each time.

    Attributes:
        tables: Speeds of the models on the cluster's GPU types.
        assumptions: In sentences, what was assumed.
        load: GPU seconds of all jobs over those of the cluster in the span.
        span_s: Seconds between the first and the last submission.
    """

    tables: Mapping[str, SpeedTable]
    assumptions: tuple[str, ...]
    load: float
    span_s: float
    _options: SyntheticOptions
    _streams: _Streams
    _sizes: Sizes
    _choices: Choices
    _clock: ArrivalClock
    _gaps: Gaps
    _profiles: tuple[str, ...]
    _maker: TaskMaker | None

    @classmethod
    def of(
        cls,
        options: SyntheticOptions,
        cluster: Cluster,
        models: Sequence[ModelProfile],
        tables: Mapping[str, SpeedTable],
    ) -> SyntheticWorkload:
        """Fit the distributions, and draw as much as decides the pace of arrivals.

        Args:
            options: What is drawn.
            cluster: Where the jobs will run: it bounds their sizes, and loads are relative to it.
            models: What the jobs compute.
            tables: Speeds of the models on the cluster's GPU types.

        Raises:
            InputError: An option, or the options together, cannot be met.
        """
        most = most_gpus(cluster, models, tables)
        like = statistics_like(options.like)
        trace = like.at_most(most).lasting(options.time_scale)
        sizes = fit_sizes(trace)
        streams = _Streams(options.seed, options.jobs)
        gpu_s = math.fsum(
            float(np.sum(seconds * sizes.gpus[size]))
            for seconds, size in (streams.sizes(sizes, first) for first in streams.blocks())
        )
        if options.load is None:
            span_s = (options.jobs - 1) / trace.arrivals_per_h * SECONDS_PER_HOUR
        else:
            span_s = gpu_s / (options.load * cluster.gpus)
        load = gpu_s / (span_s * cluster.gpus)
        clock = ArrivalClock(options.day_night)
        cv = trace.arrival_cv if options.arrival_cv is None else options.arrival_cv
        pace = (options.jobs - 1) / span_s * SECONDS_PER_HOUR
        left_out = len(trace.gpu_classes) < len(like.gpu_classes)
        maker = None
        if options.task_s is not None:
            maker = TaskMaker(options.task_s, cluster.gpus_by_type())
            tables = {model.name: maker.with_tasks(tables[model.name]) for model in models}
        return cls(
            tables,
            (
                _GENERATED.format(options.seed, options.jobs, trace.name),
                *([_SCALED.format(options.time_scale)] if options.time_scale != 1.0 else ()),
                _ARRIVALS.format(pace, cv, options.day_night),
                _WORK.format(cluster.gpus, load),
                _LIMITS,
                *([_TASKS.format(maker.task_s)] if maker else ()),
                *([_LEFT_OUT.format(sizes.gpus[-1], most)] if left_out else ()),
            ),
            load,
            span_s,
            options,
            streams,
            sizes,
            Choices.of(cluster, models, tables, sizes.gpus.tolist()),
            clock,
            fit_gaps(cv, span_s / (options.jobs - 1), clock),
            tuple(model.name for model in models),
            maker,
        )

    def submissions(self) -> Iterator[Submission]:
        """Yield the jobs in order of submission; ids are numbers from 1."""
        blocks = self._streams.blocks()
        total = math.fsum(float(np.sum(self._streams.gaps(self._gaps, at))) for at in blocks)
        scale = float(self._clock.busy(np.array([self.span_s]))[0]) / total
        reached = 0.0
        for first in blocks:
            passed = reached + np.cumsum(self._streams.gaps(self._gaps, first))
            reached = float(passed[-1])
            yield from self._block(first, self._clock.wall(passed * scale))

    def workload(self) -> Workload:
        """Return all jobs together."""
        return Workload(tuple(self.submissions()), self.tables, self.assumptions)

    def _block(self, first: int, submit_s: Floats) -> Iterator[Submission]:
        """Yield the jobs of one block."""
        streams, choices = self._streams, self._choices
        seconds, size = streams.sizes(self._sizes, first)
        gpus = self._sizes.gpus[size]
        gpu_hours = gpus * seconds / SECONDS_PER_HOUR
        model = choices.draw_models(size, gpu_hours, streams.uniform(_Stream.MODEL, first))
        typed = streams.uniform(_Stream.TYPED, first) < self._options.typed_share
        asked = choices.draw_types(size, model, typed, streams.uniform(_Stream.GPU_TYPE, first))
        samples = _rounded(seconds * gpus * choices.mean_speed[size, model, asked])
        longest_s = samples / (gpus * choices.least_speed[size, model, asked])
        limits_s = _time_limits(longest_s, streams.uniform(_Stream.TIME_LIMIT, first))
        users = self._options.users
        user = _draw_users(users, streams.uniform(_Stream.USER, first))
        names = [f"user{number:03d}" for number in range(1, users + 1)]
        accounts = [f"group{at // USERS_PER_ACCOUNT + 1:02d}" for at in range(users)]
        columns = (np.round(submit_s, 2), samples, gpus, size, model, asked, limits_s, user)
        rows = zip(*(c.tolist() for c in columns), self._sets(first, gpus), strict=True)
        for job, (at_s, work, n, s, m, t, limit_s, u, requirements) in enumerate(rows, first + 1):
            yield Submission(
                Job(
                    str(job),
                    at_s,
                    requirements,
                    self._profiles[m],
                    total_samples=work,
                    time_limit_s=limit_s,
                    gpu_types=choices.accepted[s][m][t],
                    user=names[u],
                    account=accounts[u],
                    asked_count=n,
                    tasks=self._shape(self._profiles[m], work, n),
                ),
                work,
            )

    def _shape(self, profile: str, samples: float, gpus: int) -> TaskShape | None:
        """Return a job's training rounds, if jobs are to have any."""
        maker = self._maker
        return None if maker is None else maker.shape(self.tables[profile], samples, gpus)

    def _sets(self, first: int, gpus: Ints) -> list[RequirementSet]:
        """Return what each job accepts: its number of GPUs, and further ones if it is elastic."""
        options, streams = self._options, self._streams
        rigid = {n: RequirementSet.rigid(n) for n in self._sizes.gpus.tolist()}
        sets = [rigid[n] for n in gpus.tolist()]
        largest = options.largest_requirement
        elastic = streams.uniform(_Stream.ELASTIC, first) < options.elastic_share
        chosen = np.flatnonzero(elastic & (gpus <= largest))
        extra = streams.uniform(_Stream.SET_SIZE, first)[chosen] * (options.max_requirements - 1)
        keys = streams.generator(_Stream.SET, first).random((len(chosen), largest))
        for at, more, order in zip(
            chosen.tolist(), extra.tolist(), np.argsort(keys).tolist(), strict=True
        ):
            own = sets[at].smallest
            others = [n + 1 for n in order if n + 1 != own][: 1 + int(more)]
            sets[at] = RequirementSet(tuple(sorted((own, *others))))
        return sets


def _rounded(values: Floats) -> Floats:
    """Return values to six significant digits: more would be made up, and fill the file."""
    exponent = np.floor(np.log10(values)) - 5
    unit = 10.0 ** np.abs(exponent)
    # Dividing by a power of ten gives the nearest number to the decimal one, multiplying does not.
    small = np.round(values * unit) / unit
    rounded: Floats = np.where(exponent > 0, np.round(values / unit) * unit, small)
    return rounded


def _time_limits(longest_s: Floats, uniform: Floats) -> Floats:
    """Return the time limits of jobs that run so long at most."""
    wanted = longest_s / np.maximum(uniform, 1 / MOST_OVERESTIMATE)
    at = np.minimum(np.searchsorted(TIME_LIMITS_S, wanted), len(TIME_LIMITS_S) - 1)
    limits: Floats = np.maximum(TIME_LIMITS_S[at], np.ceil(longest_s))
    return limits


def _draw_users(users: int, uniform: Floats) -> Ints:
    """Return indices of users, of whom the k-th is 1/k as likely as the first."""
    shares = np.cumsum(1.0 / np.arange(1, users + 1))
    return np.searchsorted(shares[:-1] / shares[-1], uniform, side="right")
