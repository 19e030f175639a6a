"""The figures that Prometheus scrapes, over real HTTP."""

import socket
import threading
from contextlib import ExitStack
from dataclasses import replace
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hetsched_core.errors import InputError
from hetsched_core.policies.fifo import Fifo
from hetsched_core.records.runlog import PlanRecord
from hetsched_core.records.spool import Reject
from hetsched_core.store import Decision, FileReject, RejectedLines
from hetsched_core.types import (
    Diagnostics,
    Placed,
    Placement,
    Purpose,
    Reason,
    ReasonCode,
    Snapshot,
    Trigger,
    Waiting,
)
from slurm_plugin.api.address import host_and_port
from slurm_plugin.api.bounded_threads import BoundedThreads
from slurm_plugin.api.meters import Meters, _Handler, serve_meters
from slurm_plugin.backend import ApplyResult, Enter, Leave, Requeue
from slurm_plugin.daemon import CycleReport
from slurm_plugin.daemon.spool.listening import Heard
from slurm_plugin.testbed.processes import wait_until
from tests.hetsched_core.worlds import cluster_of, held, on, plan_of, profiling, snapshot_of, view

SNAPSHOT = snapshot_of(
    cluster_of(n0=("a100", 4), n1=("t4", 2)),
    [view("1", held(on(n0=3)), counts=(3,)), view("2", counts=(4,)), view("3", counts=(9,))],
    now=130.0,
    nodes={"n1": {"foreign_gpus": 1}},
)
PLAN = Fifo().plan(SNAPSHOT)
DECISION = Decision(
    "fifo",
    PlanRecord(100.0, frozenset({Trigger.ARRIVAL}), 0.02, 1, 2),
    Diagnostics(gap=0.004),
)
PLACE = Enter("1", "hetsched", ("n0",), Leave("1"))


def scraped(address: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    with urlopen(f"http://{address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labels(**them: str) -> frozenset[tuple[str, str]]:
    return frozenset(them.items())


def test_what_is_scraped_is_what_happened(free: str) -> None:
    meters = Meters()
    outcome = ApplyResult((PLACE, Requeue("2"), Leave("3")), ((PLACE, "busy"),), ())
    meters.note(CycleReport(DECISION, outcome=outcome), SNAPSHOT, PLAN)
    forged = RejectedLines(65534, FileReject.OWNER, 1, "7.0.0.jsonl")
    wrong = RejectedLines(1000, Reject.OUT_OF_RANGE, 3, "samples")
    told = Heard(rejected=(forged, wrong))
    report = CycleReport(None, ("a rule",), outcome=ApplyResult((PLACE,), (), ()), heard=told)
    meters.note(report, SNAPSHOT, PLAN)
    server = serve_meters(free, meters)
    try:
        found = scraped(free)
    finally:
        server.shutdown()
        server.server_close()
    none = labels()
    assert found["hetsched_cycles_total", none] == 2
    assert found["hetsched_invalid_plans_total", none] == 1
    assert found["hetsched_changes_total", labels(change="enter")] == 2
    assert found["hetsched_changes_total", labels(change="requeue")] == 1
    assert found["hetsched_refused_changes_total", labels(change="enter")] == 1
    assert found["hetsched_spool_rejects_total", labels(reason="wrong owner")] == 1
    assert found["hetsched_spool_rejects_total", labels(reason="out of range")] == 3
    assert found["hetsched_spool_rejects_total", labels(reason="wrong nonce")] == 0
    assert found["hetsched_plan_seconds_count", labels(policy="fifo")] == 1
    assert found["hetsched_plan_seconds_sum", labels(policy="fifo")] == 0.02
    assert found["hetsched_plan_age_seconds", none] == 30.0
    assert found["hetsched_proven_gap_ratio", none] == 0.004
    assert found["hetsched_gpus", labels(gpu_type="a100", state="held")] == 3
    assert found["hetsched_gpus", labels(gpu_type="t4", state="foreign")] == 1
    assert found["hetsched_fragment_gpus", none] == 2
    assert found["hetsched_jobs", labels(partition="", state="waiting")] == 2
    assert found["hetsched_waiting_jobs", labels(reason="never_fits")] == 1
    assert not any(name in ("user", "job") for _, names in found for name, _ in names)


def test_connections_that_ask_nothing_take_few_threads_and_not_for_long(
    free: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Handler, "timeout", 1.0)
    host, port = host_and_port(free) or ("", 0)
    server = serve_meters(free, Meters())
    before = threading.active_count()
    try:
        with ExitStack() as stack:
            for _ in range(3 * BoundedThreads.most):
                silent = stack.enter_context(socket.create_connection((host, port)))
                silent.send(b"GET / HTTP/1.1\r\n")
            assert threading.active_count() <= before + BoundedThreads.most
            silent.settimeout(10)
            assert silent.recv(1) == b""
            wait_until(lambda: threading.active_count() == before, "that they are dropped", 10)
            assert scraped(free)
    finally:
        server.shutdown()
        server.server_close()


def test_while_slurm_is_away_the_cluster_is_as_it_was_seen_last() -> None:
    meters = Meters()
    meters.note(CycleReport(outcome=ApplyResult((), (), ())), SNAPSHOT, PLAN)
    meters.note(CycleReport(away="munge"), None, PLAN)
    value = meters.registry.get_sample_value
    assert value("hetsched_slurm_away") == 1
    assert value("hetsched_gpus", {"gpu_type": "a100", "state": "held"}) == 3


def test_a_partition_that_has_emptied_and_a_gpu_type_that_is_gone_are_told_no_more() -> None:
    meters = Meters()
    meters.note(CycleReport(), SNAPSHOT, PLAN)
    left = snapshot_of(cluster_of(n0=("a100", 4)), [])
    meters.note(CycleReport(), left, Fifo().plan(left))
    value = meters.registry.get_sample_value
    assert value("hetsched_gpus", {"gpu_type": "a100", "state": "idle"}) == 4
    assert value("hetsched_gpus", {"gpu_type": "t4", "state": "idle"}) is None
    assert value("hetsched_jobs", {"partition": "", "state": "running"}) is None


def test_what_accounts_hold_and_what_is_due_to_them_is_told_unless_jobs_are_private() -> None:
    meters = Meters()
    jobs = [
        replace(job, job=replace(job.job, account=account, user="eve"))
        for account, job in zip(("bio", "phys", "phys"), SNAPSHOT.jobs.values(), strict=True)
    ]
    snapshot = snapshot_of(SNAPSHOT.cluster, jobs, now=130.0)
    meters.note(CycleReport(), snapshot, PLAN)

    def told(account: str, kind: str) -> float | None:
        names = {"account": account, "kind": kind}
        return meters.registry.get_sample_value("hetsched_account_gpus", names)

    holder = next(job.job.account for job in jobs if job.runs)
    other = ({"bio", "phys"} - {holder}).pop()
    assert (told(holder, "held"), told(holder, "due")) == (3, 1.5)
    assert (told(other, "held"), told(other, "due")) == (0, 1.5)
    meters.note(CycleReport(), snapshot, PLAN, private=True)
    assert told(holder, "held") is told(other, "due") is None


def test_what_is_no_address_is_refused_with_one() -> None:
    with pytest.raises(InputError, match=r"expected HOST:PORT, such as 127\.0\.0\.1:9754"):
        serve_meters("9754", Meters())


def test_an_address_in_use_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="nothing can be served at"):
            serve_meters(f"127.0.0.1:{taken.getsockname()[1]}", Meters())


def test_restarts_errors_and_how_far_estimates_are_off_are_counted_once() -> None:
    meters = Meters()
    value = meters.registry.get_sample_value
    run = held(on(n0=3), speed=4.0, number=1)

    def seen(speed: float, restarts: int, number: int = 1, told: float = 9.0) -> Snapshot:
        again = replace(run, speed=speed, number=number)
        moved = replace(view("1", again, counts=(3,)), restarts=restarts, samples_done=told)
        return snapshot_of(SNAPSHOT.cluster, [moved], now=130.0)

    for speed, restarts in ((4.0, 3), (4.0, 3), (5.0, 3), (5.1, 3)):
        meters.note(CycleReport(), seen(speed, restarts), PLAN, 2.5)
    # What ran before the daemon began is no restart that it saw, and other estimates tell nothing.
    meters.note(CycleReport(), seen(7.0, 3, told=0.0), PLAN, 2.5)
    assert value("hetsched_restarts_total") == 0
    assert value("hetsched_recent_latency_ratio") == 2.5
    assert value("hetsched_estimate_error_ratio_count") == 1
    assert value("hetsched_estimate_error_ratio_sum") == pytest.approx(0.2)
    meters.note(CycleReport(), seen(5.0, 4, number=2), PLAN)
    meters.note(CycleReport(), seen(4.0, 4, number=2), PLAN)
    assert value("hetsched_restarts_total") == 1
    assert value("hetsched_estimate_error_ratio_count") == 2
    meters.note(CycleReport(away="munge"), None, PLAN)
    meters.note(CycleReport(outcome=ApplyResult((), ((PLACE, "busy"),), ())), SNAPSHOT, PLAN)
    assert value("hetsched_slurm_errors_total", {"error": "away"}) == 1
    assert value("hetsched_slurm_errors_total", {"error": "refused"}) == 1


def test_each_job_is_counted_where_it_stands_and_the_reasons_add_up_to_those_that_wait() -> None:
    views = [
        *(view(name, counts=(4,)) for name in ("starts", "waits", "new")),
        view("runs", held(on(n0=1))),
        view("suspended", held(on(n0=1))),
        view("measured", held(on(n0=1), purpose=Purpose.PROFILE)),
        view("placed", held(on(n1=4), begun=False)),
    ]
    snapshot = snapshot_of(cluster_of(n0=("a100", 4), n1=("a100", 4)), views)
    waits = Waiting(Reason(ReasonCode.NO_ROOM))
    plan = plan_of(
        {
            "starts": Placed((Placement(on(n0=4)),)),
            "waits": waits,
            "measured": Waiting(Reason(ReasonCode.PROFILING)),
            # Has gone since.
            "gone": waits,
        },
        profiles={"measured": profiling(on(n0=1))},
    )
    meters = Meters()
    meters.note(CycleReport(), snapshot, plan, suspended=frozenset({"suspended"}))

    def told(name: str, label: str) -> dict[str, float]:
        (family,) = (each for each in meters.registry.collect() if each.name == name)
        return {each.labels[label]: each.value for each in family.samples if each.value}

    states = {"waiting": 3, "running": 1, "suspended": 1, "profiling": 1, "placed": 1}
    assert told("hetsched_jobs", "state") == states
    reasons = {"planned": 1, "no_room": 1, "new": 1, "placed": 1}
    assert told("hetsched_waiting_jobs", "reason") == reasons


def test_where_no_job_waits_idle_gpus_are_no_fragment() -> None:
    meters = Meters()
    kept = view("1", held(on(n0=3), begun=False), counts=(3,))
    snapshot = snapshot_of(SNAPSHOT.cluster, [kept], now=9.0)
    meters.note(CycleReport(), snapshot, Fifo().plan(snapshot))
    assert meters.registry.get_sample_value("hetsched_fragment_gpus") == 0
