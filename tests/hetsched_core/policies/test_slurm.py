"""Slurm as a policy: order, backfill and promises, by hand and over random workloads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.contract import check_policy
from hetsched_core.errors import InputError
from hetsched_core.placement.timeline import OVERDUE_S
from hetsched_core.policies.slurm import Reserve, Slurm
from hetsched_core.policy import PolicyInfo, make_policy
from hetsched_core.runlog import RunLog
from hetsched_core.simulate import Settings, simulate
from hetsched_core.simulate.events import JobCrashed, NodeDrained
from hetsched_core.types import (
    Cluster,
    Node,
    Plan,
    ReasonCode,
    Snapshot,
    Submission,
    Trigger,
    Waiting,
)
from tests.hetsched_core.worlds import cluster_of, linear_speeds, on, submission

EACH = list(Reserve)
FOUR = cluster_of(n0=("a100", 4))


@dataclass(frozen=True)
class Watched:
    """Asks a policy and keeps what it was shown and answered."""

    info: ClassVar[PolicyInfo] = replace(Slurm.info, name="watched")
    policy: Slurm
    seen: list[tuple[Snapshot, Plan]] = field(default_factory=list)

    def plan(self, snapshot: Snapshot) -> Plan:
        plan = self.policy.plan(snapshot)
        self.seen.append((snapshot, plan))
        return plan


def job(
    name: str,
    gpus: int,
    run_s: float,
    limit_s: float | None = None,
    submit_s: float = 0.0,
    **more: object,
) -> Submission:
    """Build a job that runs for `run_s` where a GPU does 1 sample/s; its limit is exact if left."""
    made = submission(name, run_s * gpus, (gpus,), submit_s=submit_s)
    limit = run_s if limit_s is None else limit_s
    return replace(made, job=replace(made.job, time_limit_s=limit, **more))  # type: ignore[arg-type]


def run(
    jobs: Sequence[Submission], policy: Slurm, cluster: Cluster = FOUR
) -> tuple[RunLog, list[tuple[Snapshot, Plan]]]:
    watched = Watched(policy)
    speeds = linear_speeds(cluster, {"m": dict.fromkeys(cluster.gpu_types, 1.0)})
    log = simulate(jobs, cluster, watched, speeds, Settings())
    return log, watched.seen


def starts(jobs: Sequence[Submission], policy: Slurm, cluster: Cluster = FOUR) -> dict[str, float]:
    log, _ = run(jobs, policy, cluster)
    return {record.job.id: record.first_start_s for record in log.jobs}  # type: ignore[misc]


# -- order -----------------------------------------------------------------------------------------


def test_jobs_start_in_the_order_of_submission_by_default() -> None:
    jobs = [job("a", 4, 10), job("b", 4, 10, submit_s=1), job("c", 4, 10, submit_s=2)]
    assert starts(jobs, Slurm()) == {"a": 0, "b": 10, "c": 20}


def test_priorities_decide_who_is_next() -> None:
    jobs = [
        job("running", 4, 10),
        job("one", 1, 10, submit_s=1),
        job("four", 4, 10, submit_s=2),
        job("two", 2, 10, submit_s=3),
    ]
    assert starts(jobs, Slurm(weight_job_size=1000)) == {
        "running": 0,
        "four": 10,
        "two": 20,
        "one": 20,
    }
    favoured = starts(jobs, Slurm(weight_job_size=1000, favor_small=True))
    assert favoured == {"running": 0, "one": 10, "two": 10, "four": 20}
    jobs[3] = replace(jobs[3], job=replace(jobs[3].job, partition="short"))
    partition = Slurm(weight_partition=1000, partitions="short=2,long=1")
    assert starts(jobs, partition) == {"running": 0, "two": 10, "one": 10, "four": 20}


def test_who_has_used_less_goes_first() -> None:
    jobs = [
        job("heavy-1", 4, 1000, user="heavy"),
        job("heavy-2", 4, 10, submit_s=1, user="heavy"),
        job("light-1", 4, 10, submit_s=2, user="light"),
    ]
    assert starts(jobs, Slurm()) == {"heavy-1": 0, "heavy-2": 1000, "light-1": 1010}
    fair = Slurm(weight_fairshare=1000)
    assert starts(jobs, fair) == {"heavy-1": 0, "light-1": 1000, "heavy-2": 1010}


def test_priorities_are_calculated_anew_every_period_while_jobs_wait() -> None:
    jobs = [job("r", 4, 1000), job("w", 4, 10, submit_s=100)]
    _, seen = run(jobs, Slurm(weight_age=1000, backfill=Reserve.NONE))
    assert [s.now for s, _ in seen if s.triggers == {Trigger.TIMER}] == [300, 600, 900]


def test_gpu_types_are_taken_as_the_cluster_names_them_whatever_their_speed() -> None:
    cluster = cluster_of(slow=("k80", 1), fast=("h100", 1))
    speeds = linear_speeds(cluster, {"m": {"k80": 1.0, "h100": 9.0}})
    jobs = [job("a", 1, 9), job("b", 1, 9, submit_s=1), job("c", 1, 9, submit_s=2)]
    jobs[2] = replace(jobs[2], job=replace(jobs[2].job, gpu_types=frozenset({"h100"})))
    log = simulate(jobs, cluster, Slurm(), speeds, Settings())
    assert {run.job: str(run.configuration) for run in log.runs} == {
        "a": "slow:1",
        "b": "fast:1",
        "c": "fast:1",
    }


# -- backfill --------------------------------------------------------------------------------------

HEAD = (job("r", 2, 100), job("head", 4, 50, submit_s=1))


@pytest.mark.parametrize("backfill", EACH)
def test_the_hole_before_the_head_is_filled_where_there_is_backfill(backfill: Reserve) -> None:
    jobs = [*HEAD, job("short", 2, 60, submit_s=2)]
    filled = backfill is not Reserve.NONE
    # Passes are 30 s apart, and the first was when the head came.
    assert starts(jobs, Slurm(backfill=backfill)) == {
        "r": 0,
        "head": 100,
        "short": 31 if filled else 150,
    }


@pytest.mark.parametrize("backfill", EACH)
def test_who_would_delay_the_head_does_not_start_before_it(backfill: Reserve) -> None:
    jobs = [*HEAD, job("long", 2, 70, submit_s=2)]
    assert starts(jobs, Slurm(backfill=backfill)) == {"r": 0, "head": 100, "long": 150}


def test_the_head_is_promised_the_gpus_of_who_ends_first() -> None:
    cluster = cluster_of(n0=("a100", 4), n1=("a100", 4))
    jobs = [job("r", 4, 100), job("s", 4, 70), job("head", 4, 50, submit_s=1)]
    _, seen = run(jobs, Slurm(), cluster)
    (promise,) = seen[1][1].reservations
    assert (promise.job, promise.configuration) == ("head", on(n1=4))
    assert (promise.start_s, promise.end_s) == (70, 120)


def test_a_promise_stands_between_passes_and_goes_when_its_job_starts() -> None:
    jobs = [*HEAD, job("next", 4, 50, submit_s=3), job("cancelled", 4, 5, submit_s=4)]
    jobs[3] = replace(jobs[3], cancel_s=40)
    jobs.append(job("last-to-start", 1, 5, submit_s=5))
    _, seen = run(jobs, Slurm())
    promised = {s.now: [r.job for r in p.reservations] for s, p in seen}
    assert promised[1] == promised[3] == ["head"]
    assert promised[31] == ["head", "next", "cancelled"]
    assert promised[40] == ["head", "next"]
    assert promised[100] == ["next"]
    assert promised[150] == []


def test_easy_backfill_may_delay_the_second_in_line_and_conservative_does_not() -> None:
    jobs = [
        job("r", 3, 100),
        job("head", 3, 10, submit_s=1),
        job("second", 4, 10, submit_s=2),
        job("small", 1, 500, submit_s=3),
    ]
    easy = starts(jobs, Slurm(backfill=Reserve.EASY, bf_interval_s=0))
    assert easy == {"r": 0, "head": 100, "small": 3, "second": 503}
    conservative = starts(jobs, Slurm(bf_interval_s=0))
    assert conservative == {"r": 0, "head": 100, "second": 110, "small": 120}


def test_only_so_many_jobs_are_looked_at_and_others_move_up() -> None:
    jobs = [*HEAD, *(job(f"small-{n}", 1, 5, submit_s=2) for n in range(3))]
    shallow = starts(jobs, Slurm(bf_max_job_test=2))
    # The head is one of the two.
    assert shallow == {"r": 0, "head": 100, "small-0": 31, "small-1": 61, "small-2": 91}
    assert starts(jobs, Slurm(bf_max_job_test=1))["small-0"] == 150


def test_a_job_without_a_limit_counts_as_one_of_the_default() -> None:
    jobs = [*HEAD, job("unlimited", 2, 10, submit_s=2)]
    jobs[2] = replace(jobs[2], job=replace(jobs[2].job, time_limit_s=None))
    assert starts(jobs, Slurm())["unlimited"] == 150
    assert starts(jobs, Slurm(default_time_s=20))["unlimited"] == 31


def test_who_is_overdue_is_expected_to_end_soon_at_every_pass() -> None:
    jobs = [
        job("overdue", 2, 100, limit_s=10),
        job("head", 4, 50, submit_s=1),
        job("late", 1, 5, submit_s=50),
        job("long", 2, OVERDUE_S + 1, submit_s=51),
    ]
    log, seen = run(jobs, Slurm(bf_interval_s=0))
    promised = {s.now: r.start_s for s, p in seen for r in p.reservations if r.job == "head"}
    assert promised[1] == 10
    assert promised[50] == 50 + OVERDUE_S
    began = {record.job.id: record.first_start_s for record in log.jobs}
    assert began == {"overdue": 0, "head": 100, "late": 50, "long": 150}


def test_a_wide_job_is_not_starved_by_a_stream_of_narrow_ones() -> None:
    # Each time one of the narrow jobs ends, the next is waiting already.
    stream = [job(f"narrow-{n:03d}", 1, 40, submit_s=n * 10.0) for n in range(200)]
    jobs = [*stream, job("wide", 4, 40, submit_s=35.0)]
    for backfill in EACH:
        assert starts(jobs, Slurm(backfill=backfill))["wide"] == 70


def test_reasons_tell_who_is_next_from_who_is_behind() -> None:
    jobs = [*HEAD, job("behind", 2, 70, submit_s=2)]
    _, seen = run(jobs, Slurm())
    reasons = {
        name: entry.reason.code
        for name, entry in seen[2][1].entries.items()
        if isinstance(entry, Waiting)
    }
    assert reasons == {"head": ReasonCode.NO_ROOM, "behind": ReasonCode.AHEAD}


# -- when it plans ---------------------------------------------------------------------------------


def test_passes_are_apart_by_the_interval_and_cease_when_nothing_happens() -> None:
    jobs = [*HEAD, job("next", 4, 5, submit_s=10), job("last", 4, 5, submit_s=20)]
    _, seen = run(jobs, Slurm(bf_interval_s=25))
    passes = [plan.memory["backfilled_s"] for _, plan in seen if plan.memory.get("backfilled_s")]
    assert list(dict.fromkeys(passes)) == [1, 26, 100, 150]
    timers = [s.now for s, _ in seen if Trigger.TIMER in s.triggers]
    assert timers == [26]


def test_an_idle_cluster_asks_for_no_timer() -> None:
    _, seen = run([job("a", 1, 10), job("b", 1, 10)], Slurm())
    assert [plan.replan.at_s for _, plan in seen] == [None] * len(seen)


def test_who_comes_to_wait_behind_others_is_seen_by_the_next_pass() -> None:
    jobs = [*HEAD, *(job(f"later-{n}", 4, 5, submit_s=2 + n) for n in range(20))]
    _, seen = run(jobs, Slurm())
    assert [s.now for s, _ in seen][:4] == [0, 1, 2, 31]
    assert seen[3][0].changed == {f"later-{n}" for n in range(1, 20)}


def test_who_may_find_room_is_seen_at_once() -> None:
    cluster = cluster_of(a0=("a100", 4), v0=("v100", 4))
    a100 = frozenset({"a100"})
    jobs = [*HEAD, job("late", 4, 5, submit_s=3), job("later", 4, 5, submit_s=4)]
    jobs = [replace(each, job=replace(each.job, gpu_types=a100)) for each in jobs]
    jobs.append(job("any", 4, 5, submit_s=5))
    assert starts(jobs, Slurm(), cluster)["any"] == 5


def test_an_end_that_gives_who_is_next_no_room_asks_for_no_plan() -> None:
    jobs = [job(f"r{n}", 1, 10 + n) for n in range(4)]
    jobs += [job("head", 4, 5, submit_s=1), job("behind", 4, 5, submit_s=2)]
    _, seen = run(jobs, Slurm())
    assert [s.now for s, _ in seen] == [0, 1, 2, 13, 18]


def test_who_comes_after_all_have_withdrawn_in_its_sleep_is_seen() -> None:
    jobs = [job("r", 4, 100), job("head", 4, 50, submit_s=1), job("behind", 4, 50, submit_s=2)]
    jobs = [replace(each, cancel_s=5.0) for each in jobs]
    jobs += [job("next", 4, 10, submit_s=10), job("last", 4, 10, submit_s=200)]
    assert starts(jobs, Slurm())["next"] == 10
    assert starts(jobs, Slurm())["last"] == 200


def test_who_crashes_on_a_closed_node_in_its_sleep_is_seen() -> None:
    cluster = cluster_of(a=("a100", 4), b=("a100", 4))
    jobs = [job("j", 1, 50), job("k", 3, 80), job("l", 3, 60)]
    jobs += [job("head", 4, 50, submit_s=1), job("behind", 4, 50, submit_s=2)]
    speeds = linear_speeds(cluster, {"m": {"a100": 1.0}})
    happens = (NodeDrained(0.5, "a"), JobCrashed(3.0, "j"))
    log = simulate(jobs, cluster, Slurm(), speeds, Settings(), incidents=happens)
    again = [run.since_s for run in log.runs if run.job == "j"]
    assert again == [0, 3]


def test_an_order_by_size_is_looked_at_whenever_somebody_comes() -> None:
    large_first = [*HEAD, job("small", 1, 5, submit_s=2), job("large", 4, 5, submit_s=3)]
    _, seen = run(large_first, Slurm(weight_job_size=1000))
    assert [s.now for s, _ in seen][:4] == [0, 1, 2, 3]


# -- promises, over random workloads ---------------------------------------------------------------

TWO_TYPES = cluster_of(
    a0=("a100", 4), a1=("a100", 4), a2=("a100", 2), v0=("v100", 4), v1=("v100", 2)
)
ONE_NODE_EACH = cluster_of(a0=("a100", 8), v0=("v100", 6))


def workload(seed: int, *, exact: bool) -> list[Submission]:
    """Jobs that keep their limits; with `exact` limits they use them to the full."""
    rng = Random(seed)
    jobs = []
    at_s = 0.0
    for number in range(30):
        at_s += rng.choice((0, 0, 1, 5, 20, 60))
        run_s = rng.randint(5, 300)
        made = job(
            f"j{number:02d}",
            rng.choice((1, 1, 1, 2, 2, 4, 6)),
            run_s,
            run_s if exact else run_s * rng.randint(1, 4),
            at_s,
        )
        types = rng.choice((None, None, frozenset({"a100"}), frozenset({"v100"})))
        jobs.append(replace(made, job=replace(made.job, gpu_types=types)))
    return jobs


def late(
    log: RunLog, seen: Iterable[tuple[Snapshot, Plan]], *, heads: bool
) -> list[tuple[str, float, float]]:
    """Promises of passes not kept: (job, promised, begun); with `heads` to who was next only."""
    began = {record.job.id: record.first_start_s or 0.0 for record in log.jobs}
    broken = []
    for snapshot, plan in seen:
        if plan.memory.get("backfilled_s") != snapshot.now:
            continue
        waiting = [
            v.id for v in snapshot.by_submission() if isinstance(plan.entries[v.id], Waiting)
        ]
        broken += [
            (r.job, r.start_s, began[r.job])
            for r in plan.reservations
            if began[r.job] > r.start_s + 1e-6 and (not heads or r.job == waiting[0])
        ]
    return broken


@dataclass(frozen=True)
class AtEveryEvent(Watched):
    """Asks at every arrival and every end, whatever the policy wants."""

    def plan(self, snapshot: Snapshot) -> Plan:
        plan = super().plan(snapshot)
        on = plan.replan.on | {Trigger.ARRIVAL, Trigger.END}
        return replace(plan, replan=replace(plan.replan, on=on, room=None))


SHARED_HOSTS = Cluster(
    tuple(
        Node(f"{host}-{gpu_type}", gpu_type, 4, cpus=12, host=host)
        for host in ("h0", "h1")
        for gpu_type in ("a100", "v100")
    )
)


@given(st.integers(0, 10**9), st.sampled_from(EACH), st.sampled_from([TWO_TYPES, SHARED_HOSTS]))
def test_asking_at_every_event_changes_no_start(
    seed: int, backfill: Reserve, cluster: Cluster
) -> None:
    rng = Random(seed)
    jobs = [
        replace(
            each,
            job=replace(each.job, cpus_per_gpu=float(rng.choice((0, 1, 3)))),
            cancel_s=each.job.submit_s + rng.randint(1, 200) if rng.random() < 0.2 else None,
        )
        for each in workload(seed, exact=False)
    ]
    speeds = linear_speeds(cluster, {"m": dict.fromkeys(cluster.gpu_types, 1.0)})
    logs = [
        simulate(jobs, cluster, watched(Slurm(backfill=backfill)), speeds, Settings())
        for watched in (Watched, AtEveryEvent)
    ]
    assert logs[0].runs == logs[1].runs
    assert len(logs[0].plans) <= len(logs[1].plans)


@given(st.integers(0, 10**9), st.sampled_from([Reserve.EASY, Reserve.CONSERVATIVE]))
def test_the_first_in_line_never_starts_later_than_promised(seed: int, backfill: Reserve) -> None:
    log, seen = run(workload(seed, exact=False), Slurm(backfill=backfill), TWO_TYPES)
    assert late(log, seen, heads=True) == []


@given(st.integers(0, 10**9))
def test_on_one_node_of_each_type_with_exact_limits_every_promise_is_kept(seed: int) -> None:
    # With several nodes, who is served in turn may take another one than it was promised.
    log, seen = run(workload(seed, exact=True), Slurm(bf_interval_s=0), ONE_NODE_EACH)
    assert late(log, seen, heads=False) == []


def test_promises_are_made_and_would_be_found_broken() -> None:
    # What the two tests above rest on: there are promises, and without them heads start later.
    made, broken = 0, 0
    for seed in range(10):
        log, seen = run(workload(seed, exact=False), Slurm(), TWO_TYPES)
        made += sum(len(plan.reservations) for _, plan in seen)
        broken += len(late(log, seen, heads=False))
    assert made > 500
    assert broken > 0


@given(st.integers(0, 10**9), st.sampled_from(EACH))
def test_every_job_comes_to_its_end_and_nobody_is_stopped(seed: int, backfill: Reserve) -> None:
    log, _ = run(workload(seed, exact=False), Slurm(backfill=backfill), TWO_TYPES)
    assert all(record.end_s is not None and record.restarts == 0 for record in log.jobs)


# -- as a policy -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        Slurm(backfill=Reserve.EASY, bf_interval_s=0),
        Slurm(backfill=Reserve.NONE, weight_job_size=10),
        Slurm(weight_age=1000, weight_fairshare=500, calc_period_s=60, bf_max_job_test=3),
    ],
    ids=["easy", "none", "weights"],
)
def test_other_settings_keep_all_contracts(policy: Slurm) -> None:
    verdict = check_policy(policy, seeds=range(4))
    assert verdict.kept, str(verdict)


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"backfill": "aggressive"}, "valid: conservative, easy, none"),
        ({"bf_interval_s": "-1"}, "slurm.bf_interval_s=-1.0"),
        ({"bf_max_job_test": "0"}, "slurm.bf_max_job_test=0"),
        ({"default_time_s": "inf"}, "slurm.default_time_s=inf"),
        ({"weight_age": "-5"}, "slurm.weight_age=-5"),
        ({"decay_half_life_s": "nan"}, "slurm.decay_half_life_s='nan'"),
        ({"partitions": "long"}, "'long' is not NAME=NUMBER"),
        ({"partitions": "long=1,=2"}, "'=2' is not NAME=NUMBER"),
        ({"partitions": "long=-1"}, "'long=-1' is not NAME=NUMBER"),
    ],
)
def test_a_parameter_that_means_nothing_is_refused(settings: dict[str, str], wrong: str) -> None:
    with pytest.raises(InputError, match=wrong.replace("(", r"\(")):
        make_policy("slurm", settings)
