"""The built-in models: what a job of a log may be taken for, where the log does not say."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files


class SizeClass(StrEnum):
    """Class of a job by the GPU hours it takes (Hops, section 4.1)."""

    SMALL = "S"
    MEDIUM = "M"
    LARGE = "L"
    EXTRA_LARGE = "XL"

    @classmethod
    def of(cls, gpu_hours: float) -> SizeClass:
        """Return the class of a job that took this many GPU hours."""
        if gpu_hours < 1:
            return cls.SMALL
        if gpu_hours < 10:
            return cls.MEDIUM
        return cls.LARGE if gpu_hours <= 50 else cls.EXTRA_LARGE


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """One model on one data set, as far as its speed goes.

    `parameters` and `activations` count elements, `forward_flops` floating-point operations (two
    for a multiply-accumulate); the last two are of one sample. `batch_size` is per GPU. `half`
    means mixed precision on GPUs with tensor cores.
    """

    name: str
    model: str
    dataset: str
    size: SizeClass
    parameters: float
    forward_flops: float
    activations: float
    batch_size: int
    half: bool
    source: str


@cache
def builtin_profiles() -> tuple[ModelProfile, ...]:
    """Return the models of `profiles.toml`, in its order."""
    text = files("hetsched_core.throughput").joinpath("profiles.toml").read_text(encoding="utf-8")
    return tuple(
        ModelProfile(
            name=name,
            model=entry["model"],
            dataset=entry["dataset"],
            size=SizeClass(entry["size"]),
            parameters=entry["parameters"] * 1e6,
            forward_flops=entry["forward_gmacs"] * 2e9,
            activations=entry["activations"] * 1e6,
            batch_size=entry["batch_size"],
            half=entry["half"],
            source=entry["source"],
        )
        for name, entry in tomllib.loads(text).items()
    )
