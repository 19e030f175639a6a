"""The live side of hetsched: reads a Slurm cluster, plans with a policy of hetsched_core, applies.

May import hetsched_core and the standard library's process and socket modules; never torch, and of
job_wrappers only the form of a pool's trainings (``job_wrappers.pool.asked``). pyslurm is imported
in ``slurm_plugin.backend`` alone.
"""
