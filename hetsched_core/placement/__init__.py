"""Where jobs can go: free GPUs, the ways to fit, and packing a queue."""

from hetsched_core.placement.free import FreeGpus
from hetsched_core.placement.pack import Packing, pack
from hetsched_core.placement.strict_order import StrictOrder
from hetsched_core.placement.ways import Way, rigid_way, ways_to_fit

__all__ = ["FreeGpus", "Packing", "StrictOrder", "Way", "pack", "rigid_way", "ways_to_fit"]
