"""What Slurm has given to this run of a job."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

MOST_GPUS = 256
"""On a node: more are a mistake, and would be as many processes."""

_JOB = re.compile(r"[0-9A-Za-z_+-]{1,64}")


@dataclass(frozen=True)
class Allocation:
    """One run of a job: which it is, and what it holds.

    Attributes:
        job: the id by which hetsched knows the job: of an element of an array `ARRAY_ELEMENT`; of
            the first element of a job that is an array itself (`--gpu-shapes=any`, `--copies`), and
            speaks for it, the array's.
        element: the id by which Slurm knows this run alone.
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
    element: str = ""

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

        def number(name: str, least: int, most: int, default: str | None = None) -> int:
            text = environment.get(name, default)
            # So many digits at most: isdecimal() knows more than ASCII's, and int() takes them all.
            fits = text is not None and re.fullmatch(r"[0-9]{1,9}", text)
            if text is None or not fits or not least <= int(text) <= most:
                shown = "is not set" if text is None else f"is {text[:40]!r}"
                raise ValueError(
                    f"{name} {shown}: expected a number from {least} to {most}, which Slurm gives "
                    "to a job with GPUs; run this in one"
                )
            return int(text)

        job = environment.get("SLURM_JOB_ID", "")
        if not job:
            raise ValueError("SLURM_JOB_ID is not set; run this in a job, by sbatch")
        if not _JOB.fullmatch(job):
            raise ValueError(f"SLURM_JOB_ID is {job[:40]!r}: expected a job id as Slurm gives it")
        nodes = environment.get("SLURM_JOB_NODELIST", "")
        return cls(
            job=_name(job, environment),
            element=job,
            run=number("SLURM_RESTART_COUNT", 0, 9_999_999, "0"),
            nodes=nodes,
            node_count=number("SLURM_JOB_NUM_NODES", 1, 100_000, "1"),
            gpus_per_node=number("SLURM_GPUS_ON_NODE", 1, MOST_GPUS),
            nonce=environment.get("HETSCHED_NONCE", ""),
            host=environment.get("SLURMD_NODENAME") or os.uname().nodename,
        )


def _name(job: str, environment: Mapping[str, str]) -> str:
    """Return the id by which hetsched knows a job."""
    array, element = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    if not array:
        return job
    whole = not environment.keys().isdisjoint(("HETSCHED_ELEMENTS", "HETSCHED_COPIES"))
    name = array if whole and element == "0" else f"{array}_{element}"
    if not _JOB.fullmatch(name):
        raise ValueError(f"SLURM_ARRAY_JOB_ID is {array[:40]!r}: expected a job id")
    return name
