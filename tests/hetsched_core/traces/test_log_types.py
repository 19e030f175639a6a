"""GPU types in the words of a cluster."""

import pytest

from hetsched_core.traces.cluster_file import ClusterFile
from hetsched_core.traces.jobs import LogTypes
from tests.hetsched_core.worlds import cluster_of


@pytest.mark.parametrize(
    ("log", "cluster", "known_as"),
    [
        ("A100", ("a100", "v100"), "a100"),
        ("nvidia_a100-sxm4-40gb", ("v100", "a100"), "a100"),
        ("v100", ("tesla_v100-sxm2-16gb",), "tesla_v100-sxm2-16gb"),
        ("a100", ("a100_80",), "a100"),
        ("h100", ("a100",), "h100"),
        ("mystery", ("v100",), "mystery"),
        ("a100", ("a100_1g.5gb",), "a100"),
        ("other", ("mystery",), "other"),
        # What is taken to be as fast as a V100 is none for all that.
        ("v100", ("mystery",), "v100"),
    ],
)
def test_two_names_are_one_type_only_where_both_are_certain(
    log: str, cluster: tuple[str, ...], known_as: str
) -> None:
    types = LogTypes(ClusterFile(cluster_of(**{name: (name, 1) for name in cluster})))
    assert types.known_as(log) == known_as
