"""What a user's script looks like: a small network on made-up data, saved and resumed.

It appends `step epoch loss` of every step to OUT/losses.txt, and leaves its weights in OUT.
"""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from job_wrappers.session import TrainingSession, checkpoints, raw
from tests.job_wrappers.words import end_step, given, rank, size

if given.shard:
    checkpoints.SHARD_BYTES = 0

torch.set_num_threads(1)
device = os.environ.get("HETSCHED_DEVICE", "cpu")
torch.manual_seed(3)
several = size > 1
if several:
    torch.distributed.init_process_group("gloo")

if given.spoil:
    # Rank 1 fails before rank 0 begins.
    pieces_of = raw.pieces_of

    def spoiled(tensors: Mapping[int, Any]) -> Any:
        if rank == 1:
            raise OSError("read-only here")
        return pieces_of(tensors)

    make = Path.mkdir

    def late(path: Path, *how: Any, **more: Any) -> None:
        if rank == 0 and path.suffix == ".part":
            time.sleep(0.5)
        make(path, *how, **more)

    vars(checkpoints)["pieces_of"] = spoiled
    Path.mkdir = late  # type: ignore[assignment,method-assign]

inputs = torch.randn(given.samples, 12)
data = TensorDataset(inputs, (inputs @ torch.randn(12)).tanh())
model: nn.Module = nn.Sequential(
    nn.Linear(12, 24), nn.Tanh(), nn.Dropout(given.dropout), nn.Linear(24, 1)
).to(device, torch.double)
if several:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
session = TrainingSession(
    model,
    optimizer,
    DataLoader(data, batch_size=8, shuffle=True, num_workers=given.workers),
    checkpoint=given.out / "checkpoints",
    scheduler=scheduler,
    global_batch=given.global_batch,
    lr_scaling=given.lr_scaling,
    save_every_s=1e9,
    report_every_s=0.1,
)

losses = (given.out / "losses.txt").open("a", buffering=1)
batches = 0
for epoch in session.epochs(given.epochs):
    for x, y in session:
        there = x.to(device, torch.double), y.to(device, torch.double)
        loss = nn.functional.mse_loss(model(there[0]).squeeze(1), there[1])
        loss.backward()
        session.loss = loss
        batches += 1
        if batches % given.accumulate:
            continue
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        if several:
            torch.distributed.all_reduce(mean)
            mean /= torch.distributed.get_world_size()
        if rank == 0:
            losses.write(f"{session.steps} {epoch} {mean.item()!r}\n")
        step = session.steps + 1
        if step == given.kill_at:
            session.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        end_step(step)
    scheduler.step()

if rank == 0:
    weights = model.module if several else model
    torch.save(
        {
            "model": weights.state_dict(),
            "lr": optimizer.param_groups[0]["lr"],
            "steps": session.steps,
            "samples": session.samples,
        },
        given.out / "weights.pt",
    )
