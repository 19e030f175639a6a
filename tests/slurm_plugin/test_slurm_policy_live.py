"""The replay's `slurm` policy against the real slurmctld, on a script of rigid jobs."""

import itertools
import time
from collections.abc import Iterator
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
from slurm_plugin.testbed import FakeSite, Installation, Testbed, fake_nodes
from slurm_plugin.testbed.site import Partition
from tests.slurm_plugin.clusters import up
from tests.slurm_plugin.daemon.test_daemon_live import SACCT_COLUMNS, accounted
from tests.slurm_plugin.jobs import deadline

pytestmark = pytest.mark.slurm

LAG_S = 10.0
"""Slurm starts jobs in passes a second or two apart, and ends them slowly: on a slow machine it may
take so long from the end of a job to the start of the next."""

APART_S = 5.0
"""Starts that are further apart have an order."""

FIRST = 100_000

# Name, GPU type, nodes, GPUs on each, time limit in minutes, seconds that it runs.
SCRIPT = (
    ("first", "v100", 1, 8, 4, 13),
    ("second", "v100", 1, 8, 3, 4),
    ("wide", "v100", 2, 8, 2, 5),  # waits for both, its place is kept from 4 minutes on
    ("long", "v100", 1, 8, 5, 4),  # would be in its way
    ("short", "v100", 1, 4, 1, 6),  # would not: goes before
    ("shorter", "v100", 1, 4, 2, 3),
    ("narrow", "t4", 1, 3, 1, 22),
    ("whole", "t4", 1, 4, 2, 6),
    ("rest", "t4", 1, 1, 1, 5),
    ("late", "t4", 1, 2, 1, 6),  # after whole
    ("last", "t4", 1, 4, 1, 3),  # after late, and before narrow
    ("alone", "a100", 1, 4, 3, 8),
    ("pair", "a100", 2, 4, 1, 3),  # waits for alone
    ("single", "a100", 1, 1, 1, 5),  # ends before pair could begin
)


def utc(text: str) -> float:
    """Return a time of Slurm's records, in seconds since the epoch."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.fixture
def plain(installation: Installation) -> Iterator[Testbed]:
    """Six nodes of one partition, first come, first served, with passes a second or two apart."""
    scheduling = "SchedulerParameters=sched_interval=2,sched_min_interval=0,bf_interval=1"
    partitions = (Partition("gpu", default=True),)
    site = FakeSite(fake_nodes(6), partitions, (scheduling, "PriorityType=priority/basic"))
    with up(installation, site) as cluster:
        yield cluster


def test_the_replay_s_slurm_starts_the_jobs_of_a_script_as_slurmctld_does(
    plain: Testbed, tmp_path: Path
) -> None:
    testbed = plain
    names = {}
    for name, gpu_type, nodes, gpus, minutes, seconds in SCRIPT:
        wants = (f"--nodes={nodes}", f"--gpus-per-node={gpu_type}:{gpus}", f"--time={minutes}")
        shown = ("--parsable", f"--job-name={name}", "--output=/dev/null")
        job = testbed.command("sbatch", *shown, *wants, f"--wrap=sleep {seconds}").strip()
        names[job] = name
    latest = deadline(90)
    while testbed.command("squeue", "--noheader", "--format=%i"):
        assert time.monotonic() < latest
        time.sleep(0.5)
    rows = accounted(testbed, list(names))
    log = tmp_path / "sacct.txt"
    head, *lines = testbed.command(
        *("sacct", "--duplicates", "--allocations", "--parsable2", f"--jobs={','.join(names)}"),
        *("--format", SACCT_COLUMNS),
    ).splitlines()
    # A site's numbers are of one length, so that their order is that of their texts.
    rest = [line.split("|", 2) for line in lines]
    numbered = [f"{int(job) + FIRST}|{int(raw) + FIRST}|{more}" for job, raw, more in rest]
    log.write_text("\n".join([head, *numbered, ""]))
    cluster = tuple(
        Node(node.name, node.gpu_type, node.gpus, 32, 64000) for node in testbed.layout.nodes
    )
    options = LoadOptions(sacct=SacctOptions(zone=ZoneInfo("UTC")))
    loaded = load_workload([log], ClusterFile(Cluster(cluster)), options)
    policy = make_policy("slurm", {"bf_interval_s": "1"})
    (replayed,) = replay(loaded, {"slurm": policy}, SimulationSettings(round_s=1.0))
    runs = {names[str(int(run.job) - FIRST)]: run for run in replayed.log.runs}
    here = {name: run.since_s for name, run in runs.items()}
    real = {names[job]: utc(row.start) for job, row in rows.items()}
    ended = {names[job]: utc(row.end) for job, row in rows.items()}
    assert here.keys() == real.keys()
    begun = min(real.values())
    told = str({name: (real[name] - begun, here[name] - begun) for name in real})
    gpu_types = {name: gpu_type for name, gpu_type, *_ in SCRIPT}
    for name in real:
        # What it starts at the end of in the replay, or else where all begins.
        others = [other for other in real if gpu_types[other] == gpu_types[name]]
        gaps = {other: here[name] - runs[other].freed_s for other in others}
        awaited = [ended[other] for other, gap_s in gaps.items() if -0.5 <= gap_s <= 1.5]
        lag_s = real[name] - max(awaited, default=begun)
        assert -1.0 <= lag_s <= LAG_S, f"{name}: {lag_s}: {told}"
    # Of jobs that want the same GPUs, who starts clearly first in the one does so in the other.
    for one, other in itertools.permutations(real, 2):
        if here[one] + APART_S <= here[other] and gpu_types[one] == gpu_types[other]:
            assert real[one] <= real[other], told
    # It is a case in which backfill matters: some go before those ahead of them, and not all do.
    assert real["short"] < real["wide"] < real["long"]
    assert real["single"] < real["pair"]
