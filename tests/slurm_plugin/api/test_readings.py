"""The readings that the daemon keeps: one a minute, a bounded number, each as it was."""

from hetsched_core.types import NodeCondition, Snapshot
from slurm_plugin.api.readings import Readings
from tests.hetsched_core.worlds import cluster_of, held, on, snapshot_of, view

CLUSTER = cluster_of(n0=("a100", 4), n1=("t4", 4), n2=("t4", 2))


def at(now: float, gpus: int = 3) -> Snapshot:
    return snapshot_of(
        CLUSTER,
        [view("1", held(on(n0=gpus)), counts=(gpus,)), view("2"), view("3")],
        now=now,
        nodes={"n1": {"foreign_gpus": 2}, "n2": {"condition": NodeCondition.DRAINED}},
    )


def test_a_reading_tells_gpus_jobs_and_nodes() -> None:
    readings = Readings()
    readings.note(at(100.0), None)
    past = readings.past(CLUSTER)
    assert (past.at_s, past.running, past.waiting, past.plan_s) == ((100.0,), (1,), (2,), (None,))
    a100, t4 = past.gpus["a100"], past.gpus["t4"]
    assert (a100.held, a100.foreign, a100.closed, a100.idle) == ((3,), (0,), (0,), (1,))
    assert (t4.held, t4.foreign, t4.closed, t4.idle) == ((0,), (2,), (2,), (2,))
    assert past.nodes == {"n0": "b", "n1": "8", "n2": "x"}  # 3/4, 2/4 of fifteen; closed


def test_there_is_one_a_minute_with_the_longest_plan_since_the_one_before() -> None:
    readings = Readings()
    for second in range(241):
        readings.note(
            at(float(second)), 0.5 if second == 90 else 0.1 if second % 50 == 40 else None
        )
    past = readings.past(CLUSTER)
    assert past.at_s == (0.0, 60.0, 120.0, 180.0, 240.0)
    assert past.plan_s == (None, 0.1, 0.5, 0.1, 0.1)


def test_only_the_latest_are_kept() -> None:
    readings = Readings(step_s=1.0, kept=5)
    for second in range(100):
        readings.note(at(float(second), gpus=1 + second % 4), None)
    past = readings.past(CLUSTER)
    assert past.at_s == (95.0, 96.0, 97.0, 98.0, 99.0)
    assert past.keep_s == 5.0
    assert past.gpus["a100"].held == (4, 1, 2, 3, 4)
    assert [len(levels) for levels in past.nodes.values()] == [5, 5, 5]


def test_where_the_clock_was_set_back_time_still_rises() -> None:
    readings = Readings()
    for now in (0.0, 60.0, 120.0, 180.0, 70.0, 130.0):
        readings.note(at(now), None)
    assert readings.past(CLUSTER).at_s == (0.0, 60.0, 70.0, 130.0)


def test_cycles_that_drift_leave_no_minute_without_a_reading() -> None:
    readings = Readings()
    for cycle in range(2000):
        readings.note(at(cycle * 1.037), None)
    minutes = [int(now // 60) for now in readings.past(CLUSTER).at_s]
    assert minutes == list(range(35))


def test_nodes_that_come_and_go_are_told_as_they_are_now() -> None:
    readings = Readings()
    readings.note(at(0.0), None)
    other = cluster_of(n9=("h100", 8), n0=("a100", 4))
    readings.note(snapshot_of(other, [view("1", held(on(n9=8)), counts=(8,))], now=60.0), None)
    past = readings.past(other)
    assert past.nodes == {"n9": "-f", "n0": "b0"}
    assert past.gpus["h100"].held == (0, 8)
    assert past.gpus["t4"].idle == (2, 0)


def test_what_is_placed_does_not_run_yet() -> None:
    readings = Readings()
    kept = view("1", held(on(n0=3), begun=False), counts=(3,))
    readings.note(snapshot_of(CLUSTER, [kept, view("2")], now=5.0), None)
    past = readings.past(CLUSTER)
    assert (past.running, past.waiting, past.gpus["a100"].held) == ((0,), (2,), (3,))
