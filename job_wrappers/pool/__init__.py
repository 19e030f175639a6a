"""A pool: GPUs of one user on which many trainings take turns, task by task (Hare, live).

A pool is a folder on a shared file system (`folder`), and needs no server. `submit` leaves a
training in it (`asked`), `search` one for each choice of its arguments. A member (`member`) runs on
each GPU: it drives an executor along the order that the pool's scheduler leaves for it (`order`),
and tells what came of each task. A keeper (`keeper`) starts members in a job of Slurm, or by hand,
and again when they are killed.
"""

from job_wrappers.pool.folder import PoolFolder
from job_wrappers.pool.submit import result, search, submit

__all__ = ["PoolFolder", "result", "search", "submit"]
