"""What tests of the live side share, such as testbeds: each comes up when first asked for."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched_core.store import IN_MEMORY, Mode, Store
from slurm_plugin.backend import SlurmBackend, open_backend
from slurm_plugin.testbed import (
    Installation,
    Testbed,
    TestbedUnavailableError,
    default_cache,
    fake_nodes,
    install,
    usual_site,
)
from tests.slurm_plugin import clusters
from tests.slurm_plugin.jobs import Submitter, end_all


@pytest.fixture(scope="session")
def installation(pytestconfig: pytest.Config) -> Installation:
    """Slurm of the release asked for, and pyslurm if one fits; fetched and built if not there."""
    release = pytestconfig.getoption("--slurm")
    try:
        return install(default_cache(), release=release)
    except TestbedUnavailableError as error:
        pytest.skip(f"no real Slurm here ({release}): {error}")


@pytest.fixture(scope="session")
def testbed(installation: Installation) -> Iterator[Testbed]:
    """Six idle nodes of three GPU types, which Slurm's commands and pyslurm of this process find.

    They are in the partitions `gpu`, all of them, and `short`, the first half.
    """
    with clusters.up(installation, usual_site(fake_nodes(6))) as cluster:
        os.environ.update(cluster.environment())
        if installation.pyslurm:
            sys.path.append(str(installation.pyslurm))
        yield cluster


@pytest.fixture
def submitter(testbed: Testbed, tmp_path: Path) -> Iterator[Submitter]:
    """Submits jobs; whatever is left of them is cancelled, and gone, when the test has ended."""
    yield Submitter(testbed, tmp_path)
    end_all(testbed)


@pytest.fixture
def backend(request: pytest.FixtureRequest, testbed: Testbed) -> SlurmBackend:
    """The backend that the test's parameter names; without one, the best that there is here."""
    without = testbed.installed.why_no_pyslurm
    name = getattr(request, "param", "auto")
    if name == "pyslurm" and without:
        pytest.skip(without)
    return open_backend(name)


@pytest.fixture(name="short_folder")
def _short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets, and which other users can reach."""
    with clusters.short_folder() as folder:
        yield folder


@pytest.fixture
def free() -> str:
    """A HOST:PORT at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory."""
    with Store.open(IN_MEMORY, Mode.WRITE) as opened:
        yield opened
