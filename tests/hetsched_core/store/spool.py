"""Spool files as a job of alice's writes them, and what the scheduler knows of its run."""

import json
import os
from pathlib import Path

from hetsched_core.records.spool import SCHEMA
from hetsched_core.store import ProfileKey, SpoolRun
from hetsched_core.types import Node

NOW = 1.76e9
ME = os.getuid()
RESNET = ProfileKey("resnet50", "alice")
N1, N2 = Node("n1", "a100", 4), Node("n2", "a100", 4)
RUN = SpoolRun(ME, "Qm9vIQ3xk2", RESNET, ((N1, 4),))
RUNS = {("7", 0): RUN}

Line = dict[str, object]


def start(**changes: object) -> Line:
    return {
        "type": "start",
        "schema": SCHEMA,
        "job": "7",
        "run": 0,
        "rank": 0,
        "world_size": 4,
        "nonce": RUN.nonce,
        "host": "n1",
        "pid": 4711,
        "at_s": NOW - 100,
        **changes,
    }


def progress(t_s: float, speed: float = 400.0, **changes: object) -> Line:
    return {
        "type": "progress",
        "t_s": t_s,
        "samples": 1000.0 * t_s,
        "samples_per_s": speed,
        "data_s": [],
        "wait_s": [],
        **changes,
    }


def profiled(t_s: float, **changes: object) -> Line:
    return {
        "type": "profile",
        "t_s": t_s,
        "gpu_type": "A100-SXM4-40GB",
        "gpus": 4,
        "nodes": 1,
        "batch_size": 64,
        "iterations": 20,
        "parameters": 25_557_032,
        "pattern": 1,
        "forward_s": 0.031,
        "backward_s": 0.058,
        "update_s": 0.004,
        "data_s": [0.011, 0.012, 0.013],
        "wait_s": [0.001, 0.001, 0.004],
        **changes,
    }


def averaged(seconds: float, **changes: object) -> Line:
    """A tenth of a billion parameters between two nodes, or `gpus` on so many `nodes`."""
    return {
        "type": "all_reduce",
        "t_s": 5.0,
        "backend": "nccl",
        "gpus": 2,
        "nodes": 2,
        "parameters": 100_000_000,
        "iterations": 10,
        "seconds": seconds,
        **changes,
    }


class Spool:
    """A folder of spool files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / str(ME)
        self.folder.mkdir(parents=True)

    def add(self, *lines: Line | bytes, name: str = "7.0.0.jsonl") -> Path:
        """Append lines to a file; bytes as they are, without a line break."""
        path = self.folder / name
        with path.open("ab") as file:
            for line in lines:
                file.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        return path

    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir())
