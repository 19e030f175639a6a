"""How many processes a GPU of a pool has room for, and what is read to know."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from job_wrappers.executor.footprint import Footprint, host_bytes
from job_wrappers.pool.room import host_free, most_processes

GIB = 1 << 30


@pytest.mark.parametrize(
    ("each", "free", "most"),
    [
        (Footprint(GIB // 4), 20 * GIB, 40),
        # On a small GPU its memory is what there is least of.
        (Footprint(GIB, GIB // 2, 16 * GIB), 400 * GIB, 16),
        (Footprint(GIB, GIB // 2, 80 * GIB), 64 * GIB, 32),
        # What runs and what stands by has to be there whatever there is.
        (Footprint(GIB), GIB, 4),
        # Nothing was measured.
        (Footprint(0), GIB, 16),
    ],
)
def test_half_of_the_memory_that_there_is_least_of_is_for_processes(
    each: Footprint, free: int, most: int
) -> None:
    assert most_processes(each, free, limit=GIB) == most


def test_what_models_may_fill_is_not_for_processes_and_without_a_limit_few_may_fill_it() -> None:
    each = Footprint(GIB, GIB // 2, 80 * GIB)
    assert most_processes(each, 400 * GIB, limit=20 * GIB) == 80
    assert most_processes(each, 400 * GIB, limit=70 * GIB) == 20
    assert most_processes(each, 400 * GIB, limit=90 * GIB) == 4
    assert most_processes(each, 400 * GIB) == 16
    # On a CPU models are in the memory of the host in any case.
    assert most_processes(Footprint(GIB), 400 * GIB) == 200


@pytest.mark.parametrize(
    ("line", "top", "limit", "used", "cached"),
    [
        (
            "0::/slurm/job_1/step_0",
            "sys/fs/cgroup",
            "memory.max",
            "memory.current",
            "inactive_file",
        ),
        (
            "9:cpuset,memory:/slurm/job_1/step_0",
            "sys/fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ],
)
def test_what_a_job_may_have_counts_where_it_is_less_than_the_host_has(
    line: str, top: str, limit: str, used: str, cached: str, tmp_path: Path
) -> None:
    step = tmp_path / top / "slurm" / "job_1" / "step_0"
    step.mkdir(parents=True)
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 1048576 kB\n")
    (tmp_path / "proc" / "self" / "cgroup").write_text(f"3:devices:/slurm\n{line}\n")
    assert host_free(tmp_path) == GIB
    (step / limit).write_text("max\n")
    (step / used).write_text("5\n")
    (step.parent / limit).write_text("1000000\n")
    (step.parent / used).write_text("300000\n")
    assert host_free(tmp_path) == 700_000
    # What files have left in memory can be had.
    (step.parent / "memory.stat").write_text(f"cache 7\n{cached} 100000\nactive_file 50000\n")
    assert host_free(tmp_path) == 800_000


def test_this_process_takes_some_memory_and_less_than_there_is() -> None:
    assert 1 << 20 < host_bytes(os.getpid()) < 64 * GIB
    assert host_bytes(2**22 + 1) == 0
    assert host_free() > 0
