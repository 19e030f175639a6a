"""What an element, or one of its nodes, has of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

PART = "HETSCHED_PART"
"""Tells a launcher that srun has started which part of the run its element is."""


@dataclass(frozen=True)
class RunPart:
    """What one element has of a run: all of it where there is no other element.

    Attributes:
        first_rank, first_node: of its workers and nodes, among all of the run.
        gpus, nodes: of the whole run.
        meet: ADDRESS:PORT of rank 0.
    """

    first_rank: int
    first_node: int
    gpus: int
    nodes: int
    meet: str

    @property
    def address(self) -> str:
        """Where rank 0 is."""
        return self.meet.rpartition(":")[0]

    @property
    def port(self) -> str:
        """Where it waits for the others there."""
        return self.meet.rpartition(":")[2]

    def of_node(self, number: int, gpus: int) -> RunPart:
        """Return what the element's node of this number has, whose nodes have so many GPUs each."""
        first_rank, first_node = self.first_rank + number * gpus, self.first_node + number
        return replace(self, first_rank=first_rank, first_node=first_node)

    def environment(self, local: int, gpus: int) -> dict[str, str]:
        """Return what tells a worker of a node with so many its place, in torchrun's words."""
        return {
            "RANK": str(self.first_rank + local),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(self.gpus),
            "LOCAL_WORLD_SIZE": str(gpus),
            "GROUP_RANK": str(self.first_node),
            "GROUP_WORLD_SIZE": str(self.nodes),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": self.port,
        }

    def text(self) -> str:
        """Return it as the value of `PART`."""
        return f"{self.first_rank} {self.first_node} {self.gpus} {self.nodes} {self.meet}"

    @classmethod
    def of(cls, text: str) -> RunPart:
        """Read what `text` wrote."""
        *numbers, meet = text.split()
        first_rank, first_node, gpus, nodes = map(int, numbers)
        return cls(first_rank, first_node, gpus, nodes, meet)
