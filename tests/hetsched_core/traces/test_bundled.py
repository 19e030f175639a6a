"""The bundled log: readable, possible on its cluster, and what its description says."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from hetsched_core.traces.bundled import cluster_path, log_path
from hetsched_core.traces.cluster_file import read_cluster
from hetsched_core.traces.sacct import Doubt, LoggedAllocation, ReadReport, read_sacct
from tests.hetsched_core.traces.worlds import UTC


@pytest.fixture(scope="module")
def read() -> tuple[list[LoggedAllocation], ReadReport]:
    log = read_sacct(log_path(), UTC.sacct)
    return list(log), log.report


def rows() -> Iterator[dict[str, str]]:
    """The rows of jobs, not of steps."""
    header, *lines = log_path().read_text(encoding="utf-8").splitlines()
    for line in lines:
        row = dict(zip(header.split("|"), line.split("|"), strict=True))
        if "." not in row["JobID"]:
            yield row


def test_every_line_is_read_without_an_option(
    read: tuple[list[LoggedAllocation], ReadReport],
) -> None:
    _, report = read
    assert report.complete
    assert (report.unusable, report.warnings) == (0, ())
    assert report.doubts.keys() == {Doubt.STILL_RUNNING, Doubt.REQUEUE}


def test_it_shows_what_real_logs_show() -> None:
    states = Counter(row["State"].split()[0] for row in rows())
    assert states.keys() == {
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY"),
        *("REQUEUED", "NODE_FAIL", "RUNNING", "PENDING"),
    }
    assert any(row["Start"] == "None" for row in rows()), "cancelled before it started"
    assert any(not row["JobName"].isascii() for row in rows())
    assert any("_" in row["JobID"] for row in rows()), "an array"
    assert {"0", "1"} <= {row["Restarts"] for row in rows()}


def test_no_gpu_cpu_or_memory_is_held_twice(
    read: tuple[list[LoggedAllocation], ReadReport],
) -> None:
    cluster = read_cluster(cluster_path()).cluster
    changes: dict[str, list[tuple[float, int, list[float]]]] = defaultdict(list)
    for run in read[0]:
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
            room = (node.gpus, node.cpus, node.memory_mb)
            assert all(u <= most for u, most in zip(used, room, strict=True))


def test_its_description_says_what_is_in_it(
    read: tuple[list[LoggedAllocation], ReadReport],
) -> None:
    allocations = read[0]
    text = (log_path().parent / "README.md").read_text(encoding="utf-8")
    assert f"{len({row['JobID'] for row in rows()}):,} jobs" in text
    assert f"| runs on GPUs | {len(allocations)} |" in text
    minutes = sorted((run.elapsed_s or 0.0) / 60 for run in allocations)
    at = (f"{minutes[int(len(minutes) * q)]:,.0f}" for q in (0.1, 0.5, 0.9, 0.99))
    assert f"| {' / '.join(at)} minutes |" in text
    held_s = sum(run.gpu_count * (run.elapsed_s or 0.0) for run in allocations)
    assert f"| {held_s / (64 * 4 * 86_400):.2f} |" in text
