"""What past jobs teach about those that are there: how much work they have, and what comes next.

A job's *claim* is what is said of its work when it comes: its number of samples, else its time
limit, else an hour, at the speed of its default count. What past jobs had, as a share of their
claims, is drawn from for the jobs of unknown work.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import neg
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetsched_core.types import Job, JobView, Snapshot, Speeds, Submission
from hetsched_core.types.ended import ways_to_be_alike

_LEAST_CAME = 8
"""After fewer jobs no arrival is foretold."""

_WIDER = 2.0
"""For how many jobs those of the next wider group count beside a narrower one's own."""

_LATEST = 500
"""How many of the latest jobs count."""


class Claim(StrEnum):
    """What is said of a job's work."""

    SIZE = "size"
    LIMIT = "limit"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class _Prior:
    """What shares of claims may be like before any is known: lognormal.

    Their median lies between `low` and `high`, evenly by its logarithm; `spreads` are the standard
    deviations of the logarithm that are thought of; no share is taken to be above `most` before a
    job has had more.
    """

    low: float
    high: float
    spreads: tuple[float, ...]
    most: float = math.inf


_PRIORS = {
    Claim.SIZE: _Prior(0.5, 1.5, (0.1, 0.3, 0.6)),
    Claim.LIMIT: _Prior(0.02, 1.0, (0.3, 0.6, 1.2, 2.0), most=1.5),
    Claim.NOTHING: _Prior(0.01, 12.0, (0.3, 0.6, 1.2, 2.0)),
}

_MEDIANS = 24
"""How many medians between `low` and `high` are told apart."""


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


class _Group(NamedTuple):
    """Shares of a group of jobs in ascending order, which of the jobs, and whether each has ended.

    Those that have not ended have had so much by now, and will have more.
    """

    shares: NDArray[np.float64]
    members: NDArray[np.int64]
    ended: NDArray[np.bool_]


class Experience:
    """What has been seen of jobs, at one moment."""

    def __init__(
        self,
        past: Iterable[PastJob],
        speeds: Speeds,
        gpu_types: Sequence[str],
        going: Iterable[tuple[Job, float]] = (),
    ) -> None:
        """Sum up.

        Args:
            past: jobs that came, in the order of their submission.
            speeds: estimates, by which time becomes work.
            gpu_types: the types of the cluster.
            going: jobs that are there, and the samples that each has done. Without them those that
                have ended would speak for all, and the first to end are the short ones.
        """
        self._speeds, self._gpu_types = speeds, tuple(gpu_types)
        self.came = tuple(past)
        ended = [(one.job, one.share) for one in self.came if one.share is not None][-_LATEST:]
        begun = [(job, self.share_of(job, done)) for job, done in going if done > 0]
        seen = [*((*one, True) for one in ended), *((*one, False) for one in begun)]
        self.seen = len(seen)
        members: dict[tuple[str, ...], list[int]] = {}
        for number, (job, _, _) in enumerate(seen):
            for group in _groups(job):
                members.setdefault(group, []).append(number)
        shares = np.array([share for _, share, _ in seen], np.float64)
        over = np.array([is_over for _, _, is_over in seen], np.bool_)
        self.groups: dict[tuple[str, ...], _Group] = {}
        for group, own in members.items():
            # Of equal shares the ended ones first: the others have more.
            order = np.array(own)[np.lexsort((~over[own], shares[own]))]
            self.groups[group] = _Group(shares[order], order, over[order])
        self._chances: dict[Claim, NDArray[np.float64]] = {}

    def beside(self, going: Iterable[tuple[Job, float]]) -> Experience:
        """Return the same with what jobs that are there have done by now, in samples."""
        return Experience(self.came, self._speeds, self._gpu_types, going)

    def future(self, rng: np.random.Generator) -> Future:
        """Return one of the ways in which the unknown may turn out."""
        return Future(self, rng)

    def claim(self, job: Job) -> float:
        """Return what is said of a job's work, in samples; 0 where it has no speed."""
        return claim_of(job, self._speeds, self._gpu_types)

    def share_of(self, job: Job, samples: float) -> float:
        """Return samples as a share of a job's claim; 0 where it has none."""
        claim = self.claim(job)
        return samples / claim if claim > 0 else 0.0

    def known_profile(self, job: Job) -> str:
        """Return the profile of a job, or any where its speeds are forgotten by now."""
        known = self._speeds.profiles
        return job.profile if job.profile in known else next(iter(known))

    def chances(self, kind: Claim) -> NDArray[np.float64]:
        """Return how likely each median and spread of the prior is after what has been seen.

        Medians by rows, spreads by columns; they sum to 1.
        """
        if kind not in self._chances:
            self._chances[kind] = _posterior(_PRIORS[kind], self.groups.get((kind,)))
        return self._chances[kind]


def _posterior(prior: _Prior, seen: _Group | None) -> NDArray[np.float64]:
    spreads = np.array(prior.spreads)
    if seen is None:
        return np.full((_MEDIANS, len(spreads)), 1.0 / (_MEDIANS * len(spreads)))
    logs = np.log(np.maximum(seen.shares, 1e-9))
    z = (logs - _medians(prior)[:, None, None]) / spreads[:, None]
    density = -0.5 * z * z - np.log(spreads)[:, None]
    beyond = np.log(np.maximum(_erfc(z / math.sqrt(2.0)), 1e-300))
    likely = np.where(seen.ended, density, beyond).sum(axis=2)
    chances: NDArray[np.float64] = np.exp(likely - likely.max())
    chances /= chances.sum()
    return chances


def _medians(prior: _Prior) -> NDArray[np.float64]:
    """Return the logarithms of the medians that are thought of."""
    return np.linspace(math.log(prior.low), math.log(prior.high), _MEDIANS)


_erfc = np.vectorize(math.erfc, otypes=[np.float64])
_NORMAL = NormalDist()


class Future:
    """One of the ways in which the unknown may turn out.

    What is not known of all jobs alike (how long those of a user are) is the same for all jobs of a
    future: each past job counts for more or less in it (Rubin, The Bayesian Bootstrap, Annals of
    Statistics 1981). Of a group it takes Kaplan and Meier's estimate, and the less jobs like one
    there were, the more often the next wider group's.
    """

    def __init__(self, experience: Experience, rng: np.random.Generator) -> None:
        """Decide on what holds of all jobs."""
        self._experience, self._rng = experience, rng
        self._counts = rng.exponential(size=experience.seen)
        self._groups: dict[tuple[str, ...], tuple[list[float], list[float], list[float]]] = {}
        self._lognormal: dict[Claim, tuple[float, float]] = {}

    def draw(self, job: Job, done: float) -> float:
        """Return samples that a job may have left, of which `done` are done.

        Drawn from the shares of past jobs like it that had more than it has done by now: of its
        user and profile, its user, its profile, or all.
        """
        claim = self._experience.claim(job)
        if claim <= 0:
            return 0.0
        share = done / claim
        for group in _groups(job):
            if group not in self._experience.groups:
                continue
            shares, counts, survival = self._group(group)
            first = bisect_right(shares, share)
            # `counts` and `survival` are of those from each place on.
            if self._rng.random() * (counts[first] + _WIDER) > counts[first]:
                continue
            left = (1.0 - self._rng.random()) * survival[first]
            place = bisect_left(survival, -left, first + 1, key=neg) - 1
            if place < len(shares):
                # Between neighbours, so that the next one need not be just like one before.
                low = shares[place - 1] if place else 0.8 * shares[0]
                high = shares[min(place + 1, len(shares) - 1)]
                low, high = (low + shares[place]) / 2, (high + shares[place]) / 2
                return max(self._rng.uniform(low, high) - share, 0.02 * share) * claim
            # Longer than all of them that have ended.
            share = max(share, shares[-1])
        return max(self._any(kind_of(job), share) * claim - done, 0.0)

    def _group(self, group: tuple[str, ...]) -> tuple[list[float], list[float], list[float]]:
        """Return shares, how many jobs had no less, and what part of all has no less."""
        if group not in self._groups:
            shares, members, ended = self._experience.groups[group]
            counts = self._counts[members]
            at_risk = np.cumsum(counts[::-1])[::-1]
            kept = np.where(ended, 1.0 - counts / at_risk, 1.0)
            survival = np.concatenate(([1.0], np.cumprod(np.maximum(kept, 0.0))))
            self._groups[group] = (shares.tolist(), [*at_risk.tolist(), 0.0], survival.tolist())
        return self._groups[group]

    def _any(self, kind: Claim, share: float) -> float:
        """Return a share above `share` of what all jobs of a kind may be like."""
        prior = _PRIORS[kind]
        if kind not in self._lognormal:
            chances = self._experience.chances(kind)
            row, column = divmod(
                int(self._rng.choice(chances.size, p=chances.ravel())), chances.shape[1]
            )
            self._lognormal[kind] = float(_medians(prior)[row]), prior.spreads[column]
        median, spread = self._lognormal[kind]
        below = _NORMAL.cdf((math.log(share) - median) / spread) if share > 0 else 0.0
        at = below + (1.0 - below) * float(self._rng.uniform(1e-6, 1.0 - 1e-6))
        found = math.exp(median + spread * _NORMAL.inv_cdf(at)) if at < 1.0 - 1e-9 else 0.0
        most = max(prior.most, share * 1.5)
        return min(max(found, share * 1.02), most)

    def arrivals(self, now: float, horizon_s: float) -> tuple[Submission, ...]:
        """Return jobs that may come: those of a stretch of the past, as it was, moved to `now`."""
        came = self._experience.came[-_LATEST:]
        if len(came) < _LEAST_CAME:
            return ()
        first_s = came[0].job.submit_s
        span_s = max(now - first_s, 1.0)
        from_s = first_s + self._rng.uniform(0.0, span_s)
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
            self._again(one, f"~{number}", at_s)
            for number, (at_s, one) in enumerate(found[:_MOST_ARRIVALS])
        )

    def _again(self, one: PastJob, name: str, at_s: float) -> Submission:
        # Speeds of jobs that are gone may be forgotten; any job's stand in.
        profile = self._experience.known_profile(one.job)
        job = replace(one.job, id=name, submit_s=at_s, eligible_s=None, profile=profile)
        if one.share is None:
            return Submission(job, self.draw(job, 0.0))
        return Submission(job, one.share * self._experience.claim(job))


_MOST_ARRIVALS = 2000

_CROWD_GAP_S = 1.0
"""Jobs that come closer together than this on average are a crowd."""

_CROWD_S = 10.0
"""Those of a crowd that come within so many seconds come at once."""


def _groups(job: Job) -> Iterable[tuple[str, ...]]:
    """Return the groups that a job belongs to, the narrowest first."""
    kind = kind_of(job)
    return ((kind, *name) for name in ways_to_be_alike(job.user, job.profile))
