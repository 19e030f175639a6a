"""What is wrong with Slurm, or with how the site is set up, is said once and stops nobody."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.store import Mode, Store
from slurm_plugin.backend import (
    AwayError,
    BackendError,
    Hold,
    RefusedError,
    SlurmSite,
    SlurmState,
)
from tests.conftest import fill
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import SETTINGS, WAITING, Site, held, node, places

HOLD = Hold("hetsched", ("n0",), 60)


def warnings(site: Site) -> tuple[str, ...]:
    """What the next cycle warns of."""
    site.cycle()
    return site.report.warnings


def test_what_is_wrong_is_said_once() -> None:
    bad = replace(WAITING, id="3", mark="hetsched/2 nonsense")
    site = Site(WAITING, bad)
    site.backend.where = SlurmSite(10.0, {"gpu": None})
    about_mark, about_grace = warnings(site)
    assert about_mark.startswith("job=3: 'hetsched/2 nonsense' is not a mark")
    assert about_grace.startswith("grace_s = 30 is more than Slurm's KillWait = 10")
    assert warnings(site) == ()
    site.show(WAITING, replace(bad, id="4"))
    (new,) = warnings(site)
    assert new.startswith("job=4: ")
    assert set(site.world.warnings) == {"4"}


def test_shares_that_count_no_gpus_are_told_where_they_are_of_managed_partitions() -> None:
    site = Site(WAITING)
    site.backend.where = SlurmSite(60.0, {"gpu": None}, unbilled=frozenset({"gpu", "cpu"}))
    (said,) = warnings(site)
    assert said.startswith("fair share counts no GPUs in partition gpu: ")
    other = Site(WAITING)
    other.backend.where = SlurmSite(60.0, {"gpu": None}, unbilled=frozenset({"cpu"}))
    assert warnings(other) == ()


def test_the_site_is_looked_up_again_when_the_clock_is_set_back() -> None:
    site = Site(WAITING, now=100_000.0)
    assert warnings(site) == ()
    site.backend.where = SlurmSite(5.0, {"gpu": None})
    site.clock.now = 1000.0
    (said,) = warnings(site)
    assert "KillWait = 5" in said


def test_a_full_disk_is_said_once_and_stops_nobody(
    small_disk: Callable[[str], Path],
) -> None:
    disk = small_disk("3m")
    with Store.open(disk / "store.duckdb", Mode.WRITE) as store:
        site = Site(WAITING, store=store)
        fill(disk)
        said = [" ".join(warnings(site)) for _ in range(3)]
    assert len(site.backend.calls) == 3
    assert ["not recorded" in words for words in said] == [False, True, False]


def test_a_partition_that_slurm_does_not_have_is_told_once_refused_and_not_taken_for_away() -> None:
    wrong = replace(SETTINGS, partitions=frozenset({"gpu", "gpus"}))
    words = "Slurm has no partition gpus; it has gpu, old"
    site = Site(WAITING, settings=wrong)
    site.backend.where = SlurmSite(30.0, {"gpu": None, "old": None})
    assert [warnings(site) for _ in range(3)] == [(words,), (), ()]
    site.daemon.check_partitions(SETTINGS)
    with pytest.raises(InputError, match=words):
        site.daemon.check_partitions(wrong)
    # Its nodes go with it: none is left, and it is said why.
    site = Site(nodes=(), reservations=())
    site.backend.where = SlurmSite(30.0, {"old": None})
    site.cycle()
    assert site.report.away == "Slurm has no partition gpu; it has old"


def test_nodes_that_are_left_out_are_told_with_why_and_others_are_used() -> None:
    nodes = (
        node("n0"),
        *(replace(node(name), gpus=()) for name in ("c1", "c2")),
        replace(node("n1"), gpus=(("v100", 0),)),
        replace(node("n2"), gpus=(("gpu", 2), ("v100", 2))),
    )
    settings = replace(SETTINGS, nodes="n9")
    site = Site(WAITING, nodes=nodes, reservations=(held("n0"),), settings=settings)
    assert set(warnings(site)) == {
        "node c[1-2],n1 is left out: it has no GPUs",
        "node n2 is left out: it has GPUs with a type and GPUs without",
        "node n9 is left out: Slurm has no such node",
    }
    assert [change.job for change in site.backend.calls] == [WAITING.id]
    assert warnings(site) == ()


# -- Slurm is away ---------------------------------------------------------------------------------


class Away(FakeBackend):
    """Gives an error instead of each answer while there are some."""

    def __init__(self, *errors: BackendError) -> None:
        super().__init__()
        self.away = list(errors)

    def read(self) -> SlurmState:
        if self.away:
            raise self.away.pop(0)
        return FakeBackend.read(self)


def test_slurm_being_away_is_a_state_and_nothing_is_placed_before_its_nodes_have_registered() -> (
    None
):
    backend = Away(AwayError("nobody answers"), RefusedError("not now"))
    site = Site(WAITING, backend=backend, reservations=())
    said = []
    for _ in range(3):
        site.cycle()
        said.append(site.report.away)
    assert said == ["nobody answers", "not now", ""]
    # The nodes are held meanwhile.
    assert set(site.backend.calls) == {HOLD}
    assert set(site.cycle(9)) == {HOLD}
    assert places(site.cycle(1)) == {"1": ("n0",)}


def test_a_slurm_that_does_not_answer_is_asked_for_its_partitions_later() -> None:
    class Silent(FakeBackend):
        def site(self) -> SlurmSite:
            raise AwayError("nobody answers")

    Site(backend=Silent()).daemon.check_partitions(SETTINGS)


def test_a_cluster_without_gpus_is_waited_for() -> None:
    site = Site(WAITING, nodes=())
    site.cycle()
    assert "0 GPUs" in site.report.away
    assert places(site.see(WAITING, nodes=(node("n0"),), reservations=(held("n0"),))) != {}


def test_a_read_that_waited_for_a_backup_controller_counts_as_slurm_having_been_away() -> None:
    # Between any two looks at it six seconds pass.
    site = Site(WAITING, stopwatch=itertools.count(0.0, 6.0).__next__)
    assert site.cycle() == []
    assert site.report.away == ""
    # Where each read takes as long, it has many jobs to tell of.
    site.clock.now += 11
    assert places(site.cycle()) != {}
