"""The bundled log: reproducible, readable, possible on its cluster, and worth replaying."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from hetsched_core.traces.bundled import cluster_path, log_path
from hetsched_core.traces.bundled.generate import generate
from hetsched_core.traces.cluster_file import read_cluster
from hetsched_core.traces.infer_cluster import infer_cluster
from hetsched_core.traces.sacct import (
    Allocation,
    Doubt,
    ReadReport,
    SacctOptions,
    expand_nodes,
    link_runs,
    parse_zone,
    read_sacct,
)
from hetsched_core.types import Cluster

DAY_S = 86_400.0


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return read_cluster(cluster_path()).cluster


@pytest.fixture(scope="module")
def read() -> tuple[list[Allocation], ReadReport]:
    log = read_sacct(log_path(), SacctOptions(zone=parse_zone("UTC")))
    return list(log), log.report


@pytest.fixture(scope="module")
def allocations(read: tuple[list[Allocation], ReadReport]) -> list[Allocation]:
    return read[0]


def rows() -> Iterator[dict[str, str]]:
    """The rows of jobs, not of steps."""
    header, *lines = log_path().read_text(encoding="utf-8").splitlines()
    for line in lines:
        row = dict(zip(header.split("|"), line.split("|"), strict=True))
        if "." not in row["JobID"]:
            yield row


def test_the_files_are_what_their_generator_writes(tmp_path: Path) -> None:
    generate(tmp_path)
    for path in (log_path(), cluster_path()):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_every_line_is_read_without_an_option(read: tuple[list[Allocation], ReadReport]) -> None:
    _, report = read
    assert report.complete
    assert (report.unusable, report.warnings) == (0, ())
    assert {count.doubt for count in report.doubts} == {Doubt.STILL_RUNNING, Doubt.REQUEUE}


def test_it_has_sacct_s_form_and_is_small() -> None:
    header = log_path().read_text(encoding="utf-8").partition("\n")[0]
    assert header == (
        "JobID|JobIDRaw|JobName|User|Account|Partition|State|Submit|Eligible|Start|End|ElapsedRaw|"
        "TimelimitRaw|NNodes|NCPUS|ReqMem|ReqTRES|AllocTRES|NodeList|Restarts|ExitCode"
    )
    assert log_path().stat().st_size < 700_000


def test_it_shows_what_real_logs_show() -> None:
    states = Counter(row["State"].split()[0] for row in rows())
    assert states.keys() == {
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY"),
        *("REQUEUED", "NODE_FAIL", "RUNNING", "PENDING"),
    }
    assert states["PENDING"] == 1
    assert any(row["Start"] == "None" for row in rows()), "cancelled before it started"
    assert any(not row["JobName"].isascii() for row in rows())
    assert any("_" in row["JobID"] for row in rows()), "an array"
    assert {"0", "1"} <= {row["Restarts"] for row in rows()}
    steps = {
        line.partition("|")[0].partition(".")[2]
        for line in log_path().read_text(encoding="utf-8").splitlines()[1:]
    }
    assert steps == {"", "batch", "extern", "0"}


def test_a_requeue_keeps_the_id_and_counts_restarts(allocations: list[Allocation]) -> None:
    requeued = [job for job in link_runs(allocations) if len(job.runs) > 1]
    assert len(requeued) >= 5
    for job in requeued:
        assert [run.restarts for run in job.runs] == list(range(len(job.runs)))
        assert all(a.end_s is not None and a.end_s < b.start_s for a, b in pairwise(job.runs))


def test_no_gpu_cpu_or_memory_is_held_twice(
    allocations: list[Allocation], cluster: Cluster
) -> None:
    changes: dict[str, list[tuple[float, int, list[float]]]] = defaultdict(list)
    for run in allocations:
        assert run.cpus is not None
        assert run.memory_mb is not None
        held = [n / len(run.nodes) for n in (run.gpu_count, run.cpus, run.memory_mb)]
        end_s = float("inf") if run.end_s is None else run.end_s
        for name in run.nodes:
            assert {cluster[name].gpu_type} == {gpu_type for gpu_type, _ in run.gpus}
            changes[name] += [(end_s, 0, held), (run.start_s, 1, held)]
    assert changes.keys() == set(cluster.names)
    for name, on_node in changes.items():
        node = cluster[name]
        used = [0.0, 0.0, 0.0]
        for _, begins, held in sorted(on_node):
            used = [u + h if begins else u - h for u, h in zip(used, held, strict=True)]
            assert used[0] <= node.gpus
            assert used[1] <= node.cpus
            assert used[2] <= node.memory_mb


def test_it_asks_for_nearly_all_gpus_and_lets_queues_build(
    allocations: list[Allocation], cluster: Cluster
) -> None:
    held_s = sum(run.gpu_count * (run.elapsed_s or 0.0) for run in allocations)
    assert 0.85 < held_s / (cluster.gpus * 4 * DAY_S) < 0.95
    submits = sorted(run.submit_s for run in allocations if run.restarts == 0)
    assert 3.5 < (submits[-1] - submits[0]) / DAY_S < 4.0
    waited = sorted(run.start_s - run.submit_s for run in allocations)
    assert waited[len(waited) * 9 // 10] > 6 * 3_600


def test_durations_are_heavy_tailed_and_most_jobs_use_one_gpu(
    allocations: list[Allocation],
) -> None:
    minutes = sorted((run.elapsed_s or 0.0) / 60 for run in allocations)
    assert 20 < minutes[len(minutes) // 2] < 60
    assert minutes[len(minutes) * 9 // 10] > 300
    counts = Counter(run.gpu_count for run in allocations)
    assert counts.keys() == {1, 2, 4, 8, 16}
    assert 0.6 < counts[1] / len(allocations) < 0.8


def test_the_cluster_can_be_inferred_from_the_log(
    allocations: list[Allocation], cluster: Cluster
) -> None:
    inferred = infer_cluster(allocations).cluster
    assert [(n.name, n.gpu_type, n.gpus) for n in inferred] == [
        (n.name, n.gpu_type, n.gpus) for n in cluster
    ]


def test_jobs_on_cpus_stay_off_the_nodes_with_gpus(cluster: Cluster) -> None:
    for row in rows():
        if row["Partition"] == "normal" and row["NodeList"] != "None assigned":
            assert "gres/gpu" not in row["AllocTRES"]
            assert not set(expand_nodes(row["NodeList"])) & set(cluster.names)


def test_its_description_says_what_is_in_it(allocations: list[Allocation]) -> None:
    text = (log_path().parent / "README.md").read_text(encoding="utf-8")
    assert f"{len({row['JobID'] for row in rows()}):,} jobs" in text
    assert f"| runs on GPUs | {len(allocations)} |" in text
    minutes = sorted((run.elapsed_s or 0.0) / 60 for run in allocations)
    at = (f"{minutes[int(len(minutes) * q)]:,.0f}" for q in (0.1, 0.5, 0.9, 0.99))
    assert f"| {' / '.join(at)} minutes |" in text
    held_s = sum(run.gpu_count * (run.elapsed_s or 0.0) for run in allocations)
    assert f"| {held_s / (64 * 4 * DAY_S):.2f} |" in text
