"""Copies of unequal speed train as good a model as one copy does: the page's study, reduced."""

from __future__ import annotations

from benchmarks.consolidation_quality import (
    MARGIN,
    PAGE,
    Compared,
    Digits,
    HeldOutScore,
    TrainingSetting,
    settings,
    within,
)


def test_three_copies_tell_digits_no_worse_than_one_copy_of_as_many_steps() -> None:
    setting = TrainingSetting(Digits(), 1050)
    found = Compared.of(setting, range(3))
    mean, bound = found.worse_by()[0]
    assert mean <= bound < MARGIN
    # Both have learned it.
    assert min(judged.accuracy for judged in (*found.ones, *found.copies)) > 0.96


def test_the_study_would_notice_copies_that_are_worse() -> None:
    good, bad = HeldOutScore(0.1, 0.98), HeldOutScore(0.1, 0.96)
    worse = Compared([good] * 5, [bad] * 4 + [good])
    assert worse.worse_by()[0][1] > MARGIN
    assert Compared([good] * 5, [good] * 5).worse_by() == ((0.0, 0.0), (0.0, 0.0))


def test_the_last_round_does_no_more_steps_than_are_left() -> None:
    assert within({"a": 120, "b": 60, "c": 30}, 150) == {"a": 120, "b": 30}


def test_the_page_shows_every_setting() -> None:
    page = PAGE.read_text()
    assert all(f"\n| {name} | " in page for name in settings())
