"""A callback for the Trainer of Hugging Face's transformers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from job_wrappers.session.errors import SessionError, told_plainly, torch_here
from job_wrappers.session.peers import Peers
from job_wrappers.session.run import TrainingRun


def newest_checkpoint(folder: str | os.PathLike[str]) -> str | None:
    """Return the newest whole checkpoint in a Trainer's `output_dir`; None if there is none."""
    found = [path.parent for path in Path(folder).glob("checkpoint-*/trainer_state.json")]
    newest = max(found, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
    return None if newest is None else str(newest)


def trainer_callback(report_every_s: float = 5.0) -> Any:
    """Return a callback that measures a Trainer, and saves and ends it when it is told to stop.

        trainer = Trainer(..., callbacks=[trainer_callback()])
        trainer.train(resume_from_checkpoint=newest_checkpoint(args.output_dir))

    Args:
        report_every_s: seconds from one line about progress to the next.

    Raises:
        SessionError: there is no torch that fits.
    """
    told_plainly()
    torch = torch_here()
    from transformers import TrainerCallback

    class HetschedCallback(TrainerCallback):  # type: ignore[misc]
        """Tells a run where the Trainer's loop is."""

        def __init__(self) -> None:
            """Know of no training yet."""
            self.run: TrainingRun | None = None
            self._loss: Any = None
            self._stopping = False
            self._since_s = 0.0

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            """Begin to measure."""
            if args.save_only_model:
                raise SessionError(
                    "with save_only_model the Trainer could not go on from what it saves: leave it "
                    "out of TrainingArguments"
                )
            self.run = TrainingRun(
                torch,
                Peers(torch),
                given["model"],
                given["optimizer"],
                report_every_s=report_every_s,
                samples=_samples(args, state),
                steps=state.global_step,
            )
            self.run.report.batch = args.train_batch_size * args.gradient_accumulation_steps

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Begin a step."""
            self._begin()

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Note that the batches of a step have come."""
            if self.run is not None:
                self.run.timer.got_data()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """End a step, after which all ranks do what one of them was told."""
            if self.run is None:
                return
            self.run.timer.end_step()
            self._since_s = time.monotonic()
            samples, steps = _samples(args, state), state.global_step
            stop, save = self.run.boundary(samples, steps, self._loss, saving=False)
            if stop or save:
                control.should_save = True
            if stop:
                self._stopping = control.should_training_stop = True
                control.should_evaluate = False

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            """Take the loss."""
            self._loss = (logs or {}).get("loss", self._loss)
            self._begin()

        def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Begin a step anew: this was no part of one."""
            self._since_s = time.monotonic()
            self._begin()

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Tell of a checkpoint, and end the run if that was all it still had to do."""
            if self.run is None:
                return
            samples = _samples(args, state)
            self.run.report.saved(samples, time.monotonic() - self._since_s)
            self._begin()
            if self._stopping:
                raise self.run.stop(samples, state.global_step, saved=True)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """End the run."""
            if self.run is not None:
                self.run.settle()
                self.run.complete(_samples(args, state))
                self.run = None

        def _begin(self) -> None:
            if self.run is not None:
                self.run.timer.begin()

    return HetschedCallback()


def _samples(args: Any, state: Any) -> int:
    """Return the samples of all steps, as many as there are in one now."""
    each = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    return int(state.global_step * each)
