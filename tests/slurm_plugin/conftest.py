"""The testbed that all tests against a real Slurm share: one cluster, brought up once."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.testbed import (
    Installation,
    Testbed,
    default_cache,
    fake_nodes,
    install,
    why_unavailable,
)


@pytest.fixture(scope="session")
def installation() -> Installation:
    """Slurm and pyslurm in the cache, fetched and built if they are not there."""
    if reason := why_unavailable():
        pytest.skip(f"no real Slurm here: {reason}")
    return install(default_cache())


@pytest.fixture(scope="session")
def testbed(installation: Installation) -> Iterator[Testbed]:
    """Six idle nodes of three GPU types; Slurm's commands and pyslurm of this process find them."""
    # Sockets need a short path, which pytest's own temporary folders do not have.
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        cluster = Testbed.create(installation, Path(name) / "slurm", fake_nodes(6))
        try:
            cluster.up()
            os.environ.update(cluster.environment())
            if installation.pyslurm:
                sys.path.append(str(installation.pyslurm))
            yield cluster
        finally:
            cluster.down()
