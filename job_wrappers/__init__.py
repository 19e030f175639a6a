"""What runs inside a user's job: progress, checkpoints, signals, resumption, profiling.

Imports the standard library and, inside functions, torch; never hetsched_core or slurm_plugin: a
job has its own Python environment, in which nothing else of this project need be installed. Runs
on Python 3.9 and later, older than the rest of the project asks for.
"""
