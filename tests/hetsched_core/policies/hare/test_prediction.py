"""The guesses of HLAS-P and HLAS-L."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from hetsched_core.policies.hare.hlas import Hlas
from hetsched_core.policies.hare.hlas_p import (
    HlasL,
    HlasP,
    by_the_past,
    does_badly,
    rounds_to_converge,
)
from hetsched_core.policies.hare.queues import Queues
from hetsched_core.types import JobView, LossCurve, Snapshot, Submission, TaskProgress, TaskShape
from tests.hetsched_core.policies.hare.worlds import ONE, UNIT, job, k80s, run
from tests.hetsched_core.policies.worlds import order, task_speeds, with_job
from tests.hetsched_core.worlds import snapshot_of, view


def of_group(name: str, drop: float, group: str = "search") -> JobView:
    progress = TaskProgress(3, 0, (5.0, 5.0 - drop / 2.0, 5.0 - drop))
    return view(name, tasks=TaskShape(1, None, group), progress=progress)


@pytest.mark.parametrize(
    ("curve", "seen", "rel"),
    [
        *((LossCurve(6.0, 0.5, half), 40, 0.25) for half in (2.0, 5.0, 30.0)),
        # 1 / (1 + r / 3) is taken to its end from its beginning.
        (LossCurve(4.0, 0.0, 3.0), 8, 1e-6),
    ],
)
def test_a_loss_curve_tells_when_it_has_come_down(curve: LossCurve, seen: int, rel: float) -> None:
    """Of the way from the first loss a twentieth is left after 19 times the half-way rounds."""
    loss = tuple(curve.after(r) for r in range(1, seen + 1))
    assert rounds_to_converge(loss, 0.05) == pytest.approx(19.0 * curve.half_rounds, rel=rel)


@pytest.mark.parametrize("loss", [(), (5.0, 4.0, 3.0), (1.0, 2.0, 3.0, 4.0), (2.0,) * 9])
def test_few_losses_or_such_as_do_not_fall_tell_nothing(loss: tuple[float, ...]) -> None:
    assert rounds_to_converge(loss, 0.05) is None


def test_the_past_is_that_of_the_name_before_that_of_the_user() -> None:
    queues = Queues([[]], past={"name train": [2, 40], "user ann": [1, 7]})
    queues.rounds.update({"a": 5, "b": 9})
    assert by_the_past(queues, with_job(view("a"), name="train", user="ann")) == 15.0
    assert by_the_past(queues, with_job(view("b"), name="else", user="ann")) == 0.0
    assert by_the_past(queues, view("c")) is None


def test_a_job_that_goes_counts_with_the_round_that_it_ended_with() -> None:
    queues = Queues([["a"]], level={"a": 0}, since_s={"a": 0.0}, rounds={"a": 9})
    queues.kin["a"] = ["train", "ann"]
    queues.forget("a")
    assert queues.past == {"name train": [1, 10], "user ann": [1, 10]}
    assert queues.lines == [[]]


def test_a_member_of_a_search_group_does_badly_below_half_the_median_of_its_siblings() -> None:
    jobs = [of_group("a", 1.0), of_group("b", 2.0), of_group("c", 4.0), of_group("x", 9.0, "y")]
    snapshot = snapshot_of(ONE, jobs)
    assert [does_badly(snapshot, each) for each in jobs] == [True, False, False, False]
    assert not does_badly(snapshot, view("z", tasks=TaskShape(1)))
    # Who does badly is guessed to run half as long.
    queues = Queues([[]], past={"user ": [1, 43]}, rounds={"a": 3, "b": 3})
    bad, good, *_ = jobs
    assert HlasP().rounds_left(snapshot, queues, good) == 40.0
    assert HlasP().rounds_left(snapshot, queues, bad) == 20.0
    assert HlasL().rounds_left(snapshot, queues, good) is None


def with_loss(name: str, rounds: int, at: float = 0.0) -> Submission:
    return replace(job(name, rounds, at=at), loss=LossCurve(6.0, 0.0, rounds / 19.0))


@pytest.mark.parametrize("policy", [HlasP, HlasL])
def test_long_jobs_leave_the_first_queues_earlier_than_their_service_says(
    policy: type[HlasP],
) -> None:
    """A long job and short ones that keep coming: the sooner it is found out, the better."""
    jobs = [with_loss("long", 100), *(with_loss(f"s{n}", 12, at=20.0 * n) for n in range(8))]

    def mean_of_short(policy: type[Hlas]) -> float:
        log = run(policy(queues=4, first_threshold_s=16.0, threshold_factor=4.0), jobs)
        short = [(r.end_s or 1e9) - r.job.submit_s for r in log.jobs if r.job.id != "long"]
        return sum(short) / len(short)

    assert mean_of_short(policy) < mean_of_short(Hlas)


def test_a_prediction_holds_until_it_is_used_up() -> None:
    unknown = view("a", tasks=TaskShape(1), progress=TaskProgress(4))
    snapshot = snapshot_of(ONE, [unknown], speeds=task_speeds(ONE, UNIT))
    for rounds, left in ((4, {"a": 5}), (5, {})):
        queues = Queues([["a"]], rounds={"a": rounds}, predicted={"a": 5})
        HlasP().note_round(snapshot, queues, unknown)
        assert queues.predicted == left


@dataclass(frozen=True)
class Told(HlasP):
    """One that predicts rounds of B alone."""

    def note_round(self, snapshot: Snapshot, queues: Queues, view: JobView) -> None:
        if view.id == "B":
            queues.predicted["B"] = 9


def test_a_round_that_has_begun_goes_before_predicted_jobs() -> None:
    """A's round of three has two GPUs to begin with; then its third task, before B's round."""
    log = run(Told(groups=1), [job("A", 1, 3), job("B", 1, 2, at=0.5)], k80s(2))
    assert order(log) == ["A", "A", "A", "B", "B"]


def test_of_the_predicted_jobs_who_has_more_of_it_left_goes_first() -> None:
    queues = Queues([["x", "y", "z"]], rounds={"x": 3, "y": 1, "z": 0}, predicted={"x": 5, "y": 9})
    assert list(HlasP().before(queues, queues.lines[0])) == ["y", "x", "z"]
