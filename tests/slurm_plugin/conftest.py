"""The testbed that all tests against a real Slurm share: one cluster, brought up once."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.backend import SlurmBackend, open_backend
from slurm_plugin.testbed import (
    Installation,
    Testbed,
    default_cache,
    fake_nodes,
    install,
    why_unavailable,
)
from tests.slurm_plugin.jobs import Submitter, end_all


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
        # Jobs of other users read the configuration.
        Path(name).chmod(0o755)
        cluster = Testbed.create(installation, Path(name) / "slurm", fake_nodes(6))
        try:
            cluster.up()
            os.environ.update(cluster.environment())
            if installation.pyslurm:
                sys.path.append(str(installation.pyslurm))
            yield cluster
        finally:
            cluster.down()


@pytest.fixture
def submitter(testbed: Testbed, tmp_path: Path) -> Iterator[Submitter]:
    """Submits jobs; whatever is left of them is cancelled, and gone, when the test has ended."""
    yield Submitter(testbed, tmp_path)
    end_all(testbed)


@pytest.fixture
def backend(request: pytest.FixtureRequest, testbed: Testbed) -> SlurmBackend:
    """The backend that the test's parameter names; without one, the best that there is here."""
    without = testbed.installed.why_no_pyslurm
    name = getattr(request, "param", "commands" if without else "pyslurm")
    if name == "pyslurm" and without:
        pytest.skip(without)
    return open_backend(name)
