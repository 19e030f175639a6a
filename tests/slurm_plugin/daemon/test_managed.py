"""What is made of a job that Slurm shows."""

from dataclasses import replace

import pytest
from slurm_plugin.daemon.mark import read_mark

from hetsched_core.types import Horizon
from slurm_plugin.backend import SlurmJob
from slurm_plugin.daemon.managed import blocked_by, described
from tests.slurm_plugin.backend.fake import PENDING

SEEN = replace(
    PENDING,
    id="12",
    mark='hetsched/1 {"nonce":"a","default":1,"gpu-set":"1","submitted":1000}',
    submit_s=1000.0,
)


def submitted_s(seen: SlurmJob) -> float:
    mark = read_mark(seen.mark)
    assert mark is not None
    return described(seen, mark).submit_s


def test_a_job_keeps_its_place_when_slurm_counts_it_as_submitted_anew() -> None:
    requeued = replace(SEEN, submit_s=5000.0, restarts=1)
    assert submitted_s(requeued) == submitted_s(SEEN)
    later = replace(SEEN, id="13", submit_s=2000.0, mark=SEEN.mark.replace("1000", "2000"))
    assert submitted_s(requeued) < submitted_s(later)


def test_a_mark_without_the_time_goes_by_slurms() -> None:
    old = replace(SEEN, mark=SEEN.mark.replace(',"submitted":1000', ""))
    assert submitted_s(replace(old, submit_s=5000.0)) == submitted_s(old) + 4000.0


@pytest.mark.parametrize(
    ("reason", "horizon"),
    [("Dependency", Horizon.NOT_YET), ("DependencyNeverSatisfied", Horizon.NEVER)],
)
def test_a_dependency_that_cannot_be_satisfied_is_told_as_such(
    reason: str, horizon: Horizon
) -> None:
    found = blocked_by(replace(SEEN, reason=reason))
    assert found is not None
    assert found.code.horizon is horizon
