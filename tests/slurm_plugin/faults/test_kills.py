"""The daemon is killed again and again, at moments that nobody chose."""

import pytest

from tests.slurm_plugin.faults.kills import run_with_kills
from tests.slurm_plugin.faults.site import Site

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def test_a_hundred_and_twenty_jobs_finish_however_often_the_daemon_is_killed(site: Site) -> None:
    # Shorter ones than in the soak.
    site.samples = (60.0, 200.0)
    at = run_with_kills(site, jobs=120, kills=8)
    verdict = site.check()
    # Each kill struck while there were jobs.
    assert len(at) == 8
    # Some were moved, and so were stopped while a daemon died.
    assert verdict.runs > verdict.jobs
