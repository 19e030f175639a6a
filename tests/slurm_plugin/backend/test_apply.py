"""Changes are made in order, again when nobody answers, and never half."""

from slurm_plugin.backend import (
    AwayError,
    Change,
    Drop,
    Enter,
    Hold,
    Leave,
    RefusedError,
    Requeue,
    SlowError,
    Together,
    apply_changes,
)
from tests.slurm_plugin.backend.fake import FakeBackend


def enter(job: str) -> Enter:
    return Enter(job, "hetsched", ("n0",), Leave(job))


PLACE, OTHER = enter("1"), enter("2")
HOLD = Hold("hetsched", ("n0",), 60)
NO = RefusedError("no")
AWAY = AwayError("away")


def test_nodes_are_held_first_and_what_frees_gpus_goes_before_what_takes_them() -> None:
    backend = FakeBackend()
    changes: list[Change] = [Drop("hetsched-2"), PLACE, Leave("3"), Requeue("4"), HOLD]
    outcome = apply_changes(backend, changes, lambda _: None)
    assert outcome.made == tuple(backend.calls) == (*reversed(changes),)


def test_a_change_without_an_answer_is_tried_again_after_a_growing_wait() -> None:
    backend = FakeBackend(errors=[AWAY, AWAY])
    waits: list[float] = []
    outcome = apply_changes(backend, [PLACE], waits.append, backoff_s=(0.5, 2.0))
    assert outcome.made == (PLACE,)
    assert waits == [0.5, 2.0]
    assert backend.calls == [PLACE] * 3


def test_what_slurm_lets_wait_for_long_is_not_tried_again_at_once() -> None:
    backend = FakeBackend(errors=[SlowError("not within 60 s")])
    outcome = apply_changes(backend, [PLACE, OTHER], lambda _: None, backoff_s=(0.5, 2.0))
    assert backend.calls == [PLACE]
    assert (outcome.put_off, outcome.away) == ((PLACE, OTHER), "not within 60 s")


def test_when_slurm_stays_away_the_rest_is_put_off_untried() -> None:
    backend = FakeBackend(errors=[None, AWAY, AWAY])
    changes: list[Change] = [Requeue("1"), Leave("2"), Leave("3")]
    outcome = apply_changes(backend, changes, lambda _: None, backoff_s=(0.1,))
    assert outcome.made == (changes[0],)
    assert outcome.put_off == (changes[1], changes[2])
    assert outcome.away == "away"
    assert Leave("3") not in backend.calls


def test_what_there_is_no_time_for_is_put_off() -> None:
    backend = FakeBackend()
    changes: list[Change] = [HOLD, PLACE, OTHER]
    outcome = apply_changes(
        backend, changes, lambda _: None, enough=lambda: len(backend.calls) == 2
    )
    assert (outcome.made, outcome.put_off, outcome.away) == ((HOLD, PLACE), (OTHER,), "")
    assert backend.calls == [HOLD, PLACE]


def test_a_refused_placement_is_undone_and_the_others_go_on() -> None:
    backend = FakeBackend(errors=[NO])
    outcome = apply_changes(backend, [PLACE, OTHER], lambda _: None)
    assert outcome.refused == ((PLACE, "no"),)
    assert outcome.made == (OTHER,)
    assert backend.calls == [PLACE, Leave("1"), OTHER]


def test_a_job_whose_placement_cannot_be_undone_stops_nothing() -> None:
    backend = FakeBackend(errors=[NO, NO])
    outcome = apply_changes(backend, [PLACE, OTHER], lambda _: None)
    assert len(outcome.made) == 1
    assert outcome.away == ""


def test_slurm_going_away_during_the_undoing_does_not_repeat_the_refused_change() -> None:
    backend = FakeBackend(errors=[NO, AWAY])
    outcome = apply_changes(backend, [PLACE, OTHER], lambda _: None, ())
    assert outcome.refused == ((PLACE, "no"),)
    assert outcome.put_off == (OTHER,)


def test_what_is_placed_together_is_undone_together() -> None:
    backend = FakeBackend(errors=[None, NO])
    outcome = apply_changes(backend, [Together("1", (PLACE, OTHER)), enter("3")], lambda _: None)
    assert outcome.refused == ((OTHER, "no"),)
    assert outcome.made == (enter("3"),)
    assert backend.calls == [PLACE, OTHER, Leave("2"), Leave("1"), enter("3")]
