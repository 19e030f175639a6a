"""How fast a training job runs on a given number of GPUs of a given type.

`builtin_speeds` is the whole of it for a replay: speeds of well-known models on the GPU types of a
cluster, from published facts through a roofline and the iteration time of Hops.
"""

from hetsched_core.throughput.builtin import assumed_of, builtin_speeds, builtin_tables
from hetsched_core.throughput.gpus import GpuMatch, GpuSpec, known_gpus, match_gpu
from hetsched_core.throughput.profiles import (
    ModelProfile,
    ProfileSet,
    SizeClass,
    builtin_profiles,
    gavel_profile,
    profile_set,
)

__all__ = [
    "GpuMatch",
    "GpuSpec",
    "ModelProfile",
    "ProfileSet",
    "SizeClass",
    "assumed_of",
    "builtin_profiles",
    "builtin_speeds",
    "builtin_tables",
    "gavel_profile",
    "known_gpus",
    "match_gpu",
    "profile_set",
]
