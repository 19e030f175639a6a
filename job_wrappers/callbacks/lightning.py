"""A callback for the Trainer of Lightning."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from job_wrappers.outcome import tell_stopped
from job_wrappers.session.batches import length_of
from job_wrappers.session.errors import told_plainly, torch_here
from job_wrappers.session.peers import Peers
from job_wrappers.session.run import TrainingRun


def newest_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """Return the checkpoint in a folder that was written last; None if there is none."""
    found = Path(folder).glob("*.ckpt")
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


def lightning_callback(folder: str | os.PathLike[str], report_every_s: float = 5.0) -> Any:
    """Return a callback that measures a Trainer, and saves and ends it when it is told to stop.

        trainer = Trainer(..., callbacks=[lightning_callback("checkpoints")])
        trainer.fit(module, loader, ckpt_path=newest_checkpoint("checkpoints"))

    Args:
        folder: for the checkpoint of a run that was stopped or told to save; the user's own may lie
            there, too.
        report_every_s: seconds from one line about progress to the next.

    Raises:
        SessionError: there is no torch that fits.
    """
    told_plainly()
    torch = torch_here()
    from lightning.pytorch import Callback
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    class HetschedCallback(Callback):  # type: ignore[misc]
        """Tells a run where the Trainer's loop is."""

        def __init__(self) -> None:
            """Know of no training yet."""
            self.run: TrainingRun | None = None
            self._samples = self._taken = 0
            self._since_s = 0.0
            self._saving = False

        def state_dict(self) -> dict[str, Any]:
            """Return what a checkpoint is to hold of it."""
            return {"samples": self._samples}

        def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
            """Take it back."""
            self._samples = int(state_dict["samples"])

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            """Begin to measure, and take the signals from Lightning, which saves nothing then."""
            self.run = TrainingRun(
                torch,
                Peers(torch),
                pl_module,
                trainer.optimizers[0],
                report_every_s=report_every_s,
                samples=self._samples,
                steps=trainer.global_step,
            )

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            """Begin a step."""
            self._begin()

        def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            """Note that a batch has come."""
            if self.run is not None:
                self._told_saved()
                self.run.timer.got_data()

        def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
            """Note the end of the forward pass; a module's own `forward` need not be called."""
            if self.run is not None:
                self.run.timer.got_output(loss)

        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            """Note the end of the backward pass, which is part of the optimiser's step here."""
            if self.run is not None:
                self.run.timer.waited()

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            """End a step if this was its last batch, and do what one of the ranks was told."""
            run = self.run
            if run is None:
                return
            self._taken += length_of(batch)
            if not run.timer.stepped:
                return
            run.timer.end_step()
            self._samples += self._taken * trainer.world_size
            run.report.batch = max(run.report.batch, self._taken)
            self._taken = 0
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            stop, save = run.boundary(self._samples, trainer.global_step, loss, saving=False)
            if stop or save:
                trainer.save_checkpoint(Path(folder) / f"hetsched-{trainer.global_step:012d}.ckpt")
                self._told_saved()
            if stop:
                raise run.stop(self._samples, trainer.global_step, saved=True)

        def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
            """Note that training stands still, whatever saves."""
            self._saving, self._since_s = True, time.monotonic()

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            """Begin a step anew: this was no part of one."""
            self._begin()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            """End the run."""
            if self.run is not None:
                self._told_saved()
                self.run.settle()
                self.run.complete(self._samples)
                self.run = None

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            """Have a run that Lightning ends for a signal from before training count as stopped."""
            if isinstance(exception, SIGTERMException):
                exception.code = tell_stopped(os.environ, trainer.global_rank)

        def _told_saved(self) -> None:
            """Tell of a checkpoint that is on disk by now."""
            if self.run is not None and self._saving:
                self._saving = False
                self.run.report.saved(self._samples, time.monotonic() - self._since_s)
                self._begin()

        def _begin(self) -> None:
            if self.run is not None:
                self.run.timer.begin()

    return HetschedCallback()
