"""What a user's script looks like: a small network on made-up data, saved and resumed.

It appends `step epoch loss` of every step to OUT/losses.txt, and leaves its weights in OUT.
"""

import argparse
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

parser = argparse.ArgumentParser()
parser.add_argument("out", type=Path)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--samples", type=int, default=203)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--global-batch", type=int)
parser.add_argument("--lr-scaling")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--signal-at", type=int, default=-1, help="step at which rank 1 gets SIGTERM")
parser.add_argument("--kill-at", type=int, default=-1, help="step at which all get SIGKILL")
parser.add_argument("--save-at", type=int, default=-1, help="step at which rank 0 gets SIGUSR1")
parser.add_argument("--nap", type=float, default=0.0, help="seconds that each step takes longer")
parser.add_argument("--save-every", type=float, default=1e9)
parser.add_argument("--keep", type=int, default=3)
parser.add_argument("--shard", action="store_true", help="have all ranks write checkpoints")
parser.add_argument("--spoil", action="store_true", help="rank 1 can write no checkpoint")
args = parser.parse_args()
if args.shard:
    checkpoints.SHARD_BYTES = 0

torch.set_num_threads(1)
torch.manual_seed(3)
several = int(os.environ.get("WORLD_SIZE", "1")) > 1
if several:
    torch.distributed.init_process_group("gloo")
rank = int(os.environ.get("RANK", "0"))

if args.spoil:
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

inputs = torch.randn(args.samples, 12)
data = TensorDataset(inputs, (inputs @ torch.randn(12)).tanh())
model: nn.Module = nn.Sequential(
    nn.Linear(12, 24), nn.Tanh(), nn.Dropout(args.dropout), nn.Linear(24, 1)
).double()
if several:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
session = TrainingSession(
    model,
    optimizer,
    DataLoader(data, batch_size=args.batch, shuffle=True, num_workers=args.workers),
    checkpoint=args.out / "checkpoints",
    scheduler=scheduler,
    global_batch=args.global_batch,
    lr_scaling=args.lr_scaling,
    save_every_s=args.save_every,
    keep=args.keep,
    report_every_s=0.1,
)

losses = (args.out / "losses.txt").open("a", buffering=1)
batches = 0
for epoch in session.epochs(args.epochs):
    for x, y in session:
        loss = nn.functional.mse_loss(model(x.double()).squeeze(1), y.double())
        loss.backward()
        session.loss = loss
        batches += 1
        if batches % args.accumulate:
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
        if step == args.signal_at and rank == int(several):
            os.kill(os.getpid(), signal.SIGTERM)
        if step == args.save_at and rank == 0:
            os.kill(os.getpid(), signal.SIGUSR1)
        if step == args.kill_at:
            session.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(args.nap)
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
        args.out / "weights.pt",
    )
