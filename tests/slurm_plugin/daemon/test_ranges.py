"""When a job may start, as it is told on a fake Slurm: who is given a range, and who a reason."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from slurm_plugin.backend import JobState
from tests.slurm_plugin.daemon.test_journal import FIRST, Bench, bench, job, running

__all__ = ["bench"]


def test_a_range_is_told_kept_and_met_by_the_true_start(bench: Bench) -> None:
    bench.cycle(FIRST, job(2))
    said = bench.ask("when", "2")
    given = said["range"]
    assert bench.clock.now <= given["low_s"] < given["high_s"] < bench.clock.now + 3600
    assert given["futures"] >= 5
    assert bench.ask("when", "2")["range"] == given
    assert said["past"] is None
    bench.cycle(FIRST, job(2), seconds=200)
    bench.cycle(running(job(2), bench.clock.now))
    assert {each.start_s for each in bench.store.ranges("2")} == {bench.clock.now - 1}
    said = bench.ask("when", "2")
    assert said["why_none"] == "it has its GPUs"
    assert said["past"]["ranges"] == 1
    assert said["past"]["median_wait_s"] == pytest.approx(200.0, abs=2)
    bench.cycle(replace(running(job(2), bench.clock.now), state=JobState.COMPLETING))
    says = bench.ask("when", "2")["why_none"]
    assert says == "it is to go on on n0:4 once it has freed what it holds"


def test_what_was_told_of_a_plan_that_is_gone_is_kept_by_nobody(bench: Bench) -> None:
    bench.cycle(FIRST, job(2), job(3))
    bench.ask("when", "2")
    plan = bench.daemon.plan
    bench.cycle(FIRST, job(2), job(3), job(4))
    assert bench.daemon.plan is not plan
    bench.ask("when", "3")
    told = dict(bench.telemetry._forecasts._told)
    assert {each[0] for each in told.values()} == {bench.daemon.plan.identity}


def test_who_comes_is_given_a_range_unasked_but_between_two_looks_ahead(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_plugin.api.forecasts.LEAST_REST_S", 600.0)
    bench.await_ranges(job(2), job(3))
    for _ in range(2):
        bench.cycle(FIRST, job(2), job(3), job(4))
        time.sleep(0.25)
    assert {each.job for each in bench.store.ranges()} == {"2", "3"}
    assert bench.ask("when", "4")["range"] is not None


def test_a_future_in_which_the_policy_fails_ends_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("strange job")

    monkeypatch.setattr("slurm_plugin.api.forecasts.REST", 0.0)
    monkeypatch.setattr("slurm_plugin.api.forecasts.LEAST_REST_S", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr("slurm_plugin.api.forecasts.possible_starts", fail)
        bench.cycle(FIRST, job(2), job(3))
        with pytest.raises(KeyError):
            bench.ask("when", "2")
        time.sleep(0.3)
    bench.await_ranges(job(2), job(3))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("forecasts.MOST_S", 0.0, "only 0 of 24 futures were done in 0 s, and 5 are the least"),
        ("past.HORIZON_S", 1.0, "in hardly any of 24 futures does it start within "),
    ],
)
def test_where_there_is_no_range_it_says_why(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, value: float, says: str
) -> None:
    held = replace(job(3), held=True, reason="JobHeldUser")
    # Futures are drawn from the first cycle on.
    monkeypatch.setattr(f"slurm_plugin.api.{name}", value)
    bench.cycle(FIRST, job(2), held)
    why_not = {"2": says, "3": "not yet: its user, an admin or Slurm holds it: JobHeldUser"}
    for job_id, words in why_not.items():
        said = bench.ask("when", job_id)
        assert said["range"] is None
        assert said["why_none"].startswith(words)


def test_nothing_is_drawn_while_the_loop_works(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_plugin.api.forecasts.Forecasts._is_new", lambda *_: False)
    said: list[Any] = []
    asking = threading.Thread(target=lambda: said.append(bench.ask("when", "2")["range"]))
    with bench.telemetry.standing_still():
        bench.cycle(FIRST, job(2))
        with monkeypatch.context() as patch:
            patch.setattr("slurm_plugin.api.forecasts.LONGEST_S", 0.3)
            assert bench.ask("when", "2")["range"] is None
        # The time for which it stands still is not taken from that for drawing.
        monkeypatch.setattr("slurm_plugin.api.forecasts.MOST_S", 1.0)
        asking.start()
        asking.join(1.5)
        assert said == []
    asking.join(30)
    assert said[0] is not None
