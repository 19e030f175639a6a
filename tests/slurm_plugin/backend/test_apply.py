"""Changes are made in order, again when nobody answers, and never half."""

from slurm_plugin.backend import (
    AwayError,
    Change,
    Drop,
    Enter,
    Hold,
    Leave,
    Park,
    Place,
    Push,
    RefusedError,
    Requeue,
    apply_changes,
)
from tests.slurm_plugin.backend.fake import FakeBackend

PLACE = Place("1", ("n0",), 2, Park("1", 1, 60))
NO = RefusedError("no")
AWAY = AwayError("away")


def test_what_frees_gpus_goes_before_what_takes_them() -> None:
    backend = FakeBackend()
    changes: list[Change] = [PLACE, Push("2", 60), Park("3", 1, 60), Requeue("4")]
    outcome = apply_changes(backend, changes, lambda _: None)
    assert outcome.made == tuple(backend.calls) == (*reversed(changes),)


def test_a_change_without_an_answer_is_tried_again_after_a_growing_wait() -> None:
    backend = FakeBackend(errors=[AWAY, AWAY])
    waits: list[float] = []
    outcome = apply_changes(backend, [PLACE], waits.append, backoff_s=(0.5, 2.0))
    assert outcome.made == (PLACE,)
    assert waits == [0.5, 2.0]
    assert backend.calls == [PLACE] * 3


def test_when_slurm_stays_away_the_rest_is_put_off_untried() -> None:
    backend = FakeBackend(errors=[None, AWAY, AWAY])
    changes: list[Change] = [Requeue("1"), Push("2", 60), Push("3", 60)]
    outcome = apply_changes(backend, changes, lambda _: None, backoff_s=(0.1,))
    assert outcome.made == (changes[0],)
    assert outcome.put_off == (changes[1], changes[2])
    assert outcome.away == "away"
    assert Push("3", 60) not in backend.calls


def test_a_refused_placement_is_parked_and_the_others_go_on() -> None:
    backend = FakeBackend(errors=[NO])
    other = Place("2", ("n1",), 1, Park("2", 1, 60))
    outcome = apply_changes(backend, [PLACE, other], lambda _: None)
    assert outcome.refused == ((PLACE, "no"),)
    assert outcome.made == (other,)
    assert backend.calls == [PLACE, Park("1", 1, 60), other]


def test_a_job_that_cannot_be_parked_again_stops_nothing() -> None:
    backend = FakeBackend(errors=[NO, NO])
    outcome = apply_changes(
        backend, [PLACE, Place("2", ("n1",), 1, Park("2", 1, 60))], lambda _: None
    )
    assert len(outcome.made) == 1
    assert outcome.away == ""


def test_slurm_going_away_during_the_undoing_does_not_repeat_the_refused_change() -> None:
    backend = FakeBackend(errors=[NO, AWAY])
    outcome = apply_changes(
        backend, [PLACE, Place("2", ("n1",), 1, Park("2", 1, 60))], lambda _: None, ()
    )
    assert outcome.refused == ((PLACE, "no"),)
    assert outcome.put_off == (Place("2", ("n1",), 1, Park("2", 1, 60)),)


def test_nodes_are_held_before_all_else_and_given_back_after_it() -> None:
    backend = FakeBackend()
    enter, hold, drop = (
        Enter("1", "held", ("n0",), Leave("1")),
        Hold("held", ("n0",), 60),
        Drop("x"),
    )
    apply_changes(backend, [drop, enter, Leave("2"), Requeue("3"), hold], lambda _: None)
    assert backend.calls == [hold, Requeue("3"), Leave("2"), enter, drop]


def test_a_job_whose_entry_is_refused_is_taken_out_again() -> None:
    backend = FakeBackend(errors=[NO])
    enter = Enter("1", "held", ("n0",), Leave("1", ("n0", "n1")))
    outcome = apply_changes(backend, [enter], lambda _: None)
    assert outcome.refused == ((enter, "no"),)
    assert backend.calls == [enter, Leave("1", ("n0", "n1"))]
