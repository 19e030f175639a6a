"""The live side of hetsched: reads a Slurm cluster, plans with a policy of hetsched_core, applies.

May import hetsched_core and the standard library's process and socket modules; never job_wrappers
or torch. pyslurm is imported in ``slurm_plugin.backend`` alone.
"""
