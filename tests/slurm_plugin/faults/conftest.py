"""The cluster on which things go wrong; other tests have one of their own."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.testbed import Installation, Testbed
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.clusters import restart_controller, up
from tests.slurm_plugin.faults.site import Site, nodes


@pytest.fixture(scope="session")
def frail(installation: Installation) -> Iterator[Testbed]:
    """Eight nodes of eight GPUs, two types."""
    with up(installation, nodes()) as cluster:
        restart_controller(cluster)
        yield cluster


@pytest.fixture
def site(frail: Testbed, tmp_path: Path) -> Iterator[Site]:
    """The cluster, whose queue is empty after, and how a daemon is started: las, short rounds."""
    options = (
        *("--mode=enforce", "--policy=las", "--round-s=3", "--cycle-s=0.2"),
        *("--grace-s=10", "--restart-cost-s=1", "--spool-s=0.5"),
    )
    one = Site(frail, tmp_path, options, random.Random(1))
    yield one
    one.close()
    wait_until(lambda: not one.queue(), "an empty queue", 240)
