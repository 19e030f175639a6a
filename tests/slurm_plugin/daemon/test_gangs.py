"""What the elements of an array say of the job that they are."""

from dataclasses import replace

import pytest

from slurm_plugin.backend import (
    Cancel,
    JobState,
    Park,
    Place,
    Requeue,
    SetAside,
    SlurmJob,
    Terms,
    Together,
)
from slurm_plugin.daemon.gangs import (
    folded,
    job_of,
    leftover,
    of_leader,
    pieces_held,
    stopped_as,
    tidied,
    together,
)
from tests.slurm_plugin.daemon.test_cycle import WAITING

ASIDE = "afterok:7_0(unfulfilled),afternotok:7_0(unfulfilled)"
PARK = Park("7_0", 4, 60)


def element(number: int, state: JobState = JobState.PENDING, **more: object) -> SlurmJob:
    """An element of array 7."""
    waits = {"dependency": ASIDE} if number and state is JobState.PENDING else {}
    fields = {"id": f"7_{number}", "array": "7", "element": number, "state": state, **waits}
    return replace(WAITING, **{**fields, **more})  # type: ignore[arg-type]


def gang(*elements: SlurmJob) -> SlurmJob:
    """The job that they are."""
    found, left = folded({each.id: each for each in elements})
    assert (list(found), left) == (["7"], ())
    return found["7"]


def running(number: int, nodes: tuple[str, ...], gpus: int, **more: object) -> SlurmJob:
    """An element that runs."""
    fields = {"nodes": nodes, "pinned": nodes, "gpus_per_node": gpus, "start_s": 100.0, **more}
    return element(number, JobState.RUNNING, **fields)


def test_elements_are_one_job_that_holds_what_they_hold() -> None:
    seen = gang(running(1, ("n3",), 1), running(0, ("n0", "n1"), 4), element(2))
    assert dict(pieces_held(seen)) == {"n0": 4, "n1": 4, "n3": 1}
    assert (seen.id, seen.state, stopped_as(seen)) == ("7", JobState.RUNNING, "7_[0,1]")
    assert list(tidied(seen, None, starting=False)) == []


def test_a_job_without_a_leader_that_has_ended_leaves_members_to_be_cancelled() -> None:
    ended = element(0, JobState.ENDED, outcome="COMPLETED", end_s=50.0)
    jobs = {each.id: each for each in (ended, element(1), running(2, ("n1",), 2))}
    found, left = folded(jobs)
    assert list(leftover(left, found, now=55.0, patience_s=10.0)) == [Cancel("7_1")]
    assert list(leftover(left, found, now=61.0, patience_s=10.0)) == [Cancel("7_1"), Cancel("7_2")]
    del jobs["7_0"]
    found, left = folded(jobs)
    assert list(leftover(left, found, now=55.0, patience_s=10.0)) == [Cancel("7_1"), Cancel("7_2")]


def test_members_are_placed_before_their_leader_and_wait_for_it() -> None:
    seen = gang(element(0), element(1), element(2))
    change = together(seen, [(("n0",), 4, "a", Terms()), (("n3",), 1, "a", Terms())], PARK)
    member = Place("7_1", ("n3",), 1, SetAside("7_1", "7_0"), "a", dependency="after:7_0")
    assert change == Together("7_0", (member, Place("7_0", ("n0",), 4, PARK, "a")))
    assert (
        together(gang(element(0)), [(("n0",), 4, "", Terms()), (("n3",), 1, "", Terms())], PARK)
        is None
    )


def test_spares_are_set_aside_before_anything_else_is_done_to_an_array() -> None:
    seen = gang(element(0, id="7", unsplit="0-3"))
    assert list(tidied(seen, None, starting=False)) == [SetAside("7_[1-3]", "7_0")]
    assert together(seen, [(("n0",), 4, "", Terms()), (("n3",), 1, "", Terms())], PARK) is None


@pytest.mark.parametrize(
    ("member", "wanted"),
    [
        (element(1, pinned=("n3",), dependency="after:7_0"), SetAside("7_1", "7_0")),
        (element(1, dependency=""), SetAside("7_1", "7_0")),
        (element(1, JobState.ENDED, outcome="COMPLETED", end_s=1.0), Requeue("7_1")),
        (running(1, ("n3",), 1), Requeue("7_1")),
    ],
    ids=["pinned", "let go of", "ended", "running"],
)
def test_a_member_whose_leader_waits_is_brought_back_to_it(
    member: SlurmJob, wanted: SetAside | Requeue
) -> None:
    assert list(tidied(gang(element(0), member), None, starting=False)) == [wanted]


def test_ids_of_elements_tell_their_job() -> None:
    assert [job_of(each) for each in ("7", "7_1", "7_[0,1]")] == ["7", "7", "7"]
    assert [of_leader(each) for each in ("7", "7_0", "7_[0,2]", "7_1", "7_[1-3]")] == [
        *(True, True, True),
        *(False, False),
    ]
