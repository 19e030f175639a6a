"""Why a job waits, in constructed situations, under policies as they are."""

from dataclasses import replace

import pytest

from hetsched_core.errors import InputError
from hetsched_core.explain import Remedy, why
from hetsched_core.policies.fifo import Fifo
from hetsched_core.policies.hops.hops import Hops
from hetsched_core.policy import Policy
from hetsched_core.types import (
    Cluster,
    JobView,
    NodeCondition,
    Phase,
    Plan,
    Purpose,
    Reason,
    ReasonCode,
    Shape,
    Snapshot,
    Trigger,
    Waiting,
    Window,
)
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    placed,
    plan_of,
    profiling,
    snapshot_of,
    view,
)

CLUSTER = cluster_of(n0=("a100", 4), n1=("a100", 4), n2=("t4", 4))
SINGLE = frozenset({Shape.SINGLE_NODE})
LIVE = frozenset({Shape.SINGLE_NODE, Shape.EVEN})


def fifo_plan(snapshot: Snapshot) -> Plan:
    return Fifo().plan(snapshot)


def codes(snapshot: Snapshot, job: str, plan: Plan | None = None) -> list[ReasonCode]:
    found = why(Fifo(), snapshot, plan or fifo_plan(snapshot), job)
    return [reason.code for reason in found.reasons]


def world(*views: JobView, cluster: Cluster = CLUSTER, **more: object) -> Snapshot:
    return snapshot_of(cluster, views, shapes=SINGLE, **more)  # type: ignore[arg-type]


def test_a_running_job_waits_for_nothing() -> None:
    snapshot = world(view("a", held(on(n0=2)), counts=(2,)))
    found = why(Fifo(), snapshot, fifo_plan(snapshot), "a")
    assert (found.phase, found.holds, found.reasons) == (Phase.RUNNING, on(n0=2), ())
    assert not found.remedies


def test_a_job_that_is_placed_waits_for_slurm_alone() -> None:
    for purpose in Purpose:
        run = held(on(n0=2), begun=False, purpose=purpose)
        snapshot = world(view("a", run, counts=(2,)))
        found = why(Fifo(), snapshot, Fifo().plan(snapshot), "a")
        assert (found.phase, found.holds, found.remedies) == (Phase.PLACED, on(n0=2), ())
        assert [reason.code for reason in found.reasons] == [ReasonCode.PLACED]


def test_too_many_gpus_never_fit_and_fewer_would() -> None:
    snapshot = world(view("a", counts=(16,)))
    found = why(Fifo(), snapshot, fifo_plan(snapshot), "a")
    assert [reason.code for reason in found.reasons] == [ReasonCode.NEVER_FITS]
    assert found.remedies == (Remedy((1, 2, 4), ("a100", "t4")),)
    assert str(found.remedies[0]) == "1 or 2 or 4 GPUs on a100 or t4 would start now"


def test_a_type_that_is_not_there_is_told_with_those_that_would_do() -> None:
    snapshot = world(view("a", gpu_types=frozenset({"h100"})))
    plan = plan_of({})
    (reason,) = why(Fifo(), snapshot, plan, "a").reasons
    assert reason.code is ReasonCode.NEVER_FITS
    assert reason.detail == "it would on a100 or t4, which it does not accept"


def test_nodes_that_are_down_are_named() -> None:
    down = {"condition": NodeCondition.DOWN}
    snapshot = world(view("a", gpu_types=frozenset({"t4"})), nodes={"n2": down})
    assert ReasonCode.NODES_DOWN in codes(snapshot, "a")
    found = why(Fifo(), snapshot, plan_of({}), "a")
    assert found.reasons[0].detail == "n2"
    assert found.remedies == (Remedy((1, 2, 4), ("a100",)),)


def test_other_jobs_in_the_way_are_not_told_as_nodes_that_are_down() -> None:
    # n2 is down, and of no type that the job takes; jobs of others hold n0 and a part of n1.
    nodes = {"n0": {"foreign_gpus": 4}, "n1": {"foreign_gpus": 2}}
    nodes["n2"] = {"condition": NodeCondition.DOWN}  # type: ignore[dict-item]
    a100 = {"counts": (4,), "gpu_types": frozenset({"a100"})}
    snapshot = world(view("a", **a100), nodes=nodes)  # type: ignore[arg-type]
    (reason,) = why(Fifo(), snapshot, plan_of({}), "a").reasons
    assert reason.code is ReasonCode.NO_ROOM
    detail = "free: 2 a100; jobs that are not managed here hold 6"
    assert reason.detail == detail
    hops = Hops(profile_iterations=0)
    snapshot = replace(snapshot, triggers=frozenset({Trigger.ROUND}))
    found = why(hops, snapshot, hops.plan(snapshot), "a").reasons
    assert [each.code for each in found] == [ReasonCode.NO_ROOM]


def test_too_little_memory_is_not_told_as_too_few_gpus() -> None:
    cluster = cluster_of(n0=("a100", 4))
    cluster = replace(cluster, nodes=(replace(cluster["n0"], cpus=64, memory_mb=64_000),))
    waits = view("a")
    waits = replace(waits, job=replace(waits.job, memory_mb_per_gpu=64_000.0))
    snapshot = world(waits, cluster=cluster, nodes={"n0": {"foreign_memory_mb": 1.0}})
    (reason,) = why(Fifo(), snapshot, fifo_plan(snapshot), "a").reasons
    assert reason.code is ReasonCode.NO_CPUS
    assert reason.detail == "it asks for 0 CPUs and 64000 MiB beside each GPU"


def test_room_that_is_planned_for_others_is_not_told_as_a_lack_of_it() -> None:
    snapshot = world(view("a", counts=(4,), gpu_types=frozenset({"t4"})))
    plan = plan_of({"a": Waiting(Reason(ReasonCode.NO_ROOM))})
    assert codes(snapshot, "a", plan) == [ReasonCode.AHEAD]


TWELVE = {f"{kind}{at}": (kind, 4) for kind in ("a100", "v100") for at in range(3)}


@pytest.mark.parametrize(
    ("counts", "more", "shapes", "detail"),
    [
        ((16,), {}, LIVE, "it accepts 16 GPUs, all of one type; there are 12 a100 and 12 v100"),
        ((32,), {}, LIVE, "it accepts 32 GPUs; there are 12 a100 and 12 v100"),
        ((16,), {"gpu_types": frozenset({"a100"})}, LIVE, "it accepts 16 GPUs; there are 12 a100"),
        ((8,), {}, SINGLE, "it accepts 8 GPUs on one node; a node has at most 4"),
        (
            (7,),
            {},
            LIVE,
            "it accepts 7 GPUs, as many on each of its nodes; the nodes have at most 4",
        ),
        (
            (2,),
            {"nodes": frozenset({"a1000", "v1000"}), "min_nodes": 2, "max_nodes": 2},
            LIVE,
            "it accepts 2 GPUs, all of one type; its nodes (a1000, v1000) have several",
        ),
        (
            (2,),
            {"cpus_per_gpu": 100.0},
            LIVE,
            "it accepts 2 GPUs with 100 CPUs and 0 MiB beside each; no nodes have so much",
        ),
    ],
)
def test_what_never_fits_is_told_by_what_is_in_the_way(
    counts: tuple[int, ...], more: dict[str, object], shapes: frozenset[Shape], detail: str
) -> None:
    cluster = cluster_of(**TWELVE)
    cluster = replace(cluster, nodes=tuple(replace(node, cpus=64) for node in cluster.nodes))
    job = view("a", counts=counts)
    job = replace(job, job=replace(job.job, **more))  # type: ignore[arg-type]
    snapshot = snapshot_of(cluster, [job], shapes=shapes)
    (reason,) = why(Fifo(), snapshot, plan_of({}), "a").reasons
    assert (reason.code, reason.detail) == (ReasonCode.NEVER_FITS, detail)


def test_fragments_are_told_from_fullness() -> None:
    snapshot = world(
        view("x", held(on(n0=2)), counts=(2,)),
        view("y", held(on(n1=3)), counts=(3,)),
        view("z", held(on(n2=4)), counts=(4,)),
        view("a", counts=(4,), submit_s=9.0),
    )
    found = why(Fifo(), snapshot, fifo_plan(snapshot), "a")
    assert [reason.code for reason in found.reasons] == [ReasonCode.NO_ROOM]
    # The policy's own word comes first and has no detail of its own.
    assert (
        why(Fifo(), snapshot, plan_of({}), "a").reasons[0].detail == "free: 3 a100, 2 on one node"
    )
    assert found.remedies == (Remedy((1, 2), ("a100",)),)


def test_room_that_is_kept_for_others_is_told_as_such() -> None:
    snapshot = world(
        view("x", held(on(n0=2)), counts=(2,)),
        view("y", held(on(n1=2)), counts=(2,)),
        view("z", held(on(n2=4)), counts=(4,)),
        view("big", counts=(4,), submit_s=1.0),
        view("small", counts=(1,), submit_s=2.0),
    )
    found = why(Fifo(), snapshot, fifo_plan(snapshot), "small")
    assert [reason.code for reason in found.reasons] == [ReasonCode.AHEAD]
    # Under fifo nobody passes the head, whatever he asks for.
    assert found.remedies == ()


@pytest.mark.parametrize("code", [ReasonCode.HELD, ReasonCode.DEPENDENCY, ReasonCode.QUOTA])
def test_what_blocks_a_job_is_told_and_no_change_is_proposed(code: ReasonCode) -> None:
    snapshot = world(view("a", blocked=Reason(code)))
    found = why(Fifo(), snapshot, fifo_plan(snapshot), "a")
    assert [reason.code for reason in found.reasons] == [code]
    assert found.remedies == ()


def test_a_job_that_no_type_is_left_for_is_told_so() -> None:
    found = why(Fifo(), world(view("a", gpu_types=frozenset())), plan_of({}), "a")
    assert found.reasons[0].code is ReasonCode.NEVER_FITS
    assert "no GPU type of this cluster is what it asks for" in found.reasons[0].detail


def test_a_start_that_waits_for_another_to_leave_names_it() -> None:
    leaving = held(on(n0=4), draining_until_s=30.0)
    snapshot = world(view("x", leaving, counts=(4,)), view("a", counts=(4,)))
    plan = plan_of({"a": placed(n0=4), "x": placed(n1=4)})
    found = why(Fifo(), snapshot, plan, "a")
    assert found.reasons == (Reason(ReasonCode.GRACE, ("x",)),)
    assert found.holds == on(n0=4)
    moving = why(Fifo(), snapshot, plan, "x")
    assert (moving.phase, moving.reasons[0].code) == (Phase.DRAINING, ReasonCode.RESTARTING)


def test_behind_the_window_is_the_policys_own_word() -> None:
    hops = Hops(profile_iterations=0, window=1.0)
    snapshot = world(
        *(view(f"j{k}", counts=(4,), submit_s=float(k)) for k in range(40)),
        triggers=frozenset({Trigger.ROUND}),
    )
    plan = hops.plan(snapshot)
    found = why(hops, snapshot, plan, "j39")
    assert [reason.code for reason in found.reasons] == [ReasonCode.BELOW_WINDOW, ReasonCode.AHEAD]


def test_a_remedy_is_what_the_policy_does_with_the_changed_job() -> None:
    snapshot = world(
        view("x", held(on(n0=4)), counts=(4,)),
        view("y", held(on(n1=4)), counts=(4,)),
        view("a", counts=(2,), gpu_types=frozenset({"a100"}), submit_s=5.0),
    )
    plan = fifo_plan(snapshot)
    for remedy in why(Fifo(), snapshot, plan, "a").remedies:
        for count in remedy.counts:
            for gpu_type in remedy.gpu_types:
                changed = view("a", counts=(count,), gpu_types=frozenset({gpu_type}), submit_s=5.0)
                after = replace(snapshot, jobs=snapshot.jobs.set("a", changed), previous=plan)
                assert hasattr(Fifo().plan(after).entries["a"], "placements")
    assert why(Fifo(), snapshot, plan, "a").remedies == (Remedy((1, 2, 4), ("t4",)),)


def test_a_job_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="no active job 'b'"):
        why(Fifo(), world(view("a")), plan_of({}), "b")


def measuring(until_s: float = 400.0) -> tuple[Snapshot, Plan]:
    """One job runs to be measured, another of the same profile waits for that."""
    other = view("c")
    other = replace(other, job=replace(other.job, profile="other"))
    run = held(on(n2=1), purpose=Purpose.PROFILE)
    speeds = linear_speeds(CLUSTER, {key: {"a100": 1.0, "t4": 1.0} for key in ("m", "other")})
    snapshot = world(view("a", run), view("b"), other, speeds=speeds)
    waits = Waiting(Reason(ReasonCode.PROFILING))
    profiles = {"a": profiling(on(n2=1), until_s)}
    return snapshot, plan_of(dict.fromkeys("abc", waits), profiles=profiles)


def test_a_job_that_runs_to_be_measured_does_not_wait_and_says_until_when() -> None:
    found = why(Fifo(), *measuring(), "a")
    assert (found.phase, found.holds, found.reasons) == (Phase.PROFILING, on(n2=1), ())
    assert (found.remedies, found.measured_until_s) == ((), 400.0)


def test_a_job_that_waits_for_another_s_measuring_says_whose_and_until_when() -> None:
    snapshot, plan = measuring()
    reasons = {job: str(why(Fifo(), snapshot, plan, job).reasons[0]) for job in ("b", "c")}
    assert reasons == {
        "b": "not yet: its speed is being measured first (a): "
        "until 1970-01-01T00:06:40Z at the latest",
        "c": "not yet: its speed is being measured first",
    }


def on_own(found: JobView, **limits: object) -> JobView:
    """The job, limited so."""
    return replace(found, job=replace(found.job, **limits))  # type: ignore[arg-type]


def test_a_job_whose_own_nodes_are_busy_is_told_which_they_are() -> None:
    snapshot = world(
        view("x", held(on(n0=4)), counts=(4,)),
        view("y", held(on(n2=3)), counts=(3,)),
        on_own(view("a", counts=(2,)), nodes=frozenset({"n0", "n2"})),
    )
    (reason,) = why(Fifo(), snapshot, plan_of({}), "a").reasons
    assert reason.code is ReasonCode.NO_ROOM
    assert reason.detail == "its nodes are n0, n2, free: 1 on n2"
    full = world(
        view("x", held(on(n0=4)), counts=(4,)),
        on_own(view("a", counts=(2,)), nodes=frozenset({"n0"})),
    )
    (reason,) = why(Fifo(), full, plan_of({}), "a").reasons
    assert reason.detail == "its nodes are n0, all busy"


@pytest.mark.parametrize(
    ("limits", "detail"),
    [
        ({"nodes": frozenset({"n0"})}, "its nodes (n0)"),
        ({"max_nodes": 1}, "how many it has to be on (1 to 1)"),
        (
            {"nodes": frozenset({"n2", "n0"}), "min_nodes": 3},
            "its nodes (n0, n2) and how many it has to be on (3 to any number)",
        ),
    ],
)
def test_a_job_whose_nodes_hold_it_never_is_told_of_them(
    limits: dict[str, object], detail: str
) -> None:
    snapshot = snapshot_of(CLUSTER, [on_own(view("a", counts=(8,)), **limits)])
    (reason,) = why(Fifo(), snapshot, plan_of({}), "a").reasons
    assert reason.code is ReasonCode.NEVER_FITS
    assert reason.detail == f"it would, were it not for {detail}"


def test_nodes_that_are_down_are_named_if_they_are_the_jobs() -> None:
    down = {"condition": NodeCondition.DOWN}
    limited = on_own(view("a", counts=(2,)), nodes=frozenset({"n2"}))
    snapshot = world(limited, nodes={"n2": down, "n1": down})
    (reason,) = why(Fifo(), snapshot, plan_of({}), "a").reasons
    assert (reason.code, reason.detail) == (ReasonCode.NODES_DOWN, "n2")


@pytest.mark.parametrize("policy", [Fifo(), Hops(profile_iterations=0)], ids=["fifo", "hops"])
def test_a_window_to_come_is_named_first_by_every_policy(policy: Policy) -> None:
    windows = (Window(frozenset({"n0", "n1"}), 3600.0, 7200.0, "maintenance"),)
    limited = on_own(view("a", gpu_types=frozenset({"a100"})), closed=frozenset({"n0", "n1"}))
    snapshot = replace(world(limited), windows=windows)
    reason = why(policy, snapshot, policy.plan(snapshot), "a").reasons[0]
    assert reason.code is ReasonCode.CLOSED
    assert reason.detail.startswith("maintenance on n0, n1 from ")
    # One that is down besides is what counts where the job would not fit without the window.
    down = world(limited, nodes={name: {"condition": NodeCondition.DOWN} for name in ("n0", "n1")})
    snapshot = replace(down, windows=windows)
    reasons = why(policy, snapshot, policy.plan(snapshot), "a").reasons
    assert ReasonCode.NODES_DOWN in [reason.code for reason in reasons]


@pytest.mark.parametrize("blocked", [None, Reason(ReasonCode.CLOSED, detail="maintenance")])
def test_a_window_that_closes_its_nodes_is_named_with_its_times(blocked: Reason | None) -> None:
    windows = (
        Window(frozenset({"n0", "n1"}), 3600.0, 7200.0, "maintenance"),
        Window(frozenset({"n2"}), 60.0, 90.0, "elsewhere"),
    )
    limited = on_own(
        view("a", counts=(2,), blocked=blocked),
        nodes=frozenset({"n0", "n1"}),
        closed=frozenset({"n0", "n1"}),
    )
    snapshot = replace(world(limited), windows=windows)
    (reason,) = why(Fifo(), snapshot, plan_of({}), "a").reasons
    assert reason.code is ReasonCode.CLOSED
    assert reason.detail == (
        "maintenance on n0, n1 from 1970-01-01T01:00:00Z until 1970-01-01T02:00:00Z"
    )
