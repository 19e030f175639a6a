"""Figures of docs/reproduction/hare.md: Hare, HLAS and HLAS-P beside what their papers report.

    python -m benchmarks.papers.hare

writes them between the markers of the page, or only those named.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.page import PAGES, PageSample, command, markdown, plot_by_jobs
from benchmarks.papers.workloads import made_up
from benchmarks.papers.workloads import run as replayed
from benchmarks.test_hare import second_decision
from hetsched_core.policies.hare.bound import relax
from hetsched_core.policies.hare.hlas import Hlas, Within, grouped
from hetsched_core.policies.hare.hlas_p import Claim, HlasP
from hetsched_core.policies.hare.instance import Instance
from hetsched_core.policies.hare.queues import Queues
from hetsched_core.policy import PolicyInfo, policy_of, policy_type
from hetsched_core.records.runlog import RunLog
from hetsched_core.report.estimates import estimate
from hetsched_core.simulate import SimulationSettings
from hetsched_core.traces.load import ReplayInputs
from hetsched_core.types import (
    Cluster,
    ExecutionModel,
    Job,
    JobView,
    Knowledge,
    LossCurve,
    Node,
    RequirementSet,
    Snapshot,
    Submission,
    TaskShape,
    TaskTimes,
)
from tests.hetsched_core.worlds import linear_speeds

PAGE = PAGES / "hare.md"
PLOT = PAGES / "hare-decisions.svg"

ARRIVALS_S = 600.0
LEVELS = (("v100",), ("v100", "k80"), ("v100", "t4", "k80", "m60"))

# Seconds on a V100 for one mini-batch, and how many times as fast as a K80 a V100, T4, M60 are;
# megabytes of parameters. Those of ResNet50 and GraphSAGE are the papers'; the rest is assumed.
MODELS: Mapping[str, tuple[str, float, float, float, float, float]] = {
    "vgg19": ("cv", 6.0, 7.0, 2.5, 1.3, 548.0),
    "resnet50": ("cv", 4.0, 7.0, 2.0, 1.3, 98.0),
    "inception-v3": ("cv", 5.0, 6.0, 2.2, 1.3, 92.0),
    "bert-base": ("nlp", 8.0, 6.0, 2.5, 1.2, 420.0),
    "transformer": ("nlp", 5.0, 5.0, 2.2, 1.2, 250.0),
    "deepspeech": ("speech", 7.0, 4.0, 2.0, 1.2, 150.0),
    "fastgcn": ("rec", 3.0, 2.5, 1.5, 1.1, 5.0),
    "graphsage": ("rec", 3.0, 2.0, 1.4, 1.1, 5.0),
}
FIELDS = ("cv", "nlp", "speech", "rec")
# Milliseconds of a switch of Hare's executor, and its share of the time of a task (Table 3).
PRINTED: Mapping[str, tuple[float, float]] = {
    "vgg19": (2.77, 0.0182),
    "resnet50": (2.04, 0.0371),
    "inception-v3": (2.46, 0.0143),
    "bert-base": (5.03, 0.0113),
    "transformer": (5.79, 0.0136),
    "deepspeech": (4.27, 0.0125),
    "fastgcn": (1.83, 0.0453),
    "graphsage": (0.96, 0.0336),
}
SHORTER = 25.0
"""About how many times as short as assumed the tasks of Table 3 are: jobs come as much faster."""
TESTBED = (("v100", 8), ("t4", 4), ("k80", 1), ("m60", 2))
TESTBED_JOBS = 100
"""So many that Hare has completed 90.5 % of them in about 25 minutes, as the paper says."""
SEARCHERS = range(0, 20, 4)
"""The users, of 20, whose jobs are one search each."""


@dataclass(frozen=True, slots=True)
class HareCase:
    """One workload on one cluster.

    `wider` multiplies the tasks of a round. With `printed` a task on a V100 takes what the switch
    times of Table 3 and their shares imply.
    """

    gpus: int = 160
    jobs: int = 200
    level: tuple[str, ...] = LEVELS[2]
    mostly: str = ""
    gbit_s: float = 10.0
    batch: float = 1.0
    search_groups: bool = True
    seed: int = 0
    wider: int = 1
    printed: bool = False

    @property
    def nodes(self) -> tuple[tuple[str, int], ...]:
        """GPU type and GPUs of each node; 15 GPUs are the paper's testbed."""
        if self.gpus == sum(gpus for _, gpus in TESTBED):
            return TESTBED
        nodes = self.gpus // 4
        return tuple((self.level[n * len(self.level) // nodes], 4) for n in range(nodes))


def times_of(model: str, gpu_type: str, case: HareCase) -> TaskTimes:
    """Return the times of a mini-batch: training by batch and GPU, gradients there and back."""
    _, on_v100, *speeds, megabytes = MODELS[model]
    if case.printed:
        switch_ms, share = PRINTED[model]
        on_v100 = switch_ms / 1000.0 / share
    v100, t4, m60 = speeds
    speed = {"v100": 1.0, "t4": t4 / v100, "m60": m60 / v100, "k80": 1.0 / v100}[gpu_type]
    sync_s = 2.0 * megabytes * 8.0 / (case.gbit_s * 1000.0)
    return TaskTimes(on_v100 * case.batch / speed, sync_s)


@cache
def world(case: HareCase) -> ReplayInputs:
    """Return a workload: a quarter of the jobs of each field, or half of them of one."""
    cluster = Cluster(tuple(Node(f"n{n:02d}", *node) for n, node in enumerate(case.nodes)))
    tasks = {model: {gpu: times_of(model, gpu, case) for gpu in case.level} for model in MODELS}
    # For policies of gangs: a worker does a mini-batch a round.
    each = {
        model: {gpu: 1.0 / (t.train_s + t.sync_s) for gpu, t in of_model.items()}
        for model, of_model in tasks.items()
    }
    return made_up(_jobs(case), cluster, linear_speeds(cluster, each, tasks=tasks))


def _jobs(case: HareCase) -> Iterator[Submission]:
    rng = Random(case.seed)
    for n in range(case.jobs):
        mostly = case.mostly and rng.random() < 0.5
        field = case.mostly if mostly else rng.choice(FIELDS)
        model = rng.choice([m for m, spec in MODELS.items() if spec[0] == field])
        scale = case.wider * rng.choice((1, 2, 2, 4))
        # Users of one name run alike: most rounds are a matter of the script, some of luck.
        user = rng.randrange(20)
        usual = 3.0 * 2.0 ** (user % 5)
        rounds = max(2, round(usual * rng.lognormvariate(0.0, 0.4)))
        group = f"search-{user}" if case.search_groups and user in SEARCHERS else ""
        shape = TaskShape(scale, rounds, group)
        samples = float(scale * rounds)
        job = Job(
            id=f"j{n:03d}",
            submit_s=rng.uniform(0.0, ARRIVALS_S / (SHORTER if case.printed else 1.0)),
            requirements=RequirementSet((scale,)),
            profile=model,
            total_samples=samples,
            name=f"{model}-{user}",
            user=f"u{user:02d}",
            weight=float(rng.choice((1, 1, 2, 4))),
            tasks=shape,
        )
        # Its loss says when it converges; it ends a good deal earlier or later.
        half = rounds * rng.lognormvariate(0.0, 0.5) / 19.0
        yield Submission(job, samples, loss=LossCurve(6.0, 0.5, half))


@cache
def run(case: HareCase, policy: str, settings: tuple[tuple[str, str], ...] = ()) -> RunLog:
    """Return what a policy makes of a case."""
    costs = SimulationSettings(round_s=60.0, restart_cost_s=3.3)
    made_by = Told if policy == Told.info.name else policy_type(policy)
    return replayed(world(case), policy_of(made_by, policy, dict(settings)), costs)


def weighted_jct_s(log: RunLog) -> float:
    """Return the mean JCT, weighted."""
    total = sum(r.job.weight for r in log.jobs)
    return sum(r.job.weight * _jct_s(log, r.end_s, r.job.submit_s) for r in log.jobs) / total


def mean_jct_s(log: RunLog) -> float:
    """Return the mean JCT."""
    return sum(_jct_s(log, r.end_s, r.job.submit_s) for r in log.jobs) / len(log.jobs)


def jcts_s(log: RunLog) -> NDArray[np.float64]:
    """Return the JCT of each job."""
    return np.array([_jct_s(log, r.end_s, r.job.submit_s) for r in log.jobs])


def _jct_s(log: RunLog, end_s: float | None, submit_s: float) -> float:
    """A job that never ended counts to the end of the run, which no policy here needs."""
    return (log.closed_s if end_s is None else end_s) - submit_s


# -- offline ---------------------------------------------------------------------------------------

GRID = (("grid_growth", "1.4"),)
OFFLINE: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("hare", "hare", GRID),
    ("hare, the paper's GPUs", "hare", (*GRID, ("gpu_choice", "earliest_available"))),
    ("allox", "allox", ()),
    ("sched-homo", "sched-homo", ()),
    ("srtf", "srtf", ()),
    ("gavel-fifo", "gavel-fifo", ()),
)


def bound_s(case: HareCase) -> float:
    """Return the proven least weighted mean JCT of a case."""
    given = world(case)
    kinds = [node.gpu_type for node in given.cluster for _ in range(node.gpus)]
    jobs = sorted(given.workload.submissions, key=lambda s: s.job.submit_s)
    times = [[times_of(s.job.profile, kind, case) for kind in kinds] for s in jobs]
    shapes = [s.job.tasks or TaskShape(1, 1) for s in jobs]
    weight = np.array([s.job.weight for s in jobs])
    instance = Instance.fresh(
        np.array([s.job.submit_s - jobs[0].job.submit_s for s in jobs]),
        weight,
        np.array([shape.rounds or 1 for shape in shapes]),
        np.array([shape.scale for shape in shapes]),
        np.array([[t.train_s for t in row] for row in times]),
        np.array([[t.sync_s for t in row] for row in times]),
    )
    return (relax(instance, 1.4).bound_s or 0.0) / float(weight.sum())


def offline(cases: Mapping[str, HareCase]) -> str:
    """Return weighted JCTs over the proven bound, a line for each case."""
    lines = []
    for name, case in cases.items():
        least = bound_s(case)
        found = [weighted_jct_s(run(case, p, settings)) / least for _, p, settings in OFFLINE]
        lines.append([name, f"{least:.0f} s", *(f"{ratio:.2f}" for ratio in found)])
    return markdown(("", "bound", *(name for name, _, _ in OFFLINE)), lines)


def gpus() -> str:
    """160 GPUs and fewer."""
    return offline({f"{n} GPUs": HareCase(gpus=n) for n in (80, 120, 160)})


def jobs() -> str:
    """100 to 300 jobs."""
    return offline({f"{n} jobs": HareCase(jobs=n) for n in (100, 200, 300)})


def levels() -> str:
    """From GPUs of one type to four."""
    return offline({" × ".join(level): HareCase(level=level) for level in LEVELS})


def mixes() -> str:
    """Half of the jobs of one field."""
    return offline({f"half {field}": HareCase(mostly=field) for field in FIELDS})


def bandwidth() -> str:
    """Networks of 1, 10 and 25 Gb/s, as JCT in seconds."""
    cases = {g: HareCase(gbit_s=g) for g in (1.0, 10.0, 25.0)}
    at = {g: [weighted_jct_s(run(c, p, s)) for _, p, s in OFFLINE] for g, c in cases.items()}
    lines = [[f"{g:g} Gb/s", *(f"{v:.0f} s" for v in values)] for g, values in at.items()]
    change = [new / old - 1.0 for old, new in zip(at[10.0], at[25.0], strict=True)]
    lines.append(["10 to 25 Gb/s", *(f"{c:+.1%}" for c in change)])
    return markdown(("", *(name for name, _, _ in OFFLINE)), lines)


def batch() -> str:
    """Mini-batches of half, the same and twice the size, in as many rounds."""
    return offline({f"batch × {b:g}": HareCase(batch=b) for b in (0.5, 1.0, 2.0)})


FIVE_SEEDS = range(5)
IN_TASKS = [each for each in OFFLINE if each[1] in ("hare", "allox", "sched-homo")]


def bandwidth_printed() -> str:
    """Return what 25 Gb/s gain over 10 with the task times that Table 3 implies."""
    cases = {
        g: [HareCase(gbit_s=g, printed=True, seed=s) for s in FIVE_SEEDS] for g in (10.0, 25.0)
    }
    found = [
        [
            np.array([weighted_jct_s(run(case, policy, settings)) for case in of_speed])
            for _, policy, settings in IN_TASKS
        ]
        for of_speed in cases.values()
    ]
    lines = [
        [f"{gbit_s:g} Gb/s", *(f"{each.mean():.1f} s" for each in of)]
        for gbit_s, of in zip(cases, found, strict=True)
    ]
    changes = (fast / slow - 1.0 for slow, fast in zip(*found, strict=True))
    lines.append(["10 to 25 Gb/s", *map(percent, changes)])
    return markdown(("", *(name for name, _, _ in IN_TASKS)), lines)


def percent(changes: Iterable[float]) -> str:
    """Return the mean of relative changes, and its interval."""
    found = estimate(list(changes))
    assert found is not None
    around = "" if found.half_width is None else f" ± {100 * found.half_width:.1f}"
    return f"{100 * found.mean:+.1f}{around} %"


WITHIN = 0.905
"""The share of jobs that Hare completes within 25 minutes (section 7.2)."""


def testbed() -> str:
    """Return weighted JCTs on the testbed, and how many jobs are done when 90.5 % of Hare's are."""
    logs = {
        name: [
            run(HareCase(gpus=15, jobs=TESTBED_JOBS, seed=seed), policy, settings)
            for seed in FIVE_SEEDS
        ]
        for name, policy, settings in OFFLINE
    }
    weighted = {name: np.array(list(map(weighted_jct_s, of))) for name, of in logs.items()}
    until_s = [np.quantile(jcts_s(log), WITHIN) for log in logs["hare"]]
    lines = []
    for name, of in logs.items():
        done = [float((jcts_s(log) <= t).mean()) for log, t in zip(of, until_s, strict=True)]
        less = percent(weighted["hare"] / weighted[name] - 1.0) if name != "hare" else ""
        lines.append([name, f"{weighted[name].mean():.0f} s", less, f"{100 * np.mean(done):.0f} %"])
    return markdown(("", "weighted JCT", "hare is below it by", "done by then"), lines)


# -- online ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told(HlasP):
    """HLAS-P that is told what it would guess: beside it, prediction error and workload part."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="hlas-p-told",
        summary="hlas-p with the true rounds in the place of guesses",
        paper="Hare (TCC 2024, section V)",
        model=ExecutionModel.TASKS,
        knows=frozenset({Knowledge.TOTAL_SAMPLES}),
        replay_only="nothing knows how long jobs will go on",
    )

    def rounds_left(self, snapshot: Snapshot, queues: Queues, view: JobView) -> float | None:
        """Return the rounds that the job still has to run."""
        rounds = view.job.tasks.rounds if view.job.tasks else None
        return None if rounds is None else float(rounds - queues.rounds[view.id])


EARLIEST_FINISH = (("within", Within.EARLIEST_FINISH.value),)
ONLINE: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("hlas", "hlas", ()),
    ("hlas, earliest finish", "hlas", EARLIEST_FINISH),
    ("hlas-p", "hlas-p", ()),
    ("hlas-p, told", Told.info.name, ()),
    ("hlas-l", "hlas-l", ()),
    ("2d-las", "2d-las", ()),
    ("allox, unit size", "allox", (("unit_size", "true"),)),
    ("sched-homo, unit size", "sched-homo", (("unit_size", "true"),)),
)


def online(cases: Mapping[str, HareCase]) -> str:
    """Return mean JCTs, a line for each case."""
    lines = [
        [name, *(f"{mean_jct_s(run(case, p, settings)):.0f} s" for _, p, settings in ONLINE)]
        for name, case in cases.items()
    ]
    return markdown(("", *(name for name, _, _ in ONLINE)), lines)


def online_gpus() -> str:
    """100 to 180 GPUs."""
    return online({f"{n} GPUs": HareCase(gpus=n) for n in (100, 140, 180)})


def online_jobs() -> str:
    """100 to 300 jobs on 160 GPUs."""
    return online({f"{n} jobs": HareCase(jobs=n) for n in (100, 200, 300)})


def readings() -> str:
    """What is left of the distance where guesses are true, under each reading of the rules."""
    lines = []
    for within in Within:
        for claim in Claim:
            said = (("within", within.value), ("claim", claim.value))
            found = [
                run(HareCase(jobs=300), policy, settings)
                for policy, settings in (
                    ("hlas", said[:1]),
                    ("hlas-p", said),
                    (Told.info.name, said),
                )
            ]
            means = (f"{mean_jct_s(log):.0f} s" for log in found)
            lines.append([within.value, claim.value, *means])
    return markdown(("within", "claim", "hlas", "hlas-p", "hlas-p, told"), lines)


SEEDS = (0, 1, 2)


def search() -> str:
    """Return what HLAS-P gains from knowing search groups: the same jobs with and without them."""
    lines = []
    users = {f"u{user:02d}" for user in SEARCHERS}
    for seed in SEEDS:
        told = [run(HareCase(search_groups=known, seed=seed), "hlas-p") for known in (True, False)]
        for name, mine in (("of search groups", True), ("others", False)):
            means = [
                float(
                    np.mean(
                        [
                            _jct_s(log, r.end_s, r.job.submit_s)
                            for r in log.jobs
                            if (r.job.user in users) is mine
                        ]
                    )
                )
                for log in told
            ]
            change = f"{means[0] / means[1] - 1.0:+.1%}"
            lines.append([f"seed {seed}, jobs {name}", *(f"{m:.0f} s" for m in means), change])
    return markdown(("mean JCT of hlas-p", "groups known", "not known", "difference"), lines)


def groups() -> str:
    """HLAS with few and with many groups."""
    case = HareCase()
    given = world(case)
    lines = []
    for count in (5, 10, 20, 40, 80, 160):
        of_count = ("groups", str(count))
        logs = [run(case, "hlas", (of_count, *more)) for more in ((), EARLIEST_FINISH)]
        found = grouped(given.cluster, given.speeds, count, False)
        mean = max(found.mean_speed)
        lines.append(
            [
                str(count),
                f"{found.spread / mean:.2f}",
                *(f"{mean_jct_s(log):.0f} s" for log in logs),
            ],
        )
    heads = ("groups", "spread / fastest mean speed", "mean JCT of hlas", "earliest finish")
    return markdown(heads, lines)


def scales() -> str:
    """HLAS over 2D-LAS by the GPUs of a group and the tasks of a round."""
    lines = []
    for count in (10, 40, 160):
        for reading, more in (("one each", ()), ("earliest finish", EARLIEST_FINISH)):
            line = [str(160 // count), reading]
            for wider in (1, 4, 8):
                ratios = []
                for seed in SEEDS:
                    case = HareCase(wider=wider, seed=seed, jobs=100)
                    mine = run(case, "hlas", (("groups", str(count)), *more))
                    ratios.append(mean_jct_s(mine) / mean_jct_s(run(case, "2d-las")))
                line.append(f"{np.mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
            lines.append(line)
    heads = ("GPUs a group", "within it", "1 to 4 tasks a round", "4 to 16", "8 to 32")
    return markdown(heads, lines)


SIZES = (100, 300, 1000, 3000, 10_000)
DECISIONS = 60


def cost() -> str:
    """Return the milliseconds of a decision on 160 GPUs in 40 groups by active jobs; plot them."""
    found = {}
    for policy in (Hlas(groups=40), HlasP(groups=40)):
        found[policy.info.name] = [decision_ms(policy, n) for n in SIZES]
    plot_by_jobs(PLOT, found, SIZES, jobs="jobs", cost="CPU milliseconds a decision", aim=5.0)
    lines = [(name, *(f"{ms:.2f}" for ms in took)) for name, took in found.items()]
    return markdown(("CPU milliseconds, by jobs", *map(str, SIZES)), lines)


def decision_ms(policy: Hlas, jobs: int) -> float:
    """Return the median CPU time of a decision when one group of many has done a round."""
    snapshot = second_decision(policy, jobs)
    took = []
    for _ in range(DECISIONS):
        begun = time.process_time()
        policy.plan(snapshot)
        took.append(time.process_time() - begun)
    return float(np.median(took)) * 1000.0


FIGURES = {
    "gpus": gpus,
    "jobs": jobs,
    "levels": levels,
    "mixes": mixes,
    "bandwidth": bandwidth,
    "bandwidth-printed": bandwidth_printed,
    "batch": batch,
    "testbed": testbed,
    "online-gpus": online_gpus,
    "online-jobs": online_jobs,
    "readings": readings,
    "search": search,
    "groups": groups,
    "scales": scales,
    "cost": cost,
}
SAMPLE = PageSample(
    PAGE,
    {"groups": groups},
    {
        "gpus": lambda: offline({"80 GPUs": HareCase(gpus=80)}),
        "online-gpus": lambda: online({"100 GPUs": HareCase(gpus=100)}),
    },
)


if __name__ == "__main__":
    command(PAGE, FIGURES)()
