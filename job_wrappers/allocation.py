"""What Slurm has given to this run of a job."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Allocation:
    """One run of a job: which it is, and what it holds.

    Attributes:
        job: id of the job.
        run: number of the run, from 0; it rises with every requeue.
        nodes: the nodes as Slurm writes them, for example `gpu[01-03]`.
        node_count: how many they are.
        gpus_per_node: GPUs on each.
        nonce: names the job for good, since Slurm hands ids out again; "" outside hetsched.
        host: the node that this process is on.
    """

    job: str
    run: int
    nodes: str
    node_count: int
    gpus_per_node: int
    nonce: str
    host: str

    @property
    def gpus(self) -> int:
        """GPUs over all nodes."""
        return self.node_count * self.gpus_per_node

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Allocation:
        """Read the environment that Slurm gives to a batch script.

        `SLURM_GPUS` and `SLURM_NTASKS` are not looked at: they keep what was submitted.

        Raises:
            ValueError: this is no job with GPUs.
        """

        def number(name: str, least: int, default: str | None = None) -> int:
            text = environment.get(name, default)
            if text is None or not text.isdecimal() or int(text) < least:
                raise ValueError(f"{name}={text}: expected a number from {least} on; run in a job")
            return int(text)

        job = environment.get("SLURM_JOB_ID", "")
        if not job:
            raise ValueError("SLURM_JOB_ID is not set; run this in a job, by sbatch")
        nodes = environment.get("SLURM_JOB_NODELIST", "")
        return cls(
            job=job,
            run=number("SLURM_RESTART_COUNT", 0, "0"),
            nodes=nodes,
            node_count=number("SLURM_JOB_NUM_NODES", 1, "1"),
            gpus_per_node=number("SLURM_GPUS_ON_NODE", 1),
            nonce=environment.get("HETSCHED_NONCE", ""),
            host=environment.get("SLURMD_NODENAME") or os.uname().nodename,
        )


def gpu_type_of(node: str) -> str | None:
    """Ask Slurm for the type of a node's GPUs; None where it has none, or does not answer."""
    try:
        said = subprocess.run(
            ["scontrol", "show", "node", node], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"Gres=\S*?gpu:([^:,()\s]+):\d", said.stdout)
    return found[1] if found else None
