"""What it costs that one Slurm job takes only one node, or the same count on several.

Replays the bundled log and a generated workload of jobs that accept several counts, under hops,
with every shape and with those of the live daemon. Usage: python benchmarks/live_shapes.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

from hetsched_core.policy import make_policy
from hetsched_core.replay import replay
from hetsched_core.simulate import Settings
from hetsched_core.traces.cluster_file import read_cluster
from hetsched_core.traces.load import Loaded, LoadOptions, load_workload
from hetsched_core.traces.sacct import SacctOptions
from hetsched_core.types import ALL_SHAPES
from slurm_plugin.daemon.settings import LIVE_SHAPES

BUNDLED = Path(__file__).parents[1] / "hetsched_core/traces/bundled"
CLUSTER = "--gpus 64 --types a100,v100,t4"
WORKLOAD = "--jobs 2000 --load 0.9 --elastic-share 1 --models hops"


def main() -> None:
    write = sys.stdout.write
    write(
        f"{'':<28}{'avg JCT h':>10}{'p99 JCT h':>10}{'wait h':>8}{'fragments':>10}{'restarts':>9}\n"
    )
    for name, loaded in workloads():
        for label, shapes in (("all", ALL_SHAPES), ("daemon's", LIVE_SHAPES)):
            settings = Settings(grace_s=30.0, shapes=shapes)
            (result,) = replay(loaded, {"hops": make_policy("hops")}, settings)
            found = result.measures
            hours = (found.avg_jct_s or 0.0) / 3600, (found.p99_jct_s or 0.0) / 3600
            waited_h = (found.avg_wait_s or 0.0) / 3600
            write(
                f"{name:<18}{label:<10}{hours[0]:>10.3f}{hours[1]:>10.2f}{waited_h:>8.3f}"
                f"{found.avg_fragments or 0.0:>10.2f}{found.restarts:>9}\n"
            )
            sys.stdout.flush()


def workloads() -> Iterator[tuple[str, Loaded]]:
    """Yield the two workloads, with the clusters they run on."""
    log, nodes = [BUNDLED / "sacct.txt"], read_cluster(BUNDLED / "cluster.toml")
    sacct = SacctOptions(zone=ZoneInfo("UTC"))
    for name, elastic in (("bundled", False), ("the same, elastic", True)):
        yield name, load_workload(log, nodes, LoadOptions(elastic=elastic, sacct=sacct))
    with tempfile.TemporaryDirectory() as folder:
        cluster, jobs = Path(folder) / "cluster.toml", Path(folder) / "jobs.jsonl"
        cluster.write_text(hetsched("cluster", "generate", *CLUSTER.split()))
        hetsched("workload", "generate", "--cluster", str(cluster), *WORKLOAD.split(), str(jobs))
        yield "generated", load_workload([jobs], read_cluster(cluster))


def hetsched(*words: str) -> str:
    command = [sys.executable, "-c", "from hetsched_core.cli import main; main()", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
