"""The elements of arrays that may start next."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from slurm_plugin.backend import JobState, SlurmJob
from slurm_plugin.daemon.jobs.candidates import MOST, candidates
from tests.slurm_plugin.daemon.fake_slurm import RIGID, element, placed, running

NOW = 1000.0
WHOLE = replace(RIGID, id="7", array="7", unsplit=tuple(range(1000)))

one = partial(element, of=RIGID)
"""An element that Slurm has split off."""


def ids(*jobs: SlurmJob) -> list[str]:
    return list(candidates({job.id: job for job in jobs}, NOW))


def test_of_a_long_array_the_next_ones_are_shown_beside_all_other_jobs() -> None:
    assert ids(RIGID, WHOLE) == ["5", *(f"7_{number}" for number in range(MOST))]
    shown = candidates({"7": replace(WHOLE, unsplit=(4, 9))}, NOW)
    assert [(job.element, job.unsplit) for job in shown.values()] == [(4, ()), (9, ())]


@pytest.mark.parametrize(("arrays", "each"), [(64, 64), (500, 8), (5000, 1)])
def test_of_many_arrays_each_has_fewer_elements_that_wait_for_a_place(
    arrays: int, each: int
) -> None:
    ours = (replace(WHOLE, id=f"{at}", array=f"{at}") for at in range(arrays))
    assert len(ids(*ours)) == arrays * each


@pytest.mark.parametrize(
    ("others", "left"),
    [
        ((), 3),
        ((running(one(1000), "n0"),), 2),
        ((one(1000), one(1001)), 1),
        ((one(1000), one(1001), one(1002), one(1003)), 0),
        ((one(1000, state=JobState.ENDED), one(1001, state=JobState.ENDED)), 3),
        ((one(1000, held=True), one(1001, held=True)), 3),
        ((replace(one(1000), begin_s=NOW + 1), replace(one(1001), begin_s=NOW + 1)), 3),
        ((replace(one(1000), dependency="aftercorr:6_1000"), one(1001)), 2),
    ],
    ids=["none", "runs", "two split off", "more than that", "ended", "held", "put off", "depends"],
)
def test_the_throttle_holds_for_those_that_were_split_off_and_those_that_were_not(
    others: tuple[SlurmJob, ...], left: int
) -> None:
    shown = ids(replace(WHOLE, throttle=3), *others)
    assert [job for job in shown if int(job[2:]) < 1000] == [f"7_{at}" for at in range(left)]
    assert {job.id for job in others[:3]} <= set(shown)


def test_the_last_one_waits_for_its_turn_though_it_stands_for_itself() -> None:
    last, runs = replace(one(2), throttle=1), running(one(1), "n0")
    assert ids(runs, last) == ["7_1"]
    # What has a place or had one keeps its turn.
    for goes_on in (placed(last, "n0"), replace(last, restarts=1), replace(last, held=True)):
        assert ids(runs, goes_on) == ["7_1", "7_2"]
    assert ids(replace(runs, state=JobState.ENDED), last) == ["7_1", "7_2"]
