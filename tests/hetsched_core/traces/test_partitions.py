"""From partitions of jobs to the nodes that they may run on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.cluster_file import ClusterFile, read_cluster
from hetsched_core.traces.load import limited_to_partitions, load_workload
from hetsched_core.traces.workload import Workload
from hetsched_core.types import Job, Window
from tests.hetsched_core.traces.worlds import UTC
from tests.hetsched_core.worlds import cluster_of, submission

CLUSTER = cluster_of(a=("v100", 4), b=("v100", 4), c=("v100", 4))
AB, BC = frozenset({"a", "b"}), frozenset({"b", "c"})
SITE = ClusterFile(CLUSTER, partitions={"ab": AB, "bc": BC, "all": AB | BC})


def placed(
    *partitions: str, file: ClusterFile = SITE, **limits: object
) -> tuple[list[Job], Workload]:
    submissions = tuple(
        replace(given, job=replace(given.job, partition=partition, **limits))  # type: ignore[arg-type]
        for n, partition in enumerate(partitions)
        for given in [submission(f"j{n}", 1.0)]
    )
    found = limited_to_partitions(Workload(submissions), SITE)
    return [s.job for s in found.submissions], found


def test_jobs_run_on_the_nodes_of_their_partition_or_partitions() -> None:
    jobs, found = placed("ab", "bc", "ab,bc", "all", "ab", "")
    assert [job.nodes for job in jobs] == [AB, BC, None, None, AB, None]
    assert jobs[0].nodes is jobs[4].nodes
    assert found.assumptions == ()


def test_jobs_of_partitions_that_are_not_described_run_anywhere_and_that_is_said() -> None:
    jobs, found = placed("ab", "xx", "yy", "xx", "xx,bc")
    assert [job.nodes for job in jobs] == [AB, None, None, None, BC]
    assert found.assumptions == (
        "3 jobs of partitions without nodes in the cluster file (xx, yy) may run on all nodes.",
    )


def test_a_job_that_says_itself_where_it_may_run_keeps_to_that() -> None:
    (job,), _ = placed("ab", nodes=frozenset({"c"}))
    assert job.nodes == frozenset({"c"})


def test_without_partitions_the_workload_is_as_it_was() -> None:
    workload = Workload((submission("j", 1.0),))
    assert limited_to_partitions(workload, ClusterFile(CLUSTER)) is workload


def test_a_node_that_the_cluster_does_not_have_is_refused() -> None:
    with pytest.raises(InputError, match="job 'j0' may run on z: no such node in cluster"):
        placed("", nodes=frozenset({"a", "z"}))


SACCT = """JobID|User|Partition|State|Submit|Start|End|NodeList|ReqTRES|AllocTRES
1|ann|small|COMPLETED|2024-05-01T08:00:00|2024-05-01T08:00:00|2024-05-01T09:00:00|n1|gres/gpu=1|gres/gpu:v100=1
2|ann|large|COMPLETED|2024-05-01T08:00:00|2024-05-01T08:00:00|2024-05-01T09:00:00|n2|gres/gpu=1|gres/gpu:v100=1
"""
SITE_FILE = """schema = "hetsched-cluster/1"
[[nodes]]
nodes = "n[1-2]"
gpu_type = "v100"
gpus = 4
[[partitions]]
name = "small"
nodes = "n1"
[[windows]]
nodes = "n2"
from = 2024-05-01T10:00:00Z
until = 2024-05-01T11:00:00Z
"""


def test_a_log_is_read_with_its_partitions_and_the_windows_of_the_site(tmp_path: Path) -> None:
    log, cluster = tmp_path / "log", tmp_path / "cluster.toml"
    log.write_text(SACCT)
    cluster.write_text(SITE_FILE)
    loaded = load_workload([log], read_cluster(cluster), UTC)
    assert {s.job.id: s.job.nodes for s in loaded.workload.submissions} == {
        "1": frozenset({"n1"}),
        "2": None,
    }
    ten = 1714557600.0
    assert loaded.windows == (Window(frozenset({"n2"}), ten, ten + 3600.0),)
