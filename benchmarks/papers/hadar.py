"""Figures of docs/reproduction/hadar.md: Hadar and HadarE beside what their paper reports.

    HETSCHED_DATA=... python -m benchmarks.papers.hadar

writes them between the markers of the page (some five minutes), and the plot beside it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.comparison_inputs import SWEEPS, write_sweeps
from benchmarks.papers.comparison_runs import JCT, MAKESPAN, run_sweep
from benchmarks.papers.hadar_jobs import calibrated_jobs, drawn, least, static_jobs
from benchmarks.papers.page import (
    PAGES,
    PageSample,
    command,
    data_folder,
    markdown,
    plot_by_jobs,
)
from benchmarks.papers.workloads import Variant, made_up, name_of
from benchmarks.papers.workloads import run as replayed
from benchmarks.test_hadar import first_round
from hetsched_core.kernels.payoff import Market
from hetsched_core.measures.metrics import Measures, measure
from hetsched_core.policies.hadar.hadare import Order
from hetsched_core.policies.hadar.prices import PricedJobs, price_bounds
from hetsched_core.policies.hadar.queue import PLENTY, Nodes, plan_queue
from hetsched_core.policy import make_policy, policy_names
from hetsched_core.records.runlog import RunLog
from hetsched_core.simulate import SimulationSettings
from hetsched_core.throughput import ProfileSet, SizeClass, builtin_speeds, profile_set
from hetsched_core.traces.load import ReplayInputs
from hetsched_core.types import Cluster, Node, Submission
from tests.hetsched_core.worlds import linear_speeds, submission

PAGE = PAGES / "hadar.md"
PLOT = PAGES / "hadar-decisions.svg"
Floats = NDArray[np.float64]
ROUND_S = 360.0
RESTART_S = 10.0

HADAR: Variant = ("hadar", {})
HADAR_FULL: Variant = ("hadar", {"replan": "full"})
HADARE: Variant = ("hadare", {})
HADARE_PRINTED: Variant = ("hadare", {"order": "remaining"})
"""Nodes are chosen in the paper's order."""

GAVEL: Variant = ("gavel", {})


# -- Fig. 1 ----------------------------------------------------------------------------------------

FIG1 = Cluster((Node("v", "v100", 2), Node("p", "p100", 3), Node("k", "k80", 1)))
NEED = (3, 2, 2)
EPOCHS = (80, 30, 50)
PER_ROUND = ((40, 20, 30), (5, 15, 5), (10, 2, 20))
"""Epochs a round of each job with all its GPUs on V100, P100, K80."""


def fig1_ends(variant: Variant) -> list[int]:
    """Return the round in which each of the three jobs ends; a sample is an epoch."""
    speeds = {
        f"J{j + 1}": {
            gpu_type: epochs / NEED[j] / ROUND_S
            for gpu_type, epochs in zip(FIG1.gpu_types, PER_ROUND[j], strict=True)
        }
        for j in range(3)
    }
    jobs = [
        submission(f"J{j + 1}", float(EPOCHS[j]), (NEED[j],), profile=f"J{j + 1}") for j in range(3)
    ]
    loaded = made_up(jobs, FIG1, linear_speeds(FIG1, speeds))
    log = replayed(loaded, make_policy(*variant), SimulationSettings(restart_cost_s=0.0))
    ends = {record.job.id: record.end_s or math.inf for record in log.jobs}
    return [round(math.ceil(ends[f"J{j + 1}"] / ROUND_S - 1e-6)) for j in range(3)]


def fig1() -> str:
    """Own schedules beside the optima that an exhaustive search finds (tests hold these)."""
    lines = [
        ("exhaustive, fewest rounds, mixed or single type", "6", "13"),
        ("exhaustive, least sum, single type", "6", "13"),
        ("exhaustive, least sum, mixed (J1 3, J2 2, J3 7)", "7", "12"),
    ]
    for variant in (HADAR, HADAR_FULL, GAVEL):
        ends = fig1_ends(variant)
        told = ", ".join(f"J{j + 1} {end}" for j, end in enumerate(ends))
        lines.append((f"{name_of(variant)} ({told})", str(max(ends)), str(sum(ends))))
    return markdown(("schedule", "rounds", "sum of completion rounds"), lines)


# -- 60 GPUs, 480 jobs -----------------------------------------------------------------------------

STATIC_RIVALS: tuple[Variant, ...] = (
    HADAR,
    HADAR_FULL,
    ("hadar", {"utility": "relative-speed"}),
    ("hadar", {"utility": "relative-speed", "replan": "full"}),
    GAVEL,
    ("tiresias", {}),
    ("yarn-cs", {}),
    ("slurm", {}),
)
PAPER_TTD = {"gavel": 1.21, "tiresias": 1.35, "yarn-cs": 1.67}
PAPER_MEDIAN = {"gavel": 1.20, "tiresias": 1.40}


Jobs = Callable[[Path], ReplayInputs]
"""What reads jobs, all there at the start, from the directory of public data."""


@cache
def static_run(
    folder: Path, jobs: Jobs, name: str, settings: tuple[tuple[str, str], ...]
) -> RunLog:
    """Run the 480 jobs; spreading a job over nodes costs what Gavel measured."""
    costs = SimulationSettings(round_s=ROUND_S, restart_cost_s=RESTART_S)
    return replayed(jobs(folder), make_policy(name, dict(settings)), costs)


def static_measures(
    folder: Path, variant: Variant, jobs: Jobs = static_jobs
) -> tuple[RunLog, Measures]:
    """Return the run log and its measures."""
    log = static_run(folder, jobs, variant[0], tuple(variant[1].items()))
    measures = measure(log, jobs(folder).speeds)
    assert measures.completed == measures.jobs
    return log, measures


def changing_rounds(log: RunLog) -> float:
    """Return the share of rounds in which a run began."""
    return len({run.since_s // ROUND_S for run in log.runs}) / log.rounds


def static(folder: Path, jobs: Jobs = static_jobs) -> str:
    """Return absolute figures of each policy, and its ratios over both ways of replanning."""
    found = {name_of(v): static_measures(folder, v, jobs) for v in STATIC_RIVALS}
    base = [found[name_of(v)][1] for v in (HADAR, HADAR_FULL)]
    lines = []
    for name, (log, m) in found.items():
        assert m.makespan_s is not None
        assert m.p50_jct_s is not None
        assert m.avg_jct_s is not None
        ratios = [
            f"{value / (getattr(b, key) or math.nan):.2f}"
            for key, value in (("makespan_s", m.makespan_s), ("p50_jct_s", m.p50_jct_s))
            for b in base
        ]
        lines.append(
            (
                name,
                f"{m.makespan_s / 3600:.1f}",
                ratios[0],
                ratios[1],
                f"{PAPER_TTD[name]:.2f}" if name in PAPER_TTD else "",
                f"{m.p50_jct_s / 3600:.1f}",
                ratios[2],
                ratios[3],
                f"{PAPER_MEDIAN[name]:.2f}" if name in PAPER_MEDIAN else "",
                f"{m.avg_jct_s / 3600:.1f}",
                f"{100 * (m.gru or 0):.1f}",
                f"{100 * (m.gpu_utilisation or 0):.0f}",
                f"{100 * changing_rounds(log):.0f}",
                str(m.restarts),
            )
        )
    heads = (
        "policy",
        "TTD h",
        "/ hadar",
        "/ hadar full",
        "paper",
        "median h",
        "/ hadar",
        "/ hadar full",
        "paper",
        "avg JCT h",
        "GRU %",
        "GPUs held %",
        "rounds with a change %",
        "restarts",
    )
    return markdown(heads, lines)


def spread(folder: Path, jobs: Jobs = static_jobs) -> str:
    """Return how much of the GPU time is on several nodes, and on several types."""
    lines = []
    for variant in (HADAR, HADAR_FULL, GAVEL):
        log, _ = static_measures(folder, variant, jobs)
        cluster = log.header.cluster
        total = several = mixed = 0.0
        for run in log.runs:
            gpu_s = run.configuration.gpus * (run.freed_s - run.since_s)
            total += gpu_s
            several += gpu_s * (len(run.configuration) > 1)
            mixed += gpu_s * (len({cluster[name].gpu_type for name, _ in run.configuration}) > 1)
        lines.append(
            (name_of(variant), f"{100 * several / total:.1f}", f"{100 * mixed / total:.1f}")
        )
    return markdown(("% of GPU time", "on several nodes", "on several types"), lines)


# -- The two clusters of five nodes ----------------------------------------------------------------

CLUSTERS = {
    "AWS": ("v100", "k80", "k80", "t4", "t4"),
    "lab": ("titanrtx", "t4", "t400", "rtx30", "a2000"),
}
MODELS = {
    "IC": "resnet18-cifar10",
    "LM": "lstm-wikitext2",
    "LT": "transformer-multi30k",
    "RS": "recoder-ml20m",
    "MM": "mima-weather",
}
MINUTES = {
    SizeClass.SMALL: 10,
    SizeClass.MEDIUM: 15,
    SizeClass.LARGE: 20,
    SizeClass.EXTRA_LARGE: 30,
}
"""How long a job of each class runs on its cluster's fastest node: an assumption."""

MIXES = {
    "M-1": ("MM",),
    "M-3": ("LT", "MM", "MM"),
    "M-4": ("IC", "LM", "LT", "MM"),
    "M-5": ("IC", "LM", "LT", "RS", "MM"),
    **{f"M-{4 + n}": ("IC", "LM", "LT", "RS", *("MM",) * n) for n in (4, 6, 8)},
}
SLOTS_S = (90.0, 180.0, 360.0, 720.0)


def five_nodes(where: str) -> Cluster:
    """Return a cluster of one GPU a node."""
    return Cluster(tuple(Node(f"n{at}-{t}", t, 1) for at, t in enumerate(CLUSTERS[where])), where)


def mix(where: str, names: Sequence[str]) -> list[Submission]:
    """Return the jobs of a mix, all at time 0, one GPU each."""
    speeds = builtin_speeds(five_nodes(where))
    classes = {p.name: p.size for p in profile_set(ProfileSet.HADARE)}
    jobs = []
    for at, short in enumerate(names):
        profile = MODELS[short]
        fastest = max(speeds.per_gpu(profile, t, 1) for t in CLUSTERS[where])
        samples = float(round(fastest * 60.0 * MINUTES[classes[profile]]))
        jobs.append(submission(f"{at:02}-{short}", samples, profile=profile))
    return jobs


@cache
def mix_run(
    where: str,
    names: tuple[str, ...],
    policy: str,
    settings: tuple[tuple[str, str], ...],
    slot: float,
) -> Measures:
    """Return what a policy makes of a mix."""
    cluster = five_nodes(where)
    speeds = builtin_speeds(cluster)
    costs = SimulationSettings(round_s=slot, restart_cost_s=RESTART_S)
    loaded = made_up(mix(where, names), cluster, speeds)
    return measure(replayed(loaded, make_policy(policy, dict(settings)), costs), speeds)


def mix_measures(
    where: str, name: str, variant: Variant, slot_s: float = ROUND_S
) -> tuple[float, float, float]:
    """Return TTD and average JCT in seconds, and CRU."""
    m = mix_run(where, MIXES[name], variant[0], tuple(variant[1].items()), slot_s)
    assert m.makespan_s is not None
    assert m.avg_jct_s is not None
    assert m.cru is not None
    return m.makespan_s, m.avg_jct_s, m.cru


MIX_RIVALS = (GAVEL, HADAR, HADAR_FULL, HADARE_PRINTED, HADARE)


def mixes(where: str) -> str:
    """Return TTD / JCT / CRU of every mix under every policy."""
    lines = []
    for name in MIXES:
        found = [mix_measures(where, name, v) for v in MIX_RIVALS]
        lines.append((name, *(f"{t:.0f} / {j:.0f} / {100 * c:.0f}" for t, j, c in found)))
    return markdown(("TTD s / JCT s / CRU %", *map(name_of, MIX_RIVALS)), lines)


PAPER_GAINS = {
    ("AWS", "hadar"): (1.17, 1.17, 1.20),
    ("lab", "hadar"): (1.16, 1.23, 1.21),
    ("AWS", "hadare"): (1.79, 2.23, 1.56),
    ("lab", "hadare"): (2.12, 2.76, 1.62),
}
"""Over gavel: shorter TTD, shorter JCT, higher CRU, means over the mixes."""


def gains(where: str, variant: Variant, base: Variant) -> tuple[float, float, float]:
    """Return how many times shorter TTD and JCT are and how many times higher CRU, on average."""
    ratios = []
    for name in MIXES:
        mine, other = mix_measures(where, name, variant), mix_measures(where, name, base)
        ratios.append((other[0] / mine[0], other[1] / mine[1], mine[2] / other[2]))
    ttd, jct, cru = np.mean(ratios, axis=0).tolist()
    return ttd, jct, cru


def gain_table() -> str:
    """Return the mean gains beside those of the paper."""
    lines = []
    for where in CLUSTERS:
        for variant in (HADAR, HADAR_FULL, HADARE_PRINTED, HADARE):
            published = PAPER_GAINS[where, variant[0]]
            found = gains(where, variant, GAVEL)
            cells = (f"{f:.2f} ({p:.2f})" for f, p in zip(found, published, strict=True))
            lines.append((where, f"{name_of(variant)} over gavel", *cells))
        paper = {"AWS": 1.53, "lab": 1.83}[where]
        for variant in (HADARE_PRINTED, HADARE):
            ttd, *others = gains(where, variant, HADAR_FULL)
            told = (f"{ttd:.2f} ({paper:.2f})", *(f"{gain:.2f}" for gain in others))
            lines.append((where, f"{name_of(variant)} over hadar full", *told))
    return markdown(("cluster", "gain (paper)", "TTD", "JCT", "CRU"), lines)


def orders() -> str:
    """Return what each order of HadarE makes of the mixes: AWS chooses the default, lab shows it.

    The last column is what chooses: the geometric mean of the gains in TTD and JCT.
    """
    lines = []
    for where in CLUSTERS:
        for order in Order:
            variant = ("hadare", {"order": order.value})
            found = np.array([mix_measures(where, name, variant) for name in MIXES])
            ttd_s, jct_s, _ = found.mean(axis=0).tolist()
            ttd, jct, cru = gains(where, variant, GAVEL)
            both = math.sqrt(ttd * jct)
            times = (f"{ttd_s:.0f}", f"{ttd:.2f}", f"{jct_s:.0f}", f"{jct:.2f}")
            lines.append((where, order.value, *times, f"{cru:.2f}", f"{both:.2f}"))
    heads = ("cluster", "order", "TTD s", "gain", "JCT s", "gain", "gain in CRU", "both")
    return markdown(heads, lines)


def arriving() -> str:
    """Return what each order makes of jobs that arrive: the comparison's generated workloads."""
    names = [order.value for order in Order]
    policy = f'[[policies]]\nname = "hadare"\nparameters = {{ order = {names} }}\n'
    with TemporaryDirectory() as made:
        folder = Path(made)
        write_sweeps(folder)
        text = (SWEEPS / "generated.toml").read_text()
        (folder / "orders.toml").write_text(text.replace("# include policies.toml\n", policy))
        runs = run_sweep("orders", folder)
    columns = [(column, name) for column in (JCT, MAKESPAN) for name in names]
    lines = []
    for workload, found in runs.items():
        means = [column.over_seeds(found[f"hadare order={name}"]) for column, name in columns]
        lines.append((workload, *(f"{mean.mean:.2f}" for mean in means if mean is not None)))
    return markdown(("workload", *(f"{column.head}: {name}" for column, name in columns)), lines)


def slots() -> str:
    """Return CRU and TTD of each mix by slot length, the best marked."""
    lines = []
    for where, variant in product(CLUSTERS, (HADARE_PRINTED, HADARE, HADAR_FULL)):
        for name in MIXES:
            found = [mix_measures(where, name, variant, slot) for slot in SLOTS_S]
            best = max(cru for _, _, cru in found)
            lines.append(
                (
                    where,
                    name_of(variant),
                    name,
                    *(
                        f"**{100 * c:.0f}** / {t:.0f}" if c == best else f"{100 * c:.0f} / {t:.0f}"
                        for t, _, c in found
                    ),
                )
            )
    heads = ("cluster", "policy", "mix")
    return markdown((*heads, *(f"{slot:.0f} s: CRU % / TTD s" for slot in SLOTS_S)), lines)


def speeds_table() -> str:
    """Return the samples/s that the mixes run at."""
    lines = [
        (where, gpu_type, *(f"{speeds.per_gpu(m, gpu_type, 1):,.0f}" for m in MODELS.values()))
        for where, types in CLUSTERS.items()
        for speeds in (builtin_speeds(five_nodes(where)),)
        for gpu_type in dict.fromkeys(types)
    ]
    return markdown(("cluster", "type", *MODELS), lines)


# -- The bound of Theorem 2 ------------------------------------------------------------------------


def bound_broken(rng: Random, *, whole: bool) -> bool:
    """Return whether jobs admitted one by one for one slot get less than OPT / (2 alpha).

    With `whole`, 1 to 4 GPUs a job on nodes of 1 to 4; else one GPU a job on nodes of 4 to 8.
    """
    types = rng.randint(1, 2)
    size = [rng.randint(1, 4) if whole else rng.randint(4, 8) for _ in range(types)]
    sort = [rng.randrange(types) for _ in range(rng.randint(1, 3 if whole else 1))]
    jobs = 5 if whole else 10
    gpus = np.array([rng.choice((1, 1, 2, 4)) if whole else 1 for _ in range(jobs)])
    utility = np.array([[10 ** rng.uniform(-1.5, 1.5) for _ in range(types)] for _ in range(jobs)])
    one = PricedJobs(gpus.astype(np.float64), gpus.astype(np.float64), np.ones_like(utility))
    bounds = price_bounds(
        one,
        lambda _, seconds: utility.min(axis=1) + 0.0 * seconds,
        gpus=sum(size[s] for s in sort),
        horizon_s=1.0,
        until_horizon_s=np.ones(jobs),
    )
    highest = np.maximum((utility / gpus[:, None]).max(axis=0), bounds.lowest)
    alpha = max(1.0, float(np.log(highest / bounds.lowest).max()))
    capacity = np.array([size[s] for s in sort])
    market = Market(
        # On one node or more, as many as it has GPUs; none of them has anything to keep.
        demand=np.column_stack((gpus, np.zeros((jobs, 2), np.int64), np.ones_like(gpus), gpus)),
        needs=np.zeros((jobs, 3)),
        one_node=utility,
        several=np.zeros_like(utility),
        pools=np.zeros((jobs, 1), np.int64),
        stays=np.zeros((0, 2), np.int64),
        stay_utility=np.zeros(jobs),
        type_of_sort=np.arange(types),
        lowest=bounds.lowest,
        highest=highest,
        even=False,
    )
    used, got = np.zeros(len(sort), np.int64), 0.0
    for job in range(jobs):
        room = np.full(len(sort), PLENTY)
        outcome = plan_queue(Nodes(np.array(sort), capacity, used, room, room), market, [job])
        for node, count in outcome.placed.get(job, ()):
            used[node] += count
            got += float(utility[job, sort[node]])
    return optimum(utility[:, sort], gpus, capacity) > 2 * alpha * got + 1e-9


def optimum(utility: Floats, gpus: NDArray[np.int64], capacity: NDArray[np.int64]) -> float:
    """Return the most utility that whole jobs on these nodes can have together."""

    @cache
    def best(job: int, room: tuple[int, ...]) -> float:
        if job == len(gpus):
            return 0.0
        most = best(job + 1, room)
        for node, free in enumerate(room):
            if free >= gpus[job]:
                left = (*room[:node], free - int(gpus[job]), *room[node + 1 :])
                most = max(most, float(utility[job, node]) + best(job + 1, left))
        return most

    return best(0, tuple(capacity.tolist()))


def bound() -> str:
    """Return how often the bound is broken."""
    lines = []
    for told, whole, cases in (
        ("5 jobs of 1 to 4 GPUs, 1 to 3 nodes of 1 to 4 GPUs", True, 2000),
        ("10 jobs of 1 GPU, a node of 4 to 8", False, 500),
    ):
        broken = sum(bound_broken(Random(seed), whole=whole) for seed in range(cases))
        lines.append((told, str(cases), str(broken), f"{100 * broken / cases:.1f}"))
    return markdown(("instances", "drawn", "bound broken", "%"), lines)


# -- Decisions -------------------------------------------------------------------------------------

SIZES = (32, 64, 128, 256, 512, 1024, 2048)
DECIDERS: tuple[Variant, ...] = (
    HADAR,
    HADAR_FULL,
    ("gavel", {"reallocate_s": "0"}),
    ("sia", {}),
    ("hops", {}),
)


def decision_s(variant: Variant, jobs: int) -> float:
    """Return the CPU seconds of one decision, the best of five after one to warm up."""
    policy, snapshot = make_policy(*variant), first_round(jobs)
    policy.plan(snapshot)
    took = []
    for _ in range(5):
        begun = time.process_time()
        policy.plan(snapshot)
        took.append(time.process_time() - begun)
    return min(took)


def decisions() -> str:
    """Return the seconds of a decision by size, and plot them."""
    variants = [v for v in DECIDERS if v[0] in policy_names()]
    found = {name_of(v).removesuffix(" 0"): [decision_s(v, n) for n in SIZES] for v in variants}
    plot_by_jobs(PLOT, found, SIZES, jobs="jobs, and GPUs", cost="CPU seconds a decision", aim=1.0)
    lines = [(name, *(f"{s:.4f}" for s in took)) for name, took in found.items()]
    return markdown(("CPU seconds, by number of jobs", *map(str, SIZES)), lines)


# -- The page --------------------------------------------------------------------------------------


FIGURES = {
    "fig1": fig1,
    "static": lambda: static(data_folder()),
    "spread": lambda: spread(data_folder()),
    "least": lambda: least(data_folder()),
    "calibrated": lambda: static(data_folder(), calibrated_jobs),
    "calibrated-spread": lambda: spread(data_folder(), calibrated_jobs),
    "calibrated-least": lambda: least(data_folder(), calibrated_jobs),
    "drawn": lambda: drawn(data_folder()),
    "speeds": speeds_table,
    "gains": gain_table,
    "orders": orders,
    "arriving": arriving,
    "aws": lambda: mixes("AWS"),
    "lab": lambda: mixes("lab"),
    "slots": slots,
    "bound": bound,
    "decisions": decisions,
}
QUICK = (
    *("fig1", "spread", "static", "least", "calibrated", "calibrated-spread", "calibrated-least"),
    *("speeds", "aws", "lab", "gains", "orders", "bound"),
)
SAMPLE = PageSample(PAGE, {name: FIGURES[name] for name in QUICK})


if __name__ == "__main__":
    command(PAGE, FIGURES)()
