"""How long a device stands between tasks of different jobs, in the form of Hare's table 3.

Jobs of one model take turns on one device, each in tasks of one mini-batch, all of one round: what
the end of a round costs (a step of the optimiser, on the host) is no switch. A switch is from the
end of a task to the end of the next, less what a task takes; medians. Three ways:

stop and start: a new process for each task: Python, torch, context, model, state, and the task.
stand by: processes with contexts made and models built; a model goes when its task is done, and
    comes layer by layer for the next (the memory limit is that of one task).
keep: all models stay (no limit), as speculative memory management has it while there is room.

In brackets, the share of the switch in switch and task. A task's gradients are on the host when it
ends, and are then written to a file, in memory (/dev/shm) where that is there, but for "stop and
start". A model leaves the device only after that, and a job's next task begins only then. Usage:

    python -m benchmarks.executor_switch [--device cuda] [--models VGG19,BERT] [--page docs/...md]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from pathlib import Path

from benchmarks.papers.page import filled, markdown
from benchmarks.switch_models import MODELS, work
from job_wrappers.executor import Executor, Outcome, Task, TaskJob

WAYS = ("stop and start", "stand by", "keep")


@dataclass(frozen=True)
class Switches:
    """Medians of one model.

    Attributes:
        task_s: what a task takes in a process that has its model in place.
        by_way: what a switch costs, in the order of `WAYS`.
        size: bytes of the model.
    """

    task_s: float
    by_way: tuple[float, ...]
    size: int

    def cells(self) -> list[str]:
        """Its row of the table."""
        return [
            f"{self.size / 1e6:.0f} MB",
            f"{1000 * self.task_s:.1f} ms",
            *(
                f"{1000 * each:.2f} ms ({100 * each / (each + self.task_s):.1f} %)"
                for each in self.by_way
            ),
        ]


@dataclass(frozen=True)
class Turns:
    """Jobs of one model that take turns; their round does not end."""

    model: str
    device: str
    count: int
    tasks: int

    def jobs(self) -> list[TaskJob]:
        """Return them, each with a task in its round that is never run."""
        given = {"model": self.model}
        return [
            TaskJob(f"job-{n}", f"{work.__module__}:work", 1, self.tasks + 1, n, arguments=given)
            for n in range(self.count)
        ]

    def run(self, limit: int | None) -> Generator[list[Outcome], None, None]:
        """Yield nothing when each job has had two tasks, and in the end what became of all."""
        jobs, folder = self.jobs(), Path("/dev/shm")
        order = [Task(job.name, 0, number) for number in range(self.tasks) for job in jobs]
        with (
            tempfile.TemporaryDirectory(dir=folder if folder.is_dir() else None) as name,
            Executor(
                Path(name), jobs, device=self.device, limit=limit, standby=self.count
            ) as executor,
        ):
            executor.await_standby()
            outcomes = executor.run(order)
            # The first tasks of a job get memory and choose algorithms.
            began = list(islice(outcomes, 2 * self.count))
            yield []
            found = [*began, *outcomes]
            if failed := [o.failed for o in found if o.failed]:
                sys.exit(f"{self.model}: {failed[0]}")
            yield found


def in_turn(models: Sequence[Turns], limits: Sequence[int | None]) -> list[list[Outcome]]:
    """Run jobs of each model: all begin side by side, and go on while no other does."""
    runs = [turns.run(limit) for turns, limit in zip(models, limits, strict=True)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(next, runs))
    found = []
    for each in runs:
        found.append(next(each))
        each.close()
    return found


def measured(models: Sequence[Turns]) -> list[Switches]:
    """Return what switches between jobs of each model cost."""
    kept = in_turn(models, [None] * len(models))
    sizes = [
        max(o.held for o in each) // turns.count for turns, each in zip(models, kept, strict=True)
    ]
    needs = [size + max(o.working for o in each) for size, each in zip(sizes, kept, strict=True)]
    left = in_turn(models, needs)
    found = []
    for turns, size, *ways in zip(models, sizes, left, kept, strict=True):
        # With its last task a job leaves the device, which is no switch.
        ways = [outcomes[2 * turns.count : -turns.count] for outcomes in ways]
        task_s = statistics.median(o.ended_s - o.began_s for o in ways[1])
        whole = [stopped_and_started(turns.jobs()[0], turns.device), *map(interval, ways)]
        found.append(Switches(task_s, tuple(max(0.0, each - task_s) for each in whole), size))
    return found


def interval(outcomes: Sequence[Outcome]) -> float:
    """Return the median of seconds from the end of a task to the end of the next."""
    return statistics.median(b.ended_s - a.ended_s for a, b in pairwise(outcomes))


def stopped_and_started(job: TaskJob, device: str) -> float:
    """Return seconds from the end of a task in one process to the end of the next in another."""
    with tempfile.TemporaryDirectory() as name:
        ends = []
        for task in job.tasks()[:3]:
            words = [sys.executable, "-c", _ONE, repr(asdict(job)), name, device]
            done = subprocess.run(
                [*words, str(task.round), str(task.number)],
                cwd=Path(__file__).parents[1],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            ends.append(float(done.stdout))
    return statistics.median(after - before for before, after in pairwise(ends))


_ONE = """
import ast, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from job_wrappers.executor import TaskJob
from job_wrappers.executor.trainer import Trainer
job = TaskJob(**ast.literal_eval(sys.argv[1]))
trainer = Trainer(job, Path(sys.argv[2]), sys.argv[3], 0.0)
trained, made = trainer.train(int(sys.argv[4]), int(sys.argv[5]))
print(trained.ended_s)
trainer.store(made)
"""


def machine(device: str) -> str:
    """What all of it ran on."""
    import torch

    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return f"{name}, torch {torch.__version__}, {os.cpu_count()} cores"


def main() -> None:
    """Measure the models, each told as soon as it is there."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=6, help="that take turns")
    parser.add_argument("--tasks", type=int, default=6, help="of each job")
    parser.add_argument("--models", default=",".join(MODELS), help="default all")
    parser.add_argument("--at-once", type=int, default=4, help="models whose jobs are made at once")
    parser.add_argument("--page", type=Path, help="whose figures `switch` are written anew")
    given = parser.parse_args()
    began = time.time()
    lines = []
    models = [
        Turns(name, given.device, given.jobs, given.tasks) for name in given.models.split(",")
    ]
    for at in range(0, len(models), given.at_once):
        some = models[at : at + given.at_once]
        for turns, found in zip(some, measured(some), strict=True):
            lines.append((turns.model, *found.cells()))
            sys.stdout.write(f"{' | '.join(lines[-1])}\n")
            sys.stdout.flush()
    table = markdown(("", "model", "a task", *WAYS), lines)
    where = f"{machine(given.device)}; {time.time() - began:.0f} s in all."
    text = f"{table}\n\n{where}"
    sys.stdout.write(f"{text}\n")
    if given.page:
        given.page.write_text(filled(given.page.read_text(), {"switch": text}))


if __name__ == "__main__":
    main()
