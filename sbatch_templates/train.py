"""A whole training script to begin with: a small network on made-up images.

It runs by itself (`python3 train.py`), under torchrun, and under hetsched-run (training.sbatch).
"""

import argparse
import os

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from job_wrappers.session import TrainingSession

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--images", type=int, default=4096)
parser.add_argument("--checkpoints", default="checkpoints")
args = parser.parse_args()

torch.manual_seed(0)
workers = int(os.environ.get("WORLD_SIZE", "1"))
gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else "cpu"
if gpu:
    torch.cuda.set_device(device)
if workers > 1:
    torch.distributed.init_process_group("nccl" if gpu else "gloo")

images = torch.randn(args.images, 3, 32, 32)
classes = (images.mean((1, 2, 3)) > 0).long()
# The batch of one GPU. No DistributedSampler: the session shares the samples out.
loader = DataLoader(TensorDataset(images, classes), batch_size=64, shuffle=True)

model = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 2),
).to(device)
if workers > 1:
    model = DistributedDataParallel(model)

# For the GPUs of this run, by the rule of the submission.
rate = float(os.environ.get("HETSCHED_LEARNING_RATE", "0.05"))
optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)

session = TrainingSession(
    model, optimizer, loader, checkpoint=args.checkpoints, scheduler=scheduler
)
for epoch in session.epochs(args.epochs):
    for inputs, targets in session:
        loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        session.loss = loss
    scheduler.step()
    if os.environ.get("RANK", "0") == "0":
        print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)

if workers > 1:
    torch.distributed.destroy_process_group()
