"""What the scheduler is told of a session: first the parts of a step, then how far and how fast."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

from job_wrappers.allocation import Allocation
from job_wrappers.session.peers import Peers
from job_wrappers.session.phases import PhaseTimer, StepTimes
from job_wrappers.session.profile import (
    ITERATIONS,
    MOST_VALUES,
    WARM_UP,
    StepProfile,
    beside_forward,
    beyond_least,
    profile_of,
)
from job_wrappers.slurm import gpu_type_of
from job_wrappers.spool import Telling


class Reporter:
    """Measures by a timer and tells: rank 0 speaks for the job.

    Profiling mode lasts for the first steps of a run and cuts them into all their parts; running
    mode measures data and waiting alone (Hops, section 3.2), and of short steps no more than a line
    has room for: looking costs the more the shorter they are.

    Attributes:
        batch: samples of a step on one rank.
        profile: what profiling mode has measured; None while it lasts.
    """

    def __init__(
        self,
        timer: PhaseTimer,
        peers: Peers,
        *,
        parameters: int,
        loaders: int,
        every_s: float,
        samples: float,
    ) -> None:
        """Begin in profiling mode; outside of a job nothing is told.

        Args:
            timer: cuts steps.
            peers: all ranks.
            parameters: that are trained.
            loaders: processes that load beside training.
            every_s: seconds from one progress line to the next.
            samples: done in the runs before.
        """
        self._timer = timer
        self._size, self._parameters, self._loaders = peers.size, parameters, loaders
        self._every_s = every_s
        self._allocation: Allocation | None = None
        with contextlib.suppress(ValueError):
            self._allocation = Allocation.of(os.environ)
        spool = os.environ.get("HETSCHED_SPOOL")
        self._telling: Telling | None = None
        if peers.rank == 0 and self._allocation is not None and spool:
            self._telling = Telling(Path(spool), self._allocation, peers.rank, peers.size)
        self.batch = 1
        self.profile: StepProfile | None = None
        self._measured: list[StepTimes] = []
        self._steps = 0
        self._apart = self._left = 1
        self._looking = True
        self._loading: deque[float] = deque(maxlen=MOST_VALUES)
        self._recent: deque[StepTimes] = deque(maxlen=MOST_VALUES)
        now = time.monotonic()
        self._told_s, self._told_samples = now, samples
        self._due_s = now + every_s
        self._now = now
        timer.look()

    def loaded(self, seconds: float) -> None:
        """Note how long a loading process took for a batch."""
        if self._looking:
            self._loading.append(seconds / self._loaders)

    def step(self, samples: float, steps: int, loss: Any) -> None:
        """Take in a step that has ended."""
        self._now = time.monotonic()
        self._steps += 1
        if self.profile is None:
            self._measure()
            return
        if self._now >= self._due_s:
            self._recent.extend(self._timer.finished())
            self._tell_progress(samples, steps, loss)
        if self._apart > 1 or not self._looking:
            self._look_now_and_then()

    def saved(self, samples: float, stopped_s: float) -> None:
        """Tell of a checkpoint that is on disk."""
        if self._telling is not None:
            self._telling.tell("checkpoint", samples=samples, stopped_s=stopped_s)

    def end(self, samples: float, how: str) -> None:
        """Tell that the run has ended, and how."""
        if self._telling is not None:
            self._telling.tell("end", samples=samples, how=how)
            self._telling.close()
            self._telling = None

    def _measure(self) -> None:
        self._timer.settle()
        self._measured.extend(self._timer.finished())
        if self._steps == WARM_UP:
            self._measured.clear()
            self._loading.clear()
        if self._steps < WARM_UP + ITERATIONS:
            return
        whole_s = sum(step.whole_s for step in self._measured) / len(self._measured)
        self._apart = _apart(self._every_s / max(whole_s, 1e-9))
        self.profile = profile_of(self._measured, list(self._loading), self._size)
        self._measured.clear()
        if self._size == 1:
            # There is no peer to wait for: what is left to measure is the data alone.
            self._timer.look_away()
        self._tell_profile(self.profile)

    def _tell_profile(self, profile: StepProfile) -> None:
        a = self._allocation
        if self._telling is None or a is None:
            return
        self._telling.tell(
            "profile",
            gpu_type=os.environ.get("HETSCHED_GPU_TYPE") or gpu_type_of(a.host) or "gpu",
            gpus=self._size,
            nodes=min(a.node_count, self._size),
            batch_size=self.batch,
            iterations=profile.iterations,
            parameters=self._parameters,
            pattern=profile.pattern,
            forward_s=profile.forward_s,
            backward_s=profile.backward_s,
            update_s=profile.update_s,
            data_s=_rounded(profile.data_s),
            wait_s=_rounded(profile.wait_s),
        )

    def _tell_progress(self, samples: float, steps: int, loss: Any) -> None:
        took_s = self._now - self._told_s
        data_s, wait_s = self._fluctuating()
        if self._telling is not None:
            self._telling.tell(
                "progress",
                samples=samples,
                samples_per_s=(samples - self._told_samples) / took_s,
                data_s=_rounded(data_s),
                wait_s=_rounded(wait_s),
            )
            value = _number(loss)
            if value is not None:
                self._telling.tell("loss", training_round=steps, loss=value)
        self._told_s, self._told_samples = self._now, samples
        self._due_s = self._now + self._every_s
        self._apart, self._steps = _apart(self._steps), 0

    def _look_now_and_then(self) -> None:
        """Look at one step in so many: let the next one be measured, or those until then not."""
        self._left -= 1
        if self._left > 0:
            if self._looking:
                self._looking = False
                self._timer.pause()
        else:
            self._left = self._apart
            self._looking = True
            self._timer.resume()

    def _fluctuating(self) -> tuple[list[float], list[float]]:
        """Return T_d and T_w of recent steps, as the profile counts them."""
        steps = list(self._recent)
        self._recent.clear()
        profile = self.profile
        if profile is None or not steps:
            return [], []
        data_s = [step.data_s for step in steps]
        if profile.pattern == 1:
            data_s = beside_forward(list(self._loading), profile.forward_s)[-len(steps) :]
        wait_s = beyond_least([step.wait_s for step in steps][-len(data_s) :])
        if self._size == 1:
            wait_s = [0.0] * len(data_s)
        return data_s, wait_s[: len(data_s)]


def _apart(steps: float) -> int:
    """Return of how many steps one is looked at, where so many come from line to line."""
    return max(1, math.ceil(steps / MOST_VALUES))


def _rounded(values: Any) -> list[float]:
    return [round(value, 7) for value in values]


def _number(loss: Any) -> float | None:
    """Return the loss as a number; only here does a GPU have to finish it."""
    try:
        value = float(loss)
    except (TypeError, ValueError, RuntimeError):
        return None
    return value if math.isfinite(value) and abs(value) <= 1e30 else None
