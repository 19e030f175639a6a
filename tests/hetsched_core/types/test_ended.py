"""Jobs that have ended, as policies are told of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.types.ended import LATEST, EndedJob, EndedJobs, ways_to_be_alike

JOBS = st.builds(
    EndedJob,
    user=st.sampled_from("ab"),
    profile=st.sampled_from("mn"),
    run_s=st.floats(0.0, 1e6),
    limit_s=st.none(),
)


@given(st.lists(JOBS, max_size=30), st.integers(0, 30))
def test_each_job_is_found_among_those_that_are_alike(jobs: list[EndedJob], cut: int) -> None:
    # The oldest of so many others are forgotten.
    others = [EndedJob("z", "z", 1.0)] * (LATEST - len(jobs) + cut)
    kept = jobs[cut:]
    found = EndedJobs.of((*jobs, *others))
    assert found.jobs == (*kept, *others)[-LATEST:]
    for user in "ab":
        for profile in "mn":
            names = ways_to_be_alike(user, profile)
            both, of_user, of_profile, everybody = map(found.alike, names)
            assert list(of_user) == [job for job in kept if job.user == user]
            assert list(of_profile) == [job for job in kept if job.profile == profile]
            assert list(both) == [job for job in of_user if job.profile == profile]
            assert everybody == found.jobs
            mean = found.mean_run_s(profile)
            if of_profile:
                total_s = sum(job.run_s for job in of_profile)
                assert mean == pytest.approx(total_s / len(of_profile))
            else:
                assert mean is None
