"""Figures of docs/reproduction/when.md: how good ranges for the starts of jobs are.

    HETSCHED_DATA=... python -m benchmarks.papers.when replayed
    HETSCHED_DATA=... python -m benchmarks.papers.when unknown
    python -m benchmarks.papers.when live

write them between the markers of the page: the first two some minutes of two CPUs each, the last
ten minutes on a private Slurm, which needs what `hetsched testbed` needs.
"""

from __future__ import annotations

import heapq
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

import numpy as np

from benchmarks.papers.page import PAGES, PageSample, command, data_folder, markdown, table_line
from benchmarks.papers.workloads import PHYSICAL, bundled, gavel
from benchmarks.papers.workloads import run as replay_of
from hetsched_core.forecast import (
    Calibration,
    Experience,
    Futures,
    PastJob,
    RangeAccuracy,
    StartRange,
    claim_of,
    possible_starts,
    range_accuracy,
)
from hetsched_core.policy import Policy, PolicyInfo, make_policy
from hetsched_core.simulate import SimulationSettings
from hetsched_core.store import Store
from hetsched_core.traces.load import ReplayInputs
from hetsched_core.types import Horizon, Job, Plan, Snapshot, Submission, Waiting

PAGE = PAGES / "when.md"
ROUGHLY = 0.3
"""Standard deviation of the logarithm of what users say of a job's size, by its true size."""


class Said(StrEnum):
    """What users say of how long their jobs take."""

    SIZES = "sizes said to 30 %"
    LIMITS = "time limits alone"
    NOTHING = "nothing known of sizes"


@dataclass(frozen=True, slots=True)
class WhenSetting:
    """Jobs, who schedules them, how many are asked about, and the seed of what users say.

    A stopped run keeps its GPUs for `grace_s` seconds; what the daemon is told is the most that it
    may take, `GRACE_S`.
    """

    said: Said
    jobs: str
    policy: str
    trace: str
    gpus: tuple[tuple[str, int], ...] = ()
    one_in: int = 1
    draws: int = 24
    seed: int = 5
    parameters: tuple[tuple[str, str], ...] = ()
    grace_s: float = 0.0
    first: int | None = None


GRACE_S = 30.0
ARRIVALS = (
    "96 jobs of Gavel's (arrivals) on 48 GPUs",
    "gavel_physical_cluster_max_min_fairness.trace",
)
MAKESPAN = (
    "100 jobs of Gavel's (makespan) on 48 GPUs",
    "gavel_physical_cluster_minimize_makespan.trace",
)
BUNDLED_LOG = ("the bundled log, 944 jobs on 64 GPUs", "bundled")
MSR_192 = (("v100", 64), ("p100", 64), ("k80", 64))

REPLAYED = (
    WhenSetting(
        Said.SIZES,
        "984 jobs of Gavel's (msr) on 192 GPUs",
        "fifo",
        "gavel_msr_seed0_0e4a51.trace.gz",
        MSR_192,
        one_in=8,
    ),
    WhenSetting(Said.SIZES, ARRIVALS[0], "gavel", ARRIVALS[1], PHYSICAL),
    WhenSetting(Said.LIMITS, BUNDLED_LOG[0], "fifo", BUNDLED_LOG[1], one_in=9),
)

UNKNOWN = (
    WhenSetting(Said.LIMITS, BUNDLED_LOG[0], "las", BUNDLED_LOG[1], one_in=4, grace_s=3.0),
    WhenSetting(
        Said.LIMITS,
        BUNDLED_LOG[0],
        "hops",
        BUNDLED_LOG[1],
        one_in=6,
        parameters=(("priority", "las"),),
        grace_s=3.0,
    ),
    WhenSetting(Said.NOTHING, ARRIVALS[0], "fifo", ARRIVALS[1], PHYSICAL, grace_s=3.0),
    WhenSetting(Said.NOTHING, ARRIVALS[0], "las", ARRIVALS[1], PHYSICAL, grace_s=3.0),
    WhenSetting(
        Said.NOTHING,
        MAKESPAN[0],
        "steady",
        MAKESPAN[1],
        PHYSICAL,
        grace_s=3.0,
    ),
    WhenSetting(
        Said.NOTHING,
        "the first 400 of Gavel's (another msr) on 192 GPUs",
        "fifo",
        "gavel_msr_seed0_ee9e8c.trace.gz",
        MSR_192,
        one_in=5,
        grace_s=3.0,
        first=400,
    ),
)

SLOW = {"fifo": 3000, "gavel": 3000, "las": 3000, "hops": 300, "steady": 300}
"""After so many instants under a policy a future is drawn with fewer plans: in place of seconds, so
that the same figures come out."""


@dataclass(frozen=True)
class Watched:
    """A policy that keeps what it was asked, and what it said."""

    policy: Policy
    info: ClassVar[PolicyInfo]
    seen: list[tuple[Snapshot, Plan]] = field(default_factory=list)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Ask the policy."""
        plan = self.policy.plan(snapshot)
        self.seen.append((snapshot, plan))
        return plan


def load(setting: WhenSetting, folder: Path) -> ReplayInputs:
    """Return the jobs of a setting with their cluster, in order, as their users submit them."""
    bundled_log = setting.trace == "bundled"
    loaded = bundled() if bundled_log else gavel(folder, setting.trace, setting.gpus)
    submissions = untold(
        sorted(loaded.workload.submissions, key=lambda one: (one.job.submit_s, one.job.id)),
        setting.said,
    )
    workload = replace(loaded.workload, submissions=tuple(submissions[: setting.first]))
    return replace(loaded, workload=workload)


def untold(submissions: Sequence[Submission], said: Said) -> list[Submission]:
    """Return the jobs as users submit them that do not say how much work they have."""
    if said is Said.SIZES:
        return list(submissions)
    return [
        replace(
            one,
            job=replace(
                one.job,
                total_samples=None,
                time_limit_s=one.job.time_limit_s if said is Said.LIMITS else None,
            ),
        )
        for one in submissions
    ]


def as_said(submissions: Sequence[Submission], seed: int) -> dict[str, Job]:
    """Return what users say of their jobs: sizes within `ROUGHLY`, where they say any."""
    rng = np.random.default_rng(seed)
    said = {}
    for one in submissions:
        factor = float(np.exp(rng.normal(0.0, ROUGHLY)))
        known = one.job.total_samples is not None and "total_samples" not in one.job.assumed
        samples = one.samples * factor if known else one.job.total_samples
        said[one.job.id] = replace(one.job, total_samples=samples)
    return said


def replayed(
    setting: WhenSetting, folder: Path
) -> tuple[RangeAccuracy | None, RangeAccuracy | None]:
    """Replay a setting, give ranges to its jobs as they come, and judge them by the replay.

    What has ended by then is what is known then, and so are the ranges whose jobs have started.

    Returns:
        how good the second half of the ranges was, and all of them.
    """
    loaded = load(setting, folder)
    policy = make_policy(setting.policy, dict(setting.parameters))
    watched = type("Watched", (Watched,), {"info": policy.info})(policy)
    submissions = loaded.workload.submissions
    real = SimulationSettings(grace_s=setting.grace_s)
    log = replay_of(loaded, watched, real)
    first = {record.job.id: record.first_start_s for record in log.jobs}
    end = {record.job.id: record.end_s for record in log.jobs}
    said, types = as_said(submissions, setting.seed), loaded.cluster.gpu_types
    share = {
        one.job.id: one.samples / claim
        for one in submissions
        if (claim := claim_of(said[one.job.id], loaded.speeds, types)) > 0
    }
    calibration, given = Calibration(), list[tuple[StartRange, float]]()
    awaited: list[tuple[float, int, StartRange]] = []
    told, asked = set[str](), 0
    for snapshot, plan in watched.seen:
        now = snapshot.now
        came = [job for job in _came(snapshot, plan) if job not in told]
        told.update(came)
        new = []
        for job in came:
            asked += 1
            if asked % setting.one_in == 0 and first[job] is not None:
                new.append(job)
        if not new:
            continue
        while awaited and awaited[0][0] <= now:
            start_s, _, before = heapq.heappop(awaited)
            calibration.learn(before, start_s)
        past = [
            PastJob(
                said[one.job.id],
                share.get(one.job.id) if (end[one.job.id] or 1e12) <= now else None,
            )
            for one in submissions
            if one.job.eligible_from_s <= now
        ]
        starts = possible_starts(
            snapshot,
            plan,
            policy,
            said,
            new,
            Experience(past, loaded.speeds, types),
            Futures(
                draws=setting.draws,
                settings=replace(real, grace_s=GRACE_S if setting.grace_s else 0.0),
                slow=lambda instant: instant > SLOW[setting.policy],
            ),
        )
        for job in new:
            begun_s = first[job]
            assert begun_s is not None
            found = calibration.range_of(now, starts[job])
            given.append((found, begun_s))
            heapq.heappush(awaited, (begun_s, len(given), found))
    return settled(given)


def settled(
    given: Sequence[tuple[StartRange, float]],
) -> tuple[RangeAccuracy | None, RangeAccuracy | None]:
    """Judge the second half of the ranges, for which the first was learned from, and all."""
    ordered = sorted(given, key=lambda pair: pair[0].at_s)
    return range_accuracy(ordered, len(ordered) // 2), range_accuracy(ordered)


def _came(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Return the jobs that are to wait and have not started yet, though they could some day."""
    return [
        view.id
        for view in snapshot.by_submission()
        if view.first_start_s is None
        and isinstance(entry := plan.entries[view.id], Waiting)
        and entry.reason.code.horizon is not Horizon.NEVER
    ]


# -- A live run ------------------------------------------------------------------------------------

JOBS, GAP_S = 150, 3.8
SCRIPT = """\
#!/bin/bash
#HETSCHED --gpu-set={gpus}
#SBATCH --time={minutes}
sleep {seconds}
"""


def live() -> tuple[RangeAccuracy | None, RangeAccuracy | None]:
    """Let jobs of 15 to 42 s queue on a private Slurm of 12 GPUs, and judge what the daemon told.

    A job takes 25 to 35 % of its time limit, which is all that the daemon knows of it.
    """
    from benchmarks.live import enforcing
    from slurm_plugin.testbed import default_cache, fake_nodes, install
    from tests.slurm_plugin.clusters import up

    rng = random.Random(7)
    with (
        up(install(default_cache()), fake_nodes(3, "a100:4")) as cluster,
        tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name,
    ):
        script = Path(name) / "job.sh"
        options = ("--backend=commands", "--policy=fifo", "--cycle-s=0.5")
        with enforcing(cluster, Path(name), *options) as database:
            for _ in range(JOBS):
                minutes = rng.choice((1, 1, 2))
                script.write_text(
                    SCRIPT.format(
                        gpus=rng.choice((1, 1, 2, 4)),
                        minutes=minutes,
                        seconds=round(60 * minutes * rng.uniform(0.25, 0.35), 1),
                    )
                )
                cluster.command("sbatch", "--output=/dev/null", script)
                time.sleep(rng.expovariate(1 / GAP_S))
            while cluster.command("squeue", "--noheader", "--format=%i"):
                time.sleep(1.0)
            time.sleep(3.0)
        with Store.open(database) as store:
            ranges = store.ranges(most=10_000)
    first: dict[str, tuple[StartRange, float]] = {}
    for each in ranges:
        if each.start_s is not None and each.start_s >= each.at_s:
            given = StartRange(
                each.at_s, each.drawn_low_s, each.drawn_high_s, each.low_s, each.high_s
            )
            first.setdefault(each.nonce, (given, each.start_s))
    return settled(list(first.values()))


# -- The page --------------------------------------------------------------------------------------

HEADS = (
    "jobs",
    "policy",
    "ranges",
    "starts inside",
    "inside of all ranges",
    "median width",
    "median wait",
    "width by wait",
    "score",
    "score of the constant range",
)


def row(
    name: str, policy: str, judgement: tuple[RangeAccuracy | None, RangeAccuracy | None]
) -> tuple[str, ...]:
    """Return a line of the table."""
    found, whole = judgement
    assert found is not None
    assert whole is not None
    return (
        name,
        policy,
        str(found.ranges),
        f"{found.inside:.0%}",
        f"{whole.inside:.0%} of {whole.ranges}",
        f"{found.median_width_s:,.0f} s",
        f"{found.median_wait_s:,.0f} s",
        f"{found.median_width_s / max(found.median_wait_s, 1.0):.2f}",
        "-" if found.score_s is None else f"{found.score_s:,.0f} s",
        "-" if found.constant_score_s is None else f"{found.constant_score_s:,.0f} s",
    )


def line_of(setting: WhenSetting, folder: Path) -> tuple[str, ...]:
    """Return the line of a setting."""
    begun = time.perf_counter()
    parameters = "".join(f", {key} = {value}" for key, value in setting.parameters)
    judgement = replayed(setting, folder)
    line = row(f"{setting.said}: {setting.jobs}", f"{setting.policy}{parameters}", judgement)
    took_s = time.perf_counter() - begun
    sys.stderr.write(f"{' | '.join(line)}  ({took_s:.0f} s)\n")
    return line


def table(settings: Sequence[WhenSetting]) -> str:
    """Return the table of settings that are replayed, on two CPUs."""
    with ProcessPoolExecutor(2) as pool:
        lines = pool.map(line_of, settings, [data_folder()] * len(settings))
        return markdown(HEADS, lines)


def live_table() -> str:
    """Return the table of the live run."""
    line = row(f"live: {JOBS} jobs on 12 GPUs, time limits alone", "fifo", live())
    sys.stderr.write(f"{' | '.join(line)}\n")
    return markdown(HEADS, [line])


FIGURES = {
    "replayed": lambda: table(REPLAYED),
    "unknown": lambda: table(UNKNOWN),
    "live": live_table,
}
SAMPLE = PageSample(
    PAGE, lines={"replayed": lambda: table_line(line_of(REPLAYED[1], data_folder()))}
)


if __name__ == "__main__":
    command(PAGE, FIGURES)()
