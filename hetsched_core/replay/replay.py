"""The main act: run one workload through several policies, each on the same terms."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from hetsched_core.errors import InputError
from hetsched_core.measures.accounts import AccountMeasures, AccountUse, account_use
from hetsched_core.measures.logged import Closeness, LoggedMeasures, closeness, logged_measures
from hetsched_core.measures.metrics import ALL_JOBS, Counted, Measures, measure, submitted_in
from hetsched_core.measures.widths import WidthMeasures, width_measures
from hetsched_core.policy import Policy, settings_of
from hetsched_core.records.runlog import RunLog
from hetsched_core.report.result import Result, ResultInput
from hetsched_core.simulate import Estimates, KnownSpeeds, SimulationSettings, simulate
from hetsched_core.simulate.settings import MEASUREMENT_NOISE
from hetsched_core.throughput.node_spread import NodeSpread, spread_out
from hetsched_core.traces.load import ReplayInputs
from hetsched_core.types import ExecutionModel, Knowledge, Speeds


class EstimateSource(StrEnum):
    """Where the speeds that policies plan with come from: the truth, or what has run so far."""

    TRUTH = "truth"
    LEARNED = "learned"

    def of(self, loaded: ReplayInputs, seed: int) -> Estimates:
        """Return the estimates of one run of a policy, at its beginning; `seed` is of the noise."""
        if self is EstimateSource.TRUTH:
            return KnownSpeeds(loaded.speeds)
        # It brings the estimator along, which takes a while to import.
        from hetsched_core.simulate.learned import FORMULA_2, LearnedSpeeds
        from hetsched_core.throughput.fit import USUAL

        # Measured tables have a ring between nodes, the built-in speeds have none.
        prior = USUAL if loaded.workload.tables else FORMULA_2
        return LearnedSpeeds(loaded.cluster, loaded.speeds, seed=seed, prior=prior)


LEARNING = (
    "Policies see speeds that were learned from the runs before, each measured once with a noise "
    f"of {MEASUREMENT_NOISE:.0%}; on which GPU types a job fits is known."
)

TASK_TIMES_GIVEN = "The times of training tasks are given, not learned."


def with_learning(loaded: ReplayInputs) -> ReplayInputs:
    """Return the workload with what is assumed where policies plan with learned speeds."""
    learning = assuming(loaded, LEARNING)
    profiles = {submission.job.profile for submission in loaded.workload.submissions}
    tasks = any(loaded.speeds.table(profile).tasks for profile in profiles)
    return assuming(learning, TASK_TIMES_GIVEN) if tasks else learning


def with_node_spread(loaded: ReplayInputs, spread: NodeSpread, seed: int) -> ReplayInputs:
    """Return the workload on nodes whose true speeds differ by model and node, as was measured."""
    return replace(
        assuming(
            loaded,
            f"Nodes of one GPU type differ as {spread.nodes} nodes with {spread.gpu_type} of "
            f"{spread.cluster} did with {spread.job}, each model on its own.",
        ),
        speeds=spread_out(loaded.speeds, loaded.cluster, spread, seed),
    )


def assuming(loaded: ReplayInputs, sentence: str) -> ReplayInputs:
    """Return the workload with one more assumption."""
    assumptions = (*loaded.workload.assumptions, sentence)
    return replace(loaded, workload=replace(loaded.workload, assumptions=assumptions))


def counting(loaded: ReplayInputs, counted: Counted) -> ReplayInputs:
    """Return the workload with what is said of jobs that do not count."""
    submit_s = [one.job.submit_s for one in loaded.workload.submissions]
    if (span := counted.span_s(submit_s)) is None:
        return loaded
    many = sum(span[0] <= each <= span[1] for each in submit_s)
    return assuming(
        loaded,
        f"Measures are of {many} of {len(submit_s)} jobs: those of the first "
        f"{counted.warm_up_s:g} s and the last {counted.drain_s:g} s in which jobs are submitted "
        "run, and do not count. Figures, accounts, who gains and loses, and closeness to the log "
        "are of all.",
    )


def without_sizes(loaded: ReplayInputs) -> ReplayInputs:
    """Return the workload with jobs that do not tell how much work they are."""
    told = frozenset({Knowledge.TIME_LIMIT})
    jobs = loaded.workload.submissions
    untold = tuple(replace(one, job=one.job.hidden_from(told)) for one in jobs)
    return assuming(
        replace(loaded, workload=replace(loaded.workload, submissions=untold)),
        "No job tells how much work it is (`--hide-sizes`).",
    )


def in_other_order(loaded: ReplayInputs) -> ReplayInputs | None:
    """Return a log's jobs on the cluster with its nodes the other way round.

    Jobs that ask for no GPU type get the first that is free. None where there are none of these, or
    no log to hold a policy against.
    """
    types = loaded.cluster.gpu_types
    jobs = loaded.workload.submissions
    free = any(one.job.gpu_types is None or len(one.job.gpu_types) > 1 for one in jobs)
    if len(types) < 2 or not free or not all(one.logged for one in jobs):
        return None
    cluster = replace(loaded.cluster, nodes=loaded.cluster.nodes[::-1])
    tables = {profile: loaded.speeds.table(profile) for profile in loaded.speeds.profiles}
    return replace(loaded, cluster=cluster, speeds=Speeds(cluster, tables))


@dataclass(frozen=True, slots=True)
class PolicyReplay:
    """What one policy, under the name it was asked for by, made of the workload.

    Attributes:
        name: the name.
        log: what happened.
        measures: the measures of that.
        use: what accounts and users had, and what was due to them.
        widths: the measures of the jobs of each number of GPUs.
        closeness: how close it comes to what the site's own scheduler did, where a log tells.
        logged: the measures of the site's own scheduler over the same jobs, where a log tells.
    """

    name: str
    log: RunLog
    measures: Measures
    use: AccountUse
    widths: tuple[WidthMeasures, ...] = ()
    closeness: Closeness | None = None
    logged: LoggedMeasures | None = None


def _raised(_: str, error: Exception) -> None:
    raise error


def replay(
    loaded: ReplayInputs,
    policies: Mapping[str, Policy],
    settings: SimulationSettings,
    *,
    estimates: EstimateSource = EstimateSource.TRUTH,
    counted: Counted = ALL_JOBS,
    stopwatch: Callable[[], float] = lambda: 0.0,
    ended: Callable[[], None] = lambda: None,
    failed: Callable[[str, Exception], None] = _raised,
) -> Iterator[PolicyReplay]:
    """Yield what each policy makes of the workload, in the order of the policies.

    Args:
        loaded: jobs, true speeds and cluster.
        policies: the schedulers to compare, by name.
        settings: the same costs and rounds for all.
        estimates: what policies are told about speeds; each starts knowing nothing of the others'.
        counted: which jobs the measures are of.
        stopwatch: seconds, for measuring how long decisions take.
        ended: called whenever a job has ended.
        failed: called with the name of a policy and what was raised under it, a PlanError where it
            made an invalid plan; if it returns, the policy is passed over.

    Raises:
        InputError: a policy schedules tasks, and the jobs have none; no policy has run then.
    """
    _require_tasks(loaded, policies)
    if loaded.windows:
        settings = replace(settings, windows=(*settings.windows, *loaded.windows))
    if loaded.site is not None:
        settings = replace(settings, site=loaded.site)
    submissions = loaded.workload.submissions
    span_s = counted.span_s([one.job.submit_s for one in submissions])
    for name, policy in policies.items():
        with collecting_young_only():
            try:
                log = simulate(
                    submissions,
                    loaded.cluster,
                    policy,
                    loaded.speeds,
                    settings,
                    estimates=estimates.of(loaded, settings.seed),
                    assumptions=loaded.workload.assumptions,
                    stopwatch=stopwatch,
                    ended=lambda _: ended(),
                )
            except Exception as error:  # Whatever a policy raises must not cost the others theirs.
                failed(name, error)
                continue
            jobs = submitted_in(log.jobs, span_s)
            use = account_use(log, None if settings.site is None else settings.site.tree)
            replayed = PolicyReplay(
                name,
                log,
                measure(log, loaded.speeds, use, span_s),
                use,
                width_measures(jobs),
                closeness(submissions, log.jobs),
                logged_measures(submissions, jobs),
            )
        yield replayed


def _require_tasks(loaded: ReplayInputs, policies: Mapping[str, Policy]) -> None:
    """Refuse policies that schedule tasks where jobs have no training rounds or task times."""
    asking = [n for n, p in policies.items() if p.info.model is ExecutionModel.TASKS]
    if not asking:
        return
    jobs = [submission.job for submission in loaded.workload.submissions]
    without = [
        job.id
        for job in jobs
        if job.tasks is None
        or job.tasks.rounds is None
        or not loaded.speeds.table(job.profile).tasks
    ]
    if not without:
        return
    rest = [name for name in policies if name not in asking]
    others = f"leave them out: --policy {','.join(rest)}" if rest else "choose other policies"
    raise InputError(
        f"{', '.join(asking)}: these policies schedule the tasks of training rounds, and "
        f"{len(without)} of {len(jobs)} jobs have none (the first: {without[0]}); {others}; or "
        "give a workload file whose jobs and profiles have the key `tasks`, such as `hetsched "
        "workload generate --task-s` makes (docs/formats/workload.md)"
    )


@contextmanager
def collecting_young_only() -> Iterator[None]:
    """Keep the garbage collector from looking at objects that have lived for long.

    Workloads and run logs are millions of objects without cycles, which it would look at again
    and again: a fifth of the time of a replay.
    """
    young, middle, old = gc.get_threshold()
    gc.set_threshold(_YOUNG, middle, _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)


_YOUNG = 20_000
"""So many new objects outlive a collection: most of what a plan needs is gone by then."""

_NEVER = 2**31 - 1
"""Collections of the middle generation before one of the oldest."""


@dataclass(slots=True)
class Outcomes:
    """What has come of each policy so far, by name.

    Attributes:
        policies: all that were asked for.
        measures: the measures of those that have ended, in their order.
        other_seeds: the same for each further seed.
        logged: the measures of what the site's own scheduler did, where a log tells.
        closeness: how close each comes to that.
        accounts: what accounts and users had and were due.
        widths: the measures of the jobs of each number of GPUs.
        left_out: why nothing comes of a policy.
        reordered: as in the result.
    """

    policies: Mapping[str, Policy]
    measures: dict[str, Measures] = field(default_factory=dict)
    other_seeds: dict[int, dict[str, Measures]] = field(default_factory=dict)
    logged: LoggedMeasures | None = None
    closeness: dict[str, Closeness] = field(default_factory=dict)
    accounts: dict[str, tuple[AccountMeasures, ...]] = field(default_factory=dict)
    widths: dict[str, tuple[WidthMeasures, ...]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    reordered: Measures | None = None

    @property
    def done(self) -> dict[str, Policy]:
        """The policies that have ended."""
        return {name: self.policies[name] for name in self.measures}

    def add(self, one: PolicyReplay) -> None:
        """Keep what is told of a policy that has ended."""
        self.logged = self.logged or one.logged
        self.accounts[one.name], self.widths[one.name] = one.use.rows, one.widths
        if one.closeness is not None:
            self.closeness[one.name] = one.closeness
        self.measures[one.name] = one.measures

    def leave_out(self, name: str, why: str) -> None:
        """Drop a policy, under all seeds."""
        self.left_out[name] = why
        for kept in (self.accounts, self.widths, self.closeness):
            kept.pop(name, None)
        for measures in (self.measures, *self.other_seeds.values()):
            measures.pop(name, None)

    def result(
        self, loaded: ReplayInputs, sources: Sequence[Path], settings: Mapping[str, object]
    ) -> Result:
        """Return the measures together with what they came from.

        Args:
            loaded: the workload.
            sources: the files that it was read from.
            settings: what was chosen, by option.
        """
        ended = self.measures | self.left_out
        pending = {name: "it has not ended yet" for name in self.policies if name not in ended}
        for name, why in (self.left_out | pending).items():
            loaded = assuming(loaded, f"Policy {name} is left out: {why}.")
        rejected = Counter(str(r.reason) for r in loaded.workload.rejected)
        for report in loaded.reports:
            rejected.update({str(flaw): seen.count for flaw, seen in report.flaws.items()})
            rejected.update({"no GPU": report.no_gpu, "never started": report.never_started})
        return Result(
            ResultInput(
                sources=tuple(map(str, sources)),
                cluster=loaded.cluster.name,
                nodes=len(loaded.cluster),
                gpus=loaded.cluster.gpus_by_type(),
                jobs=len(loaded.workload.submissions),
                rejected={reason: count for reason, count in sorted(rejected.items()) if count},
                settings=settings,
                parameters={name: settings_of(policy) for name, policy in self.done.items()},
                assumptions=loaded.workload.assumptions,
            ),
            self.measures,
            self.other_seeds,
            self.logged,
            self.closeness,
            self.accounts,
            self.reordered,
            self.widths,
        )
