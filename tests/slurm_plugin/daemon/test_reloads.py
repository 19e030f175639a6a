"""A daemon is given other settings while it runs, on a fake Slurm."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.policy import make_policy
from hetsched_core.store import IN_MEMORY, Store
from hetsched_core.store import Mode as StoreMode
from slurm_plugin.daemon import Daemon, Mode
from slurm_plugin.daemon.configuration import Configuration, LogForm, read_configuration
from slurm_plugin.daemon.log import open_log
from slurm_plugin.daemon.process import _reloaded
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import SETTINGS, WAITING, Clock, daemon_of, state


def test_a_reload_with_a_mistyped_partition_leaves_all_as_it_was() -> None:
    daemon = daemon_of(FakeBackend(state(WAITING)), Clock(), mode=Mode.SHADOW)
    daemon.cycle()
    before = Configuration(partitions=frozenset({"gpu"}))
    after = replace(before, partitions=frozenset({"nosuch"}))
    said = io.StringIO()
    assert _reloaded(daemon, before, lambda: after, open_log(LogForm.LOGFMT, said)) is before
    assert "reload_refused" in said.getvalue()
    assert "Slurm has no partition nosuch; it has gpu" in said.getvalue()
    assert set(daemon.world.managed) == {"1"}
    gone = Path("/nowhere/hetschedd.toml")
    log = open_log(LogForm.LOGFMT, said)
    assert _reloaded(daemon, before, lambda: read_configuration(gone), log) is before
    assert "/nowhere/hetschedd.toml: No such file or directory" in said.getvalue()
    assert "Errno" not in said.getvalue()


def test_a_reload_takes_a_partition_that_slurm_has_got_since_and_warns_of_nothing() -> None:
    backend = FakeBackend(state(WAITING))
    daemon = daemon_of(backend, Clock(), mode=Mode.SHADOW)
    daemon.cycle()
    before = Configuration(partitions=frozenset({"gpu"}))
    after = replace(before, partitions=frozenset({"gpu", "new"}))
    said = io.StringIO()
    log = open_log(LogForm.LOGFMT, said)
    assert _reloaded(daemon, before, lambda: after, log) is before
    assert "reload_refused" in said.getvalue()
    backend.where = replace(backend.where, longest_s={"gpu": None, "new": 60.0})
    assert _reloaded(daemon, before, lambda: after, log) is after
    # Within the five minutes for which what the site has set is remembered.
    assert daemon.cycle().warnings == ()


def test_a_reload_that_names_another_partition_can_be_taken_back() -> None:
    backend = FakeBackend(state(WAITING))
    daemon = daemon_of(backend, Clock(), mode=Mode.SHADOW)
    daemon.cycle()
    elsewhere = replace(SETTINGS, partitions=frozenset({"old"}))
    for settings, active in ((elsewhere, set()), (SETTINGS, {WAITING.id})):
        daemon.adopt(make_policy("las"), settings, Mode.SHADOW)
        report = daemon.cycle()
        assert report.violations == ()
        assert set(daemon.plan.entries) == active


@pytest.mark.parametrize(("mode", "measured"), [(Mode.ENFORCE, ["1"]), (Mode.SHADOW, [])])
def test_in_shadow_nothing_is_measured_since_nobody_begins_or_ends_such_a_run(
    mode: Mode, measured: list[str], tmp_path: Path
) -> None:
    keyed = WAITING.mark.replace("}", ',"profile-key":"net","can-checkpoint":true}')
    waiting = replace(WAITING, mark=keyed)
    settings = replace(SETTINGS, spool=tmp_path)
    with Store.open(IN_MEMORY, StoreMode.WRITE) as store:
        daemon = Daemon(
            FakeBackend(state(waiting)),
            make_policy("hops"),
            settings,
            mode=mode,
            clock=Clock(),
            sleep=lambda _: None,
            store=store,
        )
        report = daemon.cycle()
        assert [profile.job for profile in daemon.plan.profiles] == measured
        assert report.decision is not None
        # A reload into the other mode is told apart, too.
        other = Mode.SHADOW if mode is Mode.ENFORCE else Mode.ENFORCE
        daemon.adopt(make_policy("hops"), settings, other)
        daemon.cycle()
        assert bool(daemon.plan.profiles) is (not measured)
