"""Where the daemon answers."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def path() -> Iterator[Path]:
    """A socket's path, which is short enough for one."""
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as folder:
        yield Path(folder) / "s"
