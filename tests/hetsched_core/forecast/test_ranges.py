"""Ranges: calibrated, they hold as often as they say; and how they are judged."""

import numpy as np
import pytest

from hetsched_core.forecast import Calibration, StartRange, range_accuracy


@pytest.mark.parametrize(("bias", "drawn_sd"), [(1.0, 0.8), (1.0, 0.15), (1.6, 0.3), (0.6, 0.3)])
def test_ranges_come_to_hold_as_often_as_they_say_however_wrong_the_draws(
    bias: float, drawn_sd: float
) -> None:
    rng = np.random.default_rng(3)
    calibration, inside, raw = Calibration(), [], []
    for number in range(600):
        at_s = 1000.0 * number
        scale_s = float(rng.uniform(600, 20_000))
        starts = at_s + bias * scale_s * np.exp(rng.normal(0, drawn_sd, 24))
        true_s = float(at_s + scale_s * np.exp(rng.normal(0, 0.4)))
        given = calibration.range_of(at_s, sorted(starts))
        calibration.learn(given, true_s)
        if number >= 100:
            inside.append(given.holds(true_s))
            raw.append(given.drawn_low_s <= true_s <= given.drawn_high_s)
    assert 0.79 < np.mean(inside) < 0.9
    if bias != 1.0 or drawn_sd < 0.4:
        assert np.mean(raw) < 0.7


@pytest.mark.parametrize("late_s", [-27.0, 2.0, 20.0])
def test_what_all_futures_are_wrong_by_is_learned_from_few_starts(late_s: float) -> None:
    calibration, inside = Calibration(), []
    for number in range(40):
        at_s = 1000.0 * number
        # Every future has the job start at the next round; Slurm is so much later, or sooner.
        given = calibration.range_of(at_s, (at_s + 60.0,) * 24)
        calibration.learn(given, at_s + 60.0 + late_s)
        inside.append(given.holds(at_s + 60.0 + late_s))
    assert np.mean(inside) > 0.75


def test_errors_that_neighbours_have_in_common_widen_no_range_for_good() -> None:
    rng = np.random.default_rng(5)
    calibration, widths, inside = Calibration(), [], []
    for queue in range(60):
        common = float(np.exp(rng.normal(0, 0.3)))
        # In each queue all starts come to be known only after its last range was given.
        given = []
        for place in range(12):
            at_s, scale_s = 1e6 * queue + place, 3000.0 * (place + 1)
            # Each future errs by as much as the truth, and for the whole queue alike.
            starts = at_s + scale_s * np.exp(rng.normal(0, 0.3, 24))
            given.append((calibration.range_of(at_s, sorted(starts)), at_s + scale_s * common))
        for each, true_s in given:
            calibration.learn(each, true_s)
            widths.append((each.high_s - each.low_s) / (each.drawn_high_s - each.drawn_low_s))
            inside.append(each.holds(true_s))
    assert 0.78 < np.mean(inside) < 0.95
    assert np.median(widths) < 1.6


def test_the_ends_of_a_range_are_ranks_of_as_many_equally_likely_futures() -> None:
    rng = np.random.default_rng(7)
    inside = []
    for _ in range(2000):
        drawn = rng.normal(5000.0, 800.0, 13)
        given = Calibration().range_of(0.0, sorted(drawn[1:]))
        inside.append(given.drawn_low_s <= drawn[0] <= given.drawn_high_s)
    assert np.mean(inside) == pytest.approx(0.8, abs=0.03)


def test_a_range_moves_out_with_each_miss_and_never_without_end() -> None:
    calibration = Calibration()
    starts = tuple(1000.0 + 60.0 * k for k in range(1, 10))
    given = calibration.range_of(1000.0, starts)
    assert (given.drawn_low_s, given.drawn_high_s) == pytest.approx((1060.0, 1540.0))
    assert (given.low_s, given.high_s) == pytest.approx((1060.0 - 48.0, 1540.0 + 48.0))
    calibration.learn(given, 5000.0)
    after = calibration.range_of(1000.0, starts)
    assert given.high_s + 0.25 * 480.0 < after.high_s < given.high_s + 0.3 * 480.0
    assert given.low_s < after.low_s < given.low_s + 0.03 * 480.0
    for _ in range(100):
        calibration.learn(given, 1500.0)
    before = calibration.range_of(1000.0, starts)
    calibration.learn(before, 5000.0)
    later = calibration.range_of(1000.0, starts)
    # Once many starts are known one of them says less.
    assert before.high_s < later.high_s < before.high_s + 0.05 * 480.0
    for _ in range(200):
        calibration.learn(given, 1e9)
    assert calibration.range_of(1000.0, starts).high_s == pytest.approx(1540.0 + 5.0 * 480.0)


def test_a_range_never_ends_before_it_was_given() -> None:
    given = Calibration().range_of(1000.0, (1000.0,) * 5)
    assert given.low_s == 1000.0 <= given.high_s


def test_ranges_are_judged_beside_what_waits_were_before() -> None:
    assert range_accuracy([]) is None
    pairs = []
    for number in range(30):
        at_s = 10_000.0 * number
        wait_s = 1000.0 + 100.0 * (number % 7)
        low_s, high_s = at_s + wait_s - 50, at_s + wait_s + (50 if number % 5 else -10)
        pairs.append((StartRange(at_s, low_s, high_s, low_s, high_s), at_s + wait_s))
    found = range_accuracy(pairs)
    assert found is not None
    assert (found.ranges, found.inside) == (30, 0.8)
    assert found.median_width_s == pytest.approx(100.0)
    assert found.median_wait_s == 1300.0
    assert found.score_s is not None
    assert found.constant_score_s is not None
    # The constant range is some 500 s wide; a miss by 10 s costs 100.
    assert found.score_s == pytest.approx(0.8 * 100 + 0.2 * (40 + 100), abs=1)
    assert 400 < found.constant_score_s < 1200
