"""A user's own loop under accelerate, with accelerate's own checkpoints; stopped, it ends with 99.

It leaves behind what `tests/job_wrappers/torch/train.py` leaves.
"""

import signal
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.job_wrappers.words import end_step, given


class Progress:
    """Steps and epochs that are done, saved with all else."""

    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]


told: list[int] = []
for number in (signal.SIGTERM, signal.SIGUSR2):
    signal.signal(number, lambda number, _: told.append(number))

torch.set_num_threads(1)
set_seed(3)
# A step has as many samples on any number of GPUs, drawn in the same order.
config = DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True)
accelerator = Accelerator(cpu=True, dataloader_config=config)
inputs = torch.randn(given.samples, 12)
data = TensorDataset(inputs, (inputs @ torch.randn(12)).tanh())
model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
model, optimizer, scheduler, loader = accelerator.prepare(
    model, optimizer, scheduler, DataLoader(data, batch_size=given.global_batch, shuffle=True)
)
progress = Progress()
accelerator.register_for_checkpointing(progress)
checkpoint = given.out / "checkpoint"
if checkpoint.exists():
    accelerator.load_state(str(checkpoint))

losses = (given.out / "losses.txt").open("a", buffering=1)
while progress.steps < given.epochs * len(loader):
    epoch, done = divmod(progress.steps, len(loader))
    loader.set_epoch(epoch)
    for x, y in accelerator.skip_first_batches(loader, done) if done else loader:
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        mean = accelerator.reduce(loss.detach(), "mean")
        if accelerator.is_main_process:
            losses.write(f"{progress.steps} {epoch} {mean.item()!r}\n")
        progress.steps += 1
        end_step(progress.steps)
        if accelerator.reduce(torch.tensor(float(bool(told)))):
            accelerator.save_state(str(checkpoint))
            accelerator.wait_for_everyone()
            accelerator.end_training()
            sys.exit(99)

if accelerator.is_main_process:
    state = accelerator.unwrap_model(model).state_dict()
    rate = optimizer.param_groups[0]["lr"]
    torch.save({"model": state, "lr": rate, "steps": progress.steps}, given.out / "weights.pt")
# A process that ends while others are still at work may be aborted by gloo's threads.
accelerator.wait_for_everyone()
accelerator.end_training()
