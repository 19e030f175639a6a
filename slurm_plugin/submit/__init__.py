"""How a job says what it can use: options of sbatch, and what slurmctld makes of them."""

from pathlib import Path

JOB_SUBMIT = Path(__file__).with_name("job_submit.lua")
"""The script that slurmctld needs beside slurm.conf."""

SPANK_SOURCE = Path(__file__).with_name("hetsched_spank.c")
"""The plug-in that gives sbatch the options."""

ENFORCE_LIST = "hetsched_enforce"
"""The file beside it that names the partitions whose marked jobs are kept back.

One to a line, each followed by the GPUs of its greatest node and its GPU types, with commas.
"""
