"""A loop under accelerate in a TrainingSession, which shares out the samples, saves and stops.

It leaves behind what `tests/job_wrappers/torch/train.py` leaves.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from job_wrappers.session import TrainingSession
from tests.job_wrappers.words import end_step, given

torch.set_num_threads(1)
set_seed(3)
accelerator = Accelerator(cpu=True)
inputs = torch.randn(given.samples, 12)
data = TensorDataset(inputs, (inputs @ torch.randn(12)).tanh())
network = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1))
model, optimizer = accelerator.prepare(network, torch.optim.Adam(network.parameters(), lr=0.01))
# Not prepared: the session's own.
loader = DataLoader(data, batch_size=8, shuffle=True)
session = TrainingSession(
    model,
    optimizer,
    loader,
    checkpoint=given.out / "checkpoints",
    global_batch=given.global_batch,
    report_every_s=0.1,
)
losses = (given.out / "losses.txt").open("a", buffering=1)
for epoch in session.epochs(given.epochs):
    for x, y in session:
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        session.loss = loss
        mean = accelerator.reduce(loss.detach(), "mean")
        if accelerator.is_main_process:
            losses.write(f"{session.steps} {epoch} {mean.item()!r}\n")
        end_step(session.steps + 1)

if accelerator.is_main_process:
    state = accelerator.unwrap_model(model).state_dict()
    rate = optimizer.param_groups[0]["lr"]
    torch.save({"model": state, "lr": rate, "steps": session.steps}, given.out / "weights.pt")
accelerator.end_training()
