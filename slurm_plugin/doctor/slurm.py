"""What Slurm's commands tell of its version, its clock, its settings and the daemon's rights.

`conf` is what `scontrol show config` prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from slurm_plugin.backend.limits import setting_of
from slurm_plugin.backend.releases import LEAST, RELEASES, known, named, release_of
from slurm_plugin.backend.shares import weighs
from slurm_plugin.daemon.finding import Finding, beware, good, wrong
from slurm_plugin.daemon.process.configuration import DaemonConfiguration
from slurm_plugin.daemon.settings import DaemonMode
from slurm_plugin.submit import MODULE

_NEAR_S = 2.0
"""Clocks that are no farther apart count as one: Slurm tells whole seconds."""

_TAKE_OVER_S = 30
"""What a backup slurmctld needs beyond SlurmctldTimeout."""

_ELEMENTS = 16
"""The most elements of the array that an uneven job, or one of copies, becomes."""


def version(conf: str) -> Finding:
    """Return whether this release is one that works, as far as anybody has seen."""
    about, told = "Slurm", setting_of(conf, "SLURM_VERSION")
    release, least = release_of(told), named(LEAST)
    if not release:
        return beware(about, f"its version is {told!r}", f"take care that it is {least} or later")
    if release < LEAST:
        return wrong(about, f"it is {told}", f"upgrade it to {least} or later")
    if not known(release).tried:
        tried = (named(each) for each, its in sorted(RELEASES.items()) if its.tried)
        return beware(
            about,
            f"it is {told}, and tried were {' and '.join(tried)}",
            "stay in shadow mode until its log says nothing of records that are left out",
        )
    return good(about, f"it is {told}")


def clock(conf: str, before_s: float, after_s: float, slack_s: float) -> Finding:
    """Return how far slurmctld's clock is from this host's.

    Args:
        conf: what `scontrol` printed, under TZ=UTC, with the second in which slurmctld answered.
        before_s: when it was asked, by this host's clock, seconds UTC.
        after_s: when it had answered.
        slack_s: how long the nodes stay held.
    """
    about, remedy = "clocks", "have both hosts take their time from NTP"
    found = re.search(r"data as of (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", conf)
    if found is None:
        return beware(about, "Slurm does not say what time it is", "unset SLURM_TIME_FORMAT")
    told_s = datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp()
    ahead_s, behind_s = told_s - after_s, before_s - (told_s + 1)
    apart_s = max(ahead_s, behind_s, 0.0)
    if apart_s <= _NEAR_S:
        return good(about, "slurmctld's and this host's agree")
    seen = f"slurmctld's is {apart_s:.0f} s {'ahead' if ahead_s > 0 else 'behind'}"
    if ahead_s > slack_s:
        return wrong(about, f"{seen}, more than slack_s = {slack_s:g}: nothing is held", remedy)
    return beware(about, f"{seen}: the nodes stay held for so much more or less", remedy)


def rights(conf: str, user: str, level: str | None, mode: DaemonMode) -> Finding:
    """Return whether the daemon's user may do in Slurm what it has to.

    Args:
        conf: see above.
        user: its name.
        level: its AdminLevel in slurmdbd, "" where that does not know it, None where it was not to
            be had.
        mode: in shadow mode nothing is changed.
    """
    about = "rights"
    owner = setting_of(conf, "SlurmUser").partition("(")[0]
    if user in ("root", owner):
        return beware(
            about,
            f"the daemon's user {user} may do everything in Slurm",
            "give it a user of its own (systemd-sysusers), with adminlevel=Operator",
        )
    if level in ("Operator", "Administrator"):
        return good(about, f"{user} is {level}")
    found = wrong if mode is DaemonMode.ENFORCE else beware
    if setting_of(conf, "AccountingStorageType") != "accounting_storage/slurmdbd":
        return found(
            about,
            f"without slurmdbd {user} has no level: every change would be refused",
            f"set up slurmdbd, or run the daemon as {owner}",
        )
    if level is None:
        return beware(
            about,
            f"slurmdbd was not to be asked what {user} may do",
            "ask it again: sacctmgr show user",
        )
    said = f"{user} has the level {level}" if level else f"Slurm's accounting does not know {user}"
    how = "modify user {0} set" if level else "add user {0} account=root"
    return found(
        about,
        f"{said}: every change would be refused",
        f"sacctmgr {how.format(user)} adminlevel=Operator",
    )


def denied(conf: str, user: str, associations: str | None, mode: DaemonMode) -> Finding:
    """Return whether Slurm takes the user whom the reservation leaves out.

    Args:
        conf: see above.
        user: the setting `hold_denies`.
        associations: those of that user, as sacctmgr prints them; None where not to be had.
        mode: in shadow mode nothing is held.
    """
    about = "hold_denies"
    enforced = setting_of(conf, "AccountingStorageEnforce")
    if enforced in ("", "none", "(null)") or associations:
        return good(about, f"{user}, and AccountingStorageEnforce = {enforced}")
    found = wrong if mode is DaemonMode.ENFORCE and associations is not None else beware
    return found(
        about,
        f"{user} has no association, which AccountingStorageEnforce = {enforced} asks for: the "
        "reservation would be refused",
        f"sacctmgr add user {user} account=root",
    )


def settings(conf: str, configuration: DaemonConfiguration) -> Iterator[Finding]:
    """Yield how the settings of slurm.conf stand that the guide for admins asks for."""
    yield _tracked(conf)
    yield _priorities(conf)
    yield _requeue_exit(conf)
    yield _arrays(conf)
    yield _take_over(conf, configuration.slack_s)


def _tracked(conf: str) -> Finding:
    about = "AccountingStorageTRES"
    tracked = setting_of(conf, about)
    if "gres/gpu" in tracked.split(","):
        return good(about, tracked)
    return wrong(
        about,
        f"{tracked or 'nothing'}, without gres/gpu: Slurm does not tell which GPUs jobs ask for",
        "name gres/gpu and each type (gres/gpu:a100) there",
    )


def _priorities(conf: str) -> Finding:
    about = "PriorityType"
    kind = setting_of(conf, about)
    if kind != "priority/multifactor" or not weighs(conf, "FairShare"):
        return good(
            about,
            f"{kind} without a weight of fair share: all accounts count alike",
            "set priority/multifactor and PriorityWeightFairshare if shares are to hold",
        )
    return good(about, kind)


def _requeue_exit(conf: str) -> Finding:
    about = "RequeueExit"
    codes = setting_of(conf, about)
    if codes in ("", "(null)"):
        return good(about, "no exit code", "set 99 if jobs are to requeue themselves")
    return good(about, codes)


def _arrays(conf: str) -> Finding:
    about = "MaxArraySize"
    most = int(setting_of(conf, about) or 0)
    # Slurm's own bound is on the index, which begins with 0.
    if most >= _ELEMENTS:
        return good(about, str(most))
    return beware(
        about,
        f"{most}: --gpu-shapes=any and --copies ask for arrays of up to {_ELEMENTS}",
        f"raise it to {_ELEMENTS} at least",
    )


def _take_over(conf: str, slack_s: float) -> Finding:
    about = "SlurmctldTimeout"
    timeout_s = int(setting_of(conf, about) or 0)
    if not setting_of(conf, r"SlurmctldHost\[1\]"):
        return good(about, f"{timeout_s} s, and no backup controller")
    least = timeout_s + _TAKE_OVER_S
    if slack_s >= least:
        return good(about, f"{timeout_s} s, and slack_s = {slack_s:g}")
    return beware(
        about,
        f"{timeout_s} s, and slack_s = {slack_s:g}: the hold ends before a backup controller has "
        "taken over",
        f"set slack_s = {least} at least",
    )


def scripts(conf: str, folder: Path, *, measured: bool) -> Iterator[Finding]:
    """Yield how the Lua scripts stand that slurm.conf names.

    Args:
        conf: see above.
        folder: where they are to be, beside slurm.conf.
        measured: whether there is a spool.
    """
    for setting, name in (
        ("JobSubmitPlugins", "job_submit.lua"),
        ("CliFilterPlugins", "cli_filter.lua"),
    ):
        if "lua" in setting_of(conf, setting).split(","):
            yield _script(setting, folder / name)
    yield _module(conf, folder, measured=measured)


def _script(setting: str, path: Path) -> Finding:
    if path.is_file():
        return good(setting, f"lua, and {path} is there")
    if not path.parent.is_dir():
        return beware(setting, f"lua, and there is no {path.parent} here", _elsewhere(path))
    return wrong(
        setting, f"lua, and there is no {path}, without which Slurm fails", f"install {path.name}"
    )


def _elsewhere(path: Path) -> str:
    return f"look for {path} on slurmctld's host"


def _module(conf: str, folder: Path, *, measured: bool) -> Finding:
    """Return whether submissions go through hetsched.lua, of the daemon's own version."""
    about, module, script = "hetsched.lua", folder / MODULE.name, folder / "job_submit.lua"
    in_use = "lua" in setting_of(conf, "JobSubmitPlugins").split(",")
    if in_use and not script.is_file():
        return beware(about, f"whether {script} calls it is not seen from here", _elsewhere(script))
    if not in_use or "hetsched" not in script.read_text(errors="replace"):
        seen = "no submission goes through it: options are read from the scripts of jobs"
        remedy = "install it beside slurm.conf, and JobSubmitPlugins=lua"
        if measured:
            return beware(about, f"{seen}, and none is measured", remedy)
        return good(about, seen, f"{remedy}, if they are to be checked and measured")
    if not module.is_file():
        return wrong(about, f"{script} calls it, and there is no {module}", f"cp {MODULE} {folder}")
    if module.read_bytes() != MODULE.read_bytes():
        return beware(
            about,
            f"{module} is not the one of this version",
            f"cp {MODULE} {folder} && touch {script}",
        )
    return good(about, f"{module} is of this version")
