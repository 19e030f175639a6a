"""One process of a measured training: profiles, then times steps, and leaves both as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from benchmarks.wrappers.models import CASES
from job_wrappers.session import TrainingSession
from job_wrappers.session.profile import ITERATIONS, WARM_UP


def main() -> None:
    name, steps, out = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    case = CASES[name]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    several = int(os.environ["WORLD_SIZE"]) > 1
    if several:
        torch.distributed.init_process_group("gloo")
    model = case.model()
    size = sum(p.numel() for p in model.parameters())
    alone_s = reduction_s(size) if several else 0.0
    if several:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(case.data(), case.batch, shuffle=True, num_workers=case.workers)
    session = TrainingSession(model, optimizer, loader, report_every_s=0.5)
    times: list[float] = []
    profiled: list[float] = []
    last = 0.0
    for inputs, targets in session:
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        now = time.perf_counter()
        if WARM_UP < session.steps <= WARM_UP + ITERATIONS:
            profiled.append(now - last)
        if session.steps > 30:  # profiling mode is over, and its buffers are used up
            times.append(now - last)
        last = now
        if len(times) >= steps:
            break
    if os.environ["RANK"] == "0":
        said = {"times": times, "profiled": profiled, "reduction_s": alone_s, "parameters": size}
        out.write_text(json.dumps(said))
    session.finish()


def reduction_s(size: int, repeat: int = 20) -> float:
    """Seconds in which two processes that do nothing else average so many numbers."""
    values = torch.zeros(size)
    for _ in range(5):
        torch.distributed.all_reduce(values)
    begun = time.perf_counter()
    for _ in range(repeat):
        torch.distributed.all_reduce(values)
    return (time.perf_counter() - begun) / repeat


if __name__ == "__main__":
    main()
