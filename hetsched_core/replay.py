"""The main act: run one workload through several policies, each on the same terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetsched_core.logged import Closeness, LoggedMeasures, closeness, logged_measures
from hetsched_core.metrics import Measures, measure
from hetsched_core.policy import Policy, settings_of
from hetsched_core.report.result import Result, ResultInput
from hetsched_core.runlog import RunLog
from hetsched_core.simulate import Settings, simulate
from hetsched_core.traces.load import Loaded


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one policy, under the name it was asked for by, made of the workload.

    Attributes:
        name: the name.
        log: what happened.
        measures: the measures of that.
        closeness: how close it comes to what the site's own scheduler did, where a log tells.
        logged: the measures of the site's own scheduler over the same jobs, where a log tells.
    """

    name: str
    log: RunLog
    measures: Measures
    closeness: Closeness | None = None
    logged: LoggedMeasures | None = None


def replay(
    loaded: Loaded,
    policies: Mapping[str, Policy],
    settings: Settings,
    *,
    stopwatch: Callable[[], float] = lambda: 0.0,
    ended: Callable[[], None] = lambda: None,
) -> Iterator[Replayed]:
    """Yield what each policy makes of the workload, in the order of the policies.

    Args:
        loaded: jobs, true speeds and cluster.
        policies: the schedulers to compare, by name.
        settings: the same costs and rounds for all.
        stopwatch: seconds, for measuring how long decisions take.
        ended: called whenever a job has ended.

    Raises:
        PlanError: a policy made an invalid plan.
    """
    for name, policy in policies.items():
        log = simulate(
            loaded.workload.submissions,
            loaded.cluster,
            policy,
            loaded.speeds,
            settings,
            assumptions=loaded.workload.assumptions,
            stopwatch=stopwatch,
            ended=lambda _: ended(),
        )
        submissions = loaded.workload.submissions
        yield Replayed(
            name,
            log,
            measure(log, loaded.speeds),
            closeness(submissions, log.jobs),
            logged_measures(submissions, log.jobs),
        )


def result_of(
    measures: Mapping[str, Measures],
    loaded: Loaded,
    policies: Mapping[str, Policy],
    sources: Sequence[Path],
    settings: Mapping[str, object],
    other_seeds: Mapping[int, Mapping[str, Measures]],
    logged: LoggedMeasures | None,
    closeness: Mapping[str, Closeness],
) -> Result:
    """Return the measures together with what they came from.

    Args:
        measures: what each policy made of the workload, by name.
        loaded: the workload.
        policies: the schedulers, by name.
        sources: the files that the workload was read from.
        settings: what was chosen, by option.
        other_seeds: the same measures for each further seed.
        logged: the measures of what the site's own scheduler did, where a log tells.
        closeness: how close each policy comes to that, by name.
    """
    rejected = Counter(str(r.reason) for r in loaded.workload.rejected)
    for report in loaded.reports:
        rejected.update({str(flaw.flaw): flaw.count for flaw in report.flaws})
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
            parameters={name: settings_of(policy) for name, policy in policies.items()},
            assumptions=loaded.workload.assumptions,
        ),
        measures,
        other_seeds,
        logged,
        closeness,
    )
