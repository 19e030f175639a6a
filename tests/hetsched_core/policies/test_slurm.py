"""Slurm as a policy: order, backfill and promises, by hand and over random workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.policies.slurm import Reserve, Slurm
from hetsched_core.policy import Policy, PolicyInfo
from hetsched_core.records.runlog import RunLog
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.simulate.events import JobCrashed, NodeDrained
from hetsched_core.types import Cluster, Node, Plan, Snapshot, Submission, Trigger, Waiting
from hetsched_core.types.site import Limit, ShareTree, Site, SiteSettings
from tests.hetsched_core.policies.worlds import watched, with_job
from tests.hetsched_core.worlds import (
    cluster_of,
    linear_speeds,
    snapshot_of,
    submission,
    view,
    where,
)

EACH = list(Reserve)
FOUR = cluster_of(n0=("a100", 4))
SITE = Site(ShareTree())


def job(
    name: str,
    gpus: int,
    run_s: float,
    submit_s: float = 0.0,
    limit_s: float | None = None,
    **more: object,
) -> Submission:
    """Build a job that runs for `run_s` where a GPU does 1 sample/s; its limit is exact if left."""
    made = submission(name, run_s * gpus, (gpus,), submit_s=submit_s)
    return with_job(made, time_limit_s=run_s if limit_s is None else limit_s, **more)


def simulated(
    jobs: Sequence[Submission], policy: Policy, cluster: Cluster = FOUR, **more: object
) -> RunLog:
    speeds = linear_speeds(cluster, {"m": dict.fromkeys(cluster.gpu_types, 1.0)})
    return simulate(jobs, cluster, policy, speeds, SimulationSettings(), **more)  # type: ignore[arg-type]


def seen(jobs: Sequence[Submission], policy: Slurm) -> list[tuple[Snapshot, Plan]]:
    asked, answers = watched(policy)
    simulated(jobs, asked)
    return answers


def starts(
    jobs: Sequence[Submission], policy: Policy, cluster: Cluster = FOUR
) -> dict[str, float | None]:
    log = simulated(jobs, policy, cluster)
    return {record.job.id: record.first_start_s for record in log.jobs}


# -- order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Slurm(), {"one": 10, "four": 20, "two": 30}),
        (Slurm(weight_job_size=1000), {"four": 10, "two": 20, "one": 20}),
        (Slurm(weight_job_size=1000, favor_small=True), {"one": 10, "two": 10, "four": 20}),
        (
            Slurm(weight_partition=1000, partitions="short=2,long=1"),
            {"two": 10, "one": 10, "four": 20},
        ),
    ],
)
def test_submission_decides_who_is_next_or_priorities(
    policy: Slurm, expected: dict[str, float]
) -> None:
    jobs = [
        job("running", 4, 10),
        job("one", 1, 10, 1),
        job("four", 4, 10, 2),
        job("two", 2, 10, 3, partition="short"),
    ]
    assert starts(jobs, policy) == {"running": 0} | expected


def test_who_has_used_less_goes_first() -> None:
    jobs = [
        job("heavy-1", 4, 1000, user="heavy"),
        job("heavy-2", 4, 10, 1, user="heavy"),
        job("light-1", 4, 10, 2, user="light"),
    ]
    assert starts(jobs, Slurm()) == {"heavy-1": 0, "heavy-2": 1000, "light-1": 1010}
    fair = Slurm(weight_fairshare=1000)
    assert starts(jobs, fair) == {"heavy-1": 0, "light-1": 1000, "heavy-2": 1010}


def test_priorities_are_calculated_anew_every_period_while_jobs_wait() -> None:
    asked = seen(
        [job("r", 4, 1000), job("w", 4, 10, 100)], Slurm(weight_age=1000, backfill=Reserve.NONE)
    )
    assert [s.now for s, _ in asked if s.triggers == {Trigger.TIMER}] == [300, 600, 900]


# -- backfill --------------------------------------------------------------------------------------

HEAD = (job("r", 2, 100), job("head", 4, 50, 1))


@pytest.mark.parametrize("partitions", [True, False])
def test_who_waits_holds_its_partition_back_whatever_types_that_has(partitions: bool) -> None:
    cluster = cluster_of(a=("a100", 1), b=("v100", 1), c=("v100", 1))
    gpu, short = (frozenset("ab"), frozenset("c")) if partitions else (None, None)
    jobs = [
        job("first", 1, 100, nodes=gpu, gpu_types=frozenset({"a100"})),
        job("waits", 1, 100, 1, nodes=gpu, gpu_types=frozenset({"a100"})),
        job("behind", 1, 100, 2, nodes=gpu, gpu_types=frozenset({"v100"})),
        job("beside", 1, 100, 2, nodes=short),
    ]
    # The next pass of backfill starts it; where no partitions are known each type stands for one.
    expected = {"first": 0, "waits": 100, "behind": 31 if partitions else 2, "beside": 2}
    assert starts(jobs, Slurm(), cluster) == expected


@pytest.mark.parametrize("backfill", EACH)
def test_a_hole_before_the_head_is_filled_by_who_does_not_delay_it(backfill: Reserve) -> None:
    policy = Slurm(backfill=backfill)
    # Passes are 30 s apart, and the first was when the head came.
    filled_s = 150 if backfill is Reserve.NONE else 31
    found = starts([*HEAD, job("short", 2, 60, 2)], policy)
    assert found == {"r": 0, "head": 100, "short": filled_s}
    found = starts([*HEAD, job("long", 2, 70, 2)], policy)
    assert found == {"r": 0, "head": 100, "long": 150}


def test_a_promise_stands_between_passes_and_goes_when_its_job_starts() -> None:
    jobs = [*HEAD, job("next", 4, 50, 3), replace(job("cancelled", 4, 5, 4), cancel_s=40)]
    asked = seen([*jobs, job("last-to-start", 1, 5, 5)], Slurm())
    promised = {s.now: [r.job for r in p.reservations] for s, p in asked}
    assert promised[1] == promised[3] == ["head"]
    assert promised[31] == ["head", "next", "cancelled"]
    assert promised[40] == ["head", "next"]
    assert promised[100] == ["next"]
    assert promised[150] == []


def test_only_so_many_jobs_are_looked_at_and_others_move_up() -> None:
    jobs = [*HEAD, *(job(f"small-{n}", 1, 5, 2) for n in range(3))]
    # The head is one of the two.
    shallow = starts(jobs, Slurm(bf_max_job_test=2))
    assert shallow == {"r": 0, "head": 100, "small-0": 31, "small-1": 61, "small-2": 91}
    assert starts(jobs, Slurm(bf_max_job_test=1))["small-0"] == 150


def test_a_job_without_a_limit_counts_as_one_of_the_default() -> None:
    jobs = [*HEAD, with_job(job("unlimited", 2, 10, 2), time_limit_s=None)]
    assert starts(jobs, Slurm())["unlimited"] == 150
    assert starts(jobs, Slurm(default_time_s=20))["unlimited"] == 31


# -- when it plans ---------------------------------------------------------------------------------


def test_passes_are_apart_by_the_interval_and_cease_when_nothing_happens() -> None:
    jobs = [*HEAD, job("next", 4, 5, 10), job("last", 4, 5, 20)]
    asked = seen(jobs, Slurm(bf_interval_s=25))
    passes = [plan.memory["backfilled_s"] for _, plan in asked if plan.memory.get("backfilled_s")]
    assert list(dict.fromkeys(passes)) == [1, 26, 100, 150]
    assert [s.now for s, _ in asked if Trigger.TIMER in s.triggers] == [26]
    # An idle cluster asks for no timer.
    idle = seen([job("a", 1, 10), job("b", 1, 10)], Slurm())
    assert {plan.replan.at_s for _, plan in idle} == {None}


LATER = [job(f"later-{n}", 4, 5, 2 + n) for n in range(20)]
FOUR_RUN = [job(f"r{n}", 1, 10 + n) for n in range(4)]


@pytest.mark.parametrize(
    ("jobs", "policy", "asked_s"),
    [
        # Who comes to wait behind others is seen by the next pass.
        ([*HEAD, *LATER], Slurm(), [0, 1, 2, 31]),
        # An order by size is looked at whenever somebody comes.
        ([*HEAD, *LATER], Slurm(weight_job_size=1000), [0, 1, 2, 3]),
        # An end that gives who is next no room asks for no plan.
        ([*FOUR_RUN, job("head", 4, 5, 1), job("b", 4, 5, 2)], Slurm(), [0, 1, 2, 13, 18]),
    ],
)
def test_it_is_asked_only_where_something_may_come_of_it(
    jobs: list[Submission], policy: Slurm, asked_s: list[float]
) -> None:
    assert [s.now for s, _ in seen(jobs, policy)][: len(asked_s)] == asked_s


def test_who_crashes_on_a_closed_node_in_its_sleep_is_seen() -> None:
    cluster = cluster_of(a=("a100", 4), b=("a100", 4))
    jobs = [job("j", 1, 50), job("k", 3, 80), job("l", 3, 60)]
    jobs += [job("head", 4, 50, 1), job("behind", 4, 50, 2)]
    happens = (NodeDrained(0.5, "a"), JobCrashed(3.0, "j"))
    log = simulated(jobs, Slurm(), cluster, incidents=happens)
    assert [run.since_s for run in log.runs if run.job == "j"] == [0, 3]


# -- promises, over random workloads ---------------------------------------------------------------

TWO_TYPES = cluster_of(
    a0=("a100", 4), a1=("a100", 4), a2=("a100", 2), v0=("v100", 4), v1=("v100", 2)
)
SHARED_HOSTS = Cluster(
    tuple(
        Node(f"{host}-{gpu_type}", gpu_type, 4, cpus=12, host=host)
        for host in ("h0", "h1")
        for gpu_type in ("a100", "v100")
    )
)


def workload(seed: int) -> list[Submission]:
    """Jobs that keep their limits."""
    rng = Random(seed)
    jobs = []
    at_s = 0.0
    for number in range(30):
        at_s += rng.choice((0, 0, 1, 5, 20, 60))
        run_s = rng.randint(5, 300)
        gpus = rng.choice((1, 1, 1, 2, 2, 4, 6))
        limit_s = run_s * rng.randint(1, 4)
        types = rng.choice((None, None, frozenset({"a100"}), frozenset({"v100"})))
        jobs.append(job(f"j{number:02d}", gpus, run_s, at_s, limit_s, gpu_types=types))
    return jobs


def promises(seed: int, policy: Slurm, cluster: Cluster) -> list[tuple[bool, bool]]:
    """Of each promise that a pass made, whether it was kept and whether its job was next."""
    asked, answers = watched(policy)
    began = starts(workload(seed), asked, cluster)
    found = []
    for snapshot, plan in answers:
        if plan.memory.get("backfilled_s") == snapshot.now:
            line = [view.id for view in snapshot.by_submission()]
            head = next((job for job in line if isinstance(plan.entries[job], Waiting)), None)
            found += [
                ((began[r.job] or 0.0) <= r.start_s + 1e-6, r.job == head)
                for r in plan.reservations
            ]
    return found


@dataclass(frozen=True)
class AtEveryEvent:
    """Asks at every arrival and every end, whatever the policy wants."""

    policy: Slurm
    info: ClassVar[PolicyInfo] = Slurm.info

    def plan(self, snapshot: Snapshot) -> Plan:
        plan = self.policy.plan(snapshot)
        on = plan.replan.on | {Trigger.ARRIVAL, Trigger.END}
        return replace(plan, replan=replace(plan.replan, on=on, room=None))


@given(st.integers(0, 10**9), st.sampled_from(EACH), st.sampled_from([TWO_TYPES, SHARED_HOSTS]))
def test_asking_at_every_event_changes_no_start(
    seed: int, backfill: Reserve, cluster: Cluster
) -> None:
    rng = Random(seed)
    jobs = [
        replace(
            with_job(each, cpus_per_gpu=float(rng.choice((0, 1, 3)))),
            cancel_s=each.job.submit_s + rng.randint(1, 200) if rng.random() < 0.2 else None,
        )
        for each in workload(seed)
    ]
    policy = Slurm(backfill=backfill)
    few, many = (simulated(jobs, asked, cluster) for asked in (policy, AtEveryEvent(policy)))
    assert few.runs == many.runs
    assert len(few.plans) <= len(many.plans)


@given(st.integers(0, 10**9), st.sampled_from([Reserve.EASY, Reserve.CONSERVATIVE]))
def test_the_first_in_line_never_starts_later_than_promised(seed: int, backfill: Reserve) -> None:
    made = promises(seed, Slurm(backfill=backfill), TWO_TYPES)
    assert all(kept for kept, head in made if head)


def test_promises_are_made_and_would_be_found_broken() -> None:
    # What the two tests above rest on: there are promises, and without them heads start later.
    made = [each for seed in range(10) for each in promises(seed, Slurm(), TWO_TYPES)]
    assert len(made) > 300
    assert sum(head for _, head in made) > 50
    assert not all(kept for kept, _ in made)


# -- a site's word ---------------------------------------------------------------------------------


def under_site(
    jobs: Sequence[Submission], policy: Slurm, limits: Mapping[str, Limit], **more: object
) -> RunLog:
    speeds = linear_speeds(FOUR, {"m": {"a100": 1.0}})
    settings = SimulationSettings(site=SiteSettings(limits=limits), **more)  # type: ignore[arg-type]
    return simulate(jobs, FOUR, policy, speeds, settings)


@pytest.mark.parametrize("backfill", EACH)
@pytest.mark.parametrize("weight", [0, 1000])
def test_a_higher_tier_goes_first_and_stops_nothing_that_cannot_be_stopped(
    backfill: Reserve, weight: int
) -> None:
    jobs = [
        job("running", 4, 100, preemptible=False),
        *(job(f"low{at}", 4, 10, 1.0 + at, preemptible=False) for at in range(3)),
        job("high", 4, 10, 50, tier=1),
    ]
    log = under_site(jobs, Slurm(backfill=backfill, weight_age=weight), {})
    began = {record.job.id: record.first_start_s for record in log.jobs}
    assert began == {"running": 0, "high": 100, "low0": 110, "low1": 120, "low2": 130}


@pytest.mark.parametrize("backfill", EACH)
def test_tiers_are_served_in_order_and_no_end_is_slept_through(backfill: Reserve) -> None:
    def asked(*names: str) -> Snapshot:
        views = [view(name, counts=(4,), submit_s=at) for at, name in enumerate(names)]
        views[-1] = with_job(views[-1], tier=1)
        return replace(snapshot_of(FOUR, views), site=SITE)

    policy = Slurm(backfill=backfill, bf_interval_s=1e6)
    plan = policy.plan(asked("low", "high"))
    assert where(plan) == {"high": "n0:4"}
    # What a limit lets go may fit in less room than who is first for a GPU type.
    later = replace(asked("low", "other", "high"), previous=plan)
    assert policy.plan(later).replan.room is None


@pytest.mark.parametrize("backfill", EACH)
def test_a_job_that_waits_for_room_takes_nothing_of_a_limit(backfill: Reserve) -> None:
    """In Slurm a limit counts what runs: the next under it that fits goes first.

    In turn only where the one before it finds nodes; else at the next pass of backfill.
    """
    limits = {"three": Limit(gpus=3)}
    jobs = [
        job("others", 2, 100),
        job("wide", 3, 10, 1, limits=("three",)),
        job("narrow", 1, 10, 2, gpu_types=frozenset({"t4"}), limits=("three",)),
        job("fourth", 1, 10, 3, limits=("three",)),
    ]
    cluster = cluster_of(n0=("a100", 4), n1=("t4", 1))
    jobs = [with_job(one, gpu_types=one.job.gpu_types or frozenset({"a100"})) for one in jobs]
    speeds = linear_speeds(cluster, {"m": {"a100": 1.0, "t4": 1.0}})
    settings = SimulationSettings(site=SiteSettings(limits=limits))
    policy = Slurm(backfill=backfill, bf_interval_s=1)
    log = simulate(jobs, cluster, policy, speeds, settings)
    began = {record.job.id: record.first_start_s for record in log.jobs}
    # Beside the narrow one the wide one would pass the limit, and keeps nothing from the fourth.
    fourth_s = 110 if backfill is Reserve.NONE else 3
    assert began == {"others": 0, "narrow": 2, "fourth": fourth_s, "wide": 100}


@pytest.mark.parametrize("short_gpus", [1, 2])
@pytest.mark.parametrize("backfill", [Reserve.EASY, Reserve.CONSERVATIVE])
def test_a_job_that_a_limit_shuts_out_keeps_no_room_from_those_behind(
    backfill: Reserve, short_gpus: int
) -> None:
    """Whether it waited before the limit was met, or is shut out by another start of the pass."""
    limits = {"one": Limit(gpus=1)}
    jobs = [
        job("long", 4 - short_gpus, 1000),
        job("short", short_gpus, 50),
        job("wide", 4, 10, 1),
        *(job(name, 1, 500, 2 + at, limits=("one",)) for at, name in enumerate(("L2", "L3"))),
        job("other", 1, 100, 4),
    ]
    log = under_site(jobs, Slurm(backfill=backfill, bf_interval_s=30), limits)
    began = {record.job.id: record.first_start_s or 0.0 for record in log.jobs}
    assert began["L2"] <= 90
    free = began["L2"] + (500 if short_gpus == 1 else 0)
    assert began["other"] <= free + 30


def most_at_once(log: RunLog, under: str) -> int:
    """The most GPUs that jobs under a limit hold at a time."""
    mine = {record.job.id for record in log.jobs if under in record.job.limits}
    runs = [run for run in log.runs if run.job in mine]
    return max(
        sum(r.configuration.gpus for r in runs if r.since_s <= run.since_s < r.freed_s)
        for run in runs
    )


@given(st.integers(0, 10**6), st.sampled_from(EACH), st.sampled_from([0, 1000]))
def test_limits_are_kept_and_met_whoever_else_waits(
    seed: int, backfill: Reserve, weight: int
) -> None:
    rng = Random(seed)
    jobs = [
        job(f"{at:02}", rng.randint(1, 2), rng.randint(5, 50), rng.randint(0, 40), limits=under)
        for at in range(20)
        for under in [rng.choice(((), ("two",), ("two", "one")))]
    ]
    policy = Slurm(backfill=backfill, weight_age=weight, bf_interval_s=5)
    log = under_site(jobs, policy, {"two": Limit(gpus=2), "one": Limit(jobs=1)})
    assert all(record.end_state == "completed" for record in log.jobs)
    if any("two" in each.job.limits for each in jobs):
        assert most_at_once(log, "two") <= 2
