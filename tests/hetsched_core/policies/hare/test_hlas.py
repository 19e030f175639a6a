"""HLAS in the replay: TCC Fig. 12, partial rounds, and ageing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hetsched_core.policies.hare.hlas import Hlas
from hetsched_core.policies.hare.hlas_p import HlasP
from hetsched_core.policies.hare.queues import Queues, Thresholds
from hetsched_core.policy import Policy
from hetsched_core.types import JobView, Snapshot, Submission
from tests.hetsched_core.policies.hare.worlds import job, k80s, longest_wait, run
from tests.hetsched_core.policies.worlds import ends, order

THREE = [job("J1", 2), job("J2", 3), job("J3", 4)]


@dataclass(frozen=True)
class Foretold(HlasP):
    """HLAS-P that is told at the start how many rounds J3 runs at least."""

    def note_round(self, snapshot: Snapshot, queues: Queues, view: JobView) -> None:
        if view.id == "J3" and queues.rounds["J3"] == 0:
            queues.predicted["J3"] = 3
        elif queues.rounds[view.id] >= queues.predicted.get(view.id, 0):
            queues.predicted.pop(view.id, None)


@pytest.mark.parametrize(
    ("policy", "served", "completions"),
    [
        # Fig. 12a: nothing is known.
        (
            Hlas(queues=4, first_threshold_s=1.0, threshold_factor=2.0),
            "J1 J2 J3 J1 J2 J3 J2 J3 J3",
            {"J1": 4.0, "J2": 7.0, "J3": 9.0},
        ),
        # Fig. 12c: J3 is known to run three rounds at least.
        (
            Foretold(queues=4, first_threshold_s=1.0, threshold_factor=2.0),
            "J1 J2 J1 J2 J2 J3 J3 J3 J3",
            {"J1": 3.0, "J2": 5.0, "J3": 9.0},
        ),
        # R7: a single queue goes round robin too.
        (Hlas(queues=1), "J1 J2 J3 J1 J2 J3 J2 J3 J3", {"J1": 4.0, "J2": 7.0, "J3": 9.0}),
        # R8: in a single queue the predicted job goes first.
        (Foretold(queues=1), "J3 J3 J3 J1 J2 J3 J1 J2 J2", {"J1": 7.0, "J2": 9.0, "J3": 6.0}),
    ],
    ids=["fig 12a", "fig 12c", "r7", "r8"],
)
def test_three_jobs_of_2_3_and_4_rounds(
    policy: Policy, served: str, completions: dict[str, float]
) -> None:
    log = run(policy, THREE)
    assert order(log) == served.split()
    assert ends(log) == completions


def test_a_job_leaves_a_queue_when_its_size_exceeds_the_threshold() -> None:
    four = Thresholds(4, 60.0, 4.0)
    sizes = (0, 60, 60.1, 240, 241, 960, 961, 1e9)
    assert [four.level(size_s) for size_s in sizes] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("gpus", "groups", "jobs", "begun"),
    [
        # A round of three tasks on a group of two GPUs: two at once, then one; B waits.
        (2, 1, [job("A", 1, 3), job("B", 1, 2)], "A0 A0 A1 B2 B2"),
        # A's task has one GPU of the group when B comes: B waits beside an idle GPU.
        (2, 1, [job("A", 2), job("B", 1, 2, at=0.5)], "A0 B1 B1 A2"),
        # Groups serve different jobs at a time.
        (4, 2, [job("A", 1, 2), job("B", 1, 2)], "A0 A0 B0 B0"),
    ],
)
def test_a_group_serves_one_job_until_all_of_its_gpus_are_idle_and_begun_rounds_first(
    gpus: int, groups: int, jobs: list[Submission], begun: str
) -> None:
    log = run(Hlas(groups=groups), jobs, k80s(gpus))
    runs = sorted((r.since_s, r.job) for r in log.runs)
    assert " ".join(f"{name}{since_s:g}" for since_s, name in runs) == begun


def test_with_ageing_the_wait_is_bounded_where_it_is_not_without() -> None:
    """A job of the second queue, and new ones of one second every second."""
    jobs = [job("long", 6), *(job(f"s{n:03d}", 1, at=float(n)) for n in range(1, 200))]
    starved, aged = (
        run(Hlas(queues=3, first_threshold_s=1.0, threshold_factor=2.0, ageing_s=ageing_s), jobs)
        for ageing_s in (None, 10.0)
    )
    assert longest_wait(starved) > 150.0
    # Those who aged before it go first, and no more than one arrives a second.
    assert longest_wait(aged) <= 30.0
    assert (ends(aged)["long"] or 1e9) < (ends(starved)["long"] or 0.0)
