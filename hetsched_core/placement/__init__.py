"""Where jobs can go: free GPUs, and packing a queue onto them."""

from hetsched_core.placement.free import FreeGpus
from hetsched_core.placement.pack import Packing, pack

__all__ = ["FreeGpus", "Packing", "pack"]
