"""The session: one object around model, optimiser and loader."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from job_wrappers.learning_rate import RATE, SCALING, LearningRateRule
from job_wrappers.session.batches import Batches, length_of
from job_wrappers.session.checkpoints import Checkpoints, Place
from job_wrappers.session.errors import SessionError, told_plainly, torch_here
from job_wrappers.session.peers import Peers
from job_wrappers.session.run import TrainingRun
from job_wrappers.session.state import TrainedParts, new_random_state, set_random_state


class TrainingSession:
    """Measures a training loop, saves it at step boundaries, and resumes it.

    A step ends where the loop asks for the next batch after the optimiser has made a step. There
    all ranks save, or stop, together.

    Attributes:
        epoch: the epoch that is being trained, from 0.
        steps: of the optimiser, over all runs.
        samples: that all ranks have trained on, over all runs.
        loss: of the last step; set it in the loop to give the scheduler a loss curve.
        resumed: whether there was a checkpoint to go on from.
        report: what was measured.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loader: Any,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        scheduler: Any = None,
        others: Mapping[str, Any] | None = None,
        global_batch: int | None = None,
        lr_scaling: str | None = None,
        save_every_s: float = 1800.0,
        keep: int = 3,
        report_every_s: float = 5.0,
    ) -> None:
        """Begin, or go on from the newest checkpoint.

        Args:
            model: the model, in DistributedDataParallel where there are several ranks.
            optimizer: its optimiser.
            loader: its DataLoader; without a sampler of its own its samples are shared among the
                ranks, and training goes on with the very next one.
            checkpoint: directory for checkpoints, which all nodes see; None to save nothing.
            scheduler: of the learning rate.
            others: by name, what else has a state (`state_dict`, `load_state_dict`).
            global_batch: samples of a step over all ranks, whatever their number, without a change
                of the learning rate; by default the loader's batch size is for each rank.
            lr_scaling: `linear`, `sqrt` or `none`: how the learning rate follows the number of
                ranks when it has changed; by default what the job was submitted with.
            save_every_s: seconds from one checkpoint to the next.
            keep: how many checkpoints to keep.
            report_every_s: seconds from one line about progress to the next.

        Raises:
            SessionError: something is missing, or the checkpoint does not fit.
        """
        told_plainly()
        torch = self._torch = torch_here()
        self._peers = peers = Peers(torch)
        self._parts = TrainedParts(
            torch, model, optimizer, {"scheduler": scheduler, **(others or {})}
        )
        self.epoch = self.steps = 0
        self.samples = 0
        self._loss: Any = None
        self.resumed = False
        self._position = 0
        self._global_batch = global_batch
        told = {**os.environ, RATE: ""}
        if lr_scaling is not None:
            told[SCALING] = lr_scaling
        try:
            rule = LearningRateRule.of(told)
        except ValueError as error:
            raise SessionError(f"lr_scaling, or what the job was told: {error}") from None
        seed = int(torch.initial_seed()) % 2**31
        self._seed = int(peers.from_first(lambda: seed))
        self._checkpoints: Checkpoints | None = None
        place: Place | None = None
        if checkpoint is not None:
            if self._parts.in_parts:
                raise SessionError(
                    "each rank has a part of the model alone (FSDP), which no session saves; "
                    "leave `checkpoint` out, and save by torch.distributed.checkpoint"
                )
            self._checkpoints = Checkpoints(
                torch, peers, self._parts, checkpoint, keep, self._on_saved
            )
            place = self._checkpoints.place
        if place is not None:
            self._seed = place.seed
        self._batches = Batches(torch, loader, peers, self._seed, global_batch)
        self._random: Any = None
        if self._checkpoints is not None and place is not None:
            self._go_on(place, rule, self._checkpoints.random)
        self._run = TrainingRun(
            torch,
            peers,
            model,
            optimizer,
            loaders=self._batches.workers,
            report_every_s=report_every_s,
            save_every_s=save_every_s if checkpoint is not None else float("inf"),
            samples=self.samples,
            steps=self.steps,
            on_end=self._release,
        )
        self.report = self._run.report

    @property
    def loss(self) -> Any:
        """The loss of the last step, as the loop has set it."""
        return self._loss

    @loss.setter
    def loss(self, loss: Any) -> None:
        # What it was computed from is not to be kept for it.
        self._loss = loss.detach() if self._torch.is_tensor(loss) else loss

    # -- the loop ----------------------------------------------------------------------------------

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the epochs that are left of `count`, and end the session after the last one."""
        while self.epoch < count:
            yield self.epoch
            self.epoch += 1
            self._position = 0
        self.finish()

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches that are left of the epoch."""
        batches, timer = self._batches, self._run.timer
        position = self._position
        iterator = batches.of(self.epoch, position)
        if self._random is not None:
            # Only now, for whatever a loader draws when it begins is drawn.
            set_random_state(self._torch, self._random)
            self._random = None
        taken = 0
        timer.begin()
        while True:
            batch: Any = next(iterator, _NOTHING)
            if batch is _NOTHING:
                break
            if batches.workers:
                batch, loading_s = batch
                self.report.loaded(loading_s)
            timer.got_data()
            before = position
            if batches.order is None:
                position += 1
                count = length_of(batch) * self._peers.size
            else:
                position = batches.order.taken_after(position)
                count = position - before
            self.samples += count
            taken += count
            try:
                yield batch
            finally:
                # The loop may leave early, after this batch; it counts then, too.
                self._position = position
                self.steps = timer.steps
            if timer.stepped:
                timer.end_step()
                self.report.batch = max(self.report.batch, taken // self._peers.size)
                taken = 0
                self._boundary()
        self._act(*self._run.settle())

    def save(self) -> None:
        """Save here and now; all ranks have to call this, between two steps."""
        self.save_beside()
        self.wait()

    def save_beside(self) -> None:
        """Copy the state here and now, and write it beside training."""
        if self._checkpoints is None:
            return
        self._checkpoints.save(
            Place(
                epoch=self.epoch,
                position=self._position,
                steps=self.steps,
                samples=self.samples,
                seed=self._seed,
                ranks=self._peers.size,
                global_batch=self._global_batch,
            )
        )

    @property
    def saving(self) -> bool:
        """Whether a checkpoint is still being written."""
        return self._checkpoints is not None and self._checkpoints.saving

    def wait(self) -> None:
        """Wait until the checkpoint that is being written is on disk."""
        if self._checkpoints is not None:
            self._checkpoints.wait()

    def finish(self) -> None:
        """End the session: training is done, and saved as such."""
        if self._run.over:
            return
        self._run.settle()
        self.save()
        if self._peers.rank == 0 and self._checkpoints is not None and not self._checkpoints.saved:
            # No error: what the program still does with its model is worth more than its exit code.
            sys.stderr.write(
                f"hetsched: training is over after {self.steps} steps, and its end is NOT saved\n"
            )
        self._run.complete(self.samples)

    # -- boundaries --------------------------------------------------------------------------------

    def _boundary(self) -> None:
        report = self.report
        measuring = report.profile is None
        asked = self._run.boundary(self.samples, self.steps, self._loss, saving=self.saving)
        if measuring and report.profile is not None and self._checkpoints is not None:
            self._checkpoints.prepare()
        self._act(*asked)

    def _act(self, stop: bool, save: bool) -> None:
        if stop:
            self.save()
            saved = self._checkpoints is not None and self._checkpoints.saved
            raise self._run.stop(self.samples, self.steps, saved=saved)
        if save:
            self.save_beside()
            # What was saved is no part of a step.
            self._run.timer.begin()

    def _release(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.release()

    def _go_on(self, place: Place, rule: LearningRateRule, random_before: Any) -> None:
        """Take a place over, and fit what was restored to the ranks that there are now."""
        self.resumed = True
        self.epoch, self._position = place.epoch, place.position
        self.steps, self.samples = place.steps, place.samples
        now, before = self._peers.size, place.ranks
        factor = 1.0
        if now != before:
            if self._batches.order is None:
                # Such a loader counts its own batches.
                self._position = self._position * before // now
            if place.global_batch is None or place.global_batch != self._global_batch:
                factor = rule.factor(now, before)
                self._parts.scale_learning_rate(factor)
        if random_before is None:
            new_random_state(self._torch, self._seed, self._peers.rank, self.steps)
        else:
            set_random_state(self._torch, random_before)
            self._random = random_before
        if self._peers.rank == 0:
            rates = f", learning rate times {factor:g}" if factor != 1.0 else ""
            sys.stderr.write(
                f"hetsched: resumed after {self.steps} steps, {self.samples} samples, on {now} "
                f"GPUs ({before} before{rates})\n"
            )

    def _on_saved(self, samples: float, stopped_s: float) -> None:
        self.report.saved(samples, stopped_s)


_NOTHING = object()
