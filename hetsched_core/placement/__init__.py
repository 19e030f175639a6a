"""Where jobs can go: free GPUs, the ways to fit, and packing a queue."""

from hetsched_core.placement.free import FreeGpus
from hetsched_core.placement.pack import Packing, pack
from hetsched_core.placement.turns import InTurn
from hetsched_core.placement.ways import Way, rigid_way, ways_to_fit

__all__ = ["FreeGpus", "InTurn", "Packing", "Way", "pack", "rigid_way", "ways_to_fit"]
