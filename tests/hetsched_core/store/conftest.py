"""Stores to test with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched_core.store import Mode, Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store may be made."""
    return tmp_path / "store.duckdb"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """A new store, open for writing."""
    with Store.open(path, Mode.WRITE) as store:
        yield store
