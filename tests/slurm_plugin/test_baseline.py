"""The replay's `slurm` policy against a real slurmctld: two hundred jobs that sleep."""

import pytest

from slurm_plugin.testbed import Installation
from tests.slurm_plugin.baseline import Setting, compare, run_slurm, typical_error_s

pytestmark = pytest.mark.slurm

SMALL = Setting(jobs=200, nodes=24, mean_s=20.0, waiting=30, interval_s=5)


def test_the_replay_s_slurm_starts_jobs_about_when_slurmctld_did(
    installation: Installation,
) -> None:
    recorded = run_slurm(installation, SMALL)
    found = compare(recorded)
    # Jobs that end a second sooner or later make a tenth of the starts differ already.
    assert found.close_share > 0.7, str(found)
    assert found.waits.avg_wait_s == pytest.approx(found.waits.avg_logged_wait_s, rel=0.5, abs=5)
    # It is a case in which it matters what the policy knows of Slurm.
    error_s = typical_error_s(recorded)
    for other in ({"backfill": "none"}, {"bf_interval_s": "60"}):
        far_s = typical_error_s(recorded, **other)
        assert far_s > 1.1 * error_s, f"{other}: {far_s:.1f} s, {error_s:.1f} s; {found}"
