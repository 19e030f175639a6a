"""The figures of the built-in models, counted again, and the tables that they come from."""

from dataclasses import replace

import pytest

from hetsched_core.throughput import (
    ModelProfile,
    ProfileSet,
    SizeClass,
    builtin_profiles,
    gavel_profile,
    profile_set,
)
from tests.hetsched_core.throughput.architectures import (
    convnext_base,
    densenet161,
    lstm_language_model,
    mobilenet_v2,
    regnety_3_2gf,
    resnet,
    transformer,
    vgg,
)

PROFILES = {profile.name: profile for profile in builtin_profiles()}

COUNTED = {
    "resnet18-cifar10": resnet((2, 2, 2, 2), bottleneck=False, image=32, classes=10),
    "resnet18-imagenet": resnet((2, 2, 2, 2), bottleneck=False, image=224, classes=1000),
    "resnet50-imagenet": resnet((3, 4, 6, 3), bottleneck=True, image=224, classes=1000),
    "resnet50-cifar10": resnet((3, 4, 6, 3), bottleneck=True, image=32, classes=10),
    "resnet50-cifar100": resnet((3, 4, 6, 3), bottleneck=True, image=32, classes=100),
    "vgg11-imagenet": vgg((1, 1, 2, 2, 2), image=224, classes=1000),
    "vgg13-imagenet": vgg((2, 2, 2, 2, 2), image=224, classes=1000),
    "vgg11-cifar10": vgg((1, 1, 2, 2, 2), image=32, classes=10),
    "vgg13-cifar10": vgg((2, 2, 2, 2, 2), image=32, classes=10),
    "vgg19-cifar10": vgg((2, 2, 4, 4, 4), image=32, classes=10),
    "mobilenetv2-imagenet": mobilenet_v2(image=224, classes=1000),
    "mobilenetv2-cifar10": mobilenet_v2(image=32, classes=10),
    "densenet161-imagenet": densenet161(image=224, classes=1000),
    "densenet161-cifar10": densenet161(image=32, classes=10),
    "convnext-base-imagenet": convnext_base(image=224, classes=1000),
    "convnext-base-cifar10": convnext_base(image=32, classes=10),
    "regnety-imagenet": regnety_3_2gf(image=224, classes=1000),
    "regnety-cifar10": regnety_3_2gf(image=32, classes=10),
    "transformer-wmt16": transformer(32, 512, encoder=6, decoder=6, vocabulary=37_000),
    "mima-weather": transformer(24, 512, encoder=6, decoder=6),
    "lstm-wikitext2": lstm_language_model(35, 200, layers=2, vocabulary=33_278),
}
ENCODERS = {
    "bert-base-512": transformer(512, 768, encoder=12),
    "bert-base-squad": transformer(384, 768, encoder=12),
    "distilbert-imdb": transformer(256, 768, encoder=6),
    "gpt2-medium-wikitext": transformer(1024, 1024, encoder=24, vocabulary=50_257),
}
"""Their parameters are published: they have embeddings of positions and heads beside these."""


@pytest.mark.parametrize("name", [*COUNTED, *ENCODERS])
def test_operations_activations_and_parameters_are_those_of_the_layers(name: str) -> None:
    profile, counts = PROFILES[name], {**COUNTED, **ENCODERS}[name]
    assert profile.forward_flops == pytest.approx(2 * counts.macs, rel=0.01)
    assert profile.activations == pytest.approx(counts.activations, rel=0.01)
    if name in COUNTED:
        assert profile.parameters == pytest.approx(counts.parameters, rel=0.01)


def test_the_models_drawn_for_logs_are_the_same_dozen_for_ever() -> None:
    drawn = profile_set(ProfileSet.LOG)
    assert [f"{p.size} {p.name}" for p in drawn] == [
        *("S resnet18-cifar10", "S lstm-ptb", "S neumf-ml20m"),
        *("M vit-b16-food101", "M wav2vec2-base", "M unet-256"),
        *("L vgg11-imagenet", "L distilbert-imdb", "L cyclegan-256"),
        *("XL resnet50-imagenet", "XL bert-base-512", "XL gpt2-medium-wikitext"),
    ]
    assert builtin_profiles()[: len(drawn)] == drawn
    assert {p.kept_bytes for p in drawn} == {(8.0, 16.0)}


def rows(profiles: tuple[ModelProfile, ...]) -> set[tuple[str, str, str, int]]:
    """Model, data set and class as a paper's table has them, and the batch size."""
    return {(p.model, p.dataset.partition(",")[0], p.size.value, p.batch_size) for p in profiles}


def test_the_models_of_hops_are_the_rows_of_its_table_2() -> None:
    imagenet_and_cifar10 = (
        ("ResNet-18", "XL", "S", 128, 256),
        ("ResNet-50", "XL", "S", 128, 256),
        ("VGG-11", "L", "S", 32, 128),
        ("VGG-13", "L", "S", 32, 128),
        ("ConvNeXt-Base", "L", "S", 32, 64),
        ("DenseNet-161", "L", "S", 32, 64),
        ("MobileNetV2", "M", "S", 64, 64),
        ("RegNetY-3.2GF", "L", "M", 32, 32),
    )
    assert rows(profile_set(ProfileSet.HOPS)) == {
        *((model, "ImageNet", size, batch) for model, size, _, batch, _ in imagenet_and_cifar10),
        *((model, "CIFAR-10", size, batch) for model, _, size, _, batch in imagenet_and_cifar10),
        ("DistilBERT base", "IMDb", "L", 128),
        ("ViT-B/16", "Food-101", "M", 48),
        ("MacBERT base", "C3", "M", 8),
        ("wav2vec 2.0 Base", "Common Language", "M", 16),
        ("GPT-2 Medium", "WikiText-103", "L", 8),
    }


def test_the_models_of_hadar_have_the_classes_of_its_tables_ii_and_iii() -> None:
    both = {"resnet18-cifar10": "S", "lstm-wikitext2": "L", "transformer-multi30k": "L"}
    tables = {
        ProfileSet.HADAR: {**both, "resnet50-imagenet-fp32": "XL", "cyclegan-256": "M"},
        ProfileSet.HADARE: {**both, "recoder-ml20m": "XL", "mima-weather": "M"},
    }
    for name, classes in tables.items():
        assert {p.name: p.size.value for p in profile_set(name)} == classes


def test_the_models_of_hare_have_the_batch_sizes_of_its_table_2() -> None:
    assert {p.name: p.batch_size for p in profile_set(ProfileSet.HARE)} == {
        "vgg19-cifar10": 128,
        "resnet50-cifar100": 64,
        "inceptionv3-cifar100": 32,
        "bert-base-squad": 32,
        "transformer-wmt16": 128,
        "deepspeech-commonvoice": 8,
        "fastgcn-cora": 128,
        "graphsage-cora": 16,
    }


def test_every_model_has_a_source_of_its_own_and_a_name_of_its_own() -> None:
    assert len(PROFILES) == len(builtin_profiles())
    assert all(profile.source for profile in PROFILES.values())


@pytest.mark.parametrize(
    ("name", "model", "batch_size", "size"),
    [
        ("LM (batch size 80)", "lstm-wikitext2", 80, SizeClass.LARGE),
        ("CycleGAN", "cyclegan-256", 1, SizeClass.MEDIUM),
    ],
)
def test_a_name_of_gavels_is_the_built_in_model_at_that_batch_size(
    name: str, model: str, batch_size: int, size: SizeClass
) -> None:
    expected = replace(PROFILES[model], name=name, batch_size=batch_size, size=size)
    assert gavel_profile(name) == expected
    assert gavel_profile("A3C") is gavel_profile("LM (batch size none)") is None
