"""Where the daemon answers."""

from pathlib import Path

import pytest


@pytest.fixture
def path(short_folder: Path) -> Path:
    """A socket's path."""
    return short_folder / "s"
