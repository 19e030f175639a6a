"""Small replays for the tests of the report: real runs of real policies."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from functools import cache

from hetsched_core.measures.accounts import account_use
from hetsched_core.measures.logged import closeness, logged_measures
from hetsched_core.measures.metrics import Measures, measure
from hetsched_core.measures.widths import width_measures
from hetsched_core.policy import make_policy
from hetsched_core.records.runlog import RunLog
from hetsched_core.report.history import History, LoggedHistory
from hetsched_core.report.page import Report, SourceFile
from hetsched_core.report.result import Result, ResultInput
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import Cluster, EndState, LoggedRun, Node, Speeds, Submission
from tests.hetsched_core.worlds import linear_speeds, submission

MONDAY_S = 1_741_000_000.0

CLUSTER = Cluster((Node("fast", "a100", 2), Node("slow-1", "v100", 4), Node("slow-2", "v100", 4)))
SPEEDS = linear_speeds(CLUSTER, {"m": {"a100": 20.0, "v100": 10.0}}, several_nodes=0.5)


def jobs(count: int = 40, *, user: str = "user {}", gap_s: float = 60.0) -> list[Submission]:
    """Jobs of 1 to 4 GPUs and very different lengths, more than the cluster can run at once."""
    made = []
    for at in range(count):
        one = submission(
            f"j{at:02}",
            samples=float(10_000 * (1 + at * at % 17)),
            counts=(1 + at % 4,),
            submit_s=MONDAY_S + gap_s * at,
            ends_as=EndState.FAILED if at % 13 == 12 else EndState.COMPLETED,
        )
        made.append(replace(one, job=replace(one.job, user=user.format(at % 5))))
    return made


def logged_jobs(wait_s: float = 1200.0) -> list[Submission]:
    """The usual jobs as a site ran them: each waits so long, then runs for an hour."""
    made = []
    for one in jobs():
        start_s = one.job.submit_s + wait_s
        run = LoggedRun(start_s, start_s + 3600.0, one.job.requirements.smallest)
        made.append(replace(one, logged=(run,)))
    return made


def run_log(
    policy: str,
    submissions: Sequence[Submission],
    cluster: Cluster = CLUSTER,
    speeds: Speeds = SPEEDS,
) -> RunLog:
    """The run log of a policy."""
    return simulate(
        submissions, cluster, make_policy(policy), speeds, SimulationSettings(round_s=600.0)
    )


@cache
def usual_log(policy: str) -> RunLog:
    """The run log of a policy on the usual jobs."""
    return run_log(policy, jobs())


def usual(*policies: str) -> list[History]:
    """What policies make of the usual jobs."""
    return [History.of(policy, usual_log(policy)) for policy in policies]


def report_of(
    logs: dict[str, RunLog],
    *,
    other_seeds: dict[int, dict[str, Measures]] | None = None,
    assumptions: tuple[str, ...] = (),
    zone: tzinfo = UTC,
    speeds: Speeds = SPEEDS,
    command: str = "hetsched replay jobs --report DIR",
    site: Sequence[Submission] = (),
) -> Report:
    """A report on run logs of one cluster, by name of policy."""
    first = next(iter(logs.values()))
    cluster = first.header.cluster
    return Report(
        result=Result(
            ResultInput(
                sources=("jobs",),
                cluster=cluster.name,
                nodes=len(cluster),
                gpus=cluster.gpus_by_type(),
                jobs=len(first.jobs),
                rejected={"no GPU": 3},
                settings={"seed": 0, "round_s": 600.0, "restart_cost_s": 10.0},
                parameters={name: {} for name in logs},
                assumptions=assumptions,
            ),
            {name: measure(log, speeds) for name, log in logs.items()},
            other_seeds or {},
            logged_measures(site, first.jobs) if site else None,
            {name: close for name, log in logs.items() if (close := closeness(site, log.jobs))},
            {name: account_use(log).rows for name, log in logs.items()},
            widths={name: width_measures(log.jobs) for name, log in logs.items()},
        ),
        policies={name: make_policy(log.header.policy).info for name, log in logs.items()},
        histories=tuple(History.of(name, log) for name, log in logs.items()),
        files=(SourceFile("jobs", 1234, "ab" * 32),),
        command=command,
        zone=zone,
        logged=LoggedHistory.of(site),
    )
