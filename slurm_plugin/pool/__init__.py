"""The scheduler of a pool: which GPU of it runs which tasks of which trainings (Hare, live).

`creation` makes its folder, `folder` reads and writes what is in it, `state` makes of that what
runs (`station`) and how far trainings are (`standing`), `times` learns how long tasks take,
`snapshot` shows it all to a policy, `orders` turns the policy's plan into orders, and `scheduler`
is the loop. What runs the tasks is `job_wrappers.pool`.
"""

from slurm_plugin.pool.creation import create
from slurm_plugin.pool.folder import Pool
from slurm_plugin.pool.scheduler import Scheduler

__all__ = ["Pool", "Scheduler", "create"]
