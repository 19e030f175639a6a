"""A real Slurm whose site's own script refuses every change of a job."""

from dataclasses import replace

import pytest

from slurm_plugin.backend import JobState, SlurmBackend
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.jobs import Submitter, is_in
from tests.slurm_plugin.live import SETTINGS, daemon_of, drive
from tests.slurm_plugin.submit.asking import sbatch

BROKEN = """
slurm_job_modify = function() return nothing.there end
return slurm.SUCCESS
"""


@pytest.mark.slurm
def test_what_a_broken_script_keeps_from_being_placed_slurm_starts_by_itself(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    del submitter  # it leaves no job behind
    script = testbed.layout.slurm_conf.with_name("job_submit.lua")
    sound = script.read_text()
    daemon = daemon_of(backend, settings=replace(SETTINGS, slack_s=20))
    script.write_text(sound.replace("\nreturn slurm.SUCCESS\n", BROKEN))
    try:
        jobs = [sbatch(testbed, "--gpus=1", "--wrap=sleep 600") for _ in range(4)]
        reports = drive(daemon, is_in(backend, JobState.RUNNING, *jobs), every_s=1.0)
    finally:
        script.write_text(sound)
    (warning,) = (words for report in reports for words in report.warnings)
    assert "Slurm takes no change of any job" in warning
    assert not any(job.entered for job in backend.read().jobs.values())
