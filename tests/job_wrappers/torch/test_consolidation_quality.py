"""Copies of unequal speed train as good a model as one copy does: the page's study, reduced."""

from __future__ import annotations

from benchmarks.consolidation_quality import (
    MARGIN,
    Compared,
    Digits,
    HeldOutScore,
    TrainingSetting,
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
