"""How long a device stands between tasks of different jobs, in the form of Hare's table 3.

Two jobs of one model take turns on one device, each in tasks of one mini-batch. What a switch costs
is the time from the end of a task to the end of the next, less what the next takes while its job
runs alone with its model in place; medians. Three ways:

stop and start: a new process for each task: Python, torch, context, model, state, and the task.
stand by: processes with contexts made and models built; a model goes when its task is done, and
    comes layer by layer for the next (the memory limit is that of one task).
keep: both models stay (no limit), as speculative memory management has it while there is room.

A new round's parameters come to the device in either, since both jobs have one task a round. In
brackets, the share of the switch in switch and task. Usage:

    python -m benchmarks.executor_switch [--device cuda]

The models are stand-ins built of torch alone, named for what they resemble. On a CPU "device" is
memory of the same kind, and what the ways share (Python, torch) is all that they differ in.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.papers.page import markdown
from job_wrappers.executor import Executor, Outcome, Task, TaskJob, Work

MODELS = ("convolution", "residual", "transformer", "recurrent", "graph")


def work(model: str, width: int) -> Work:
    """Make one of the models; a job's function."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    made, inputs = globals()[f"_{model}"](width)

    def batch(_round: int, _task: int) -> Any:
        return inputs()

    def loss(net: Any, some: Any) -> Any:
        return nn.functional.cross_entropy(net(some[0]), some[1])

    return Work(made, lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9), batch, loss)


def _images(count: int) -> Callable[[], Any]:
    import torch

    return lambda: (torch.randn(count, 3, 32, 32), torch.randint(10, (count,)))


def _convolution(width: int) -> tuple[Any, Any]:
    """After VGG: plain convolutions and a wide classifier."""
    from torch import nn

    layers: list[Any] = []
    last = 3
    for factor in (1, 2, 4, 4):
        layers += [nn.Conv2d(last, factor * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        last = factor * width
    layers += [nn.Flatten(), nn.Linear(4 * last, 16 * width), nn.ReLU(), nn.Linear(16 * width, 10)]
    return nn.Sequential(*layers), _images(16)


def _residual(width: int) -> tuple[Any, Any]:
    """After ResNet: blocks with normalisation, added to what they were given."""
    from torch import nn

    def block() -> Any:
        body = nn.Sequential(
            *(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)),
        )
        plain = body.forward
        body.forward = lambda x: (x + plain(x)).relu()
        return body

    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
    stem = [nn.Conv2d(3, width, 3, stride=2), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*stem, *(block() for _ in range(6)), *head), _images(16)


def _transformer(width: int) -> tuple[Any, Any]:
    """After BERT: embedded words, encoder layers, a class of the first."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(4 * width, 4, 8 * width, batch_first=True)
    first = nn.Flatten(0, 1)
    first.forward = lambda x: x[:, 0]
    net = nn.Sequential(
        nn.Embedding(5000, 4 * width),
        nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
        *(first, nn.Linear(4 * width, 10)),
    )
    return net, lambda: (torch.randint(5000, (8, 32)), torch.randint(10, (8,)))


def _recurrent(width: int) -> tuple[Any, Any]:
    """After DeepSpeech: recurrent layers over frames."""
    import torch
    from torch import nn

    last = nn.Identity()
    last.forward = lambda x: x[0][:, -1]
    net = nn.Sequential(nn.LSTM(40, 4 * width, 2, batch_first=True), last)
    net.append(nn.Linear(4 * width, 10))
    return net, lambda: (torch.randn(8, 40, 40), torch.randint(10, (8,)))


def _graph(width: int) -> tuple[Any, Any]:
    """After GraphSAGE: means over sampled neighbours, two layers deep."""
    import torch
    from torch import nn

    mean = nn.Identity()
    mean.forward = lambda x: x.mean(1)
    net = nn.Sequential(
        *(nn.Linear(64, 4 * width), nn.ReLU(), mean),
        *(nn.Linear(4 * width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 10)),
    )
    return net, lambda: (torch.randn(64, 10, 64), torch.randint(10, (64,)))


@dataclass(frozen=True)
class Switch:
    """Medians of one way and model.

    Attributes:
        switch_s: what a switch costs.
        task_s: what a task takes without one.
    """

    switch_s: float
    task_s: float

    def __str__(self) -> str:
        share = 100 * self.switch_s / (self.switch_s + self.task_s)
        return f"{1000 * self.switch_s:.2f} ms ({share:.1f} %)"


def pair(model: str, width: int, rounds: int) -> list[TaskJob]:
    given = {"model": model, "width": width}
    spec = globals()["__spec__"]  # None if this file was run by its path
    make = f"{spec.name if spec else __file__}:work"
    return [TaskJob(f"{model}-{n}", make, rounds, seed=n, arguments=given) for n in range(2)]


def intervals(outcomes: Sequence[Outcome]) -> list[float]:
    """Return seconds from the end of a task to the end of the next, the first few left out."""
    assert not any(o.failed for o in outcomes), [o.failed for o in outcomes if o.failed]
    ends = [o.ended_s for o in outcomes]
    return [after - before for before, after in pairwise(ends)][4:]


def run(jobs: list[TaskJob], tasks: list[Task], device: str, limit: int | None) -> list[Outcome]:
    with (
        tempfile.TemporaryDirectory() as name,
        Executor(Path(name), jobs, device=device, limit=limit) as executor,
    ):
        executor.await_standby()
        return list(executor.run(tasks))


def measured(model: str, width: int, device: str, count: int) -> list[Switch]:
    """Return the three ways of one model."""
    jobs = pair(model, width, count)
    turns = [task for both in zip(*(job.tasks() for job in jobs), strict=True) for task in both]
    alone = run(jobs[:1], jobs[0].tasks(), device, None)
    # From the end of a task to the end of the next of the same job its gradients are stored, which
    # another job's task would not wait for: what it takes is its own passes.
    task_s = statistics.median(o.ended_s - o.began_s for o in alone[4:])
    need = max(o.held + o.working for o in alone)
    found = [stopped_and_started(jobs[0], device, max(3, count // 8))]
    found += [statistics.median(intervals(run(jobs, turns, device, m))) for m in (need, None)]
    return [Switch(max(0.0, interval - task_s), task_s) for interval in found]


def stopped_and_started(job: TaskJob, device: str, count: int) -> float:
    """Return seconds from the end of a task in one process to the end of the next in another."""
    with tempfile.TemporaryDirectory() as name:
        ends = []
        for task in job.tasks()[: count + 1]:
            words = [sys.executable, "-c", _ONE, repr(asdict(job)), name, device]
            done = subprocess.run(
                [*words, str(task.round), str(task.number)],
                cwd=Path(__file__).parents[1],
                check=True,
                capture_output=True,
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


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tasks", type=int, default=24, help="of each job")
    parser.add_argument("--models", default=",".join(MODELS), help="default all")
    parser.add_argument("--width", type=int, default=64, help="of the models")
    given = parser.parse_args()
    began = time.time()
    ways = ("stop and start", "stand by", "keep")
    models = given.models.split(",")
    columns = [measured(model, given.width, given.device, given.tasks) for model in models]
    lines = [
        (way, *map(str, cells)) for way, cells in zip(ways, zip(*columns, strict=True), strict=True)
    ]
    lines.append(("a task", *(f"{1000 * column[0].task_s:.1f} ms" for column in columns)))
    table = markdown(("", *models), lines)
    sys.stdout.write(f"{table}\n{given.device}, {time.time() - began:.0f} s\n")


if __name__ == "__main__":
    main()
