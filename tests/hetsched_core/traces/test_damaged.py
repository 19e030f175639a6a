"""Files of sites and output of Slurm with a piece lost and another put in are read or refused."""

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hetsched_core.errors import InputError
from hetsched_core.traces.cluster_file import format_cluster, parse_cluster
from hetsched_core.traces.slurm_nodes import read_scontrol, read_sinfo
from hetsched_core.traces.slurm_site import read_site
from tests.hetsched_core.traces import test_cluster_file, test_site_file, test_slurm_site
from tests.hetsched_core.traces.test_slurm_nodes import FULL

TABLES = (test_slurm_site.ASSOC, test_slurm_site.QOS, test_slurm_site.SSHARE)
RECORDS = (test_slurm_site.PARTITIONS, test_slurm_site.RESERVATIONS)


def cluster(text: str, source: str) -> None:
    """Read a cluster file; what it says is written and read again."""
    file = parse_cluster(text, source)
    again = parse_cluster(format_cluster(file))
    assert (again.site, again.windows, again.cluster.nodes) == (
        file.site,
        file.windows,
        file.cluster.nodes,
    )


def site(text: str, source: str) -> None:
    """Read what Slurm tells of a site; what it says is written into a cluster file."""
    file = read_site([(source, text)]).added_to(test_slurm_site.CLUSTER)
    again = parse_cluster(format_cluster(file))
    assert (again.site, again.windows) == (file.site, file.windows)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (cluster, test_cluster_file.SITE),
        (cluster, test_site_file.HEAD + test_site_file.SITE),
        *((site, text) for text in (*TABLES, *RECORDS)),
        (read_scontrol, FULL),
        (read_sinfo, FULL),
    ],
    ids=lambda of: getattr(of, "__name__", ""),
)
@given(at=st.integers(0, 900), lost=st.integers(0, 60), put=st.text(max_size=12))
def test_what_is_damaged_is_read_or_refused_and_nothing_else(
    read: Callable[[str, str], object], text: str, at: int, lost: int, put: str
) -> None:
    at %= len(text)
    refused = "file"
    try:
        read(text[:at] + put + text[at + lost :], "file")
    except InputError as error:
        refused = str(error)
    assert refused.startswith("file")
