"""Stores to test with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched_core.store import Mode, Store
from tests.hetsched_core.store.spool import Spool


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
def spool(tmp_path: Path) -> Spool:
    """An empty folder of spool files."""
    return Spool(tmp_path / "spool")
