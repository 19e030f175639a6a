"""What benchmarks share: the public logs and traces, and the least time of what one has run."""

from pytest_benchmark.fixture import BenchmarkFixture

from tests.conftest import data_dir

__all__ = ["data_dir", "least_s"]


def least_s(benchmark: BenchmarkFixture) -> float:
    """Return the shortest of the times that a benchmark has taken, in seconds."""
    assert benchmark.stats is not None
    return float(benchmark.stats.stats.min)
