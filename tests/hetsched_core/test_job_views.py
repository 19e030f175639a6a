"""What is read off a job's runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from hetsched_core.types import Phase, Purpose
from tests.hetsched_core.worlds import held, on, view


def test_the_copy_that_is_furthest_on_speaks_for_the_job() -> None:
    works = held(on(a=1))
    starts = held(on(b=1), progress_from_s=50.0)
    stops = held(on(c=1), draining_until_s=30.0)
    measured = held(on(d=1), purpose=Purpose.PROFILE)
    for runs, phase in (
        ((works, starts, stops, measured), Phase.RUNNING),
        ((starts, stops, measured), Phase.STARTING),
        ((stops, measured), Phase.DRAINING),
        ((replace(measured, draining_until_s=30.0), starts), Phase.STARTING),
        ((measured,), Phase.PROFILING),
        ((), Phase.WAITING),
    ):
        for order in permutations(runs):
            assert view("j", *order).phase(10.0) is phase
