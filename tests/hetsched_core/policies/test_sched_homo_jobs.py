"""Sched_Homo for gangs: batches by hand, for which jobs they stand, and what a site changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from hetsched_core.policies.sched_homo_jobs import SchedHomoJobs
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import Cluster, JobView, NodeCondition, Plan, Reason, ReasonCode
from hetsched_core.types.site import ShareTree, Site
from tests.hetsched_core.policies.worlds import answer, ends, order, planned, reasons, with_job
from tests.hetsched_core.worlds import (
    NO_ROOM,
    cluster_of,
    held,
    linear_speeds,
    on,
    placed,
    plan_of,
    sized,
    snapshot_of,
    submission,
    where,
)

ONE, TWO = cluster_of(a=("v100", 1)), cluster_of(a=("v100", 2))
FREE = SimulationSettings(restart_cost_s=0.0)


@pytest.mark.parametrize(
    ("cluster", "jobs", "expected"),
    [
        # The first batch is 2 s long and holds b and c, 4 of 4 GPU seconds; a, of both GPUs for
        # 4 s, is in the second, which is 4 s long.
        (
            TWO,
            {"a": (4.0, 2, 0.0), "b": (2.0, 1, 0.0), "c": (2.0, 1, 0.0)},
            {"a": 6.0, "b": 2.0, "c": 2.0},
        ),
        # What comes during a batch waits for the next though a GPU is idle.
        (TWO, {"a": (10.0, 1, 0.0), "b": (1.0, 1, 2.0)}, {"a": 10.0, "b": 11.0}),
        # The second batch may be 80 s long (all that waits) and holds both; the shorter is first.
        (
            ONE,
            {"zero": (100.0, 1, 0.0), "long": (60.0, 1, 1.0), "short": (20.0, 1, 1.0)},
            {"zero": 100.0, "short": 120.0, "long": 180.0},
        ),
        # The second batch holds all. The wide one does not fit beside a and is not passed by b.
        (
            TWO,
            {"zero": (8.0, 1, 0.0), "a": (9.0, 1, 1.0), "wide": (5.0, 2, 1.0), "b": (11.0, 1, 1)},
            {"zero": 8.0, "a": 17.0, "wide": 22.0, "b": 33.0},
        ),
    ],
)
def test_batches_by_hand(
    cluster: Cluster, jobs: dict[str, tuple[float, int, float]], expected: dict[str, float]
) -> None:
    """Jobs are (seconds, GPUs, submission)."""
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}})
    submissions = [
        submission(name, seconds * gpus, (gpus,), submit_s=at_s)
        for name, (seconds, gpus, at_s) in jobs.items()
    ]
    assert ends(simulate(submissions, cluster, SchedHomoJobs(), speeds, FREE)) == expected


def test_the_heavier_for_its_gpu_seconds_is_in_the_batch_and_begins_first() -> None:
    speeds = linear_speeds(ONE, {"m": {"v100": 1.0}})
    jobs = [
        submission("zero", 10.0),
        *(submission(name, 10.0, submit_s=1.0, weight=w) for name, w in (("a", 1.0), ("b", 3.0))),
    ]
    assert order(simulate(jobs, ONE, SchedHomoJobs(), speeds, FREE)) == ["zero", "b", "a"]


def test_a_batch_has_no_more_gpu_seconds_than_the_gpus_have_in_its_length() -> None:
    """Both GPUs for the one of weight 1.5, or one each for two of weight 1."""
    speeds = linear_speeds(TWO, {"m": {"v100": 1.0}})
    jobs = [
        submission("wide", 20.0, (2,), weight=1.5),
        *(submission(name, 10.0) for name in ("a", "b")),
    ]
    found = ends(simulate(jobs, TWO, SchedHomoJobs(), speeds, FREE))
    assert found == {"wide": 20.0, "a": 10.0, "b": 10.0}


def test_gpus_are_taken_to_be_alike() -> None:
    """The slow type is first in the cluster, and a job's length is the mean over both."""
    cluster = cluster_of(slow=("k80", 1), fast=("v100", 1))
    speeds = linear_speeds(cluster, {"m": {"k80": 1.0, "v100": 3.0}})
    plan = planned(SchedHomoJobs(), cluster, sized("new", 60.0), speeds=speeds)
    assert where(plan) == {"new": "slow:1"}
    assert plan.memory["length_s"] == pytest.approx((60.0 + 20.0) / 2)


THREE = cluster_of(a=("v100", 1), b=("v100", 1), c=("v100", 1))


def after(
    batch: list[str],
    *views: JobView,
    site: Site | None = None,
    nodes: Mapping[str, Mapping[str, object]] | None = None,
) -> Plan:
    """The plan after a batch of a second with these jobs."""
    before = {each.id: NO_ROOM if each.configuration is None else placed(a=1) for each in views}
    memory = {"version": 1, "length_s": 1.0, "jobs": batch}
    snapshot = snapshot_of(
        THREE, views, previous=replace(plan_of(before), memory=memory), nodes=nodes
    )
    return answer(SchedHomoJobs(), replace(snapshot, site=site))


def test_a_batch_holds_up_only_jobs_that_could_use_nodes_of_its_own() -> None:
    runs = with_job(sized("runs", 50.0, held(on(a=1))), nodes=frozenset("ab"))
    alone = with_job(sized("alone", 5.0), nodes=frozenset("c"))
    meets = with_job(sized("meets", 5.0), nodes=frozenset("bc"))
    plan = after(["runs"], runs, alone, meets)
    assert where(plan) == {"runs": "a:1", "alone": "c:1"}
    assert reasons(plan) == {"meets": "ahead"}
    assert plan.memory["jobs"] == ["runs"]


def test_what_cannot_begin_keeps_no_batch_from_forming() -> None:
    held_back = replace(sized("held", 5.0), blocked=Reason(ReasonCode.HELD))
    too_wide = sized("wide", 5.0, counts=(3,))
    nodes = {"b": {"condition": NodeCondition.DOWN}}
    plan = after(["held", "wide", "gone"], held_back, too_wide, sized("new", 5.0), nodes=nodes)
    assert plan.memory["jobs"] == ["new"]
    assert where(plan) == {"new": "a:1"}
    assert reasons(plan)["held"] == "held"


@pytest.mark.parametrize("batch", [["runs"], ["runs", "x2", "x1"]])
def test_at_a_site_users_take_turns_the_batch_first_and_nothing_is_left_idle(
    batch: list[str],
) -> None:
    runs = with_job(sized("runs", 50.0, held(on(a=1))), account="x", user="ann")
    jobs = [
        with_job(sized(name, 5.0), account=account, user=user, submit_s=at_s)
        for name, account, user, at_s in (
            ("x1", "x", "ann", 1.0),
            ("x2", "x", "ann", 2.0),
            ("y1", "y", "ben", 3.0),
        )
    ]
    here = {"x1": "c:1", "x2": "b:1"} if "x1" in batch else {}
    assert where(after(batch, runs, *jobs)) == {"runs": "a:1"} | here
    tree = ShareTree({("x", ""): 1, ("y", ""): 1})
    plan = after(batch, runs, *jobs, site=Site(tree))
    mine = "x2" if "x2" in batch else "x1"
    assert where(plan) == {"runs": "a:1", "y1": "b:1", mine: "c:1"}
