"""Why a job waits, in constructed situations, under policies as they are."""

from dataclasses import replace
from typing import Any

import pytest

from hetsched_core.errors import InputError
from hetsched_core.explain.why import Remedy, Why, code_of, why
from hetsched_core.policies.fifo import Fifo
from hetsched_core.policies.hops.hops import Hops
from hetsched_core.policy import Policy, plan_by
from hetsched_core.types import (
    Cluster,
    JobView,
    Node,
    NodeCondition,
    Phase,
    Placed,
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
from hetsched_core.types.site import Limit, Site
from tests.hetsched_core.worlds import (
    NO_ROOM,
    cluster_of,
    held,
    linear_speeds,
    on,
    placed,
    plan_of,
    profiling,
    running,
    snapshot_of,
    view,
)

CLUSTER = cluster_of(n0=("a100", 4), n1=("a100", 4), n2=("t4", 4))
SINGLE = frozenset({Shape.SINGLE_NODE})
LIVE = frozenset({Shape.SINGLE_NODE, Shape.EVEN})
HOPS = Hops(profile_iterations=0)


NOTHING = plan_of({})
A100, T4 = frozenset({"a100"}), frozenset({"t4"})
DOWN: dict[str, object] = {"condition": NodeCondition.DOWN}


def told(
    snapshot: Snapshot, job: str, plan: Plan | None = None, policy: Policy | None = None
) -> Why:
    """Why a job waits under a plan, by default that of the policy, by default fifo."""
    policy = policy or Fifo()
    return why(policy, snapshot, plan or policy.plan(snapshot), job)


def codes(found: Why) -> list[ReasonCode]:
    return [reason.code for reason in found.reasons]


def only(found: Why) -> tuple[ReasonCode, str]:
    (reason,) = found.reasons
    return reason.code, reason.detail


def world(*views: JobView, cluster: Cluster = CLUSTER, **more: object) -> Snapshot:
    return snapshot_of(cluster, views, shapes=SINGLE, **more)  # type: ignore[arg-type]


def test_a_job_that_runs_or_is_placed_waits_for_nothing_or_for_slurm_alone() -> None:
    found = told(world(running("a", n0=2)), "a")
    assert (found.phase, found.holds, found.reasons) == (Phase.RUNNING, on(n0=2), ())
    assert not found.remedies
    for purpose in Purpose:
        found = told(
            world(view("a", held(on(n0=2), begun=False, purpose=purpose), counts=(2,))), "a"
        )
        assert (found.phase, found.holds, found.remedies) == (Phase.PLACED, on(n0=2), ())
        assert codes(found) == [ReasonCode.PLACED]


def test_too_many_gpus_never_fit_and_fewer_would() -> None:
    found = told(world(view("a", counts=(16,))), "a")
    assert codes(found) == [ReasonCode.NEVER_FITS]
    assert found.remedies == (Remedy((1, 2, 4), ("a100", "t4")),)
    assert str(found.remedies[0]) == "1 or 2 or 4 GPUs on a100 or t4 would start now"


@pytest.mark.parametrize(
    ("types", "detail"),
    [
        ({"h100"}, "it would on a100 or t4, which it does not accept"),
        (set(), "no GPU type of this cluster is what it asks for"),
    ],
)
def test_a_type_that_is_not_there_is_told_with_those_that_would_do(
    types: set[str], detail: str
) -> None:
    code, said = only(told(world(view("a", gpu_types=frozenset(types))), "a", NOTHING))
    assert code is ReasonCode.NEVER_FITS
    assert detail in said


def test_nodes_that_are_down_are_named_if_they_are_the_jobs() -> None:
    snapshot = world(view("a", gpu_types=T4), nodes={"n2": DOWN})
    assert codes(told(snapshot, "a", plan_of({"a": NO_ROOM}))) == [ReasonCode.NODES_DOWN]
    found = told(snapshot, "a", NOTHING)
    assert found.reasons[0].detail == "n2"
    assert found.remedies == (Remedy((1, 2, 4), ("a100",)),)
    own = view("a", counts=(2,), nodes=frozenset({"n2"}))
    snapshot = world(own, nodes={"n2": DOWN, "n1": DOWN})
    assert only(told(snapshot, "a", NOTHING)) == (ReasonCode.NODES_DOWN, "n2")


def test_other_jobs_in_the_way_are_not_told_as_nodes_that_are_down() -> None:
    # n2 is down, and of no type that the job takes; jobs of others hold n0 and a part of n1.
    nodes = {"n0": {"foreign_gpus": 4}, "n1": {"foreign_gpus": 2}, "n2": DOWN}
    snapshot = world(view("a", counts=(4,), gpu_types=A100), nodes=nodes)
    detail = "free: 2 a100; jobs that are not managed here hold 6"
    assert only(told(snapshot, "a", NOTHING)) == (ReasonCode.NO_ROOM, detail)
    snapshot = replace(snapshot, triggers=frozenset({Trigger.ROUND}))
    assert codes(told(snapshot, "a", policy=HOPS)) == [ReasonCode.NO_ROOM]


def test_too_little_memory_is_not_told_as_too_few_gpus() -> None:
    cluster = Cluster((Node("n0", "a100", 4, cpus=64, memory_mb=64_000),))
    waits = view("a", memory_mb_per_gpu=64_000.0)
    snapshot = world(waits, cluster=cluster, nodes={"n0": {"foreign_memory_mb": 1.0}})
    detail = "it asks for 0 CPUs and 64000 MiB beside each GPU"
    assert only(told(snapshot, "a")) == (ReasonCode.NO_CPUS, detail)


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
    counts: tuple[int, ...], more: dict[str, Any], shapes: frozenset[Shape], detail: str
) -> None:
    cluster = cluster_of(**TWELVE)
    cluster = replace(cluster, nodes=tuple(replace(node, cpus=64) for node in cluster.nodes))
    snapshot = snapshot_of(cluster, [view("a", counts=counts, **more)], shapes=shapes)
    assert only(told(snapshot, "a", NOTHING)) == (ReasonCode.NEVER_FITS, detail)


def test_fragments_are_told_from_fullness() -> None:
    waits = view("a", counts=(4,), submit_s=9.0)
    snapshot = world(running("x", n0=2), running("y", n1=3), running("z", n2=4), waits)
    found = told(snapshot, "a")
    assert codes(found) == [ReasonCode.NO_ROOM]
    # The policy's own word comes first and has no detail of its own.
    assert told(snapshot, "a", NOTHING).reasons[0].detail == "free: 3 a100, 2 on one node"
    assert found.remedies == (Remedy((1, 2), ("a100",)),)


def test_room_that_is_kept_for_others_is_told_as_such() -> None:
    line = (view("big", counts=(4,), submit_s=1.0), view("small", counts=(1,), submit_s=2.0))
    found = told(world(running("x", n0=2), running("y", n1=2), running("z", n2=4), *line), "small")
    # Under fifo nobody passes the head, whatever he asks for.
    assert (codes(found), found.remedies) == ([ReasonCode.AHEAD], ())


@pytest.mark.parametrize("code", [ReasonCode.HELD, ReasonCode.DEPENDENCY, ReasonCode.QUOTA])
def test_what_blocks_a_job_is_told_and_no_change_is_proposed(code: ReasonCode) -> None:
    found = told(world(view("a", blocked=Reason(code))), "a")
    assert (codes(found), found.remedies) == ([code], ())


def test_of_a_job_at_a_limit_only_that_is_told_though_there_is_room() -> None:
    holder = view("x", held(on(n0=2)), counts=(2,), limits=("lim",))
    snapshot = world(holder, view("a", counts=(1,), limits=("lim",)))
    site = Site(limits={"lim": Limit(gpus=2)})
    snapshot = replace(snapshot, site=site)
    plan = plan_by(Fifo(), snapshot)
    assert codes(told(snapshot, "a", plan)) == [ReasonCode.QUOTA]


def test_of_a_job_that_a_policy_can_never_place_only_that_is_told_though_there_is_room() -> None:
    never = plan_of({"a": Waiting(Reason(ReasonCode.NEVER_FITS))})
    assert codes(told(world(view("a")), "a", never)) == [ReasonCode.NEVER_FITS]
    too_large = world(view("a", counts=(99,)))
    (reason,) = told(too_large, "a", never).reasons
    assert "it accepts 99 GPUs" in reason.detail


def test_a_start_that_waits_for_another_to_leave_names_it() -> None:
    leaving = held(on(n0=4), draining_until_s=30.0)
    snapshot = world(view("x", leaving, counts=(4,)), view("a", counts=(4,)))
    plan = plan_of({"a": placed(n0=4), "x": placed(n1=4)})
    found, moving = told(snapshot, "a", plan), told(snapshot, "x", plan)
    assert found.reasons == (Reason(ReasonCode.GRACE, ("x",)),)
    assert found.holds == on(n0=4)
    assert (moving.phase, codes(moving)[0]) == (Phase.DRAINING, ReasonCode.RESTARTING)


def test_behind_the_window_is_the_policys_own_word() -> None:
    jobs = (view(f"j{k}", counts=(4,), submit_s=float(k)) for k in range(40))
    snapshot = world(*jobs, triggers=frozenset({Trigger.ROUND}))
    found = told(snapshot, "j39", policy=Hops(profile_iterations=0, window=1.0))
    assert codes(found) == [ReasonCode.BELOW_WINDOW, ReasonCode.AHEAD]


def test_a_remedy_is_what_the_policy_does_with_the_changed_job() -> None:
    waits = view("a", counts=(2,), gpu_types=A100, submit_s=5.0)
    snapshot = world(running("x", n0=4), running("y", n1=4), waits)
    plan = Fifo().plan(snapshot)
    (remedy,) = told(snapshot, "a", plan).remedies
    assert remedy == Remedy((1, 2, 4), ("t4",))
    for count in remedy.counts:
        changed = view("a", counts=(count,), gpu_types=T4, submit_s=5.0)
        after = replace(snapshot, jobs=snapshot.jobs.set("a", changed), previous=plan)
        assert isinstance(Fifo().plan(after).entries["a"], Placed)


def test_a_job_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="no active job 'b'"):
        told(world(view("a")), "b", NOTHING)


def measuring(until_s: float = 400.0) -> tuple[Snapshot, Plan]:
    """One job runs to be measured, another of the same profile waits for that."""
    other = view("c", profile="other")
    run = held(on(n2=1), purpose=Purpose.PROFILE)
    speeds = linear_speeds(CLUSTER, {key: {"a100": 1.0, "t4": 1.0} for key in ("m", "other")})
    snapshot = world(view("a", run), view("b"), other, speeds=speeds)
    waits = Waiting(Reason(ReasonCode.PROFILING))
    profiles = {"a": profiling(on(n2=1), until_s)}
    return snapshot, plan_of(dict.fromkeys("abc", waits), profiles=profiles)


def test_who_is_measured_says_until_when_and_who_waits_for_it_says_whose() -> None:
    snapshot, plan = measuring()
    found = told(snapshot, "a", plan)
    assert (found.phase, found.holds, found.reasons) == (Phase.PROFILING, on(n2=1), ())
    assert (found.remedies, found.measured_until_s) == ((), 400.0)
    assert {job: str(told(snapshot, job, plan).reasons[0]) for job in ("b", "c")} == {
        "b": "not yet: its speed is being measured first (a): "
        "until 1970-01-01T00:06:40Z at the latest",
        "c": "not yet: its speed is being measured first",
    }


@pytest.mark.parametrize(
    ("nodes", "detail"),
    [
        ({"n0", "n2"}, "its nodes are n0, n2, free: 1 on n2"),
        ({"n0"}, "its nodes are n0, all busy"),
    ],
)
def test_a_job_whose_own_nodes_are_busy_is_told_which_they_are(
    nodes: set[str], detail: str
) -> None:
    waits = view("a", counts=(2,), nodes=frozenset(nodes))
    snapshot = world(running("x", n0=4), running("y", n2=3), waits)
    assert only(told(snapshot, "a", NOTHING)) == (ReasonCode.NO_ROOM, detail)


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
    limits: dict[str, Any], detail: str
) -> None:
    snapshot = snapshot_of(CLUSTER, [view("a", counts=(8,), **limits)])
    said = (ReasonCode.NEVER_FITS, f"it would, were it not for {detail}")
    assert only(told(snapshot, "a", NOTHING)) == said


def test_a_node_that_is_left_out_is_not_said_to_be_down_and_why_is_told() -> None:
    out: dict[str, object] = {"left_out": "jobs could not be launched there"}
    says = "left out: jobs could not be launched there"
    either = frozenset({"n1", "n2"})
    for nodes, named in (
        ({"n2": out, "n1": DOWN}, "n2 is"),
        ({"n1": out, "n2": out}, "n1, n2 are"),
    ):
        snapshot = world(view("a", nodes=either), nodes=nodes)
        for plan in (NOTHING, None):
            found = told(snapshot, "a", plan)
            assert only(found) == (ReasonCode.CLOSED, f"{named} {says}")
        assert code_of(snapshot, snapshot.jobs["a"], NO_ROOM.reason) is ReasonCode.CLOSED
    # Where that does not keep it from starting nothing is said of it.
    assert ReasonCode.CLOSED not in codes(told(world(view("a"), nodes={"n2": out}), "a", NOTHING))
    # Without the one that is down the job would not fit either.
    both = world(view("a", nodes=either, gpu_types=A100), nodes={"n2": out, "n1": DOWN})
    assert only(told(both, "a", NOTHING)) == (ReasonCode.NODES_DOWN, "n1")


FIRST_TWO = frozenset({"n0", "n1"})
MAINTENANCE = Window(FIRST_TWO, 3600.0, 7200.0, "maintenance")


@pytest.mark.parametrize("policy", [Fifo(), HOPS], ids=["fifo", "hops"])
def test_a_window_to_come_is_named_first_by_every_policy(policy: Policy) -> None:
    job = view("a", gpu_types=A100, closed=FIRST_TWO)
    snapshot = replace(world(job), windows=(MAINTENANCE,))
    reason = told(snapshot, "a", policy=policy).reasons[0]
    assert reason.code is ReasonCode.CLOSED
    assert reason.detail.startswith("maintenance on n0, n1 from ")
    # One that is down besides is what counts where the job would not fit without the window.
    down = replace(world(job, nodes=dict.fromkeys(FIRST_TWO, DOWN)), windows=(MAINTENANCE,))
    assert ReasonCode.NODES_DOWN in codes(told(down, "a", policy=policy))


@pytest.mark.parametrize("blocked", [None, Reason(ReasonCode.CLOSED, detail="maintenance")])
def test_a_window_that_closes_its_nodes_is_named_with_its_times(blocked: Reason | None) -> None:
    windows = (MAINTENANCE, Window(frozenset({"n2"}), 60.0, 90.0, "elsewhere"))
    closed = FIRST_TWO | {"n2"}
    job = view("a", counts=(2,), blocked=blocked, nodes=FIRST_TWO, closed=closed)
    plan = plan_of({"a": Waiting(blocked)}) if blocked else NOTHING
    assert only(told(replace(world(job), windows=windows), "a", plan)) == (
        ReasonCode.CLOSED,
        "maintenance on n0, n1 from 1970-01-01T01:00:00Z until 1970-01-01T02:00:00Z",
    )
