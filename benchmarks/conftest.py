"""The public logs and traces, for benchmarks that read them."""

from tests.conftest import data_dir

__all__ = ["data_dir"]
