"""The daemon is killed again and again, at moments that nobody chose."""

import pytest

from tests.slurm_plugin.faults.kills import run_with_kills
from tests.slurm_plugin.faults.site import Site

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def test_a_hundred_jobs_finish_however_often_the_daemon_is_killed(site: Site) -> None:
    # Longer than a round, so that some are moved.
    site.samples = (300.0, 700.0)
    at = run_with_kills(site, jobs=100, kills=8)
    verdict = site.check()
    # Each kill struck while there were jobs.
    assert len(at) == 8
    # Some were moved, and so were stopped while a daemon died.
    assert verdict.runs > verdict.jobs
