"""Possible futures of a snapshot, from what past jobs teach."""

from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np
import pytest

from hetsched_core.forecast import (
    Experience,
    Futures,
    PastJob,
    claim_of,
    possible_starts,
    work_done,
)
from hetsched_core.forecast.experience import Claim, kind_of
from hetsched_core.policy import make_policy
from hetsched_core.types import Job, Reason, ReasonCode, RequirementSet
from tests.hetsched_core.worlds import cluster_of, held, on, snapshot_of, view

CLUSTER = cluster_of(n0=("a100", 4))


def job(number: int, user: str = "ada", submit_s: float | None = None) -> Job:
    return Job(
        f"p{number}",
        60.0 * number if submit_s is None else submit_s,
        RequirementSet.rigid(4),
        "m",
        time_limit_s=3600.0,
        user=user,
    )


SNAPSHOT = snapshot_of(
    CLUSTER,
    [
        view("runs", held(on(n0=4), speed=4.0), counts=(4,)),
        view("a", counts=(4,), submit_s=1.0),
        view("b", counts=(4,), submit_s=2.0),
        view("held", counts=(4,), submit_s=3.0, blocked=Reason(ReasonCode.HELD)),
    ],
    now=600.0,
)
KNOWN = {
    name: replace(seen.job, total_samples=None, time_limit_s=3600.0, user="ada")
    for name, seen in SNAPSHOT.jobs.items()
}
FIFO = make_policy("fifo")


def of(past: Iterable[PastJob]) -> Experience:
    return Experience(past, SNAPSHOT.speeds, CLUSTER.gpu_types)


def experience(*shares: float) -> Experience:
    return of(PastJob(job(number), share) for number, share in enumerate(shares))


def starts(
    seen: Experience, jobs: Collection[str], futures: Futures
) -> dict[str, tuple[float, ...]]:
    return possible_starts(SNAPSHOT, FIFO.plan(SNAPSHOT), FIFO, KNOWN, jobs, seen, futures)


def all_starts(seen: Experience) -> dict[str, tuple[float, ...]]:
    return starts(seen, SNAPSHOT.jobs, Futures(draws=20, horizon_s=2e4))


def test_what_is_said_of_a_job_is_its_size_else_its_limit_else_an_hour() -> None:
    one = job(1)
    speeds = SNAPSHOT.speeds
    by_limit = claim_of(one, speeds, ["a100"])
    assert kind_of(one) is Claim.LIMIT
    assert by_limit == pytest.approx(3600.0 * 4 * speeds.per_gpu("m", "a100", 1))
    assert claim_of(replace(one, time_limit_s=None), speeds, ["a100"]) == pytest.approx(by_limit)
    sized = replace(one, total_samples=77.0)
    assert (kind_of(sized), claim_of(sized, speeds, ["a100"])) == (Claim.SIZE, 77.0)
    # What a log's reader assumed nobody has said.
    assumed = replace(sized, assumed=frozenset({"total_samples"}))
    assert kind_of(assumed) is Claim.LIMIT


def test_work_is_what_was_told_or_what_gpu_time_stands_for() -> None:
    per_gpu = SNAPSHOT.speeds.per_gpu("m", "a100", 1)
    silent = replace(view("x", counts=(4,)), attained_gpu_s=(("a100", 400.0),), observed_s=600.0)
    assert work_done(silent, SNAPSHOT) == pytest.approx(400.0 * per_gpu)
    told = replace(silent, samples_done=5.0)
    assert work_done(told, SNAPSHOT) == 5.0


def test_starts_follow_from_the_shares_of_limits_that_jobs_took() -> None:
    found = all_starts(experience(*np.linspace(0.48, 0.52, 20)))
    assert set(found) == {"a", "b", "runs"}
    done_s = 600.0
    first, second = np.median(found["a"]), np.median(found["b"])
    assert 0.4 * 3600 - done_s < first - 600.0 < 0.7 * 3600 - done_s
    assert 0.4 * 3600 < second - first < 0.7 * 3600
    assert found["a"] == tuple(sorted(found["a"]))


def test_a_wider_experience_gives_a_wider_range_and_the_same_question_the_same_answer() -> None:
    narrow, wide = experience(*[0.5] * 20), experience(*np.linspace(0.2, 1.0, 20))
    spread = [np.ptp(all_starts(each)["b"]) for each in (narrow, wide)]
    assert spread[1] > 2 * spread[0]
    assert all_starts(wide) == all_starts(wide)


def test_a_user_is_judged_by_jobs_of_his_own_where_there_are_enough() -> None:
    own = [PastJob(job(n, "bob"), 0.2) for n in range(20)]
    others = [PastJob(job(n, "eve"), 0.9) for n in range(20, 200)]
    seen, bobs = of([*own, *others]), replace(KNOWN["a"], user="bob")
    rng = np.random.default_rng(0)
    claim = claim_of(bobs, SNAPSHOT.speeds, CLUSTER.gpu_types)
    drawn = [seen.future(rng).draw(bobs, 0.0) / claim for _ in range(200)]
    # The fewer of his own there are, the more often others count.
    assert 0.9 < np.mean(np.array(drawn) < 0.25) < 1.0
    # One that has run for longer than all of them is judged by the others.
    late = [seen.future(rng).draw(bobs, 0.5 * claim) / claim for _ in range(50)]
    assert min(late) >= 0.0
    assert np.median(late) == pytest.approx(0.4, abs=0.1)


def test_the_first_to_end_do_not_speak_for_those_that_still_run() -> None:
    # Of twenty jobs ten have ended, after a tenth of their claims; the others have had half.
    whole = KNOWN["a"]
    claim = claim_of(whole, SNAPSHOT.speeds, CLUSTER.gpu_types)
    seen = experience(*[0.1] * 10).beside([(whole, 0.5 * claim)] * 10)
    rng = np.random.default_rng(4)
    drawn = np.array([seen.future(rng).draw(whole, 0.0) / claim for _ in range(300)])
    assert np.mean(drawn > 0.5) == pytest.approx(0.5, abs=0.1)


def test_what_nobody_knows_of_all_jobs_is_alike_for_all_jobs_of_a_future() -> None:
    whole, rng = replace(KNOWN["a"], time_limit_s=None), np.random.default_rng(4)
    nothing = of(())
    each = [
        [future.draw(whole, 0.0) for _ in range(20)] for future in map(nothing.future, [rng] * 60)
    ]
    medians = np.median(np.log(each), axis=1)
    # One and the same job length for all would have these within a fifth or so.
    assert np.std(medians) > 1.0
    # A job that has run for days makes long ones likelier.
    claim = claim_of(whole, SNAPSHOT.speeds, CLUSTER.gpu_types)
    slow = nothing.beside([(whole, 10.0 * claim)] * 5)
    later = [
        np.median([future.draw(whole, 0.0) for _ in range(20)])
        for future in map(slow.future, [rng] * 60)
    ]
    assert np.median(later) > 5 * np.median(each)


def test_who_comes_later_is_drawn_from_who_came() -> None:
    seen = experience(*[0.5] * 30)
    rng = np.random.default_rng(1)
    coming = seen.future(rng).arrivals(1800.0, 1800.0)
    assert len(coming) == pytest.approx(30, abs=2)
    assert all(1800.0 < one.job.submit_s <= 3600.0 for one in coming)
    assert len({one.job.id for one in coming}) == len(coming)
    assert {one.job.user for one in coming} == {"ada"}
    assert not experience(0.5).future(rng).arrivals(1800.0, 1800.0)


@pytest.mark.parametrize(("gap_s", "least", "most"), [(0.1, 3, 4), (2.0, 290, 300)])
def test_a_crowd_comes_at_once_and_others_one_by_one(gap_s: float, least: int, most: int) -> None:
    seen = of(PastJob(job(n, submit_s=n * gap_s), 0.5) for n in range(300))
    span_s = 300 * gap_s
    coming = seen.future(np.random.default_rng(1)).arrivals(span_s, span_s)
    assert len(coming) == pytest.approx(300, abs=2)
    moments = [one.job.submit_s for one in coming]
    assert moments == sorted(moments)
    assert min(moments) > span_s
    assert least <= len(set(moments)) <= most


def test_without_time_there_is_no_answer() -> None:
    left = iter(range(3))
    futures = Futures(draws=40, go_on=lambda: next(left, None) is not None)
    assert starts(experience(*[0.5] * 20), ["a"], futures) == {}
