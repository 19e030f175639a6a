"""Slurm is upgraded from 24.11 to the newest, under jobs that run and wait, and under the daemon.

Each host has a Slurm of its own, which is replaced when its turn comes: the database's, the
controller's (where the daemon and its commands are, too), the nodes'.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from slurm_plugin.testbed import (
    Installation,
    Layout,
    Testbed,
    TestbedUnavailableError,
    default_cache,
    fake_nodes,
    install,
)
from slurm_plugin.testbed.spank import build_spank
from tests.slurm_plugin.faults.site import PLAIN, SETS, Kind, Site
from tests.slurm_plugin.jobs import await_hold

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

CONTROLLER, DATABASE, NODES = "controller", "database", "nodes"

UNTIL = "(until [ -e {folder}/upgraded ]; do sleep 0.2; done; echo 'done at last')"
STEPS = (
    "(srun bash -c 'until [ -e {folder}/upgraded ]; do sleep 0.2; done' && "
    "srun hostname && echo 'done at last')"
)
"""One step that lasts, and another that begins when all is upgraded."""

LASTING = (
    Kind("#SBATCH --gpus=2 --nodes=1", 2, work=UNTIL),
    Kind("#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=1", 2, work=STEPS),
    Kind("#SBATCH --gpus=1 --array=0-2%2", 1, 3, work=UNTIL),
    Kind("#SBATCH --cpus-per-task=2", 0, work=UNTIL),
)
"""Jobs that end when all is upgraded; all but the last element of the array run until then."""

OPTIONS = Kind("#SBATCH --gpus=2", 2)
"""A job that is given its set by the options of the `sbatch` plug-in."""

PROLOG = """\
#!/bin/sh
echo export PATH={programs}:$PATH
echo export SLURM_CONF={conf}
"""
"""Jobs find the commands of their nodes, not of the host where they were submitted."""


class OnNodes(Layout):
    """The cluster as its nodes have it configured, each with the Slurm of its own."""

    @property
    def configuration(self) -> Path:
        return self.base / "etc-nodes"

    def write(self, theirs: Layout) -> None:
        """Make it from the controller's configuration."""
        shutil.copytree(theirs.configuration, self.configuration)
        prolog = self.configuration / "prolog.sh"
        programs = self.base / NODES / "usr/bin"
        prolog.write_text(PROLOG.format(programs=programs, conf=self.slurm_conf))
        prolog.chmod(0o755)
        text = self.slurm_conf.read_text().replace(f"{theirs.plugins}", f"{self.plugins}")
        self.slurm_conf.write_text(f"{text}TaskProlog={prolog}\n")


@dataclass(frozen=True, slots=True)
class Hosts:
    """A cluster whose hosts have a Slurm each, behind a link of the host's name."""

    site: Site
    database: Testbed
    nodes: Testbed
    old: Installation
    new: Installation

    def take_away(self, host: str) -> None:
        (self.nodes.layout.base / host).unlink()

    def give(self, host: str) -> None:
        (self.nodes.layout.base / host).symlink_to(self.new.prefix)


def installed(release: str) -> Installation:
    try:
        return install(default_cache(), release=release)
    except TestbedUnavailableError as error:
        pytest.skip(f"no real Slurm here ({release}): {error}")


@pytest.fixture
def hosts(short_folder: Path, tmp_path: Path) -> Iterator[Hosts]:
    """Three nodes under 24.11 with three types of GPUs, and a site that is ready for a daemon."""
    old, new = installed("24.11"), installed("newest")
    (year, month, _), (later, then, _) = old.version, new.version
    if 12 * (later - year) + then - month > 18:
        pytest.skip("Slurm is upgraded from the three releases before; name a later old one")
    base = short_folder / "slurm"
    on = {host: replace(old, prefix=base / host) for host in (CONTROLLER, DATABASE, NODES)}
    cluster = Testbed.create(on[CONTROLLER], base, fake_nodes(3, "a100:4,v100:4,t4:4"))
    base.mkdir()
    for host in on:
        (base / host).symlink_to(old.prefix)
    own = {each.name: getattr(cluster.layout, each.name) for each in fields(Layout)}
    layout = OnNodes(**own | {"plugins": on[NODES].plugins})
    database, nodes = replace(cluster, installed=on[DATABASE]), Testbed(on[NODES], layout)
    try:
        cluster.up()
        conf = cluster.layout.configuration / "slurmdbd.conf"
        text = conf.read_text()
        conf.write_text(text.replace(f"{on[CONTROLLER].plugins}", f"{on[DATABASE].plugins}"))
        cluster.stop_database_daemon()
        database.start_database_daemon()
        layout.write(cluster.layout)
        cluster.stop_nodes()
        nodes.start_nodes()
        cluster.await_idle()
        options = (
            *("--mode=enforce", "--policy=las", "--round-s=3", "--cycle-s=0.2"),
            *("--grace-s=10", "--restart-cost-s=1", "--spool-s=0.5"),
        )
        site = Site(cluster, tmp_path, options, random.Random(1), samples=(50.0, 200.0))
        yield Hosts(site, database, nodes, old, new)
        site.close()
    finally:
        nodes.down()


def named(release: Installation) -> str:
    """Return its version as Slurm writes it."""
    year, month, number = release.version
    return f"{year}.{month:02}.{number}"


def versions(cluster: Testbed) -> set[str]:
    """Return the versions of Slurm that the nodes say they have."""
    return set(cluster.command("sinfo", "-h", "-N", "--format=%v").split())


def test_running_jobs_end_and_waiting_ones_are_placed_whichever_part_is_upgraded(
    hosts: Hosts,
) -> None:
    site, cluster, new = hosts.site, hosts.site.cluster, hosts.new
    controller_log = cluster.layout.logs / "slurmctld.log"
    site.start_daemon()
    await_hold(cluster)
    for kind in LASTING:
        site.submit_one(kind)
    lasting = {name for name in site.submitted if not name.endswith("_2")}
    for kind in (*SETS[:4], *PLAIN):
        site.submit_one(kind)
    site.await_that(lambda: lasting <= site.seen().keys(), 60, "all that is to last has begun")
    assert site.submitted.keys() - site.seen().keys(), "none waits"

    hosts.database.stop_database_daemon()
    hosts.take_away(DATABASE)
    hosts.give(DATABASE)
    hosts.database.start_database_daemon()

    def begin(*kinds: Kind) -> None:
        """Submit jobs, and wait until all of them have begun."""
        names = {site.submit_one(kind) for kind in kinds}
        site.await_that(lambda: names <= site.seen().keys(), 90, f"{names} have begun")

    begin(SETS[0])
    has_plug_in = not cluster.why_no_options
    site.submit_one(OPTIONS, *(("--gpu-set=1,2", "--can-checkpoint") if has_plug_in else ()))

    said = len(site.log)
    hosts.take_away(CONTROLLER)
    site.await_log("event=away", after=said)
    hosts.give(CONTROLLER)
    site.await_that(
        lambda: "Incompatible versions of client" in controller_log.read_text(),
        60,
        "the new commands have asked the old slurmctld",
    )
    cluster.stop_controller()
    cluster.start_controller()
    site.await_log("event=back", after=said)
    if has_plug_in:
        build_spank(new, cluster.layout.spank)
    begin(SETS[1], PLAIN[1])
    assert versions(cluster) == {named(hosts.old)}

    hosts.nodes.stop_nodes()
    hosts.take_away(NODES)
    hosts.give(NODES)
    hosts.nodes.start_nodes()
    site.await_that(lambda: versions(cluster) == {named(new)}, 60, "all nodes are upgraded")
    assert not any(site.is_done(name) for name in lasting)

    # The next daemon speaks to Slurm by another backend, where there is one.
    site.kill_daemon()
    site.cluster = replace(cluster, installed=replace(new, prefix=cluster.installed.prefix))
    site.start_daemon()
    backend = "pyslurm" if new.pyslurm else "commands"
    site.await_log(f"backend={backend}", after=said)
    begin(SETS[1])
    (site.folder / "upgraded").touch()
    site.finish()
    verdict = site.verdict()
    assert (verdict.wrong, verdict.finished) == ((), len(site.submitted))
    assert {name: len(site.seen()[name]) for name in lasting} == dict.fromkeys(lasting, 1)
