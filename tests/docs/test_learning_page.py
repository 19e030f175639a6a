"""The figures of docs/reproduction/learning.md are those that its command computes."""

from __future__ import annotations

import pytest

from benchmarks.papers import learning


@pytest.mark.slow
def test_the_errors_of_srtf_are_those_on_the_page() -> None:
    page = learning.PAGE.read_text()
    assert f"| srtf | none | {' | '.join(learning.errors('srtf', None))} |" in page


def test_a_profiling_run_of_everything_leaves_no_first_estimate_where_a_job_runs() -> None:
    loaded = learning.load(0, None)
    speeds = learning.profiled(loaded, 0).speeds(0.0)
    for profile in {s.job.profile for s in loaded.workload.submissions}:
        table = speeds.table(profile)
        assert all(table.profiled(t) for t in loaded.cluster.gpu_types if table.runs_on(t))
