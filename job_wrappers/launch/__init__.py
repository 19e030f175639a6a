"""`hetsched-run`: starts the workers of a run on what Slurm has given to it.

    exec hetsched-run [options] -- python train.py ...

It learns nodes and GPUs from Slurm, starts one worker for each GPU with its rank and where to meet,
passes signals on to all of them, and ends as the run has ended: see docs/live/training.md.
"""
