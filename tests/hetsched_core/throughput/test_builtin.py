"""The built-in models and their speeds, held against public measurements."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from hetsched_core.throughput import (
    ModelProfile,
    ProfileSet,
    SizeClass,
    assumed_of,
    builtin_profiles,
    builtin_speeds,
    known_gpus,
    match_gpu,
    profile_set,
)
from hetsched_core.throughput.builtin import gpu_counts, samples_per_s, speed_table
from hetsched_core.types import Layer
from tests.hetsched_core.worlds import cluster_of, on

CLUSTER = cluster_of(v0=("v100", 4), v1=("v100", 4), a0=("a100", 4), k=("tesla_k80", 8))


def profile(name: str) -> ModelProfile:
    return next(p for p in builtin_profiles() if p.name == name)


def rate(name: str, gpu: str) -> float:
    return samples_per_s(profile(name), match_gpu(gpu).spec, 1, 1)


@pytest.mark.parametrize(
    ("name", "images_per_s"),
    [("resnet50-imagenet", 1218), ("vgg11-imagenet", 954), ("vit-b16-food101", 393)],
)
def test_half_precision_rates_are_near_those_that_timm_measured_on_an_rtx_3090(
    name: str, images_per_s: float
) -> None:
    # Measured at other batch sizes (192 to 512), which weigh the update of the weights less.
    assert rate(name, "rtx30") == pytest.approx(images_per_s, rel=0.2)


@pytest.mark.parametrize(
    ("name", "gavels", "batch"),
    [
        ("cyclegan-256", "CycleGAN", 1),
        ("resnet18-cifar10", "ResNet-18 (batch size 128)", 128),
        ("resnet50-imagenet", "ResNet-50 (batch size 32)", 32),
    ],
)
def test_single_precision_rates_are_near_those_that_gavel_measured(
    data_dir: Path, name: str, gavels: str, batch: int
) -> None:
    path = data_dir / "throughputs/gavel_simulation_throughputs.json.gz"
    measured = json.loads(gzip.decompress(path.read_bytes()))
    for gpu, factor in (("v100", 1.25), ("p100", 1.25), ("k80", 2)):
        if gpu != "v100" or not profile(name).half:
            steps_per_s = measured[gpu][f"('{gavels}', 1)"]["null"]
            assert 1 / factor < rate(name, gpu) / (steps_per_s * batch) < factor


@pytest.mark.parametrize("gpu", [s.name for s in known_gpus() if s.memory_gb > 4])
def test_every_size_class_of_a_log_has_a_model_that_fits_every_gpu_type(gpu: str) -> None:
    fitting = {p.size for p in profile_set(ProfileSet.LOG) if rate(p.name, gpu) > 0}
    assert fitting == set(SizeClass)


def test_a_model_that_waits_for_its_data_is_as_slow_on_every_type() -> None:
    graphs = profile("fastgcn-cora")
    for gpu in ("h200", "k80"):
        assert rate(graphs.name, gpu) == pytest.approx(graphs.batch_size / graphs.data_s, rel=0.01)


def test_a_model_has_a_speed_where_it_fits_into_the_memory() -> None:
    for name, gpu, fits in (
        ("gpt2-medium-wikitext", "v100", False),
        ("gpt2-medium-wikitext", "a100", True),
        ("bert-base-512", "v100", True),
        ("bert-base-512", "nvidia_a100_1g.5gb", False),
        # Kept in half precision, activations fit where the cautious figure does not.
        ("vit-b16-food101", "gtx1080ti", False),
        ("vit-b16-food101-amp", "gtx1080ti", True),
    ):
        assert (rate(name, gpu) > 0) == fits
    assert rate("vit-b16-food101-amp", "a100") == rate("vit-b16-food101", "a100")


@pytest.mark.parametrize(
    ("gpu_hours", "size"),
    [(0, "S"), (0.999, "S"), (1, "M"), (9.999, "M"), (10, "L"), (50, "L"), (50.001, "XL")],
)
def test_the_size_classes_are_those_of_hops(gpu_hours: float, size: str) -> None:
    assert SizeClass.of(gpu_hours) == size


def test_more_workers_are_faster_together_and_slower_each() -> None:
    for model in builtin_profiles():
        table = speed_table(model, tuple(g.name for g in known_gpus()), gpu_counts(64))
        for speeds in (table.one_node, table.several_nodes):
            assert np.all(np.diff(speeds, axis=1) <= 0)
        # From one to two the averaging of gradients may cost more than the second GPU brings.
        assert np.all(np.diff(table.one_node * table.counts, axis=1)[:, 1:] >= 0)


def test_speeds_of_a_cluster_reach_from_one_gpu_to_all_of_them() -> None:
    found = builtin_speeds(CLUSTER, ["a100", "h100"])
    table = found.table("resnet50-imagenet")
    assert table.gpu_types == ("v100", "a100", "tesla_k80", "h100")
    assert table.counts[0] == 1
    assert table.counts[-1] >= CLUSTER.gpus
    assert np.all(table.layers == Layer.TRUTH)
    two = found.speed("resnet50-imagenet", on(v0=4, v1=2))
    v100 = match_gpu("v100").spec
    assert two == pytest.approx(6 * samples_per_s(profile("resnet50-imagenet"), v100, 6, 2))


def test_a_gpu_type_nothing_is_known_about_has_a_speed_and_is_reported() -> None:
    cluster = cluster_of(n=("mi250x", 4), m=("a100", 4))
    assert builtin_speeds(cluster).per_gpu("resnet50-imagenet", "mi250x", 1) > 0
    (sentence,) = assumed_of(cluster.gpu_types)
    assert "mi250x" in sentence


@pytest.mark.parametrize("most", [1, 2, 3, 5, 64, 100])
def test_gpu_counts_ascend_to_the_one_asked_for(most: int) -> None:
    counts = gpu_counts(most)
    assert counts[0] == 1 <= most <= counts[-1]
    assert list(counts) == sorted(set(counts))
