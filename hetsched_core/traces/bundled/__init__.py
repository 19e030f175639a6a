"""A generated Slurm log of several days and its cluster, for a first replay and for tests."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

_FOLDER = Path(str(files(__name__)))


def log_path() -> Path:
    """Return the path of `sacct.txt`, in the form that sacct writes."""
    return _FOLDER / "sacct.txt"


def cluster_path() -> Path:
    """Return the path of `cluster.toml`, the cluster on which the log was written."""
    return _FOLDER / "cluster.toml"
