"""What is wrong is said, once, on a fake Slurm."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hetsched_core.policy import make_policy
from hetsched_core.store import Mode as StoreMode
from hetsched_core.store import Store
from slurm_plugin.backend import SlurmSite
from slurm_plugin.daemon import Daemon, Mode
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import SETTINGS, WAITING, Clock, daemon_of, state


def test_what_is_wrong_is_said_once() -> None:
    bad = replace(WAITING, id="3", mark="hetsched/2 nonsense")
    backend = FakeBackend(state(WAITING, bad), where=SlurmSite(10.0, {"gpu": None}))
    daemon = daemon_of(backend, Clock())
    first, second = daemon.cycle().warnings, daemon.cycle().warnings
    assert second == ()
    about_mark, about_grace = first
    assert about_mark.startswith("job=3: 'hetsched/2 nonsense' is not a mark")
    assert about_grace.startswith("grace_s = 30 is more than Slurm's KillWait = 10")
    backend.state = state(WAITING, replace(bad, id="4"))
    (new,) = daemon.cycle().warnings
    assert new.startswith("job=4: ")
    assert set(daemon.world.warnings) == {"4"}


def test_a_grace_time_that_slurm_grants_is_nothing_to_warn_of() -> None:
    backend = FakeBackend(state(WAITING), where=SlurmSite(30.0, {"gpu": None}))
    assert daemon_of(backend, Clock()).cycle().warnings == ()


def test_the_site_is_looked_up_again_when_the_clock_is_set_back() -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock(100_000.0)
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    backend.where = SlurmSite(5.0, {"gpu": None})
    clock.now = 1000.0
    (said,) = daemon.cycle().warnings
    assert "KillWait = 5" in said


def test_a_full_disk_is_said_once_and_stops_nobody(
    small_disk: Callable[[str], Path],
) -> None:
    backend, disk = FakeBackend(state(WAITING)), small_disk("3m")
    with Store.open(disk / "store.duckdb", StoreMode.WRITE) as store:
        daemon = Daemon(
            *(backend, make_policy("fifo"), SETTINGS),
            mode=Mode.ENFORCE,
            clock=Clock(),
            sleep=lambda _: None,
            store=store,
        )
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        said = [" ".join(daemon.cycle().warnings) for _ in range(3)]
    assert len(backend.calls) == 3
    assert ["not recorded" in words for words in said] == [False, True, False]
