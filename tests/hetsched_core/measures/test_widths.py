"""The measures of the jobs of each number of GPUs, against a naive twin."""

import statistics
from dataclasses import replace

import numpy as np
import pytest

from hetsched_core.measures.widths import WidthMeasures, width_measures
from hetsched_core.types import EndState, RequirementSet
from tests.hetsched_core.measures.test_metrics import a_job


def test_jobs_are_measured_by_the_gpus_that_they_ask_for() -> None:
    asked = {(1,): None, (2,): None, (1, 4): 4, (2, 4): None}
    records = []
    for at in range(60):
        counts, default = list(asked.items())[at % 4]
        state = EndState.FAILED if at % 7 == 0 else EndState.COMPLETED
        record = a_job(f"j{at}", at, 2 * at + at * at, state, wait=float(at % 11))
        job = replace(record.job, requirements=RequirementSet(counts), asked_count=default)
        records.append(replace(record, job=job))
    found = width_measures(records)
    assert [one.gpus for one in found] == [1, 2, 4]
    for one, rests in zip(found, ((0,), (1, 3), (2,)), strict=True):
        mine = [record for at, record in enumerate(records) if at % 4 in rests]
        done = [record for record in mine if record.end_state is EndState.COMPLETED]
        jct_s = [(record.end_s or 0.0) - record.job.submit_s for record in done]
        wait_s = [record.wait_s for record in done]
        assert (one.jobs, one.completed) == (len(mine), len(done))
        assert one.avg_jct_s == pytest.approx(statistics.mean(jct_s))
        assert one.p99_jct_s == pytest.approx(np.percentile(jct_s, 99))
        assert one.avg_wait_s == pytest.approx(statistics.mean(wait_s))
        assert one.p99_wait_s == pytest.approx(np.percentile(wait_s, 99))


def test_of_jobs_of_which_none_has_completed_no_time_is_told() -> None:
    (found,) = width_measures([a_job("j", 0, None, EndState.UNFINISHED)])
    assert found == WidthMeasures(1, 1, 0, None, None, None, None)
