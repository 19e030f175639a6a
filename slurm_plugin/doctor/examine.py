"""The whole examination: what is read, and in which order it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from hetsched_core.errors import InputError
from hetsched_core.policy import make_policy
from slurm_plugin.backend import BackendError, open_backend
from slurm_plugin.backend.limits import setting_of, told_by
from slurm_plugin.backend.with_commands import read_configuration as read_slurm
from slurm_plugin.daemon import check_fit
from slurm_plugin.daemon.finding import Finding, good, wrong
from slurm_plugin.daemon.process.configuration import DaemonConfiguration, read_configuration
from slurm_plugin.daemon.process.folders import folder_findings
from slurm_plugin.daemon.site_warnings import site_findings
from slurm_plugin.daemon.spool.moves import user_name
from slurm_plugin.doctor import slurm
from slurm_plugin.doctor.reading import backend_finding
from slurm_plugin.doctor.unit import daemon_uid, read_unit, unit_finding


def examine(path: Path, clock: Callable[[], float]) -> Iterator[Finding]:
    """Yield what is found, as it is found: of the configuration, this host, and Slurm.

    Without a configuration nothing else is looked at, since all of it depends on what that says.

    Args:
        path: the daemon's configuration.
        clock: this host's, seconds UTC.
    """
    try:
        configuration = read_configuration(path)
        check_fit(make_policy(configuration.policy, configuration.parameters))
    except InputError as error:
        yield wrong("configuration", str(error))
        return
    except OSError as error:
        yield wrong(
            "configuration",
            f"{path}: {error.strerror}",
            "hetsched config show prints one to begin with",
        )
        return
    yield good(
        "configuration", f"{path}: policy {configuration.policy}, {configuration.mode.value} mode"
    )
    unit = read_unit()
    uid = daemon_uid(unit, configuration)
    yield unit_finding(unit, configuration)
    if uid is None:
        yield wrong(
            "user", f"this machine knows no user {unit['User']}", "run systemd-sysusers, once"
        )
    else:
        yield from folder_findings(configuration, uid)
    user = unit["User"] if uid is None else user_name(uid)
    yield from _of_slurm(configuration, user, clock)


def _of_slurm(
    configuration: DaemonConfiguration, user: str, clock: Callable[[], float]
) -> Iterator[Finding]:
    try:
        backend = open_backend("commands")
        before_s = clock()
        conf = read_slurm()
        after_s = clock()
        site = backend.site()
    except BackendError as error:
        yield wrong(
            "Slurm",
            f"it does not answer: {error}",
            "see to munge and slurmctld here, and to the slurm.conf that SLURM_CONF names",
        )
        return
    mode = configuration.mode
    yield slurm.version(conf)
    yield backend_finding(configuration.backend.value)
    yield slurm.clock(conf, before_s, after_s, configuration.slack_s)
    level = _asked("show", "user", user, "format=AdminLevel")
    yield slurm.rights(conf, user, level, mode)
    denied = configuration.hold_denies
    cluster = f"cluster={setting_of(conf, 'ClusterName')}"
    told = _asked("show", "associations", f"user={denied}", cluster, "format=Account")
    yield slurm.denied(conf, denied, told, mode)
    yield from site_findings(site, configuration)
    yield from slurm.settings(conf, configuration)
    folder = Path(setting_of(conf, "SLURM_CONF")).parent
    yield from slurm.scripts(conf, folder, measured=configuration.spool is not None)


def _asked(*words: str) -> str | None:
    """Return what sacctmgr says, in one line; None where it does not answer."""
    try:
        return " ".join(told_by("sacctmgr", "--noheader", "--parsable2", *words).split())
    except BackendError:
        return None
