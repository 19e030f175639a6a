"""Stores to test with."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hetsched_core.store import Mode, Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store may be made."""
    return tmp_path / "store.duckdb"


@pytest.fixture(scope="session")
def new(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a new store: copying is quicker than making."""
    path = tmp_path_factory.mktemp("new") / "store.duckdb"
    Store.open(path, Mode.WRITE).close()
    return path.read_bytes()


@pytest.fixture
def store(path: Path, new: bytes) -> Iterator[Store]:
    """A new store, open for writing."""
    path.write_bytes(new)
    with Store.open(path, Mode.WRITE) as store:
        yield store


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
