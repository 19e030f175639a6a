"""Speeds of the built-in models on a cluster: the truth of a replay that brings none of its own.

A pass over a batch takes the time of its arithmetic plus that of its memory traffic: most
arithmetic happens in matrix products, most traffic in the elementwise layers between them, and
the two follow each other. The constants are fitted to public measurements:

- half precision: 0.75 of the peak and 32 bytes per activation and iteration reproduce timm's
  training rates on an RTX 3090 (huggingface/pytorch-image-models,
  results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv): ResNet-50 1,218 images/s, VGG-11 954,
  ViT-B/16 393;
- single precision: 0.55 of the peak and twice the bytes reproduce Gavel's throughputs on P100 and
  V100 (stanford-futuredata/gavel, simulation_throughputs.json): CycleGAN, ResNet-18, ResNet-50.

A backward pass is two forward passes (Kaplan et al. 2020, section 2.1). Data is loaded beside the
step before, and mostly takes no time; workers are taken to reach the end of an iteration together.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hetsched_core.throughput.gpus import GpuSpec, match_gpu
from hetsched_core.throughput.iteration import (
    Bandwidths,
    IterationTimes,
    Pattern,
    communication_s,
    iteration_s,
)
from hetsched_core.throughput.profiles import ModelProfile, builtin_profiles
from hetsched_core.types import Cluster, Layer, Speeds, SpeedTable

HALF_EFFICIENCY = 0.75
SINGLE_EFFICIENCY = 0.55
TRAFFIC_BYTES = 32.0
"""Bytes moved per activation in one forward and one backward pass, in half precision."""

STATE_BYTES = 18.0
"""Bytes of memory per parameter: FP32 weight, gradient and two moments of Adam, FP16 weight."""

UPDATE_BYTES = 28.0
"""Bytes moved per parameter by Adam: weight and two moments read and written, gradient read."""

USABLE_MEMORY = 0.9
"""Share of a GPU's memory that is left for the model beside CUDA's context and fragmentation."""

GRADIENT_BYTES = 4.0
COMMUNICATION_EFFICIENCY = 0.8


def fits(profile: ModelProfile, gpu: GpuSpec) -> bool:
    """Whether one worker with its batch fits into the memory of one GPU."""
    kept_bytes = profile.kept_bytes[0 if _half(profile, gpu) else 1]
    kept = profile.activations * profile.batch_size * kept_bytes
    return profile.parameters * STATE_BYTES + kept <= gpu.memory_gb * 1e9 * USABLE_MEMORY


def iteration_times(profile: ModelProfile, gpu: GpuSpec) -> IterationTimes:
    """Return the times of one iteration of `batch_size` samples on one GPU."""
    if _half(profile, gpu):
        flops, width = gpu.half_tflops * 1e12 * HALF_EFFICIENCY, 1
    else:
        flops, width = gpu.single_tflops * 1e12 * SINGLE_EFFICIENCY, 2
    bandwidth = gpu.memory_gb_s * 1e9
    # A third of the traffic is the forward pass's, as of the arithmetic.
    traffic = profile.activations * TRAFFIC_BYTES * width / 3
    forward = profile.batch_size * (profile.forward_flops / flops + traffic / bandwidth)
    return IterationTimes(
        data_s=profile.data_s,
        forward_s=forward,
        backward_s=2 * forward,
        update_s=profile.parameters * UPDATE_BYTES / bandwidth,
        sync_wait_s=0.0,
    )


def bandwidths(gpu: GpuSpec) -> Bandwidths:
    """Return the parameters/s that a ring all-reduce averages between GPUs of this type.

    Each worker sends 2(N-1)/N of its gradients (Patarasu and Yuan 2009); Hops keeps the (N-1)/N in
    formula (4) and the 2 is in the bandwidth.
    """
    per_parameter = 2 * GRADIENT_BYTES / COMMUNICATION_EFFICIENCY
    return Bandwidths(
        link=gpu.link_gb_s * 1e9 / per_parameter, network=gpu.network_gb_s * 1e9 / per_parameter
    )


def samples_per_s(profile: ModelProfile, gpu: GpuSpec, gpus: int, nodes: int) -> float:
    """Return samples/s per GPU, 0 where the model does not fit into the memory."""
    if not fits(profile, gpu):
        return 0.0
    communication = communication_s(profile.parameters, gpus, nodes, bandwidths(gpu))
    times = iteration_times(profile, gpu)
    return profile.batch_size / iteration_s(times, communication, Pattern.OVERLAPPED_DATA)


def _half(profile: ModelProfile, gpu: GpuSpec) -> bool:
    return profile.half and gpu.half_tflops > 0


def builtin_speeds(cluster: Cluster, other_types: Iterable[str] = ()) -> Speeds:
    """Return the speeds of every built-in model on a cluster.

    Args:
        cluster: Its GPU types get speeds for 1 GPU up to all of them.
        other_types: GPU types beside the cluster's, such as those on which a log's jobs ran.
    """
    return Speeds(cluster, builtin_tables((*cluster.gpu_types, *other_types), cluster.gpus))


def builtin_tables(gpu_types: Iterable[str], most: int) -> dict[str, SpeedTable]:
    """Return the speeds of every built-in model by name, for 1 to `most` GPUs of these types."""
    types, counts = tuple(dict.fromkeys(gpu_types)), gpu_counts(most)
    return {profile.name: speed_table(profile, types, counts) for profile in builtin_profiles()}


def assumed_of(gpu_types: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each type of which more is assumed than is published."""
    found = (match_gpu(name).assumed for name in dict.fromkeys(gpu_types))
    return tuple(f"{text}." for text in found if text)


def speed_table(
    profile: ModelProfile, gpu_types: tuple[str, ...], counts: tuple[int, ...]
) -> SpeedTable:
    """Return samples/s per GPU of a model on these types, at these GPU counts."""
    one_node, several_nodes = (
        np.array(
            [
                [samples_per_s(profile, match_gpu(t).spec, n, nodes) for n in counts]
                for t in gpu_types
            ]
        )
        for nodes in (1, 2)
    )
    return SpeedTable(
        gpu_types=gpu_types,
        counts=np.array(counts, dtype=np.int64),
        one_node=one_node,
        several_nodes=several_nodes,
        layers=np.full(one_node.shape, Layer.TRUTH, dtype=np.int8),
        batch_size=profile.batch_size,
    )


def gpu_counts(most: int) -> tuple[int, ...]:
    """Return 1, 2, 3, 4, 6, 8, 12, 16, ... up to the first that is at least `most`.

    Between them speeds are interpolated; (N-1)/N bends too little there to matter.
    """
    counts = [1, 2, 3]
    while counts[-1] < most:
        counts.append(counts[-2] * 2)
    return tuple(counts)
