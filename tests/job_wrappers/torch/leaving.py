"""Two ranks that leave as they are told, and say what stands of torch.distributed as they go."""

import atexit
import os
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

from job_wrappers.session import TrainingSession

folder, how = Path(sys.argv[1]), sys.argv[2]
rank = int(os.environ["RANK"])


def threads() -> int:
    """How many threads of gloo there are, each of which may hold a tensor."""
    names = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
    return sum("gloo_runloop" in name for name in names)


def told() -> None:
    stands = torch.distributed.is_initialized()
    (folder / f"rank-{rank}").write_text(f"{before} {threads()} {stands}")


# What is registered first comes last.
atexit.register(told)
torch.distributed.init_process_group("gloo")
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.ones(32, 3)), batch_size=4)
session = TrainingSession(model, optimizer, loader, checkpoint=folder / "checkpoints")
before = 0
for (x,) in session:
    model(x).sum().backward()
    optimizer.step()
    if how == "fails" and session.steps == 2:
        if rank == 1:
            raise ValueError("in the middle of it")
        torch.distributed.barrier()
before = threads()
session.finish()
if how == "fails-later":
    raise ValueError("when all is done")
