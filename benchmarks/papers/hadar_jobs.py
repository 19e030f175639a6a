"""The jobs of docs/reproduction/hadar.md: how short any schedule of them can be, and others.

The paper draws its jobs from the Philly trace and does not publish them. `drawn` draws some like
it, and like Helios, whose jobs are larger gangs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array

from benchmarks.papers.fidelity import STATIC, load
from benchmarks.papers.page import markdown
from benchmarks.papers.workloads import THROUGHPUTS, Variant, made_up, name_of
from benchmarks.papers.workloads import run as replayed
from hetsched_core.measures.metrics import Measures, measure
from hetsched_core.policy import make_policy
from hetsched_core.simulate import SimulationSettings
from hetsched_core.traces.gavel import read_measured
from hetsched_core.traces.load import ReplayInputs
from hetsched_core.traces.synthetic.jobs import SyntheticWorkload
from hetsched_core.traces.synthetic.options import SyntheticOptions
from hetsched_core.types import RequirementSet, Speeds, Submission

Floats = NDArray[np.float64]
JOBS = 480
MOST_GPU_HOURS = 100.0
"""The largest class of the paper ends there, on the fastest GPUs."""

MODELS = ("ResNet-50", "ResNet-18", "LM", "CycleGAN", "Transformer")
SEEDS = (0, 1, 2)
CALIBRATED_GANGS = (3, 5, 6)
CALIBRATED_WORK = 0.24
"""Gangs that leave GPUs of a type over, and the share of Gavel's work with which Hadar, planned
whole, takes the 40 h of its paper; chosen by that alone."""

RIVALS: tuple[Variant, ...] = (
    ("hadar", {}),
    ("hadar", {"replan": "full"}),
    ("hadar", {"replan": "full", "utility": "relative-speed"}),
    ("gavel", {}),
    ("tiresias", {}),
    ("yarn-cs", {}),
)


def least_ttd_s(loaded: ReplayInputs) -> float:
    """Return seconds below which no schedule of these jobs ends, all there from the start.

    A linear programme over the time x_jr that a job spends on each GPU type: all its work is done,
    no job is longer at work than the whole, and no type gives more GPU time than it has. Whoever
    runs on several types at once goes at the pace of the slowest, so that as much time on each
    type by itself does no less.
    """
    jobs, cluster, speeds = loaded.workload.submissions, loaded.cluster, loaded.speeds
    types = cluster.gpu_types
    rate, gpus = np.zeros((len(jobs), len(types))), np.zeros(len(jobs))
    largest = max(node.gpus for node in cluster)
    for at, submission in enumerate(jobs):
        job = submission.job
        count = job.requirements.lower_median
        gpus[at] = count
        spread = (1, 2) if count <= largest else (2,)
        rate[at] = [
            count
            * max(speeds.per_gpu(job.profile, t, count, nodes=n) for n in spread)
            / submission.samples
            for t in types
        ]
    size, kinds = rate.shape
    time = np.arange(size * kinds).reshape(size, kinds)
    row = np.repeat(np.arange(size), kinds)
    whole = size * kinds
    parts = [
        (row, time.ravel(), -rate.ravel()),
        (size + row, time.ravel(), np.ones(whole)),
        (size + np.arange(size), np.full(size, whole), -np.ones(size)),
        (2 * size + np.tile(np.arange(kinds), size), time.ravel(), np.repeat(gpus, kinds)),
        (
            2 * size + np.arange(kinds),
            np.full(kinds, whole),
            -np.array([cluster.gpus_by_type()[t] for t in types], np.float64),
        ),
    ]
    rows, columns, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    found = linprog(
        np.eye(1, whole + 1, whole)[0],
        A_ub=coo_array((values, (rows, columns)), shape=(2 * size + kinds, whole + 1)).tocsr(),
        b_ub=np.concatenate((-np.ones(size), np.zeros(size + kinds))),
    )
    assert found.status == 0
    return float(found.fun)


def static_jobs(folder: Path) -> ReplayInputs:
    """Return Gavel's 480 jobs, which spreading over nodes slows as measured."""
    return load(STATIC, folder, blind=False)


def least(folder: Path, jobs: Callable[[Path], ReplayInputs] = static_jobs) -> str:
    """Return what no schedule of the 480 jobs can be shorter than."""
    bound_h = least_ttd_s(jobs(folder)) / 3600
    return f"No schedule of these jobs is shorter than {bound_h:.1f} h."


def calibrated_jobs(folder: Path) -> ReplayInputs:
    """Return Gavel's 480 jobs with other gangs, in turns, and a part of their work."""
    loaded = static_jobs(folder)
    jobs = []
    for at, each in enumerate(loaded.workload.submissions):
        samples = CALIBRATED_WORK * each.samples
        gang = RequirementSet.rigid(CALIBRATED_GANGS[at % len(CALIBRATED_GANGS)])
        job = replace(each.job, requirements=gang, total_samples=samples)
        jobs.append(Submission(job, samples))
    return made_up(jobs, loaded.cluster, loaded.speeds)


def drawn_jobs(folder: Path, trace: str, seed: int) -> ReplayInputs:
    """Return jobs with the statistics of a trace, all there at the start, and where they run."""
    loaded = load(STATIC, folder, blind=False)
    measured = read_measured(folder / THROUGHPUTS, loaded.cluster.gpu_types)
    models = [model for model in measured.models if model.name.startswith(MODELS)]
    options = SyntheticOptions(like=trace, jobs=10 * JOBS, load=1.0, typed_share=0.0, seed=seed)
    drawn = SyntheticWorkload.of(options, loaded.cluster, models, measured.tables)
    speeds = Speeds(loaded.cluster, measured.tables)

    def gpu_hours(submission: Submission) -> float:
        job, count = submission.job, submission.job.requirements.lower_median
        best = max(
            speeds.per_gpu(job.profile, t, count, nodes=n)
            for t in loaded.cluster.gpu_types
            for n in (1, 2)
        )
        return submission.samples / best / 3600

    small = (s for s in drawn.submissions() if gpu_hours(s) <= MOST_GPU_HOURS)
    jobs = [replace(s, job=replace(s.job, submit_s=0.0)) for s in islice(small, JOBS)]
    return made_up(jobs, loaded.cluster, speeds)


def drawn(folder: Path) -> str:
    """Return TTD and median of each policy on drawn jobs, means over the seeds."""
    lines = []
    for trace in ("philly", "helios"):
        cases = [drawn_jobs(folder, trace, seed) for seed in SEEDS]
        bounds = [least_ttd_s(case) for case in cases]
        found: dict[str, Floats] = {}
        for variant in RIVALS:
            runs = [_run(case, variant) for case in cases]
            found[name_of(variant)] = np.array(
                [(m.makespan_s, m.p50_jct_s, m.gpu_utilisation) for m in runs], np.float64
            )
        base = found["hadar full"]
        for name, values in found.items():
            ttd, median = (values[:, :2] / base[:, :2]).mean(axis=0)
            lines.append(
                (
                    f"like {trace}",
                    name,
                    " / ".join(f"{seconds / 3600:.0f}" for seconds in values[:, 0]),
                    f"{ttd:.2f}",
                    f"{(values[:, 0] / bounds).mean():.2f}",
                    " / ".join(f"{seconds / 3600:.1f}" for seconds in values[:, 1]),
                    f"{median:.2f}",
                    f"{100 * values[:, 2].mean():.0f}",
                )
            )
    heads = ("jobs", "policy", "TTD h", "/ hadar full", "/ least", "median h", "/ hadar full")
    return markdown((*heads, "GPUs held %"), lines)


def _run(case: ReplayInputs, variant: Variant) -> Measures:
    costs = SimulationSettings(round_s=360.0, restart_cost_s=10.0)
    measures = measure(replayed(case, make_policy(*variant), costs), case.speeds)
    assert measures.completed == JOBS
    return measures
