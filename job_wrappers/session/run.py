"""One run of a training: measured, told of, and ended at a step that all ranks agree on."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import threading
import time
from typing import Any, Callable

from job_wrappers.outcome import Wishes, tell_stopped
from job_wrappers.session.peers import Agreement, Peers
from job_wrappers.session.phases import PhaseTimer
from job_wrappers.session.report import Reporter


class Stopped(SystemExit):
    """The run was told to stop and has saved its state; ends the process unless it is caught."""


class TrainingRun:
    """What is the same whatever owns the loop: a session, or the trainer of a framework.

    The owner says by `timer` where a batch has come, and by `boundary` where a step has ended.

    Attributes:
        timer: cuts steps into their parts.
        report: what was measured.
        samples: that all ranks have trained on at the last boundary, over all runs.
        over: whether the run has ended.
    """

    def __init__(
        self,
        torch: Any,
        peers: Peers,
        model: Any,
        optimizer: Any,
        *,
        report_every_s: float,
        samples: int,
        steps: int,
        loaders: int = 0,
        save_every_s: float = math.inf,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        """Begin to measure, and to take the signals.

        Args:
            torch: the module.
            peers: all ranks.
            model: what is trained.
            optimizer: its optimiser.
            report_every_s: seconds from one line about progress to the next.
            samples: that were trained on in the runs before.
            steps: that were made in them.
            loaders: processes that load beside training, where what they take for a batch is known.
            save_every_s: seconds from one wish to save to the next.
            on_end: is called once when the run ends, however it does.
        """
        self._peers = peers
        self.samples = samples
        self._on_end = on_end
        self.timer = PhaseTimer(torch, model, optimizer)
        self.timer.steps = steps
        self._wishes = Wishes()
        if threading.current_thread() is threading.main_thread():
            self._wishes.listen()
        self._agreement = Agreement(peers, self._wishes)
        self._save_every_s, self._saved_s = save_every_s, time.monotonic()
        self.report = Reporter(
            self.timer,
            peers,
            parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
            loaders=loaders,
            every_s=report_every_s,
            samples=samples,
        )
        self.over = False
        self._process = os.getpid()
        atexit.register(self._at_exit)

    def boundary(self, samples: int, steps: int, loss: Any, *, saving: bool) -> tuple[bool, bool]:
        """Take in a step that has ended; return whether all ranks stop here, or save.

        Args:
            samples: that all ranks have trained on, over all runs.
            steps: of the optimiser, over all runs.
            loss: of the step; None where it is not to be told.
            saving: whether a checkpoint is still being written, so that none is due.
        """
        self.samples = samples
        self.report.step(samples, steps, loss)
        now_s = time.monotonic()
        if self._peers.rank == 0 and now_s - self._saved_s >= self._save_every_s and not saving:
            self._saved_s = now_s
            self._wishes.save = True
        return self._agreement.at_boundary()

    def settle(self) -> tuple[bool, bool]:
        """Return what the ranks have agreed on and not heard yet; all have done as many steps."""
        return self._agreement.close()

    def complete(self, samples: int) -> None:
        """End the run: training is done."""
        self._end(samples, "completed")

    def stop(self, samples: int, steps: int, *, saved: bool) -> Stopped:
        """End the run, which wants to go on some other time; return what is to be raised."""
        # Nobody leaves before all have written: the launcher would take it for a failure.
        self._peers.barrier()
        if self._peers.rank == 0:
            sys.stderr.write(
                f"hetsched: stopped after {steps} steps, {samples} samples; "
                f"{'all of it is saved' if saved else 'NOT saved'}\n"
            )
        self._end(samples, "stopped")
        return Stopped(tell_stopped(os.environ, self._peers.rank))

    def _end(self, samples: int, how: str) -> None:
        self.over = True
        self.report.end(samples, how)
        self._on_end()

    def _at_exit(self) -> None:
        if os.getpid() != self._process:
            return  # forked from the one that trains, whose lock and spool file these are
        if not self.over:
            with contextlib.suppress(Exception):
                self._end(self.samples, "failed")
        elif not hasattr(sys, "last_type"):
            # Of a process that an error ends others may not know yet, and wait for it.
            self._peers.leave()
