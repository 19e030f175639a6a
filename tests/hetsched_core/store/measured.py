"""What was measured, of the profile of one user."""

from hetsched_core.store import BasicTimes, Measurement, Moments, ProfileKey
from hetsched_core.throughput.iteration import Pattern

RESNET = ProfileKey("resnet50", "alice")
TIMES = BasicTimes(
    RESNET,
    gpu_type="a100",
    batch_size=64,
    parameters=25_000_000,
    pattern=Pattern.SERIAL_DATA,
    forward_s=Moments(1, 0.1),
    backward_s=Moments(1, 0.2),
    update_s=Moments(1, 0.01),
    at_s=1e9,
)


def measured(
    speed: float | Moments,
    *nodes: str,
    gpus: int = 1,
    profile: ProfileKey = RESNET,
    gpu_type: str = "a100",
    at_s: float = 1e9,
) -> Measurement:
    """One measurement; on one node that is not known if no nodes are given."""
    moments = speed if isinstance(speed, Moments) else Moments(1, speed)
    return Measurement(profile, gpu_type, gpus, max(1, len(nodes)), moments, at_s, nodes)
