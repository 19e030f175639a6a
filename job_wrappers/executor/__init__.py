"""Tasks of several jobs by turns on one GPU, with short switches between them (Hare).

Source: Chen et al., "Hare: Exploiting Inter-job and Intra-job Parallelism of Distributed Machine
Learning on Heterogeneous GPUs", HPDC '22, sections 4 and 6.

`Executor` runs tasks on one device in the order that a scheduler gives it, whose tail may change
while it runs (`order`). Processes stand by with
their context made; each job has one of its own (`process`, `worker`), in which its tasks run
(`trainer`). Models come layer by layer (`layers`), stay while there is room, and leave
nothing behind (`cleaning`). Gradients meet in files, so that tasks of one round may run on several
devices and nodes (`rounds`).
"""

from job_wrappers.executor.executor import Executor, Outcome
from job_wrappers.executor.job import Task, TaskJob, Work
from job_wrappers.executor.order import FixedOrder, Order
from job_wrappers.executor.process import DeviceFailedError

__all__ = [
    "DeviceFailedError",
    "Executor",
    "FixedOrder",
    "Order",
    "Outcome",
    "Task",
    "TaskJob",
    "Work",
]
