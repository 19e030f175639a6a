"""Who gains and who loses: by hand on made-up completion times, and on real runs."""

from dataclasses import replace

import numpy as np
import pytest

from hetsched_core.report import gains as module
from hetsched_core.report.gains import Gains, gains
from hetsched_core.report.history import History
from tests.hetsched_core.report.runs import usual

NAN = float("nan")


def with_jobs(history: History, **columns: object) -> History:
    return replace(history, jobs=replace(history.jobs, **columns))  # type: ignore[arg-type]


@pytest.fixture
def two() -> tuple[History, History]:
    """Four jobs that gain, lose, stay, and complete under the first policy only."""
    (history,) = usual("fifo")
    made = with_jobs(
        history,
        ids=("a", "b", "c", "d"),
        users=("ann", "ann", "ben", "ben"),
        gpu_hours=np.array([0.5, 5.0, 50.0, 51.0]),
        gpu_types=("a100", "v100", "v100", "a100"),
        jct_s=np.array([1000.0, 1000.0, 10_000.0, 5.0]),
    )
    other = with_jobs(made, jct_s=np.array([500.0, 1500.0, 10_400.0, NAN]))
    return made, replace(other, policy="new")


def groups(found: Gains, title: str) -> dict[str, tuple[int, float, int, int]]:
    (grouping,) = (one for one in found.groupings if one.title.startswith(title))
    return {g.label: (g.jobs, round(g.change, 6), g.sooner, g.later) for g in grouping.groups}


def test_groups_are_those_of_the_first_policy(two: tuple[History, History]) -> None:
    found = gains(*two)
    assert found is not None
    assert groups(found, "by GPU hours under fifo") == {
        "S: below 1 GPU hour": (1, -0.5, 1, 0),
        "M: 1 to 10 GPU hours": (1, 0.5, 0, 1),
        "L: 10 to 50 GPU hours": (1, 0.04, 0, 0),
    }
    assert groups(found, "by GPU type held under fifo") == {
        "a100": (1, -0.5, 1, 0),
        "v100": (2, round(11_900 / 11_000 - 1, 6), 0, 1),
    }
    assert groups(found, "by user") == {"ann": (2, 0.0, 1, 1), "ben": (1, 0.04, 0, 0)}
    # All jobs that complete twice count; those that lose most are named.
    assert (found.policy, found.total.jobs) == ("new", 3)
    assert (found.total.before_s, found.total.after_s) == pytest.approx((4000.0, 12_400 / 3))
    assert [(one.job, one.user, one.after_s) for one in found.losers] == [("b", "ann", 1500.0)]


def test_without_users_there_are_no_groups_of_users_and_without_completions_no_gains(
    two: tuple[History, History],
) -> None:
    found = gains(*(with_jobs(one, users=("",) * 4) for one in two))
    assert found is not None
    assert len(found.groupings) == 2
    first, other = two
    assert gains(first, with_jobs(other, jct_s=np.full(4, NAN))) is None


@pytest.mark.parametrize(
    ("before_s", "after_s", "counts"),
    [
        (100.0, 161.0, True),
        (100.0, 160.0, False),
        (10_000.0, 10_501.0, True),
        (10_000.0, 10_500.0, False),
    ],
)
def test_a_change_counts_above_a_minute_and_5_percent(
    two: tuple[History, History], before_s: float, after_s: float, counts: bool
) -> None:
    first, other = two
    for old, new in ((before_s, after_s), (before_s, 2 * before_s - after_s)):
        found = gains(
            with_jobs(first, jct_s=np.array([old, NAN, NAN, NAN])),
            with_jobs(other, jct_s=np.array([new, NAN, NAN, NAN])),
        )
        assert found is not None
        assert (found.total.sooner + found.total.later == 1) is counts


def test_of_many_users_those_who_change_most_are_shown_and_the_rest_as_one(
    monkeypatch: pytest.MonkeyPatch, two: tuple[History, History]
) -> None:
    monkeypatch.setattr(module, "MAX_USERS", 2)
    first, other = (with_jobs(one, users=("w", "x", "y", "z")) for one in two)
    later = with_jobs(other, jct_s=np.array([500.0, 1500.0, 10_001.0, 6.0]))
    found = gains(first, later)
    assert found is not None
    assert groups(found, "by user") == {
        "w": (1, -0.5, 1, 0),
        "x": (1, 0.5, 0, 1),
        "2 other users": (2, round(10_007 / 10_005 - 1, 6), 0, 0),
    }
