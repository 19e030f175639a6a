"""The measures of a run log: by hand on small logs, against a naive twin on random ones."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.measures.metrics import Counted, Measures, PlanTimes, measure
from hetsched_core.records.runlog import (
    JobRecord,
    NodeRecord,
    PlanRecords,
    RunEnd,
    RunLog,
    RunLogHeader,
    RunRecord,
)
from hetsched_core.types import (
    Cluster,
    Configuration,
    EndState,
    Job,
    Node,
    NodeCondition,
    Purpose,
    RequirementSet,
    Trigger,
)
from tests.hetsched_core.worlds import linear_speeds

ORIGIN = 1_700_000_000.0
CLUSTER = Cluster((Node("a0", "A", 4), Node("b0", "B", 4), Node("b1", "B", 2)))
SPEEDS = linear_speeds(CLUSTER, {"net": {"A": 20.0, "B": 10.0}})


def a_log(
    round_s: float = 10.0, cluster: Cluster = CLUSTER, decision_s: float = 0.0, **parts: object
) -> RunLog:
    header = RunLogHeader("fifo", {}, cluster, ORIGIN, round_s, 0.0, 0.0, 1800.0, decision_s, 0)
    return RunLog(header, **parts)  # type: ignore[arg-type]


def a_job(
    job: str,
    submit: float,
    end: float | None,
    state: EndState = EndState.COMPLETED,
    *,
    wait: float = 0.0,
    expected: float | None = 100.0,
    samples: float = 1000.0,
    eligible: float | None = None,
    counts: tuple[int, ...] = (1, 2, 4),
    restarts: int = 0,
    preemptions: int = 0,
) -> JobRecord:
    """A job record; times are seconds after ORIGIN."""
    return JobRecord(
        job=Job(
            job,
            ORIGIN + submit,
            RequirementSet(counts),
            "net",
            eligible_s=None if eligible is None else ORIGIN + eligible,
        ),
        end_s=None if end is None else ORIGIN + end,
        end_state=state,
        samples=samples,
        wait_s=wait,
        first_start_s=None,
        restarts=restarts,
        preemptions=preemptions,
        expected_run_s=expected,
    )


def a_run(
    job: str,
    since: float,
    freed: float,
    pieces: dict[str, int],
    *,
    productive: float | None = None,
    purpose: Purpose = Purpose.RUN,
) -> RunRecord:
    """A run record; times are seconds after ORIGIN."""
    return RunRecord(
        job=job,
        number=0,
        copy=0,
        purpose=purpose,
        configuration=Configuration.of(pieces),
        since_s=ORIGIN + since,
        freed_s=ORIGIN + freed,
        productive_s=freed - since if productive is None else productive,
        samples=0.0,
        ended_by=RunEnd.COMPLETED,
    )


def test_w2_fragments_are_idle_gpus_while_a_job_waits() -> None:
    log = a_log(
        jobs=[a_job("fills", 0, 30), a_job("waits", 0, 10), a_job("waits too", 20, 30)],
        runs=[
            a_run("fills", 0, 10, {"a0": 4, "b0": 3}),
            a_run("fills", 10, 30, {"a0": 4, "b0": 4}),
        ],
    )
    measures = measure(log, SPEEDS)
    assert measures.avg_fragments == pytest.approx(5 / 3)
    assert measures.avg_queue_length == pytest.approx(2 / 3)
    assert measures.gpu_utilisation == pytest.approx((7 + 8 + 8) / 30)


def test_finish_time_fairness_compares_with_the_fair_share_of_the_cluster() -> None:
    # 100 job seconds in 40 s: 2.5 active jobs, 4 of 10 GPUs each. There 1000 samples take 12.5 s on
    # A and 25 s on B, weighted 4 : 6.
    log = a_log(jobs=[a_job("fair", 0, 20), a_job("unfair", 0, 40), a_job("unfair too", 0, 40)])
    measures = measure(log, SPEEDS)
    assert measures.ftf_max == pytest.approx(40 / 20)
    assert measures.ftf_unfair_share == pytest.approx(2 / 3)


def test_a_job_is_late_that_has_not_ended_by_its_deadline() -> None:
    def due(record: JobRecord, after_s: float) -> JobRecord:
        return dataclasses.replace(
            record, job=dataclasses.replace(record.job, deadline_s=ORIGIN + after_s)
        )

    records = [a_job("met", 0, 20), a_job("missed", 0, 20.5), a_job("not yet", 0, None)]
    cancelled = a_job("cancelled", 0, 30, state=EndState.CANCELLED)
    jobs = [*(due(record, 20) for record in (*records, cancelled)), a_job("without", 0, 99)]
    assert measure(a_log(jobs=jobs), SPEEDS).late_share == pytest.approx(2 / 3)


def test_jobs_that_do_not_count_are_those_of_both_ends() -> None:
    submit_s = [ORIGIN + each for each in (0.0, 10.0, 20.0, 30.0)]
    assert Counted(10.0, 5.0).span_s(submit_s) == (ORIGIN + 10.0, ORIGIN + 25.0)
    assert Counted().span_s(submit_s) is None
    with pytest.raises(InputError, match=r"a drain of 12 s leave no job .* within 30 s"):
        Counted(21.0, 12.0).span_s(submit_s)


def test_a_log_of_a_header_alone_has_nothing_to_measure() -> None:
    found = dataclasses.asdict(measure(a_log(), SPEEDS))
    assert {value for value in found.values() if value is not None} == {0}
    assert found["cru"] is None


# The naive twin: one instant, one job and one GPU at a time.

SECONDS = st.integers(0, 120).map(lambda k: k / 2)
TIMES = st.integers(-20, 120).map(lambda k: k / 2)
NODES = st.sampled_from([node.name for node in CLUSTER])


@st.composite
def job_records(draw: st.DrawFn, names: list[str]) -> list[JobRecord]:
    records = []
    for name in names:
        submit = draw(TIMES)
        state = draw(st.sampled_from(EndState))
        open_ended = state in (EndState.NEVER, EndState.UNFINISHED)
        records.append(
            a_job(
                name,
                submit,
                None if open_ended else submit + draw(SECONDS),
                state,
                wait=draw(SECONDS),
                expected=draw(st.none() | st.just(0.0) | st.floats(1.0, 1e3)),
                samples=draw(st.just(0.0) | st.floats(1.0, 1e4)),
                eligible=draw(st.none() | TIMES),
                counts=draw(st.sampled_from([(1,), (1, 2, 4), (2, 3), (6,), (9,)])),
                restarts=draw(st.integers(0, 3)),
                preemptions=draw(st.integers(0, 3)),
            )
        )
    return records


@st.composite
def run_records(draw: st.DrawFn, names: list[str]) -> list[RunRecord]:
    records = []
    for _ in range(draw(st.integers(0, 12))):
        since = draw(TIMES)
        length = draw(SECONDS)
        records.append(
            a_run(
                draw(st.sampled_from([*names, "unknown"])),
                since,
                since + length,
                draw(st.dictionaries(NODES, st.integers(1, 4), min_size=1)),
                productive=length * draw(st.sampled_from([0.0, 0.5, 1.0])),
                purpose=draw(st.sampled_from(Purpose)),
            )
        )
    return records


@st.composite
def run_logs(draw: st.DrawFn) -> RunLog:
    names = [f"j{k}" for k in range(draw(st.integers(0, 6)))]
    nodes = draw(st.lists(st.tuples(TIMES, NODES, st.sampled_from(NodeCondition)), max_size=6))
    plans = PlanRecords()
    for plan_s in draw(st.lists(st.floats(0.0, 9.0), max_size=5)):
        plans.add(ORIGIN, frozenset({Trigger.ROUND}), plan_s, 1, 0)
    return a_log(
        round_s=draw(st.sampled_from([0.5, 7.0, 10.0, 1000.0])),
        decision_s=draw(st.sampled_from([0.0, 2.0])),
        plans=plans,
        rounds=draw(st.integers(0, 9)),
        wall_s=draw(SECONDS),
        jobs=draw(job_records(names)),
        runs=draw(run_records(names)),
        nodes=[
            NodeRecord(ORIGIN + at, node, how)
            for at, node, how in sorted(nodes, key=lambda n: n[0])
        ],
    )


def naive_up(log: RunLog, node: str, now: float) -> bool:
    up = True
    for record in log.nodes:
        if record.node == node and record.at_s <= now:
            up = record.condition is NodeCondition.UP
    return up


def naive_waits(log: RunLog, record: JobRecord, now: float) -> bool:
    eligible = record.job.submit_s
    if record.job.eligible_s is not None:
        eligible = max(eligible, record.job.eligible_s)
    return (
        record.end_state is not EndState.NEVER
        and eligible <= now
        and (record.end_s is None or now < record.end_s)
        and not any(
            run.job == record.job.id and run.since_s <= now < run.freed_s for run in log.runs
        )
    )


def naive_grid(log: RunLog, begin: float, end: float) -> list[tuple[int, int, int]]:
    """(GPUs up, of these held, jobs waiting) at each round start."""
    samples = []
    k = 0
    first_s = log.header.origin_s + log.header.decision_s
    while (now := first_s + k * log.header.round_s) < end:
        k += 1
        if now < begin:
            continue
        up = {node.name for node in CLUSTER if naive_up(log, node.name, now)}
        held = sum(
            gpus
            for run in log.runs
            if run.since_s <= now < run.freed_s
            for node, gpus in run.configuration
            if node in up
        )
        capacity = sum(node.gpus for node in CLUSTER if node.name in up)
        waiting = sum(naive_waits(log, record, now) for record in log.jobs)
        samples.append((capacity, held, waiting))
    return samples


def naive_isolated_s(record: JobRecord, share: float) -> float | None:
    """T_isolated on a cluster of 4 A at 20 and 6 B at 10 samples/s per GPU, linear scaling."""
    counts = record.job.requirements.counts
    holds = [t for t, gpus in (("A", 4), ("B", 6)) if counts[0] <= gpus] or ["A", "B"]
    weighted = 0.0
    for gpu_type in holds:
        rate = {"A": 20.0, "B": 10.0}[gpu_type]
        if share < counts[0]:
            seconds = record.samples / (rate * share)
        else:
            times = [record.samples / (rate * count) for count in counts]
            seconds = float(np.interp(share, counts, times))
        weighted += {"A": 4, "B": 6}[gpu_type] * seconds
    return weighted / sum({"A": 4, "B": 6}[t] for t in holds) or None


def naive_mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def naive_percentile(values: list[float], percent: float) -> float | None:
    """Linear interpolation between the closest ranks."""
    if not values:
        return None
    values = sorted(values)
    at = (len(values) - 1) * percent / 100
    low = math.floor(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def naive_span(jobs: Sequence[JobRecord]) -> tuple[float, float] | None:
    """From the first submission to the last end."""
    ended = (EndState.COMPLETED, EndState.FAILED)
    ends = [r.end_s for r in jobs if r.end_state in ended and r.end_s is not None]
    able = [r.job.submit_s for r in jobs if r.end_state is not EndState.NEVER]
    return (min(able), max(ends)) if ends else None


def naive_measure(log: RunLog, span_s: tuple[float, float] | None) -> Measures:
    least, most = span_s or (-math.inf, math.inf)
    jobs = [r for r in log.jobs if least <= r.job.submit_s <= most]
    runs = [run for run in log.runs if run.job in {r.job.id for r in jobs}]
    counts = {state: sum(r.end_state is state for r in jobs) for state in EndState}
    done = [r for r in jobs if r.end_state is EndState.COMPLETED]
    jct = [r.end_s - r.job.submit_s for r in done if r.end_s is not None]
    span, whole = naive_span(jobs), naive_span(log.jobs)
    makespan = None if span is None else span[1] - span[0]
    grid: list[tuple[int, int, int]] = []
    ftf: list[float] = []
    if span is not None:
        grid = naive_grid(log, *(span_s or span))
    if whole is not None:
        begin, end = whole
        if end > begin:
            stay = [
                max(0.0, min(math.inf if r.end_s is None else r.end_s, end) - r.job.submit_s)
                for r in log.jobs
                if r.end_state is not EndState.NEVER
            ]
            share = CLUSTER.gpus / max(1.0, sum(stay) / (end - begin))
            for record, seconds in zip(done, jct, strict=True):
                isolated = naive_isolated_s(record, share)
                if isolated is not None:
                    ftf.append(seconds / isolated)
    ratios = [r.wait_s / r.expected_run_s for r in done if r.expected_run_s]
    available = sum(up for up, _, _ in grid)
    times = [
        (
            run.purpose is Purpose.PROFILE,
            run.configuration.gpus * (run.freed_s - run.since_s),
            run.configuration.gpus * run.productive_s,
            run in runs,
        )
        for run in log.runs
    ]
    own_s = sum(held for profiles, held, _, _ in times if not profiles)
    busy_s = sum(kept for profiles, _, kept, _ in times if not profiles)
    plan_s = [plan.plan_s for plan in log.plans]
    return Measures(
        jobs=len(jobs),
        completed=counts[EndState.COMPLETED],
        failed=counts[EndState.FAILED],
        cancelled=counts[EndState.CANCELLED],
        never=counts[EndState.NEVER],
        unfinished=counts[EndState.UNFINISHED],
        makespan_s=makespan,
        avg_jct_s=naive_mean(jct),
        p50_jct_s=naive_percentile(jct, 50),
        p99_jct_s=naive_percentile(jct, 99),
        avg_wait_s=naive_mean([r.wait_s for r in done]),
        max_latency_ratio=max(ratios, default=None),
        avg_fragments=naive_mean([up - held if waiting else 0 for up, held, waiting in grid]),
        avg_queue_length=naive_mean([waiting for _, _, waiting in grid]),
        ftf_max=max(ftf, default=None),
        ftf_unfair_share=naive_mean([value > 1 + 1e-9 for value in ftf]),
        gpu_utilisation=sum(held for _, held, _ in grid) / available if available else None,
        gpu_s=sum(held for _, held, _, counts in times if counts),
        lost_gpu_s=sum(held - kept for p, held, kept, counts in times if counts and not p),
        profiling_gpu_s=sum(held for p, held, _, counts in times if counts and p),
        restarts=sum(r.restarts for r in jobs),
        preemptions=sum(r.preemptions for r in jobs),
        rounds=log.rounds,
        plans=len(log.plans),
        plan_s=PlanTimes(
            sum(plan_s) / len(plan_s), naive_percentile(plan_s, 95) or 0.0, max(plan_s)
        )
        if plan_s
        else None,
        wall_s=log.wall_s,
        gru=naive_ratio(busy_s, own_s),
        cru=naive_ratio(
            busy_s, sum(node.gpus for node in CLUSTER) * log.rounds * log.header.round_s
        ),
        avg_latency_ratio=naive_mean(ratios),
        p99_wait_s=naive_percentile([r.wait_s for r in done], 99),
    )


def naive_ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


@settings(max_examples=300)
@given(run_logs(), st.none() | st.tuples(TIMES, TIMES).map(lambda two: (min(two), max(two))))
@example(a_log(), None)
@example(a_log(jobs=[a_job("too big", 0, None, EndState.NEVER)]), None)
@example(a_log(jobs=[a_job("cut off", 0, None, EndState.UNFINISHED)]), None)
@example(a_log(jobs=[a_job("no length", 0, 0, expected=None, samples=0.0)]), None)
@example(a_log(jobs=[a_job("between", 1, 2)], runs=[a_run("between", 1, 2, {"a0": 1})]), None)
@example(
    a_log(
        jobs=[a_job("dark", 0, 30)],
        nodes=[NodeRecord(ORIGIN, n.name, NodeCondition.DOWN) for n in CLUSTER],
    ),
    None,
)
def test_the_measures_are_those_of_the_naive_twin(
    log: RunLog, from_origin_s: tuple[float, float] | None
) -> None:
    """What cannot be measured is None and never a NaN."""
    span_s = from_origin_s and (ORIGIN + from_origin_s[0], ORIGIN + from_origin_s[1])
    fast = dataclasses.asdict(measure(log, SPEEDS, span_s=span_s))
    naive = dataclasses.asdict(naive_measure(log, span_s))
    plan_s = (each.pop("plan_s") for each in (fast, naive))
    assert next(plan_s) == pytest.approx(next(plan_s))
    assert fast == {
        name: None if value is None else pytest.approx(value, rel=1e-9, abs=1e-9)
        for name, value in naive.items()
    }
