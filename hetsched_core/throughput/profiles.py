"""The built-in models: what jobs of logs, of the papers and of generated workloads compute."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

_GAVEL_NAME = re.compile(r"(?P<model>.+?)(?: \(batch size (?P<batch>[1-9]\d{0,5})\))?")


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


class ProfileSet(StrEnum):
    """Which models a workload is made of; `profiles.toml` names the table of each paper."""

    LOG = "log"
    HOPS = "hops"
    HADAR = "hadar"
    HADARE = "hadare"
    HARE = "hare"


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """One model on one data set, as far as its speed goes.

    `size` is the class of its jobs. `parameters` and `activations` count elements, `forward_flops`
    floating-point operations (two for a multiply-accumulate); the last two are of one sample.
    `batch_size` is per GPU. `half` means mixed precision on GPUs with tensor cores. `kept_bytes`
    per activation wait in memory for the backward pass, with and without tensor cores. `data_s` is
    the CPU time for the data of one iteration. `gavel` is the model's name in Gavel's tables.
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
    kept_bytes: tuple[float, float] = (8.0, 16.0)
    data_s: float = 0.0
    gavel: str = ""


@cache
def builtin_profiles() -> tuple[ModelProfile, ...]:
    """Return the models of `profiles.toml`, in its order, in the class of their first set."""
    return tuple(profile for profile, _ in _read())


@cache
def profile_set(name: ProfileSet) -> tuple[ModelProfile, ...]:
    """Return the models of a set, in the order of `profiles.toml`, in the class they have there."""
    return tuple(replace(p, size=sizes[name]) for p, sizes in _read() if name in sizes)


@cache
def gavel_profile(name: str) -> ModelProfile | None:
    """Return the model that a name in Gavel's tables stands for, such as `LM (batch size 20)`.

    It has that batch size, and the class of Hadar's tables. None: there is no such model here.
    """
    match = _GAVEL_NAME.fullmatch(name)
    for profile, sizes in _read():
        if match and profile.gavel == match["model"]:
            size = sizes.get(ProfileSet.HADAR) or sizes[ProfileSet.HADARE]
            batch_size = int(match["batch"] or profile.batch_size)
            return replace(profile, name=name, size=size, batch_size=batch_size)
    return None


@cache
def _read() -> tuple[tuple[ModelProfile, dict[ProfileSet, SizeClass]], ...]:
    """Return the models, each with its sets and its class in them."""
    text = files("hetsched_core.throughput").joinpath("profiles.toml").read_text(encoding="utf-8")
    entries = tomllib.loads(text)
    read = []
    for name, own in entries.items():
        entry = {**entries[own["like"]], **own} if "like" in own else own
        sizes = {ProfileSet(key): SizeClass(size) for key, size in entry["sets"].items()}
        read.append((_profile(name, next(iter(sizes.values())), entry), sizes))
    return tuple(read)


def _profile(name: str, size: SizeClass, entry: dict[str, Any]) -> ModelProfile:
    with_tensor_cores, without = entry.get("kept_bytes", (8, 16))
    return ModelProfile(
        name=name,
        model=entry["model"],
        dataset=entry["dataset"],
        size=size,
        parameters=entry["parameters"] * 1e6,
        forward_flops=entry["forward_gmacs"] * 2e9,
        activations=entry["activations"] * 1e6,
        batch_size=entry["batch_size"],
        half=entry["half"],
        source=entry["source"],
        kept_bytes=(float(with_tensor_cores), float(without)),
        data_s=entry.get("data_ms", 0) / 1e3,
        gavel=entry.get("gavel", ""),
    )
