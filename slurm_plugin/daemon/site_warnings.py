"""What is wrong with how the site is set up, in words for its admin."""

from __future__ import annotations

from hetsched_core.errors import InputError
from slurm_plugin.backend import BackendError, SlurmBackend, SlurmSite
from slurm_plugin.daemon.finding import Finding, Verdict, beware, good, wrong
from slurm_plugin.daemon.settings import DaemonSettings

_PARTITIONS = "partitions"


def site_warnings(site: SlurmSite, settings: DaemonSettings) -> dict[str, str]:
    """Return a warning, or "" for none, by what it is about."""
    return {
        found.about: "" if found.verdict is Verdict.OK else str(found)
        for found in site_findings(site, settings)
    }


def site_findings(site: SlurmSite, settings: DaemonSettings) -> tuple[Finding, ...]:
    """Return what is to be said of the site under these settings, good or bad."""
    return _partitions(site, settings), _kill_wait(site, settings), _billing(site, settings)


def _billing(site: SlurmSite, settings: DaemonSettings) -> Finding:
    """Say so if shares are of CPUs."""
    about = "TRESBillingWeights"
    named = settings.partitions & site.unbilled
    if not named:
        return good(about, "no managed partition shares out CPUs in the place of GPUs")
    return beware(
        about,
        f"fair share counts no GPUs in partition {', '.join(sorted(named))}: a job of eight counts "
        "as one of the same CPUs",
        "set TRESBillingWeights=GRES/gpu=1 there in slurm.conf, if accounts are to have GPU time "
        "by their shares",
    )


def _kill_wait(site: SlurmSite, settings: DaemonSettings) -> Finding:
    """Say so if a stopped job may not take as long as it is given."""
    about = "KillWait"
    if settings.grace_s <= site.kill_wait_s:
        return good(about, f"{site.kill_wait_s:g} s, and grace_s = {settings.grace_s:g}")
    return beware(
        about,
        f"grace_s = {settings.grace_s:g} is more than Slurm's KillWait = {site.kill_wait_s:g}, "
        "after which a job that still saves its state is killed",
        "raise KillWait in slurm.conf above the longest checkpoint, or lower grace_s",
    )


def check_partitions(backend: SlurmBackend, settings: DaemonSettings) -> None:
    """Refuse partitions that Slurm does not have; one that does not answer is not waited for.

    Raises:
        InputError: names them, and those that there are.
    """
    try:
        found = _partitions(backend.site(), settings)
    except BackendError:
        return
    if found.verdict is not Verdict.OK:
        raise InputError(str(found))


def _partitions(site: SlurmSite, settings: DaemonSettings) -> Finding:
    """Name the partitions to manage that Slurm does not have."""
    there = ", ".join(sorted(site.longest_s))
    missing = settings.partitions.difference(site.longest_s)
    if not missing:
        return good(_PARTITIONS, f"Slurm has {there}")
    return wrong(
        _PARTITIONS, f"Slurm has no partition {', '.join(sorted(missing))}", f"it has {there}"
    )
