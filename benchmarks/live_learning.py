"""What it costs the daemon to hear running jobs, and to record a decision. Needs no Slurm.

Usage: python benchmarks/live_learning.py [--jobs 2000] [--nodes 250]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from immutables import Map

from hetsched_core.policy import make_policy
from hetsched_core.records.decision_record import DecisionWriter, differences, read_decision
from hetsched_core.store import Mode, Store
from hetsched_core.types import NodeCondition, Round, Snapshot, Trigger
from slurm_plugin.backend import JobState, SlurmJob, SlurmNode, SlurmState, hold_named
from slurm_plugin.daemon import DaemonSettings
from slurm_plugin.daemon.speeds import LiveSpeeds
from slurm_plugin.daemon.spool.listening import Listener
from slurm_plugin.daemon.spool.moves import Account, SpoolFolder
from slurm_plugin.daemon.spool.spool import Spool
from slurm_plugin.daemon.world import LiveWorld

ME = Account(os.getuid(), os.getgid())
NOW = 1.76e9
GPU = frozenset({"gpu"})


def job(number: int, nodes: int) -> SlurmJob:
    """One of many jobs, with a GPU each and 20 profiles in all."""
    words = {"nonce": f"nonce{number:08d}", "gpu-set": "1", "can-checkpoint": True}
    mark = "hetsched/2 " + json.dumps(words | {"profile-key": f"net{number % 20}"})
    where = (f"n{number % nodes}",)
    return SlurmJob(
        str(number), "job", "ann", "lab", "gpu", JobState.RUNNING, "None", mark, where, where,
        1, ("v100",), NOW - 60, NOW - 60, NOW - 50, None, 3600.0, 0, False, cpus=1,
        partitions=("gpu",), reservation=hold_named(1),
    )  # fmt: skip


def write(folder: Path, number: int, samples: float) -> None:
    """Let a job tell how far it is."""
    path = folder / str(ME.uid) / f"{number}.0.0.jsonl"
    start = {"type": "start", "schema": "hetsched-spool/1", "job": str(number), "run": 0, "rank": 0}
    start |= {"world_size": 1, "nonce": f"nonce{number:08d}", "host": "n", "pid": 7, "at_s": NOW}
    told = {"type": "progress", "t_s": samples, "samples": samples, "samples_per_s": 100.0}
    lines = [] if path.exists() else [start]
    with path.open("a") as file:
        for line in (*lines, told | {"data_s": [], "wait_s": []}):
            file.write(json.dumps(line) + "\n")


def timed(act: Callable[..., object], *words: object) -> float:
    """Return how many milliseconds something takes."""
    begun = time.perf_counter()
    act(*words)
    return (time.perf_counter() - begun) * 1000


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def hear(store: Store, folder: Path, world: LiveWorld, jobs: int) -> None:
    """Print what the cycles take in which everybody's line is heard."""
    spool_folder = SpoolFolder(folder, {"ann": ME}.get)
    listener = Listener(store, spool_folder, every_s=10.0, most_s=0.2, stopwatch=time.perf_counter)
    spool = Spool(listener, spool_folder)
    say(f"  to begin to follow them: {timed(spool.hear, world, NOW):.0f} ms")
    for sweep in range(1, 4):
        for number in range(1, jobs + 1):
            write(folder, number, 10.0 * sweep)
        cycles: list[float] = []
        while not cycles or listener.busy:
            cycles.append(timed(spool.hear, world, NOW + 20.0 * sweep))
        say(
            f"  a line of each: {sum(cycles) / 1000:.2f} s in {len(cycles)} cycles, "
            f"{statistics.median(cycles):.0f} ms in the median, {max(cycles):.0f} ms at most"
        )
    quiet = [timed(spool.hear, world, NOW + 1000.0 + at) for at in range(5)]
    say(f"  a cycle without a look at the files: {min(quiet):.1f} ms")


def record(world: LiveWorld) -> None:
    """Print what it takes to write down a decision about waiting jobs."""
    assert world.cluster is not None
    assert world.speeds is not None
    waiting = Map({view.id: view for view in world.jobs.values()})
    snapshot = Snapshot(
        now=NOW, triggers=frozenset({Trigger.ROUND}), round=Round(0, NOW, NOW + 360.0),
        cluster=world.cluster, nodes=world.nodes, jobs=waiting, speeds=world.speeds,
        effective_s=NOW, runs_per_job=1,
    )  # fmt: skip
    policy = make_policy("fifo")
    plan, writer = policy.plan(snapshot), DecisionWriter(policy)
    first = timed(writer.write, snapshot, plan)
    later = [timed(writer.write, snapshot, plan) for _ in range(9)]
    text = writer.write(snapshot, plan)
    same = not differences(read_decision(text).again(), plan)
    say(
        f"  a record: {first:.0f} ms the first, {statistics.median(later):.1f} ms those after it, "
        f"{len(text) / 1000:.0f} kB; made again it is the same: {same}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=250)
    parser.add_argument("--jobs", type=int, default=2000)
    chosen = parser.parse_args()
    say(f"{chosen.jobs} running jobs on {chosen.nodes} nodes, load {os.getloadavg()[0]:.1f}")
    nodes = tuple(
        SlurmNode(f"n{k}", NodeCondition.UP, (("v100", 8),), (), 32, 0, 64_000, 0, GPU)
        for k in range(chosen.nodes)
    )
    jobs = {str(k): job(k, chosen.nodes) for k in range(1, chosen.jobs + 1)}
    with tempfile.TemporaryDirectory(prefix="hs-") as name:
        folder = Path(name) / "spool"
        (folder / str(ME.uid)).mkdir(parents=True)
        with Store.open(Path(name) / "store.duckdb", Mode.WRITE) as store:
            settings = DaemonSettings(partitions=GPU)
            world = LiveWorld(settings, frozenset(), LiveSpeeds(store, measures=True))
            world.observe(SlurmState(nodes, jobs), NOW)
            hear(store, folder, world, chosen.jobs)
            record(world)


if __name__ == "__main__":
    main()
