"""A user's own loop under DeepSpeed (ZeRO 1), in its own checkpoints; stopped, it ends with 99.

It leaves behind what `tests/job_wrappers/torch/train.py` leaves.
"""

import signal
import subprocess
import sys

import deepspeed
import torch
from torch import nn

from tests.job_wrappers.words import end_step, given, rank, size

told: list[int] = []
for number in (signal.SIGTERM, signal.SIGUSR2):
    signal.signal(number, lambda number, _: told.append(number))

torch.set_num_threads(1)
torch.manual_seed(3)
deepspeed.init_distributed("gloo")
inputs = torch.randn(given.samples, 12)
targets = (inputs @ torch.randn(12)).tanh()
model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1))
config = {
    "train_batch_size": given.global_batch,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
    "checkpoint": {"load_universal": True},
}
engine, optimizer, _, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=config
)
checkpoint = given.out / "checkpoint"
if checkpoint.exists():
    # As it was saved it fits the same number of GPUs alone.
    if rank == 0:
        saved = checkpoint / (checkpoint / "latest").read_text()
        universal = saved.with_name(f"{saved.name}_universal")
        module = "deepspeed.checkpoint.ds_to_universal"
        folders = (f"--input_folder={saved}", f"--output_folder={universal}")
        words = [sys.executable, "-m", module, *folders, "--inject_missing_state"]
        subprocess.run(words, check=True)
        (checkpoint / "latest_universal").write_text(universal.name)
    torch.distributed.barrier()
    engine.load_checkpoint(str(checkpoint))

losses = (given.out / "losses.txt").open("a", buffering=1)
each = given.global_batch // size
steps_of_an_epoch = given.samples // given.global_batch
step = engine.global_steps
while step < given.epochs * steps_of_an_epoch:
    epoch, done = divmod(step, steps_of_an_epoch)
    order = torch.randperm(given.samples, generator=torch.Generator().manual_seed(epoch))
    own = order[done * given.global_batch + rank * each :][:each]
    loss = nn.functional.mse_loss(engine(inputs[own]).squeeze(1), targets[own])
    engine.backward(loss)
    engine.step()
    means = torch.tensor([loss.item(), float(bool(told))])
    torch.distributed.all_reduce(means)
    if rank == 0:
        losses.write(f"{step} {epoch} {means[0].item() / size!r}\n")
    step += 1
    if means[1]:
        engine.save_checkpoint(str(checkpoint))
        torch.distributed.destroy_process_group()
        sys.exit(99)
    end_step(step)

if rank == 0:
    rate = optimizer.param_groups[0]["lr"]
    torch.save({"model": model.state_dict(), "lr": rate, "steps": step}, given.out / "weights.pt")
torch.distributed.destroy_process_group()
