"""Heterogeneity-aware scheduling of deep-learning jobs: everything that needs no Slurm.

A scheduler is a pure function from what is known now to what should be running,
``Policy.plan(snapshot) -> Plan``; the same function runs on a simulated and on a real cluster.
Nothing here imports Slurm or torch, opens a socket, starts a process or reads a clock.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """Give ``__version__``, read from the installed package only when somebody asks."""
    if name == "__version__":
        from importlib.metadata import version

        return version("hetsched")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
