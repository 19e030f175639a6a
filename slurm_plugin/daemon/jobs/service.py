"""What jobs have had of GPUs, as a daemon notes it for the next one."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_plugin.backend import JobState, SlurmJob


@dataclass(frozen=True, slots=True)
class Service:
    """What a job has had up to a time, and what it used then.

    So it need be noted only when a run begins or ends: what comes after follows from it.

    Attributes:
        at_s: seconds UTC.
        gpu_s: GPU seconds attained, of each GPU type.
        gpus: GPUs that it used then, of each type.
        first_start_s: when its first run began, seconds UTC.
    """

    at_s: float
    gpu_s: tuple[tuple[str, float], ...]
    gpus: tuple[tuple[str, int], ...]
    first_start_s: float

    def until(self, end_s: float) -> Service:
        """Return what it has had in all, if what it used then was its until this time."""
        found, seconds = dict(self.gpu_s), max(0.0, end_s - self.at_s)
        for gpu_type, gpus in self.gpus:
            found[gpu_type] = found.get(gpu_type, 0.0) + gpus * seconds
        return Service(self.at_s + seconds, tuple(found.items()), (), self.first_start_s)

    def foretells(self, later: Service) -> bool:
        """Whether what was noted later follows from this, to a GPU second."""
        had, foretold = dict(later.gpu_s), dict(self.until(later.at_s).gpu_s)
        types = had.keys() | foretold.keys()
        off_s = (had.get(each, 0.0) - foretold.get(each, 0.0) for each in types)
        return self.gpus == later.gpus and all(abs(seconds) < 1.0 for seconds in off_s)

    def as_seen(self, seen: SlurmJob, now: float) -> Service:
        """Return it with the end of the run that it tells of, if that is over by now.

        Args:
            seen: the job as Slurm shows it later.
            now: seconds UTC.
        """
        if seen.state is JobState.PENDING or (seen.start_s or 0.0) > self.at_s:
            # Slurm counts it as submitted anew when it is queued again.
            return self.until(min(now, seen.submit_s))
        if seen.state is JobState.RUNNING:
            return self
        # Of a job that is suspended Slurm does not tell since when.
        end_s = None if seen.state is JobState.SUSPENDED else seen.end_s
        return self.until(min(now, end_s or now))


@dataclass(frozen=True, slots=True)
class Unseen:
    """What became of a job that ended while no daemon looked.

    Attributes:
        end_s: when that was, seconds UTC.
        first_start_s: when its first run began; None if it never ran.
        gpu_s: GPU seconds attained, over all types and runs.
    """

    end_s: float
    first_start_s: float | None
    gpu_s: float


def unseen(ended: SlurmJob, before: Service | None, now: float) -> Unseen:
    """Return what became of a job that Slurm shows to have ended.

    Args:
        ended: the job.
        before: what was noted of it; None if it had not run.
        now: seconds UTC.
    """
    end_s, begun_s = min(now, ended.end_s or now), ended.start_s
    gpu_s, first_s = 0.0, None
    if before is not None:
        gpu_s, first_s = sum(s for _, s in before.as_seen(ended, now).gpu_s), before.first_start_s
    if ended.nodes and begun_s is not None and (before is None or begun_s > before.at_s):
        gpu_s += last_run_gpu_s(ended, end_s)
        first_s = begun_s if first_s is None else first_s
    return Unseen(end_s, first_s, gpu_s)


def last_run_gpu_s(ended: SlurmJob, end_s: float) -> float:
    """Return the GPU seconds of a job's last run, which no daemon saw."""
    return ended.gpus * max(0.0, end_s - (ended.start_s or end_s))
