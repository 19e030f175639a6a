"""Jobs of copies under policies that give each job one placement, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.policy import make_policy
from slurm_plugin.backend import Enter, Requeue
from slurm_plugin.daemon import DaemonMode
from tests.slurm_plugin.daemon.fake_slurm import Site, left, named, placed, places
from tests.slurm_plugin.daemon.jobs.test_copies import (
    SETTINGS,
    begun,
    element,
    ended,
    nodes,
    running,
    site_of,
)


def reload(site: Site, policy: str) -> None:
    """Go on under another policy."""
    site.daemon.adopt(make_policy(policy), SETTINGS, DaemonMode.ENFORCE)


def test_one_element_is_all_of_the_job() -> None:
    site = site_of(element(0), element(1), element(2), used=(0, 0), policy="fifo")
    assert named(site.cycle(1)) == [("Enter", "7_0")]


@pytest.mark.parametrize("outcome", ["CANCELLED", "FAILED", "TIMEOUT"])
def test_a_spare_that_has_ended_costs_the_job_nothing(outcome: str) -> None:
    others = element(1), ended(2, outcome)
    site = site_of(running(0, "n0"), *others, used=(4, 0, 0), policy="fifo")
    assert site.cycle(200) == []
    (run,) = site.world.jobs["7"].runs
    assert (run.copy, str(run.configuration)) == (0, "n0:4")
    # Nor while it waits: nothing that has ended is queued again.
    calls = site.see(element(0), *others, seconds=1, nodes=nodes(0, 0, 0))
    assert calls == [begun(element(0), "n0")]


def test_what_runs_beside_the_first_element_is_stopped_and_comes_back() -> None:
    first, others = running(0, "n0"), (ended(2, "CANCELLED"), element(3))
    site = site_of(first, running(1, "n1"), *others, used=(4, 4, 0))
    site.cycle(1)
    reload(site, "fifo")
    assert site.cycle(1) == [Requeue("7_1")]
    assert str(site.world.jobs["7"].holds) == "n0:4"
    # Until it has ended its node is not free.
    assert [site.uses(name) for name in ("n0", "n1", "n2")] == [(4, 0), (0, 4), (0, 0)]
    again = element(1, restarts=1)
    calls = site.see(first, placed(again, "n1"), *others, seconds=1, nodes=nodes(4, 0, 0))
    assert calls == [left(element(1))]
    assert site.see(first, again, *others, seconds=100) == []
    reload(site, "hadare")
    assert list(places(site.cycle(1))) == ["7_1", "7_3"]


def test_the_first_that_has_not_ended_goes_on_for_the_job() -> None:
    failed = ended(0, "FAILED", "n0")
    site = site_of(failed, element(3), running(1, "n1"), running(2, "n2"), used=(0, 4, 4))
    site.cycle(1)
    reload(site, "fifo")
    assert site.cycle(1) == [Requeue("7_2")]
    assert str(site.world.jobs["7"].holds) == "n1:4"
    waits = element(2, restarts=1)
    site.show(failed, running(1, "n1"), placed(waits, "n2"), nodes=nodes(0, 4, 0))
    assert site.cycle(1) == [left(element(2))]
    # Cancelled by its user, the job has still the other.
    calls = site.see(failed, ended(1, "CANCELLED"), waits, seconds=1, nodes=nodes(0, 0, 0))
    assert named(calls) == [("Enter", "7_2")]
    assert site.see(*(ended(at, "FAILED") for at in range(3)), seconds=1) == []
    assert site.world.managed == {}


def test_what_is_surplus_saves_its_state_first() -> None:
    settings = replace(SETTINGS, checkpoint_signal="USR1", checkpoint_wait_s=20.0)
    site = Site(running(0, "n0"), running(1, "n1"), nodes=nodes(4, 4), settings=settings)
    assert named(site.cycle(10)) == [("Signal", "7_1")]
    assert named(site.cycle(12))[:1] == [("Requeue", "7_1")]


def test_what_never_ran_is_not_taken_for_the_job_once_the_first_has_ended() -> None:
    elements = ended(0, "FAILED", "n0"), element(1), running(2, "n1")
    site = site_of(*elements, used=(0, 4), policy="fifo")
    assert not any(isinstance(change, Requeue | Enter) for change in site.cycle(2))
    assert str(site.world.jobs["7"].holds) == "n1:4"
