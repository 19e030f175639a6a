"""A small model in Hugging Face's Trainer with the callback; leaves its weights behind."""

from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

from job_wrappers.callbacks.hugging_face import newest_checkpoint, trainer_callback
from tests.job_wrappers.words import end_step, given, rank


class Samples(Dataset[dict[str, Any]]):
    """Made-up ones."""

    def __init__(self) -> None:
        self.inputs = torch.randn(203, 12)
        self.targets = (self.inputs @ torch.randn(12)).tanh()

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"inputs": self.inputs[index], "labels": self.targets[index]}


class Net(nn.Module):
    """A model as the Trainer wants it: its output begins with the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Dropout(0.2), nn.Linear(24, 1))

    def forward(self, inputs: Any, labels: Any) -> dict[str, Any]:
        output = self.layers(inputs).squeeze(1)
        return {"loss": nn.functional.mse_loss(output, labels), "logits": output}


class Witness(TrainerCallback):
    """Notes the steps, and sends the signals."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        step = state.global_step
        if rank == 0:
            with (given.out / "steps.txt").open("a") as file:
                file.write(f"{step}\n")
        end_step(step)


torch.set_num_threads(1)
set_seed(3)
args = TrainingArguments(
    output_dir=str(given.out / "checkpoints"),
    per_device_train_batch_size=8,
    gradient_accumulation_steps=given.accumulate,
    num_train_epochs=given.epochs,
    learning_rate=0.01,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
    seed=3,
)
model = Net()
trainer = Trainer(
    model, args, train_dataset=Samples(), callbacks=[Witness(), trainer_callback(0.1)]
)
trainer.train(resume_from_checkpoint=newest_checkpoint(args.output_dir))
if rank == 0:
    losses = [each["loss"] for each in trainer.state.log_history if "loss" in each]
    torch.save({"model": model.state_dict(), "losses": losses}, given.out / "weights.pt")
