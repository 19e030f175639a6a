"""Clusters that a test brings up for itself."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from slurm_plugin.testbed import FakeNode, FakeSite, Installation, Testbed


@contextmanager
def short_folder() -> Iterator[Path]:
    """Make a folder whose path is short enough for sockets, and which other users can reach.

    pytest's own have long paths, and are their user's alone.
    """
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def up(installed: Installation, site: FakeSite | tuple[FakeNode, ...]) -> Iterator[Testbed]:
    """Bring a cluster up for a while, in a folder of its own which other users can reach."""
    with short_folder() as folder:
        cluster = Testbed.create(installed, folder / "slurm", site)
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


def restart_controller(cluster: Testbed) -> None:
    """Have slurmctld read its configuration anew, and save all that it has.

    One that is killed before it has does not start again.
    """
    cluster.stop_controller()
    cluster.start_controller()
    cluster.await_idle()


def has_saved(cluster: Testbed, kind: str, since_s: float) -> bool:
    """Whether slurmctld has saved its jobs (`job`) or reservations (`resv`) since a time.

    `since_s` is in seconds UTC.
    """
    # While slurmctld puts a new file in its place there is none.
    with suppress(FileNotFoundError):
        return (cluster.layout.base / f"state/{kind}_state").stat().st_mtime > since_s
    return False


@contextmanager
def under_limits(
    installed: Installation, site: FakeSite | tuple[FakeNode, ...], *tell: str
) -> Iterator[Testbed]:
    """Bring one up that enforces the limits of QOS and accounts; Slurm's commands find it.

    `tell` is what slurmdbd is told of limits. The testbed of all tests must be up before, so that
    its variables are what comes back.
    """
    with up(installed, site) as cluster, pytest.MonkeyPatch.context() as patch:
        for variable, value in cluster.environment().items():
            patch.setenv(variable, value)
        # Under limits Slurm takes no name into a reservation that has no association.
        for words in ("add user daemon account=root", *tell):
            cluster.command("sacctmgr", "--immediate", *words.split())
        with cluster.layout.slurm_conf.open("a") as conf:
            conf.write("AccountingStorageEnforce=limits,qos\n")
        restart_controller(cluster)
        yield cluster
