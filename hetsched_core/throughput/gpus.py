"""What is published about GPU types, and how a name in a log finds its type.

A name is normalised: lower case, each run of other characters than letters and digits one hyphen,
vendor words (`nvidia`, `tesla`, `geforce`, `quadro`, `gpu`) dropped from its front. It means the
type with the longest alias that it begins with and that no digit follows: `nvidia_a100-sxm4-40gb`
is `a100`, `A100-SXM4-80GB` is `a100_80`, `a4000` is not `a40`.

Two assumptions keep a replay going where nothing is published, and each says so:

- A MIG slice (`...3g.40gb`) has 3/7 of its GPU's compute rate and memory bandwidth, the memory
  that it names, and talks to others over PCIe.
- A type that matches nothing is as fast as `FALLBACK`.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

FALLBACK = "v100"
"""The GPU type that stands in for a type nothing is known about."""

PCIE_GB_S = 16.0

_VENDOR_WORDS = re.compile(r"^(?:(?:nvidia|tesla|geforce|quadro|gpu)-)+")
_MIG_SLICE = re.compile(r"(?<!\d)([1-7])g\.(\d{1,3})gb")


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """Peak rates of one GPU type: TFLOP/s, GB and GB/s.

    The rates are those of matrix products in single precision (TF32 where there is) and in half
    precision on tensor cores (0 without). `link_gb_s` is one direction between two GPUs of a node,
    `network_gb_s` between two nodes.
    """

    name: str
    single_tflops: float
    half_tflops: float
    memory_gb: float
    memory_gb_s: float
    link_gb_s: float
    network_gb_s: float
    aliases: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class GpuMatch:
    """The published type that a name was taken for; `assumed` says what is not certain about it."""

    name: str
    spec: GpuSpec
    assumed: str = ""


@cache
def known_gpus() -> tuple[GpuSpec, ...]:
    """Return every GPU type of `gpus.toml`, in its order."""
    text = files("hetsched_core.throughput").joinpath("gpus.toml").read_text(encoding="utf-8")
    return tuple(
        GpuSpec(name=name, aliases=tuple(entry.pop("aliases")), **entry)
        for name, entry in tomllib.loads(text).items()
    )


@cache
def match_gpu(name: str) -> GpuMatch:
    """Return what is published about the GPU type called `name`; never fails."""
    spec = _published(name)
    slice_ = _MIG_SLICE.search(name.lower())
    if slice_:
        whole = spec or _by_name(FALLBACK)
        share, memory_gb = int(slice_[1]) / 7, float(slice_[2])
        part = replace(
            whole,
            single_tflops=whole.single_tflops * share,
            half_tflops=whole.half_tflops * share,
            memory_gb=memory_gb,
            memory_gb_s=whole.memory_gb_s * share,
            link_gb_s=min(whole.link_gb_s, PCIE_GB_S),
        )
        return GpuMatch(
            name,
            part,
            f"GPU type {name!r} is taken for a MIG slice: {slice_[1]}/7 of the speed of "
            f"{whole.name}, {memory_gb:g} GB",
        )
    if spec is None:
        return GpuMatch(
            name,
            _by_name(FALLBACK),
            f"GPU type {name!r} is not known: it is taken to be as fast as {FALLBACK}",
        )
    return GpuMatch(name, spec)


def memory_gb(name: str) -> float | None:
    """Return the memory of one GPU of the type called `name`, None where nothing is published."""
    slice_ = _MIG_SLICE.search(name.lower())
    if slice_:
        return float(slice_[2])
    spec = _published(name)
    return None if spec is None else spec.memory_gb


def _published(name: str) -> GpuSpec | None:
    """Return the type with the longest alias that the normalised name begins with."""
    for spec in known_gpus():
        if name == spec.name:
            return spec
    normalised = _VENDOR_WORDS.sub("", re.sub(r"[^a-z0-9]+", "-", name.lower()))
    found = [
        (len(alias), spec)
        for spec in known_gpus()
        for alias in spec.aliases
        if normalised.startswith(alias) and not normalised[len(alias) :][:1].isdigit()
    ]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _by_name(name: str) -> GpuSpec:
    return next(spec for spec in known_gpus() if spec.name == name)
