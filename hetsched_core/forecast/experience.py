"""What past jobs teach about those that are there: how much work they have, and who comes next.

A job's *claim* is what is said of its work when it comes: its number of samples, else its time
limit, else an hour, at the speed of its default count. What past jobs had, as a share of their
claims, is drawn from for the jobs whose work nobody knows.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from hetsched_core.types import Job, JobView, Snapshot, Speeds, Submission

LEAST_ALIKE = 8
"""Fewer past jobs of a user and profile say nothing; then the next wider group is asked."""

_LATEST = 500
"""How many of the latest jobs of a group count."""


class Claim(StrEnum):
    """What is said of a job's work."""

    SIZE = "size"
    LIMIT = "limit"
    NOTHING = "nothing"


_NOTHING_KNOWN = {
    Claim.SIZE: (0.5, 1.5),
    Claim.LIMIT: (0.02, 1.0),
    Claim.NOTHING: (0.05, 8.0),
}
"""Shares of the claim, evenly spread over their logarithm, while no job has ended."""


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job that has come: `share` is its work by its claim, None where it has not ended by itself.

    Its speeds may be forgotten by now, so that the share is what is kept.
    """

    job: Job
    share: float | None = None


def reference_speed(job: Job, speeds: Speeds, gpu_types: Iterable[str]) -> float:
    """Return samples/s of a job on its default count, the mean over the types it accepts.

    0 where it has no speed.
    """
    if job.profile not in speeds.profiles:
        return 0.0
    count = job.requirements.default_count(job.asked_count)
    each = [
        speeds.per_gpu(job.profile, gpu_type, 1) * count
        for gpu_type in gpu_types
        if job.accepts_type(gpu_type)
    ]
    each = [speed for speed in each if speed > 0]
    return sum(each) / len(each) if each else 0.0


def kind_of(job: Job) -> Claim:
    """Return by what a job's work is known."""
    if job.total_samples is not None and "total_samples" not in job.assumed:
        return Claim.SIZE
    return Claim.NOTHING if job.time_limit_s is None else Claim.LIMIT


def claim_of(job: Job, speeds: Speeds, gpu_types: Iterable[str]) -> float:
    """Return what is said of a job's work, in samples; 0 where it has no speed."""
    if kind_of(job) is Claim.SIZE and job.total_samples is not None:
        return job.total_samples
    seconds = 3600.0 if job.time_limit_s is None else job.time_limit_s
    return seconds * reference_speed(job, speeds, gpu_types)


def work_done(view: JobView, snapshot: Snapshot) -> float:
    """Return the samples a job has done by now: what was told, or what its GPU time stands for.

    A job that tells nothing has no samples; the GPU time that it attained is known in any case.
    """
    told = view.samples_at(snapshot.now)
    if told > 0 or view.job.profile not in snapshot.speeds.profiles:
        return told
    speeds, profile = snapshot.speeds, view.job.profile
    attained = view.attained_at(snapshot.now, snapshot.cluster)
    return sum(gpu_s * speeds.per_gpu(profile, name, 1) for name, gpu_s in attained.items())


class Experience:
    """What has been seen of jobs, at one moment."""

    def __init__(self, past: Iterable[PastJob], speeds: Speeds, gpu_types: Sequence[str]) -> None:
        """Sum up.

        Args:
            past: jobs that came, in the order of their submission.
            speeds: estimates, by which time becomes work.
            gpu_types: the types of the cluster.
        """
        self._speeds, self._gpu_types = speeds, tuple(gpu_types)
        self.came = tuple(past)
        self._shares: dict[tuple[str, ...], list[float]] = {}
        for one in self.came:
            if one.share is None:
                continue
            for group in _groups(one.job):
                self._shares.setdefault(group, []).append(one.share)
        for group, shares in self._shares.items():
            self._shares[group] = sorted(shares[-_LATEST:])

    def draw(self, job: Job, done: float, rng: np.random.Generator) -> float:
        """Return samples that a job may have left, of which `done` are done.

        Drawn from the shares of past jobs like it that had more than it has done by now: of its
        user and profile, its user, its profile, or all.
        """
        claim = claim_of(job, self._speeds, self._gpu_types)
        if claim <= 0:
            return 0.0
        share = done / claim
        for group in _groups(job):
            known = self._shares.get(group, [])
            longer = known[bisect_right(known, share) :]
            if len(known) >= LEAST_ALIKE and longer:
                # Between neighbours, so that the next one need not be just like one before.
                return self._between(longer, share, rng) * claim - done
        low, high = _NOTHING_KNOWN[kind_of(job)]
        low, high = max(low, share * 1.02), max(high, share * 2.0)
        return float(np.exp(rng.uniform(np.log(low), np.log(high)))) * claim - done

    @staticmethod
    def _between(longer: list[float], least: float, rng: np.random.Generator) -> float:
        at = rng.uniform(0, len(longer)) - 0.5
        below = int(np.floor(at))
        low = longer[below] if below >= 0 else max(least, longer[0] * 0.8)
        high = longer[min(below + 1, len(longer) - 1)]
        return float(low + (at - below) * (high - low))

    def arrivals(
        self, now: float, horizon_s: float, rng: np.random.Generator
    ) -> tuple[Submission, ...]:
        """Return jobs that may come: those of a stretch of the past, as it was, moved to `now`."""
        came = self.came[-_LATEST:]
        if len(came) < LEAST_ALIKE:
            return ()
        first_s = came[0].job.submit_s
        span_s = max(now - first_s, 1.0)
        from_s = first_s + rng.uniform(0.0, span_s)
        # A crowd comes all at once: with a plan for each of them there is no time for futures.
        crowded = span_s < len(came) * _CROWD_GAP_S
        found = []
        # Beyond its end the past begins again.
        for turn in range(1 + int(horizon_s // span_s) + 1):
            for one in came:
                at_s = one.job.submit_s + turn * span_s
                if from_s < at_s <= from_s + horizon_s:
                    after_s = at_s - from_s
                    if crowded:
                        after_s = math.ceil(after_s / _CROWD_S) * _CROWD_S
                    found.append((now + after_s, one))
            if len(found) > _MOST_ARRIVALS:
                break
        return tuple(
            self._again(one, f"~{number}", at_s, rng)
            for number, (at_s, one) in enumerate(found[:_MOST_ARRIVALS])
        )

    def _again(self, one: PastJob, name: str, at_s: float, rng: np.random.Generator) -> Submission:
        known = self._speeds.profiles
        job = replace(
            one.job,
            id=name,
            submit_s=at_s,
            eligible_s=None,
            # Speeds of jobs that are gone may be forgotten; any job's stand in.
            profile=one.job.profile if one.job.profile in known else next(iter(known)),
        )
        claim = claim_of(job, self._speeds, self._gpu_types)
        share = one.share
        return Submission(job, self.draw(job, 0.0, rng) if share is None else share * claim)


_MOST_ARRIVALS = 2000

_CROWD_GAP_S = 1.0
"""Jobs that come closer together than this on average are a crowd."""

_CROWD_S = 10.0
"""Those of a crowd that come within so many seconds come at once."""


def _groups(job: Job) -> Iterable[tuple[str, ...]]:
    """Yield the groups that a job belongs to, the narrowest first."""
    kind = kind_of(job)
    yield (kind, "both", job.user, job.profile)
    yield (kind, "user", job.user)
    yield (kind, "profile", job.profile)
    yield (kind,)
