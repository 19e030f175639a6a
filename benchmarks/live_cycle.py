"""How long a cycle of the daemon takes on a real slurmctld with many nodes and waiting jobs.

A cycle is what the process does in one: the loop, the journal, and those who are told, while
ranges for starts are drawn beside it. What slurmctld was asked for meanwhile is told, too. Needs
what the testbed needs (docs/live/testbed.md).
Usage: python benchmarks/live_cycle.py
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hetsched_core.policy import make_policy
from hetsched_core.store import Mode, Store
from slurm_plugin.api.telemetry import Telemetry
from slurm_plugin.backend import Hold, SlurmSite, SlurmState, hold_named, open_backend
from slurm_plugin.backend.change import Change
from slurm_plugin.daemon import Daemon, DaemonMode
from slurm_plugin.daemon.process.configuration import DaemonConfiguration
from slurm_plugin.daemon.process.run import collect_seldom
from slurm_plugin.testbed import default_cache, fake_nodes, install
from tests.slurm_plugin.clusters import up

JOB = "#!/bin/bash\n#HETSCHED --gpu-set=4\nsleep 600\n"


class Timed:
    """A backend that notes how long its calls take."""

    def __init__(self, name: str) -> None:
        self._backend = open_backend(name)
        self.reads: list[float] = []
        self.changes: list[float] = []

    def read(self) -> SlurmState:
        begun = time.perf_counter()
        state = self._backend.read()
        self.reads.append(time.perf_counter() - begun)
        return state

    def site(self) -> SlurmSite:
        return self._backend.site()

    def script(self, job: str) -> str:
        return self._backend.script(job)

    def apply(self, change: Change) -> None:
        begun = time.perf_counter()
        self._backend.apply(change)
        self.changes.append(time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--policy", default="fifo")
    parser.add_argument("--cycles", type=int, default=60)
    chosen = parser.parse_args()
    collect_seldom()
    installed = install(default_cache())
    with (
        up(installed, fake_nodes(chosen.nodes)) as cluster,
        tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name,
    ):
        os.environ.update(cluster.environment())
        if installed.pyslurm:
            sys.path.append(str(installed.pyslurm))
        script = Path(name) / "job.sh"
        script.write_text(JOB)
        # Nothing is to begin before all wait.
        names = tuple(node.name for node in cluster.layout.nodes)
        open_backend(chosen.backend).apply(Hold(hold_named(1), names, 3600))
        if installed.pyslurm:
            submit(script, chosen.jobs)
        else:
            sbatch = f"seq {chosen.jobs} | xargs -P 4 -I@ sbatch -Q -o /dev/null {script}"
            subprocess.run(["bash", "-c", sbatch], check=True, stdout=subprocess.DEVNULL)
        measure(chosen.backend, chosen.jobs, chosen.policy, chosen.cycles, Path(name))


def submit(script: Path, jobs: int) -> None:
    """Submit a job many times, which through `sbatch` would take longer than all the rest."""
    import pyslurm

    describe = pyslurm.JobSubmitDescription
    for _ in range(jobs):
        describe(
            name="job",
            script=str(script),
            standard_output="/dev/null",
            working_directory="/tmp",
            environment={"PATH": "/usr/bin:/bin"},
        ).submit()


def calls() -> dict[str, int]:
    """Return how often slurmctld was asked for each thing since it came up."""
    told = subprocess.run(["sdiag"], check=True, capture_output=True, text=True).stdout
    by_type = told.partition("by message type")[2].partition("by user")[0]
    return {name: int(count) for name, count in re.findall(r"(\w+).*count:(\d+)", by_type)}


def measure(name: str, jobs: int, policy: str, many: int, folder: Path) -> None:
    backend = Timed(name)
    configuration = DaemonConfiguration(
        partitions=frozenset({"gpu"}),
        policy=policy,
        mode=DaemonMode.ENFORCE,
        socket=folder / "socket",
    )
    with Store.open(folder / "daemon.duckdb", Mode.WRITE) as store:
        daemon = Daemon(
            backend,
            make_policy(policy),
            configuration,
            mode=DaemonMode.ENFORCE,
            clock=time.time,
            sleep=time.sleep,
            store=store,
            stopwatch=time.perf_counter,
        )
        telemetry = Telemetry(configuration, time.time(), lambda: store, time.perf_counter)
        cycles, cpu, pushes, telling = [], [], [], []
        first_calls, since = calls(), time.monotonic()
        for _ in range(many):
            begun, used = time.perf_counter(), time.thread_time()
            with telemetry.standing_still():
                report = daemon.cycle()
                told = time.perf_counter()
                telemetry.note(daemon, report)
            ended = time.perf_counter()
            cpu.append(time.thread_time() - used)
            telling.append(ended - told)
            # What the policy takes is the policy's.
            cycles.append(ended - begun - (report.decision.plan.plan_s if report.decision else 0.0))
            pushes.append(len(report.changes))
            time.sleep(0.5)
        asked, took_s = calls(), time.monotonic() - since
        given = len(store.ranges(most=100_000))
        telemetry.close()
    rest = cycles[3:]
    write = sys.stdout.write
    write(f"{jobs} jobs, policy {policy}, backend {name}; {given} ranges for starts\n")
    write(f"first cycle {cycles[0] * 1000:.0f} ms with {pushes[0]} changes\n")
    write(
        f"later cycles: median {statistics.median(rest) * 1000:.0f} ms, "
        f"longest {max(rest) * 1000:.0f} ms with at most {max(pushes[3:])} changes\n"
    )
    still = [took_s for took_s, changes in zip(rest, pushes[3:], strict=True) if not changes]
    if still:
        write(f"cycles without a change: median {statistics.median(still) * 1000:.0f} ms\n")
    write(f"a cycle's own CPU time: median {statistics.median(cpu[3:]) * 1000:.0f} ms\n")
    write(
        f"telling of a cycle: median {statistics.median(telling[3:]) * 1000:.0f} ms, "
        f"longest {max(telling[3:]) * 1000:.0f} ms\n"
    )
    write(f"a read: median {statistics.median(backend.reads) * 1000:.1f} ms\n")
    if backend.changes:
        write(f"a change: median {statistics.median(backend.changes) * 1000:.2f} ms\n")
    write(f"asked of slurmctld in {took_s:.0f} s: {len(backend.reads)} reads, ")
    write(f"{len(backend.changes)} changes, and in its own count (sdiag)\n")
    for rpc, count in sorted(asked.items()):
        if (more := count - first_calls.get(rpc, 0)) > 0:
            write(f"  {rpc} {more}\n")
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    write(f"memory: {memory_mb:.0f} MB at most; load {os.getloadavg()[0]:.1f}\n")


if __name__ == "__main__":
    main()
