"""How a job says what it can use: `job_submit.lua` for slurmctld, and the mark that it leaves."""

from pathlib import Path

JOB_SUBMIT = Path(__file__).with_name("job_submit.lua")
"""The script that slurmctld needs beside slurm.conf."""

ENFORCE_LIST = "hetsched_enforce"
"""The file beside it that names the partitions whose marked jobs are kept back.

One to a line, each followed by the GPUs of its greatest node.
"""
