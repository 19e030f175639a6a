"""The replay's `slurm` policy against a real slurmctld: what sacct said of a script of rigid jobs.

Recorded on the testbed with Slurm 26.05: six nodes of one partition, `priority/basic`,
`sched_interval=2`, `sched_min_interval=0` and `bf_interval=1`. Each job is a `sleep`. The ids of
jobs have been raised to one length, so that their order is that of their texts.
"""

import csv
import itertools
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from hetsched_core.policy import make_policy
from hetsched_core.replay.replay import replay
from hetsched_core.simulate import SimulationSettings
from hetsched_core.traces.cluster_file import ClusterFile
from hetsched_core.traces.load import LoadOptions, load_workload
from hetsched_core.traces.sacct import SacctOptions
from hetsched_core.types import Cluster, Node

RECORDED = Path(__file__).with_name("script_of_14_jobs.sacct")

GPUS = (("a100", 4), ("v100", 8), ("t4", 4))

LATE_S = 3.0
"""Slurm starts jobs in passes a second or two apart, and ends them slowly: delays add up."""

APART_S = 5.0
"""Starts that are further apart have an order."""


def test_the_replay_s_slurm_starts_the_jobs_of_a_script_as_slurmctld_did() -> None:
    with RECORDED.open(newline="") as lines:
        rows = {row["JobID"]: row for row in csv.DictReader(lines, delimiter="|")}
    nodes = tuple(
        Node(f"n{number}", *GPUS[number % 3], cpus=32, memory_mb=64000) for number in range(6)
    )
    options = LoadOptions(sacct=SacctOptions(zone=ZoneInfo("UTC")))
    loaded = load_workload([RECORDED], ClusterFile(Cluster(nodes)), options)
    policy = make_policy("slurm", {"bf_interval_s": "1"})
    (replayed,) = replay(loaded, {"slurm": policy}, SimulationSettings(round_s=1.0))
    runs = {rows[run.job]["JobName"]: run for run in replayed.log.runs}
    here = {name: run.since_s for name, run in runs.items()}
    real = {
        row["JobName"]: datetime.fromisoformat(row["Start"]).replace(tzinfo=UTC).timestamp()
        for row in rows.values()
    }
    types = {node.name: node.gpu_type for node in nodes}
    wants = {name: {types[node] for node, _ in run.configuration} for name, run in runs.items()}
    assert here == pytest.approx(real, abs=LATE_S)  # seconds since the epoch
    # Of jobs that want the same GPUs, the one that starts clearly first there does so here.
    for one, other in itertools.permutations(real, 2):
        if real[one] + APART_S <= real[other] and wants[one] == wants[other]:
            assert here[one] <= here[other]
    # It is a case in which backfill matters: some go before those ahead of them, and not all do.
    assert here["short"] < here["wide"] < here["long"]
    assert here["single"] < here["pair"]
    assert here["late"] < here["last"] < runs["narrow"].freed_s
