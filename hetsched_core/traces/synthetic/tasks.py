"""Training rounds of tasks for generated jobs, from the speeds of their models (Hare)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hetsched_core.types import SpeedTable, TaskShape, TaskTimes


@dataclass(frozen=True, slots=True)
class TaskMaker:
    """Makes tasks that take about `task_s` seconds on a GPU of mean speed.

    Attributes:
        task_s: seconds.
        gpus: GPU type -> GPUs of the cluster, over which the mean is.
    """

    task_s: float
    gpus: Mapping[str, int]

    def iterations(self, table: SpeedTable) -> int:
        """Return of how many iterations a model's task is: whole ones, and one at least."""
        speeds = {t: table.per_gpu(t, 1, 1) for t in table.gpu_types if table.runs_on(t)}
        gpus = sum(self.gpus.get(t, 0) for t in speeds)
        if not gpus:
            return 1
        mean = sum(self.gpus.get(t, 0) * speed for t, speed in speeds.items()) / gpus
        return max(1, round(self.task_s * mean / table.batch_size))

    def with_tasks(self, table: SpeedTable) -> SpeedTable:
        """Return a model's speeds with the times of its tasks on each GPU type that it runs on.

        T^c is what the iterations take on one GPU. T^s, for being in step after the last of them,
        is by how much longer one takes on two GPUs of two nodes: what the network adds.
        """
        iterations, times = self.iterations(table), {}
        for gpu_type in table.gpu_types:
            alone, apart = table.per_gpu(gpu_type, 1, 1), table.per_gpu(gpu_type, 2, 2)
            if alone > 0:
                alone_s = table.batch_size / alone
                apart_s = table.batch_size / apart if apart > 0 else alone_s
                times[gpu_type] = TaskTimes(iterations * alone_s, max(0.0, apart_s - alone_s))
        return replace(table, tasks=times)

    def shape(self, table: SpeedTable, samples: float, gpus: int) -> TaskShape:
        """Return a job's training rounds: a task for each GPU, as many rounds as its work is.

        Work that is no whole number of rounds counts as the nearest, and as one at least.
        """
        in_round = gpus * self.iterations(table) * table.batch_size
        return TaskShape(gpus, max(1, round(samples / in_round)))
