"""Tests with a real torch, on CPU; `make test-torch` runs them, `make test` does not.

Without torch every one of them skips, which is a failure where `CI=true`.
"""

import importlib.util
from collections.abc import Iterator

import pytest

from tests.slurm_plugin.conftest import backend, installation, submitter, testbed

# Here, for all modules: each that imported them had a cluster of its own, and pyslurm, which knows
# one in a process, went on asking the first.
__all__ = ["backend", "installation", "submitter", "testbed"]

HAS_TORCH = importlib.util.find_spec("torch") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here, and skip it where torch is absent."""
    for item in items:
        if "tests/job_wrappers/torch" not in item.path.as_posix():
            continue
        item.add_marker(pytest.mark.torch)
        if not HAS_TORCH:
            item.add_marker(pytest.mark.skip(reason="torch is not installed: make env-torch"))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Keep to one thread, as everything that these tests start does."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
