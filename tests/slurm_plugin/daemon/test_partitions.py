"""Partitions that Slurm does not have, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.errors import InputError
from slurm_plugin.backend import AwayError, SlurmSite, SlurmState
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    SETTINGS,
    WAITING,
    Clock,
    daemon_of,
    held,
    node,
    state,
)


def test_a_partition_that_slurm_does_not_have_is_told_once_with_those_it_has() -> None:
    backend = FakeBackend(state(WAITING), where=SlurmSite(30.0, {"gpu": None, "old": None}))
    settings = replace(SETTINGS, partitions=frozenset({"gpu", "gpus"}))
    daemon = daemon_of(backend, Clock(), settings=settings)
    said = [daemon.cycle().warnings for _ in range(3)]
    assert said == [("Slurm has no partition gpus; it has gpu, old",), (), ()]


def test_a_partition_that_slurm_does_not_have_is_refused_and_not_taken_for_away() -> None:
    backend = FakeBackend(state(WAITING))
    daemon = daemon_of(backend, Clock())
    daemon.check_partitions(SETTINGS)
    wrong = replace(SETTINGS, partitions=frozenset({"gpu", "nosuch"}))
    with pytest.raises(InputError, match="Slurm has no partition nosuch; it has gpu"):
        daemon.check_partitions(wrong)
    # One that goes later: no node is left, and it is said why.
    backend.where = SlurmSite(30.0, {"old": None})
    backend.state = SlurmState((), {})
    assert daemon_of(backend, Clock()).cycle().away == "Slurm has no partition gpu; it has old"


def test_a_slurm_that_does_not_answer_is_asked_for_its_partitions_later() -> None:
    class Away(FakeBackend):
        def site(self) -> SlurmSite:
            raise AwayError("nobody answers")

    daemon_of(Away(), Clock()).check_partitions(SETTINGS)


def test_nodes_that_are_left_out_are_told_with_why_and_others_are_used() -> None:
    nodes = (
        node("n0"),
        *(replace(node(name), gpus=()) for name in ("c1", "c2")),
        replace(node("n1"), gpus=(("v100", 0),)),
        replace(node("n2"), gpus=(("a100", 2), ("v100", 2))),
    )
    backend = FakeBackend(state(WAITING, nodes=nodes, reservations=(held("n0"),)))
    daemon = daemon_of(backend, Clock(), settings=replace(SETTINGS, nodes="n9"))
    assert set(daemon.cycle().warnings) == {
        "node c[1-2],n1 is left out: it has no GPUs",
        "node n2 is left out: it has GPUs a100 and v100",
        "node n9 is left out: Slurm has no such node",
    }
    assert [change.job for change in backend.calls] == [WAITING.id]
    assert daemon.cycle().warnings == ()
