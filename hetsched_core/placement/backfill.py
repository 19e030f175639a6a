"""When each waiting job could start if every job ran for its time limit, the first in line first.

A job that can start at once on such terms makes none ahead of it wait longer, and is started out of
order; the others may be promised the GPUs that they are to get.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hetsched_core.placement.fewest import layout_of
from hetsched_core.placement.starts import Starts
from hetsched_core.placement.strict_order import StrictOrder
from hetsched_core.placement.timeline import Timeline
from hetsched_core.placement.waiting_line import WaitingLine
from hetsched_core.site import LimitsLeft
from hetsched_core.types import Entry, Job, JobView, Purpose, Reservation, Snapshot


@dataclass(slots=True)
class Backfill:
    """Starts jobs out of order beside a `StrictOrder`; its timeline costs what changed in between.

    Attributes:
        strict: the jobs that are served in order, and where they go.
        limit_s: for how many seconds a job may run.
    """

    strict: StrictOrder
    limit_s: Callable[[Job], float]
    _timeline: Timeline | None = None
    _line: WaitingLine = field(default_factory=WaitingLine)
    _touched: set[str] = field(default_factory=set)

    def serve(self, snapshot: Snapshot) -> dict[str, Entry]:
        """Start jobs in order; return the entries that change."""
        follows = self.strict.follows(snapshot)
        changes = self.strict.serve(snapshot)
        if follows:
            self._touched.update(snapshot.changed, snapshot.gone, changes)
        else:
            self._timeline = None
        return changes

    def fill(
        self, snapshot: Snapshot, changes: dict[str, Entry], most: int, *, reserve_all: bool
    ) -> Sequence[Reservation]:
        """Start those of the first so many waiting jobs that make none ahead wait longer.

        Args:
            snapshot: the state that was served.
            changes: the entries that change; the starts are added to them.
            most: how many jobs are looked at.
            reserve_all: see `Timeline.earliest_starts`.

        Returns:
            What the jobs keep that have to wait.
        """
        timeline, now_s = self._brought_up_to(snapshot), snapshot.effective_s
        while True:
            starts = timeline.earliest_starts(
                self._line.first(most), now_s, reserve_all=reserve_all, windows=snapshot.windows
            )
            limits, shut_out = self._counted(starts, snapshot)
            if not shut_out:
                break
            # They keep no room from those behind.
            for job_id in shut_out:
                self._line.remove(job_id)
                self._touched.add(job_id)
        self.strict.limits = limits
        for start in starts.by(now_s):
            self.strict.start(snapshot.jobs[start.job].job, start.configuration, changes)
            self._touched.add(start.job)
        return starts.promised_after(now_s)

    def _counted(
        self, starts: Starts, snapshot: Snapshot
    ) -> tuple[LimitsLeft | None, Sequence[str]]:
        """Return what these starts leave under limits, and the jobs that would pass one then."""
        if self.strict.limits is None:
            return None, ()
        limits, shut_out = self.strict.limits.copy(), []
        for start in starts.by(snapshot.effective_s):
            view, gpus = snapshot.jobs[start.job], start.configuration.gpus
            if limits.met(view, gpus) is None:
                limits.take(view, gpus)
            else:
                shut_out.append(start.job)
        return limits, shut_out

    def _brought_up_to(self, snapshot: Snapshot) -> Timeline:
        """Return the timeline with the jobs that hold GPUs now; the others are in the line."""
        timeline, line, strict = self._timeline, self._line, self.strict
        waiting, placed = strict.waiting, strict.placed
        if timeline is None:
            timeline = self._timeline = Timeline(snapshot)
            line = self._line = WaitingLine()
            self._touched = {*placed, *waiting}
        unsettled = set()
        # First what is given up, so that a host never has rows for more than it can hold.
        for job_id in self._touched:
            line.remove(job_id)
            timeline.release(job_id)
        for job_id in sorted(self._touched):
            if job_id in waiting:
                job = snapshot.jobs[job_id].job
                layout = layout_of(job, strict.ways[job_id], snapshot.cluster, snapshot.shapes)
                kind = timeline.kind(layout)
                key, *_ = waiting[job_id]
                line.put(key, job_id, kind, self.limit_s(job))
            elif job_id in placed:
                job, configuration = placed[job_id]
                since_s = _running_since(snapshot.jobs[job_id])
                if since_s is None:
                    since_s = snapshot.effective_s
                    unsettled.add(job_id)
                timeline.hold(job, configuration, since_s + self.limit_s(job))
        self._touched = unsettled
        return timeline


def _running_since(view: JobView) -> float | None:
    """When the job got the GPUs that it keeps; None while it has none."""
    for run in view.runs:
        if run.purpose is Purpose.RUN and run.draining_until_s is None:
            return run.since_s
    return None
