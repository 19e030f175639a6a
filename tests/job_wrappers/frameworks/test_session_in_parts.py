"""A TrainingSession around a model of which each rank has a part.

Apart from the other tests of sessions, beside some of which torch's compiler cannot be imported.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from job_wrappers.session import SessionError, TrainingSession


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process, which has its signals back afterwards."""
    import torch

    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.getsignal(number) for number in numbers}
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("alone")
@pytest.mark.filterwarnings("ignore:FSDP is switching to use")
@pytest.mark.parametrize("how", ["fully_shard", "FullyShardedDataParallel"])
def test_a_model_in_fsdp_is_measured_and_no_checkpoint_of_it_is_promised(
    tmp_path: Path, how: str
) -> None:
    import torch
    from torch.distributed import fsdp
    from torch.distributed.device_mesh import init_device_mesh

    given = {
        "fully_shard": {"mesh": init_device_mesh("cpu", (1,))},
        "FullyShardedDataParallel": {"device_id": torch.device("cpu")},
    }
    model = getattr(fsdp, how)(torch.nn.Linear(3, 1), **given[how])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    samples = torch.utils.data.TensorDataset(torch.rand(64, 3))
    loader = torch.utils.data.DataLoader(samples, batch_size=4)
    with pytest.raises(SessionError, match=r"a part of the model alone \(FSDP\)"):
        TrainingSession(model, optimizer, loader, checkpoint=tmp_path / "checkpoints")
    assert list(tmp_path.iterdir()) == []
    session = TrainingSession(model, optimizer, loader)
    for (x,) in session:
        model(x).sum().backward()
        optimizer.step()
        if session.steps == 2:
            break
    session.finish()
    assert session.steps == 3
