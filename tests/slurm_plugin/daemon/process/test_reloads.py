"""A daemon is given other settings while it runs, on a fake Slurm."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.policy import make_policy
from hetsched_core.store import IN_MEMORY, Mode, Store
from slurm_plugin.daemon import DaemonMode
from slurm_plugin.daemon.process.configuration import (
    DaemonConfiguration,
    LogForm,
    read_configuration,
)
from slurm_plugin.daemon.process.log import open_log
from slurm_plugin.daemon.process.run import _reloaded
from tests.slurm_plugin.daemon.fake_slurm import SETTINGS, WAITING, Site


def test_a_reload_with_a_mistake_leaves_all_as_it_was_until_it_is_none() -> None:
    site, said = Site(WAITING, mode=DaemonMode.SHADOW), io.StringIO()
    site.cycle()
    before = DaemonConfiguration(partitions=frozenset({"gpu"}))
    after = replace(before, partitions=frozenset({"gpu", "new"}))
    log = open_log(LogForm.LOGFMT, said)
    assert _reloaded(site.daemon, before, lambda: after, log) is before
    assert "reload_refused" in said.getvalue()
    assert "Slurm has no partition new; it has gpu" in said.getvalue()
    assert set(site.world.managed) == {"1"}
    gone = Path("/nowhere/hetschedd.toml")
    assert _reloaded(site.daemon, before, lambda: read_configuration(gone), log) is before
    assert "/nowhere/hetschedd.toml: No such file or directory" in said.getvalue()
    assert "Errno" not in said.getvalue()
    # Slurm gets the partition, within the time for which what the site has set is remembered.
    site.backend.where = replace(site.backend.where, longest_s={"gpu": None, "new": 60.0})
    assert _reloaded(site.daemon, before, lambda: after, log) is after
    site.cycle()
    assert site.report.warnings == ()


def test_where_daemons_take_turns_a_reload_leaves_what_the_lease_stands_on() -> None:
    site = Site(WAITING)
    log = open_log(LogForm.LOGFMT, io.StringIO())
    alone = DaemonConfiguration(
        partitions=frozenset({"gpu"}), policy="las", mode=DaemonMode.ENFORCE
    )
    for before in (alone, replace(alone, standby=True)):
        for after in (replace(before, slack_s=90), replace(before, mode=DaemonMode.SHADOW)):
            adopted = _reloaded(site.daemon, before, partial(replace, after), log)
            assert (adopted is before) == before.standby


def test_a_reload_that_names_another_partition_can_be_taken_back() -> None:
    site = Site(WAITING, mode=DaemonMode.SHADOW)
    site.cycle()
    elsewhere = replace(SETTINGS, partitions=frozenset({"old"}))
    for settings, active in ((elsewhere, set()), (SETTINGS, {WAITING.id})):
        site.daemon.adopt(make_policy("las"), settings, DaemonMode.SHADOW)
        site.cycle()
        assert set(site.daemon.plan.entries) == active


@pytest.mark.parametrize(
    "modes", [(DaemonMode.ENFORCE, DaemonMode.SHADOW), (DaemonMode.SHADOW, DaemonMode.ENFORCE)]
)
def test_in_shadow_nothing_is_measured_since_nobody_begins_or_ends_such_a_run(
    modes: tuple[DaemonMode, DaemonMode], tmp_path: Path
) -> None:
    keyed = WAITING.mark.replace("}", ',"profile-key":"net","can-checkpoint":true}')
    settings = replace(SETTINGS, spool=tmp_path)
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        job = replace(WAITING, mark=keyed)
        site = Site(job, policy="hops", mode=modes[0], settings=settings, store=store)
        for mode in modes:
            if mode is modes[1]:
                # A reload into the other mode is told apart, too.
                site.daemon.adopt(make_policy("hops"), settings, mode)
            site.cycle()
            measured = ["1"] if mode is DaemonMode.ENFORCE else []
            assert [profile.job for profile in site.daemon.plan.profiles] == measured


@pytest.mark.parametrize("stored", [True, False])
def test_a_folder_of_other_things_is_refused_as_spool_at_the_start_and_by_a_reload(
    stored: bool,
) -> None:
    settings = replace(SETTINGS, spool=Path("/etc"))
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        site = Site(store=store if stored else None)
        with pytest.raises(InputError, match="is no spool: it holds"):
            site.daemon.adopt(make_policy("las"), settings, DaemonMode.SHADOW)
        with pytest.raises(InputError, match="is no spool: it holds"):
            Site(settings=settings, store=store if stored else None)
