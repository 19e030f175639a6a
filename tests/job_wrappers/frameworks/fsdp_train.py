"""A user's own loop with a model in FSDP and a distributed checkpoint; stopped, it ends with 99.

It leaves behind what `tests/job_wrappers/torch/train.py` leaves.
"""

import signal
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.job_wrappers.words import end_step, given, rank, size

told: list[int] = []
for number in (signal.SIGTERM, signal.SIGUSR2):
    signal.signal(number, lambda number, _: told.append(number))

torch.set_num_threads(1)
torch.manual_seed(3)
torch.distributed.init_process_group("gloo")
mesh = init_device_mesh("cpu", (size,))
inputs = torch.randn(given.samples, 12)
targets = (inputs @ torch.randn(12)).tanh()
model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1))
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

checkpoint, step = given.out / "checkpoint", 0
if checkpoint.exists():
    of_model, of_optimizer = get_state_dict(model, optimizer)
    state = {"model": of_model, "optimizer": of_optimizer, "step": 0}
    dcp.load(state, checkpoint_id=checkpoint)
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    step = state["step"]

losses = (given.out / "losses.txt").open("a", buffering=1)
each = given.global_batch // size
steps_of_an_epoch = given.samples // given.global_batch
while step < given.epochs * steps_of_an_epoch:
    epoch, done = divmod(step, steps_of_an_epoch)
    order = torch.randperm(given.samples, generator=torch.Generator().manual_seed(epoch))
    own = order[done * given.global_batch + rank * each :][:each]
    loss = nn.functional.mse_loss(model(inputs[own]).squeeze(1), targets[own])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    # What each rank was told goes along with its loss.
    means = torch.tensor([loss.item(), float(bool(told))])
    torch.distributed.all_reduce(means)
    if rank == 0:
        losses.write(f"{step} {epoch} {means[0].item() / size!r}\n")
    step += 1
    if means[1]:
        of_model, of_optimizer = get_state_dict(model, optimizer)
        state = {"model": of_model, "optimizer": of_optimizer, "step": step}
        dcp.save(state, checkpoint_id=checkpoint)
        torch.distributed.destroy_process_group()
        sys.exit(99)
    end_step(step)

whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
if rank == 0:
    rate = optimizer.param_groups[0]["lr"]
    torch.save({"model": whole, "lr": rate, "steps": step}, given.out / "weights.pt")
torch.distributed.destroy_process_group()
