"""The replay's `slurm` policy against a real slurmctld: two hundred jobs that sleep."""

import pytest

from slurm_plugin.testbed import Installation
from tests.slurm_plugin.baseline import Setting, compare, run_slurm

pytestmark = pytest.mark.slurm

SMALL = Setting(jobs=200, nodes=24, mean_s=20.0, waiting=30, interval_s=5)


def test_the_replay_s_slurm_starts_jobs_about_when_slurmctld_did(
    installation: Installation,
) -> None:
    recorded = run_slurm(installation, SMALL)
    found = compare(recorded)
    # Jobs that end a second sooner or later make a tenth of the starts differ already.
    assert found.close_share > 0.7, str(found)
    assert found.waits.avg_wait_s == pytest.approx(found.waits.avg_logged_wait_s, rel=0.4, abs=3)
    # It is a case in which it matters what the policy knows of Slurm.
    for other in ({"backfill": "none"}, {"bf_interval_s": "60"}):
        far = compare(recorded, **other)
        assert far.waits.p90_error_s > 1.5 * found.waits.p90_error_s, f"{other}: {far}; {found}"
