"""Chosen types and counts become nodes, and who keeps both keeps its nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.placement import FreeGpus
from hetsched_core.placement.entries import AHEAD, NO_ROOM, behind, plan_placing
from hetsched_core.placement.keep import immovable
from hetsched_core.placement.one_type import Line, OneTypeChoice, assign, one_type_way
from hetsched_core.placement.pack import fastest_fit
from hetsched_core.policy import check_plan
from hetsched_core.types import (
    Cluster,
    ExecutionModel,
    JobView,
    Node,
    Placed,
    Reason,
    ReasonCode,
    Replan,
    Shape,
    Waiting,
)
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    placed,
    plan_of,
    running,
    snapshot_of,
    view,
)

TWO_NODES = cluster_of(a=("v100", 4), b=("v100", 4))


def v100(*views: JobView) -> list[OneTypeChoice]:
    """The smallest count of each on V100s."""
    return [OneTypeChoice(each, "v100", each.job.requirements.smallest) for each in views]


def test_a_job_that_keeps_type_and_count_keeps_its_node_though_another_fits_better() -> None:
    old, new = running("old", b=2), view("new", counts=(2,), submit_s=1.0)
    before = placed(b=2)
    snapshot = snapshot_of(TWO_NODES, [old, new], previous=plan_of({"old": before}))
    found = assign(snapshot, {}, v100(new, old))
    assert found == {"old": placed(b=2), "new": placed(b=2)}
    assert found["old"] is before


def test_a_larger_job_goes_first_and_a_smaller_one_moves_out_of_its_way() -> None:
    jobs = [running("small", a=1), running("other", b=1), view("large", counts=(4,), submit_s=1.0)]
    found = assign(snapshot_of(TWO_NODES, jobs), {}, v100(*jobs))
    assert found == {"large": placed(a=4), "small": placed(b=1), "other": placed(b=1)}


@pytest.mark.parametrize(
    ("nodes", "shapes", "several_nodes", "spread"),
    [
        (None, frozenset(Shape), 1.0, True),
        (1, frozenset(Shape), 1.0, False),
        (None, frozenset({Shape.SINGLE_NODE}), 1.0, False),
        (None, frozenset(Shape), 0.0, False),
    ],
    ids=["no node has room", "no further than it may", "shapes", "speed"],
)
def test_a_job_is_spread_only_where_it_can_be_and_gets_somewhere(
    nodes: int | None, shapes: frozenset[Shape], several_nodes: float, spread: bool
) -> None:
    one, two = view("one", counts=(3,)), view("two", counts=(3,))
    wide = view("wide", counts=(2,), submit_s=1.0)
    speeds = linear_speeds(TWO_NODES, {"m": {"v100": 1.0}}, several_nodes)
    snapshot = snapshot_of(TWO_NODES, [one, two, wide], shapes=shapes, speeds=speeds)
    found = assign(snapshot, {}, [*v100(one, two), OneTypeChoice(wide, "v100", 2, nodes=nodes)])
    beside = {"wide": placed(a=1, b=1)} if spread else {}
    assert found == {"one": placed(a=3), "two": placed(b=3)} | beside


def test_who_waits_is_told_why() -> None:
    cluster = cluster_of(a=("v100", 2), b=("k80", 2))
    views = [
        view("held", blocked=Reason(ReasonCode.HELD)),
        view("later"),
        view("mixed", counts=(4,)),
        view("huge", counts=(9,)),
    ]
    entries = plan_placing(snapshot_of(cluster, views), {}, behind, Replan()).entries
    assert {j: str(e.reason) for j, e in entries.items() if isinstance(e, Waiting)} == {
        "held": "not yet: its user, an admin or Slurm holds it",
        "later": "behind: jobs ahead of it in the queue go first",
        "mixed": "never: no accepted GPU count fits this cluster: only a mix of GPU types holds "
        "it, and this policy gives a job one type at a time",
        "huge": "never: no accepted GPU count fits this cluster",
    }


@pytest.mark.parametrize(
    ("counts", "way"),
    [((1, 2, 4), (2, ("v100", "k80"))), ((2, 4, 6), (2, ("v100", "k80"))), ((4, 6), None)],
    ids=["the median", "the median of what one type holds", "none"],
)
def test_a_rigid_job_takes_the_median_of_what_one_type_holds(
    counts: tuple[int, ...], way: tuple[int, tuple[str, ...]] | None
) -> None:
    cluster = cluster_of(a=("v100", 2), b=("k80", 3))
    found = one_type_way(view("j", counts=counts), snapshot_of(cluster, []))
    assert (found and (found.count, found.types)) == way


@given(data=st.data())
def test_every_assignment_is_a_valid_plan_and_leaves_out_nobody_who_still_fits(
    data: st.DataObject,
) -> None:
    draw = data.draw
    types = ("v100", "k80")
    cluster = Cluster(
        tuple(
            Node(
                f"n{at}",
                draw(st.sampled_from(types)),
                draw(st.integers(1, 4)),
                draw(st.integers(0, 6)),
            )
            for at in range(draw(st.integers(1, 5)))
        )
    )
    free = FreeGpus.empty(cluster)
    views: list[JobView] = []
    for number in range(draw(st.integers(1, 10))):
        count = draw(st.integers(1, 5))
        one = view(
            f"j{number}", counts=(count,), cpus_per_gpu=draw(st.sampled_from((0.0, 1.0, 2.5)))
        )
        where = free.one_node(one.job, draw(st.sampled_from(types)), count)
        if where is not None and draw(st.booleans()):
            free.take(one.job, where)
            one = view(
                one.id,
                held(where),
                counts=(count,),
                cpus_per_gpu=one.job.cpus_per_gpu,
                preemptible=draw(st.booleans()),
            )
        views.append(one)
    shapes = frozenset(draw(st.sets(st.sampled_from(Shape), min_size=1)) | {Shape.SINGLE_NODE})
    snapshot = snapshot_of(cluster, views, shapes=shapes)
    fixed = immovable(snapshot)
    chosen = [
        OneTypeChoice(one, draw(st.sampled_from(types)), one.job.requirements.smallest)
        for one in views
        if one.id not in fixed and draw(st.booleans())
    ]
    found = assign(snapshot, fixed, chosen)
    plan = plan_placing(snapshot, found, behind, Replan())
    assert not check_plan(snapshot, plan, ExecutionModel.GANG)
    assert fixed.items() <= found.items()
    left = FreeGpus.of(snapshot)
    for job_id, entry in found.items():
        assert isinstance(entry, Placed)
        left.take(snapshot.jobs[job_id].job, entry.placements[0].configuration)
    for choice in chosen:
        if choice.view.id not in found:
            assert left.one_node(choice.view.job, choice.gpu_type, choice.count) is None


def test_jobs_that_may_not_be_stopped_stay_where_they_run() -> None:
    fixed = view("fixed", held(on(a=4)), counts=(4,), preemptible=False)
    held_back = view("held", preemptible=False, blocked=Reason(ReasonCode.HELD))
    waits = view("waits", counts=(4,), preemptible=False)
    large = view("large", counts=(4,))
    snapshot = snapshot_of(TWO_NODES, [fixed, held_back, waits, large])
    assert immovable(snapshot) == {"fixed": placed(a=4)}
    found = assign(snapshot, immovable(snapshot), v100(large, waits))
    assert found == {"fixed": placed(a=4), "large": placed(b=4)}


def test_what_finds_no_room_in_a_line_keeps_its_nodes_from_those_behind() -> None:
    cluster = cluster_of(a=("v100", 2), b=("k80", 1))
    jobs = {
        name: view(name, counts=(count,), gpu_types=frozenset({gpu_type}))
        for name, count, gpu_type in (
            ("wide", 2, "v100"),
            ("behind", 1, "v100"),
            ("elsewhere", 1, "k80"),
            ("more", 1, "k80"),
        )
    }
    snapshot = snapshot_of(cluster, [running("runs", a=1), *jobs.values()])
    line = Line(snapshot, {"runs": placed(a=1)})
    left = []
    for each in jobs.values():
        way = one_type_way(each, snapshot)
        assert way is not None
        line.serve(each, way, fastest_fit)
        left.append(not line.none_is_left)
    assert line.placed == {"runs": placed(a=1), "elsewhere": placed(b=1)}
    assert line.waits == {"wide": NO_ROOM, "behind": AHEAD, "more": NO_ROOM}
    # A GPU is idle all the time, and in the end every node is kept for some job.
    assert left == [True, True, True, False]
