"""What comes next: from a snapshot of a replay, told the truth, exactly what came in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from immutables import Map

from hetsched_core.errors import InputError
from hetsched_core.policy import make_policy
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.simulate.forward import ALL, Sparing, first_starts
from hetsched_core.traces.cluster_file import ClusterFile
from hetsched_core.traces.load import ReplayInputs, load_workload
from hetsched_core.types import Cluster, Node, Plan, Reason, ReasonCode, Snapshot, Waiting
from hetsched_core.types.site import Limit, ShareTree, Site
from tests.hetsched_core.policies.worlds import with_job
from tests.hetsched_core.simulate.timetable import policy_of, watched
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    on,
    placed,
    plan_of,
    snapshot_of,
    submission,
    view,
)


@pytest.fixture(scope="module")
def arrivals(data_dir: Path) -> ReplayInputs:
    """96 jobs of Gavel's on its 48 GPUs."""
    nodes = tuple(
        Node(f"{gpu_type}-{number}", gpu_type, 4)
        for gpu_type, gpus in (("v100", 8), ("p100", 16), ("k80", 24))
        for number in range(gpus // 4)
    )
    files = (
        data_dir / "workloads/gavel_physical_cluster_max_min_fairness.trace",
        data_dir / "throughputs/gavel_simulation_throughputs.json.gz",
    )
    return load_workload(files, ClusterFile(Cluster(nodes)))


@pytest.mark.parametrize("name", ["fifo", "slurm", "srtf", "las", "gavel"])
def test_the_future_is_foretold_exactly_by_who_knows_it(arrivals: ReplayInputs, name: str) -> None:
    policy, settings = make_policy(name), SimulationSettings(grace_s=30.0)
    submissions = {one.job.id: one for one in arrivals.workload.submissions}
    asked: list[tuple[Snapshot, Plan]] = []

    def kept(snapshot: Snapshot) -> Plan:
        asked.append((snapshot, policy.plan(snapshot)))
        return asked[-1][1]

    log = simulate(
        arrivals.workload.submissions,
        arrivals.cluster,
        policy_of(kept, policy.info),
        arrivals.speeds,
        settings,
    )
    true = {record.job.id: record.first_start_s for record in log.jobs}
    told = set[str]()
    for snapshot, plan in asked:
        never_ran = {job for job, one in snapshot.jobs.items() if one.first_start_s is None}
        new = {job for job in never_ran - told if isinstance(plan.entries[job], Waiting)}
        told |= new
        if not new:
            continue
        left = {
            job: submissions[job].samples - view_.samples_at(snapshot.now)
            for job, view_ in snapshot.jobs.items()
        }
        coming = [one for one in submissions.values() if one.job.eligible_from_s > snapshot.now]
        found = first_starts(snapshot, plan, policy, left, new, arrivals=coming, settings=settings)
        assert found is not None
        assert found == pytest.approx({job: true[job] for job in new}, abs=1.0)
    assert len(told) > 30


@pytest.mark.parametrize("sparing", [Sparing(0.1, 0.0), Sparing(0.5, 0.1)])
def test_a_policy_that_is_asked_sparingly_is_asked_seldom_and_starts_little_later(
    sparing: Sparing,
) -> None:
    snapshot = snapshot_of(
        cluster_of(n0=("a100", 4)),
        [view("a", held(on(n0=4)), counts=(4,)), view("b", counts=(4,), submit_s=1.0)],
        now=100.0,
    )
    las = make_policy("las")
    asked: list[Snapshot] = []
    left = {"a": 300_000.0, "b": 1.0}
    exact = first_starts(snapshot, las.plan(snapshot), las, left, {"b"})
    plan = las.plan(snapshot)
    found = first_starts(snapshot, plan, watched(las, asked), left, {"b"}, sparing=sparing)
    assert exact is not None
    assert found is not None
    wait_s = exact["b"] - 100.0
    assert wait_s <= found["b"] - 100.0 <= (1.0 + sparing.others) * wait_s + 360.0
    assert len(asked) < 30.0 / sparing.others


def test_gpus_that_become_free_are_used_at_once_however_seldom_a_policy_is_asked() -> None:
    jobs = [view(f"j{number}", counts=(4,), submit_s=float(number)) for number in range(40)]
    snapshot = snapshot_of(cluster_of(n0=("a100", 4)), jobs, now=100.0)
    fifo, left = make_policy("fifo"), dict.fromkeys(snapshot.jobs, 400.0)
    exact, found = (
        first_starts(snapshot, fifo.plan(snapshot), fifo, left, {"j39"}, sparing=sparing)
        for sparing in (ALL, Sparing(0.5, 0.0))
    )
    assert found == exact


def test_blocked_jobs_are_left_out_and_those_that_never_start_are_missing() -> None:
    snapshot = snapshot_of(
        cluster_of(n0=("a100", 4)),
        [
            view("runs", held(on(n0=4)), counts=(4,)),
            view("next", counts=(4,), submit_s=1.0),
            view("held", counts=(1,), submit_s=2.0, blocked=Reason(ReasonCode.HELD)),
            view("large", counts=(8,), submit_s=3.0),
        ],
    )
    fifo = make_policy("fifo")
    plan = fifo.plan(snapshot)
    speed = snapshot.jobs["runs"].runs[0].speed
    left = {"runs": 100.0 * speed, "next": 1.0, "large": 1.0}
    found = first_starts(snapshot, plan, fifo, left, snapshot.jobs, horizon_s=1e6)
    assert found is not None
    assert found["next"] == pytest.approx(snapshot.now + 100.0, abs=1.0)
    assert set(found) <= {"runs", "next"}
    assert first_starts(snapshot, plan, fifo, left, ["next"], go_on=lambda: False) is None


def test_the_word_of_the_site_holds_on_with_the_use_so_far() -> None:
    alice, bob = ("physics", "alice"), ("biology", "bob")
    views = [
        view("runs", held(on(n0=4)), counts=(4,), account="physics", user="alice"),
        view("a", counts=(4,), submit_s=1.0, account="physics", user="alice"),
        view("b", counts=(4,), submit_s=2.0, account="biology", user="bob"),
    ]
    bare = snapshot_of(cluster_of(n0=("a100", 4)), views, now=100.0)
    fifo, left = make_policy("fifo"), {"runs": 400.0, "a": 400.0, "b": 400.0}

    def first(used: dict[tuple[str, str], float], **limits: Limit) -> str:
        limited = {
            name: replace(each.job, limits=tuple(limits)) for name, each in bare.jobs.items()
        }
        jobs = Map({name: replace(each, job=limited[name]) for name, each in bare.jobs.items()})
        snapshot = replace(bare, jobs=jobs, site=Site(ShareTree(), Map(used), limits))
        found = first_starts(snapshot, fifo.plan(snapshot), fifo, left, {"a", "b"})
        assert found is not None
        return min(found, key=lambda job: found[job]) if found else "nobody"

    # Who has used less goes first, whether it has a job now or had one before.
    assert first({alice: 1e6}) == "b"
    assert first({bob: 1e6}) == "a"
    assert first({bob: 1e6, ("biology", "past"): 1.0}) == "a"
    assert first({}, none=Limit(gpus=3)) == "nobody"


@pytest.mark.parametrize(("used", "first"), [(1e6, "a"), (0.0, "b")])
def test_who_has_no_job_now_is_remembered_until_it_has_one(used: float, first: str) -> None:
    views = [
        view("runs", held(on(n0=4)), counts=(4,), account="physics", user="alice"),
        view("a", counts=(4,), submit_s=1.0, account="physics", user="alice"),
    ]
    users = Map([(("physics", "alice"), 10.0), (("biology", "bob"), used)])
    bare = snapshot_of(cluster_of(n0=("a100", 4)), views, now=100.0)
    snapshot = replace(bare, site=Site(ShareTree(), users))
    # Use is looked at when c comes, too, and bob has no job then.
    coming = [
        with_job(submission("c", 400.0, (4,), submit_s=500.0), account="physics", user="alice"),
        with_job(submission("b", 400.0, (4,), submit_s=900.0), account="biology", user="bob"),
    ]
    fifo, left = make_policy("fifo"), {"runs": 1000.0, "a": 400.0}
    plan = fifo.plan(snapshot)
    found = first_starts(snapshot, plan, fifo, left, {"a"}, arrivals=coming)
    # Both wait when the node becomes free, 1000 s from now.
    assert found is not None
    assert found["a"] == pytest.approx(1100.0 if first == "a" else 1200.0, abs=1.0)


def test_a_scheduler_of_tasks_is_refused() -> None:
    snapshot = snapshot_of(cluster_of(n0=("a100", 4)), [view("a")])
    hlas = make_policy("hlas")
    with pytest.raises(InputError, match="schedules tasks"):
        first_starts(snapshot, snapshot.previous, hlas, {"a": 1.0}, ["a"])


def test_a_run_that_leaves_frees_its_gpus_when_it_said() -> None:
    leaving = held(on(n0=4), draining_until_s=130.0)
    snapshot = snapshot_of(
        cluster_of(n0=("a100", 4)),
        [view("x", leaving, counts=(4,), submit_s=9.0), view("a", counts=(4,))],
        now=100.0,
    )
    plan = plan_of({"a": placed(n0=4), "x": Waiting(Reason(ReasonCode.AHEAD))})
    found = first_starts(snapshot, plan, make_policy("fifo"), {"a": 50.0, "x": 1e6}, ["a"])
    assert found == {"a": 130.0}


def test_what_is_placed_begins_at_once_and_has_waited_until_then() -> None:
    kept = view("p", held(on(n0=4), begun=False), counts=(4,))
    snapshot = snapshot_of(
        cluster_of(n0=("a100", 4)), [kept, view("a", counts=(4,), submit_s=1.0)], now=100.0
    )
    plan = make_policy("fifo").plan(snapshot)
    left = {"p": 50.0 * kept.runs[0].speed, "a": 1.0}
    found = first_starts(snapshot, plan, make_policy("fifo"), left, ["p", "a"])
    assert found == {"p": 100.0, "a": 150.0}
