"""A small module in Lightning's Trainer with the callback; leaves its weights behind."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import lightning
import torch
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from torch import nn

from job_wrappers.callbacks.lightning import lightning_callback, newest_checkpoint
from tests.job_wrappers.words import end_step, given, rank, size


class Batches:
    """A loader that can go on in the middle of an epoch, which Lightning asks of the user."""

    def __init__(self) -> None:
        self.inputs = torch.randn(208, 12)
        self.targets = (self.inputs @ torch.randn(12)).tanh()
        self.epoch = self.given = 0

    def __len__(self) -> int:
        return len(self.inputs) // (8 * size)

    def __iter__(self) -> Iterator[Any]:
        # Lightning takes as many as there are, and does not ask whether there is one more.
        if self.given == len(self):
            self.epoch, self.given = self.epoch + 1, 0
        generator = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(len(self.inputs), generator=generator)[rank::size]
        while self.given < len(self):
            own = order[8 * self.given : 8 * self.given + 8]
            self.given += 1
            yield self.inputs[own], self.targets[own]

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "given": self.given}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.epoch, self.given = state["epoch"], state["given"]


class Module(lightning.LightningModule):
    """Its `forward` is never called, as in many a module."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1))
        self.losses: list[float] = []

    def training_step(self, batch: Any, index: int) -> Any:
        loss = nn.functional.mse_loss(self.layers(batch[0]).squeeze(1), batch[1])
        if rank == 0:
            with (given.out / "losses.txt").open("a") as file:
                file.write(f"{self.global_step} {self.current_epoch} {loss.item()!r}\n")
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)]


class Witness(lightning.Callback):
    """Sends the signals."""

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if not trainer.fit_loop._should_accumulate():
            end_step(trainer.global_step)


torch.set_num_threads(1)
lightning.seed_everything(3)
folder = given.out / "checkpoints"
module = Module()
trainer = lightning.Trainer(
    max_epochs=given.epochs,
    accelerator="cpu",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
    strategy="ddp" if size > 1 else "auto",
    plugins=[TorchElasticEnvironment()],
    accumulate_grad_batches=given.accumulate,
    callbacks=[Witness(), lightning_callback(folder, 0.1)],
    default_root_dir=given.out,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(module, Batches(), ckpt_path=newest_checkpoint(folder))
if rank == 0:
    torch.save(
        {"model": module.state_dict(), "steps": trainer.global_step}, given.out / "weights.pt"
    )
