"""The testbeds that tests against a real Slurm share: each comes up once, when first asked for."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_plugin.backend import SlurmBackend, open_backend
from slurm_plugin.testbed import (
    FakeSite,
    Installation,
    Testbed,
    TestbedUnavailableError,
    default_cache,
    fake_nodes,
    install,
    quick_site,
    usual_site,
)
from slurm_plugin.testbed.packages import NEWEST
from tests.slurm_plugin.jobs import Submitter, end_all


def _installed(release: str) -> Installation:
    """Return a release of Slurm in the cache, fetched if need be; skip where it cannot be had."""
    try:
        return install(default_cache(), release=release)
    except TestbedUnavailableError as error:
        pytest.skip(f"no real Slurm here ({release}): {error}")


@contextmanager
def _up(installed: Installation, site: FakeSite) -> Iterator[Testbed]:
    """Bring a cluster up for a while."""
    # Sockets need a short path, which pytest's own temporary folders do not have.
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        # Jobs of other users read the configuration.
        Path(name).chmod(0o755)
        cluster = Testbed.create(installed, Path(name) / "slurm", site)
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


@pytest.fixture(scope="session")
def installation() -> Installation:
    """Slurm and pyslurm in the cache, fetched and built if they are not there."""
    return _installed(NEWEST)


@pytest.fixture(scope="session")
def testbed(installation: Installation) -> Iterator[Testbed]:
    """Six idle nodes of three GPU types; Slurm's commands and pyslurm of this process find them."""
    with _up(installation, quick_site(fake_nodes(6))) as cluster:
        os.environ.update(cluster.environment())
        if installation.pyslurm:
            sys.path.append(str(installation.pyslurm))
        yield cluster


@pytest.fixture(scope="session")
def site_testbed(installation: Installation) -> Iterator[Testbed]:
    """Six nodes in the partitions `gpu` and `short`, as a site has them.

    Nothing of this process finds it: use its `command`, and its `environment` for a daemon.
    """
    with _up(installation, usual_site(fake_nodes(6))) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def old_testbed() -> Iterator[Testbed]:
    """The same as `site_testbed` under Slurm 24.11, for which there is no pyslurm."""
    with _up(_installed("24.11"), usual_site(fake_nodes(6))) as cluster:
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
    name = getattr(request, "param", "commands" if without else "pyslurm")
    if name == "pyslurm" and without:
        pytest.skip(without)
    return open_backend(name)
