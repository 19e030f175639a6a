"""Figures of docs/reproduction/profiles.md: the built-in models and GPU types against measurements.

    HETSCHED_DATA=... python -m benchmarks.profile_ranks

What a scheduler needs of an estimate is the order: which type is faster for this model, which model
is faster on this type. So ranks are compared (Spearman), and how far the estimates lie from the
measurements is said beside them.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean, median

from scipy.stats import spearmanr

from benchmarks.papers.page import PAGES, PageSample, command, data_folder, markdown
from hetsched_core.throughput import ModelProfile, builtin_profiles, gavel_profile, match_gpu
from hetsched_core.throughput.builtin import samples_per_s
from hetsched_core.traces.gavel import read_throughputs

PAGE = PAGES / "profiles.md"
GAVEL = ("gavel_physical_cluster_throughputs.json.gz", "gavel_simulation_throughputs.json.gz")
MLPERF = "mlperf_training_v4.0_summary.csv"

TIMM_RTX_3090 = {
    "resnet18-imagenet": 3481.78,
    "mobilenetv2-imagenet": 2313.10,
    "resnet50-imagenet": 1218.01,
    "vgg11-imagenet": 954.03,
    "vgg13-imagenet": 677.45,
    "regnety-imagenet": 496.85,
    "densenet161-imagenet": 399.17,
    "vit-b16-food101-amp": 392.99,
    "convnext-base-imagenet": 338.68,
}
"""Images/s in training, mixed precision (huggingface/pytorch-image-models,
results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv)."""

HARE_TASK_MS = {
    "fastgcn-cora": 2.86 / 0.0756,
    "graphsage-cora": 2.42 / 0.0864,
    "resnet50-cifar100": 4.75 / 0.0546,
    "vgg19-cifar10": 4.01 / 0.0240,
    "inceptionv3-cifar100": 5.03 / 0.0239,
    "transformer-wmt16": 10.34 / 0.0203,
    "deepspeech-commonvoice": 8.91 / 0.0159,
    "bert-base-squad": 12.57 / 0.0199,
}
"""Milliseconds of a task: what switching took over its share (Hare, HPDC '22, table 3, row of
PipeSwitch). The GPU is not told."""


@dataclass(frozen=True, slots=True)
class RankAgreement:
    """How estimates agree with measurements of the same things."""

    count: int
    spearman: float
    factor: float

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> RankAgreement:
        """Compare (estimate, measurement) pairs, both above 0.

        `factor` is the geometric mean of the errors: 1.5 where estimates are typically 1.5 times
        too large or too small.
        """
        pairs = list(pairs)
        estimates, measured = zip(*pairs, strict=True)
        error = fmean(abs(math.log(e / m)) for e, m in pairs)
        return cls(len(pairs), float(spearmanr(estimates, measured).statistic), math.exp(error))


def rate(profile: ModelProfile, gpu: str, gpus: int = 1, nodes: int = 1) -> float:
    """Return samples/s per GPU of the estimate."""
    return samples_per_s(profile, match_gpu(gpu).spec, gpus, nodes)


@dataclass(frozen=True, slots=True)
class GavelRanks:
    """Gavel's measurements against the estimates, one GPU each where nothing else is said."""

    everything: RankAgreement
    by_model: Mapping[str, RankAgreement]
    by_type: Mapping[str, RankAgreement]
    four_gpus: RankAgreement


@cache
def gavel_ranks(path: Path) -> GavelRanks:
    """Compare each model and batch size with the built-in model at that batch size."""
    tables = read_throughputs(gzip.decompress(path.read_bytes()).decode(), path.name)
    pairs: dict[tuple[str, str], tuple[float, float]] = {}
    four: list[tuple[float, float]] = []
    for name, table in sorted(tables.items()):
        profile = gavel_profile(name)
        if profile is None:
            continue
        for gpu in table.gpu_types:
            measured = table.per_gpu(gpu, 1, 1) * profile.batch_size
            estimate = rate(profile, gpu)
            if measured and estimate:
                pairs[name, gpu] = estimate, measured
            for nodes in (1, 2):
                measured = table.per_gpu(gpu, 4, nodes) * profile.batch_size
                if 4 in table.counts and measured and estimate:
                    four.append((rate(profile, gpu, 4, nodes), measured))
    by_model: dict[str, list[tuple[float, float]]] = defaultdict(list)
    by_type: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (name, gpu), pair in pairs.items():
        by_model[name].append(pair)
        by_type[gpu].append(pair)
    return GavelRanks(
        RankAgreement.of(pairs.values()),
        {name: RankAgreement.of(found) for name, found in by_model.items() if len(found) > 2},
        {gpu: RankAgreement.of(found) for gpu, found in by_type.items()},
        RankAgreement.of(four),
    )


MLPERF_MODELS = {"resnet": "resnet50-imagenet", "bert": "bert-base-512"}
MLPERF_TYPES = {
    "NVIDIA L40S": "l40s",
    "NVIDIA H100-PCIe-80GB": "h100_pcie",
    "NVIDIA H100-SXM-80GB": "h100",
    "NVIDIA H100-SXM5-80GB": "h100",
    "NVIDIA H200-SXM5-141GB": "h200",
    "NVIDIA GeForce RTX 4090": "rtx4090",
}


def mlperf_orders(path: Path) -> dict[tuple[str, int], list[tuple[str, float, float]]]:
    """Return for each benchmark and number of GPUs on one node the types, slowest first.

    Returns:
        (benchmark, GPUs) -> (type, estimated samples/s of a GPU, median minutes to train).
    """
    minutes: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            gpu = MLPERF_TYPES.get(row["accelerator_model"])
            if row["benchmark"] in MLPERF_MODELS and gpu and row["nodes"] == "1":
                key = row["benchmark"], int(row["total_accelerators"])
                minutes[key][gpu].append(float(row["median_time_to_train_s"]) / 60)
    models = {profile.name: profile for profile in builtin_profiles()}
    orders = {}
    for (benchmark, gpus), found in sorted(minutes.items()):
        if len(found) > 2:
            # MLPerf's batches per GPU are large: the update of the weights hardly counts.
            profile = replace(models[MLPERF_MODELS[benchmark]], batch_size=96)
            rows = [(gpu, rate(profile, gpu, gpus), median(times)) for gpu, times in found.items()]
            orders[benchmark, gpus] = sorted(rows, key=lambda row: -row[2])
    return orders


def timm_agreement() -> RankAgreement:
    """Compare with timm's training rates on an RTX 3090, at the batch sizes of the models here."""
    models = {profile.name: profile for profile in builtin_profiles()}
    return RankAgreement.of((rate(models[name], "rtx30"), r) for name, r in TIMM_RTX_3090.items())


def hare_agreement() -> RankAgreement:
    """Compare the time of an iteration on a V100 with what Hare's table 3 implies for a task."""
    models = {profile.name: profile for profile in builtin_profiles()}
    return RankAgreement.of(
        (1e3 * models[name].batch_size / rate(models[name], "v100"), ms)
        for name, ms in HARE_TASK_MS.items()
    )


# The page -----------------------------------------------------------------------------------------


def both_tables() -> list[GavelRanks]:
    """Return what Gavel's table of the physical cluster says, and that for its simulations."""
    return [gavel_ranks(data_folder() / "throughputs" / name) for name in GAVEL]


COLUMNS = ("things", "Spearman", "factor", "Spearman in simulation", "factor in simulation")


def types() -> str:
    """Return how the models on a type agree."""
    physical, simulation = both_tables()
    pairs = [
        *((f"models on {gpu}", a, simulation.by_type[gpu]) for gpu, a in physical.by_type.items()),
        ("all models and types", physical.everything, simulation.everything),
        ("four GPUs, on one node and on several", physical.four_gpus, simulation.four_gpus),
    ]
    lines = [(label, *_cells(a), *_cells(b)[1:]) for label, a, b in pairs]
    return markdown(("one GPU, models on a type", *COLUMNS), lines)


def models() -> str:
    """Return how the types for a model agree."""
    physical, simulation = both_tables()
    lines = [
        (name, *_cells(agreement), *_cells(simulation.by_model[name])[1:])
        for name, agreement in physical.by_model.items()
    ]
    return markdown(("one GPU, types for a model", *COLUMNS), lines)


def mlperf() -> str:
    """Return the orders of MLPerf."""
    lines = []
    for (benchmark, gpus), found in mlperf_orders(data_folder() / "throughputs" / MLPERF).items():
        rank = spearmanr([speed for _, speed, _ in found], [-minutes for *_, minutes in found])
        slowest = found[0][1]
        order = ", ".join(
            f"{gpu} {minutes:.1f} min ({speed / slowest:.2f})" for gpu, speed, minutes in found
        )
        lines.append((f"{benchmark}, {gpus} GPUs", order, f"{rank.statistic:.2f}"))
    return markdown(("benchmark", "types", "Spearman"), lines)


def others() -> str:
    """Return what else was measured."""
    lines = [
        ("training rates of image models on one RTX 3090 (timm)", *_cells(timm_agreement())),
        ("task times that table 3 of Hare implies, as on a V100", *_cells(hare_agreement())),
    ]
    return markdown(("measurement", "things", "Spearman", "factor"), lines)


def _cells(agreement: RankAgreement) -> tuple[str, str, str]:
    return str(agreement.count), f"{agreement.spearman:.2f}", f"{agreement.factor:.2f}"


FIGURES = {"types": types, "models": models, "mlperf": mlperf, "others": others}
SAMPLE = PageSample(PAGE, FIGURES)


if __name__ == "__main__":
    command(PAGE, FIGURES)()
