"""Fixtures and rules that all tests share.

A test that cannot run here skips with a reason. On a machine that is there to run them
(``CI=true``) a skip is a failure: of every test marked ``slurm``, ``torch`` or ``frameworks``, of
every test that uses ``data_dir`` where ``HETSCHED_DATA`` is set, and of every module that skips as
a whole.
"""

import itertools
import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

# The machine's load must not fail a test, and the same commit must always meet the same examples.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, max_examples=20)
hypothesis.settings.register_profile("local", deadline=None, max_examples=20)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") == "true" else "local")
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the shared testbed be of a release that `hetsched testbed up --slurm` takes."""
    parser.addoption("--slurm", default="newest", metavar="RELEASE", help="release of the testbed")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Directory of the public logs and traces that are too large or not ours to distribute."""
    value = os.environ.get("HETSCHED_DATA")
    if not value:
        pytest.skip("HETSCHED_DATA is not set: it names the directory of public logs and traces")
    path = Path(value)
    if not path.is_dir():
        pytest.skip(f"HETSCHED_DATA is {value!r}, which is no directory")
    return path


def _must_run(item: pytest.Item) -> str | None:
    """Why this test may not skip here; None where it may."""
    if os.environ.get("CI") != "true":
        return None
    for marker in ("slurm", "torch", "frameworks"):
        if item.get_closest_marker(marker):
            return f"a test marked {marker!r} must run where CI=true"
    if "data_dir" in getattr(item, "fixturenames", ()) and os.environ.get("HETSCHED_DATA"):
        return "a test of real data must run where CI=true and HETSCHED_DATA is set"
    return None


def _why(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the reason that a skip gave."""
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a test that must run into a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and (reason := _must_run(item)):
        report.outcome = "failed"
        report.longrepr = f"{reason}. {_why(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn the skip of a whole module, which hides what its tests are marked, into a failure."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"a module may not skip as a whole where CI=true. {_why(report)}"
    return report


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a file system of a size, such as "3m", or resizes it; needs the right to."""
    folder = tmp_path / "disk"

    def mount(size: str) -> Path:
        options = f"remount,size={size}" if folder.is_mount() else f"size={size}"
        folder.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
        return folder

    yield mount
    if folder.is_mount():
        # Lazily, for a test that failed may have left a store open.
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path) -> Path:
    """Leave no byte on a small disk; return the file that takes it up."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        file.writelines(itertools.repeat(bytes(1 << 16)))
    return filler
