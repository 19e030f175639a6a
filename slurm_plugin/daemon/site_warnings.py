"""What is wrong with how the site is set up, in words for its admin."""

from __future__ import annotations

from hetsched_core.errors import InputError
from slurm_plugin.backend import BackendError, SlurmBackend, SlurmSite
from slurm_plugin.daemon.settings import DaemonSettings


def site_warnings(site: SlurmSite, settings: DaemonSettings) -> dict[str, str]:
    """Return a warning, or "" for none, by what it is about."""
    return {
        "partitions": _missing_partitions(site, settings),
        "kill_wait": _kill_wait(site, settings),
        "billing": _billing(site, settings),
    }


def _billing(site: SlurmSite, settings: DaemonSettings) -> str:
    """Say so if shares are of CPUs."""
    named = settings.partitions & site.unbilled
    if not named:
        return ""
    return (
        f"fair share counts no GPUs in partition {', '.join(sorted(named))}: a job of eight counts "
        "as one of the same CPUs; set TRESBillingWeights=GRES/gpu=1 there in slurm.conf, if "
        "accounts are to have GPU time by their shares"
    )


def _kill_wait(site: SlurmSite, settings: DaemonSettings) -> str:
    """Say so if a stopped job may not take as long as it is given."""
    if settings.grace_s <= site.kill_wait_s:
        return ""
    return (
        f"grace_s = {settings.grace_s:g} is more than Slurm's KillWait = {site.kill_wait_s:g}, "
        "after which a job that still saves its state is killed; raise KillWait in slurm.conf "
        "above the longest checkpoint, or lower grace_s"
    )


def check_partitions(backend: SlurmBackend, settings: DaemonSettings) -> None:
    """Refuse partitions that Slurm does not have; one that does not answer is not waited for.

    Raises:
        InputError: names them, and those that there are.
    """
    try:
        missing = _missing_partitions(backend.site(), settings)
    except BackendError:
        return
    if missing:
        raise InputError(missing)


def _missing_partitions(site: SlurmSite, settings: DaemonSettings) -> str:
    """Name the partitions to manage that Slurm does not have; "" where it has all."""
    missing = settings.partitions.difference(site.longest_s)
    if not missing:
        return ""
    return (
        f"Slurm has no partition {', '.join(sorted(missing))}; "
        f"it has {', '.join(sorted(site.longest_s))}"
    )
