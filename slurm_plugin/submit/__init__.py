"""How a job says what it can use: options of sbatch, and what slurmctld makes of them."""

from pathlib import Path

MODULE = Path(__file__).with_name("hetsched.lua")
"""The module that checks options at submission; a site's own job_submit.lua calls it."""

JOB_SUBMIT = Path(__file__).with_name("job_submit.lua")
"""What calls the module where a site has no job_submit.lua of its own."""

SPANK_SOURCE = Path(__file__).with_name("hetsched_spank.c")
"""The plug-in that gives sbatch the options."""
