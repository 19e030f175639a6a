"""On which of the managed nodes a job may run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_plugin.backend import Enter
from slurm_plugin.daemon.where import Where
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import RIGID, Clock, daemon_of, node, state

NODES = tuple(
    replace(node(f"n{at}"), partitions=frozenset(partitions), features=frozenset(features))
    for at, (partitions, features) in enumerate(
        [({"gpu", "short"}, {"fast"}), ({"gpu", "short"}, {"old"}), ({"gpu"}, {"fast", "ib"})]
    )
)


@pytest.mark.parametrize(
    ("asks", "named", "found"),
    [
        ({}, (), None),
        ({"partitions": ("short",)}, (), {"n0", "n1"}),
        ({"partitions": ("short", "gpu")}, (), None),
        ({"partitions": ("short", "elsewhere")}, (), {"n0", "n1"}),
        ({"partitions": ("elsewhere",)}, (), set()),
        ({"constraint": "fast"}, (), {"n0", "n2"}),
        ({"constraint": "fast&ib"}, (), {"n2"}),
        ({"constraint": "[fast|old]"}, (), {"n0", "n2"}),
        ({"constraint": "nosuch"}, (), set()),
        ({"excluded": ("n1",)}, (), {"n0", "n2"}),
        ({}, ("n1", "n2"), {"n1", "n2"}),
        ({"partitions": ("short",), "constraint": "fast", "excluded": ("n2",)}, (), {"n0"}),
    ],
)
def test_partitions_features_and_names_say_where(
    asks: dict[str, object], named: tuple[str, ...], found: set[str] | None
) -> None:
    where, job = Where(NODES), replace(RIGID, **asks)  # type: ignore[arg-type]
    assert where.of(job, named) == found
    # Policies tell sets apart by identity.
    assert where.of(replace(job, id="6"), named) is where.of(job, named)


def test_other_partitions_and_features_of_nodes_are_another_matter() -> None:
    where = Where(NODES)
    assert not where.differs(replace(each, cpus_used=3) for each in NODES)
    assert where.differs(NODES[:2])
    assert where.differs((replace(NODES[0], features=frozenset()), *NODES[1:]))
    assert where.differs((replace(NODES[0], partitions=frozenset({"gpu"})), *NODES[1:]))


@pytest.mark.parametrize(
    ("asks", "nodes"),
    [
        ({"partitions": ("short",), "excluded": ("n0",)}, ("n1",)),
        ({"constraint": "ib"}, ("n2",)),
        ({"pinned": ("n1",)}, ("n1",)),
    ],
    ids=["partition", "constraint", "nodelist"],
)
def test_a_job_is_placed_where_it_may_run_alone(
    asks: dict[str, object], nodes: tuple[str, ...]
) -> None:
    job = replace(RIGID, **asks)  # type: ignore[arg-type]
    backend = FakeBackend(state(job, nodes=NODES))
    daemon_of(backend, Clock()).cycle()
    assert [change.nodes for change in backend.calls if isinstance(change, Enter)] == [nodes]
