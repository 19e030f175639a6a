"""Tests with real frameworks of users, on CPU; `make test-frameworks` runs them.

Without one of them its tests skip, which is a failure where `CI=true`.
"""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.frameworks)
