"""The contracts on run logs, on logs that were doctored: no plan check stands before them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hetsched_core.contract import CONTRACTS, Scenario, Trial, run_trial
from hetsched_core.records.runlog import NodeRecord, RunEnd, RunLog, RunRecord
from hetsched_core.simulate import KnownSpeeds, SimulationSettings
from hetsched_core.types import (
    Cluster,
    EndState,
    ExecutionModel,
    Node,
    NodeCondition,
    Window,
)
from tests.hetsched_core.contract.broken import Sound
from tests.hetsched_core.worlds import linear_speeds, on, submission

CLUSTER = Cluster(
    (
        Node("a", "v100", 4, cpus=8, memory_mb=800, host="h"),
        Node("b", "k80", 4, cpus=8, memory_mb=800, host="h"),
        Node("c", "v100", 2),
    )
)
SPEEDS = linear_speeds(CLUSTER, {"m": {"v100": 1.0, "k80": 1.0}})
JOBS = (
    submission("i", 40.0, (4,), gpu_types=frozenset({"v100"}), cpus_per_gpu=2.0),
    submission("j", 40.0, (2, 4), submit_s=5.0, preemptible=False, memory_mb_per_gpu=200.0),
    submission("wide", 10.0, (99,)),
)
SCENARIO = Scenario(
    0, ExecutionModel.GANG, CLUSTER, JOBS, SPEEDS, KnownSpeeds(SPEEDS), SimulationSettings(), ()
)


@pytest.fixture
def trial() -> Trial:
    """`i` holds a:4 from 0 to 10, `j` c:2 from 5 to 25."""
    return run_trial(Sound(), SCENARIO)


def found(trial: Trial, contract: str) -> str:
    (chosen,) = (c for c in CONTRACTS if c.name == contract)
    return "\n".join(chosen.check(trial))


OF_LOG = (
    "capacity",
    "whole-gangs",
    "gpu-types",
    "job-nodes",
    "node-counts",
    "windows",
    "not-preemptible",
    "all-jobs-end",
)


@pytest.mark.parametrize("contract", OF_LOG)
def test_a_true_log_breaks_nothing(trial: Trial, contract: str) -> None:
    assert trial.log is not None
    assert [(r.job, str(r.configuration), r.since_s, r.freed_s) for r in trial.log.runs] == [
        ("i", "a:4", 0.0, 10.0),
        ("j", "c:2", 5.0, 25.0),
    ]
    assert found(trial, contract) == ""


def runs(log: RunLog, **changes: object) -> RunLog:
    """The log with something else about the run of `j`."""
    one, two = log.runs
    return replace(log, runs=[one, replace(two, **changes)])  # type: ignore[arg-type]


def also(log: RunLog, run: RunRecord) -> RunLog:
    return replace(log, runs=[*log.runs, run])


def closed(log: RunLog, at_s: float, condition: NodeCondition) -> RunLog:
    return replace(log, nodes=[NodeRecord(at_s, "c", condition)])


def ended(log: RunLog, job_id: str, **changes: object) -> RunLog:
    """The log with something else about the end of a job."""
    jobs = [replace(r, **changes) if r.job.id == job_id else r for r in log.jobs]  # type: ignore[arg-type]
    return replace(log, jobs=jobs)


def limited(log: RunLog, job: str, **changes: object) -> RunLog:
    """The log of a job that was limited so."""
    (mine,) = (record.job for record in log.jobs if record.job.id == job)
    return ended(log, job, job=replace(mine, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("doctor", "contract", "words"),
    [
        (
            lambda log: runs(log, configuration=on(a=1)),
            "capacity",
            "t=5.000 s: 5 GPUs held on a, which has 4",
        ),
        (
            lambda log: also(log, replace(log.runs[0], configuration=on(b=1), since_s=9.0)),
            "capacity",
            "t=9.000 s: 10 CPUs held on h, which has 8",
        ),
        (
            lambda log: also(
                runs(log, configuration=on(a=4), since_s=10.0),
                replace(log.runs[1], configuration=on(b=1), since_s=24.0),
            ),
            "capacity",
            "t=24.000 s: 1000 MiB held on h, which has 800",
        ),
        (
            lambda log: closed(log, 20.0, NodeCondition.DOWN),
            "capacity",
            "job j holds c at 25.000 s, lost at 20.000 s",
        ),
        (
            lambda log: closed(log, 5.0, NodeCondition.DRAINED),
            "capacity",
            "job j starts at 5.000 s on c, which is drained",
        ),
        (
            lambda log: runs(log, configuration=on(c=1)),
            "whole-gangs",
            "job j at 5.000 s on c:1: accepts 2,4 GPUs",
        ),
        (lambda log: runs(log, copy=1), "whole-gangs", "on c:2: copy 1 of a gang"),
        (
            lambda log: also(log, replace(log.runs[1], since_s=24.0, configuration=on(b=2))),
            "whole-gangs",
            "job j at 24.000 s on b:2: still holds c:2 until 25.000 s",
        ),
        (
            lambda log: replace(log, runs=[replace(log.runs[0], configuration=on(b=4))]),
            "gpu-types",
            "job i holds k80 (b) and accepts ['v100']",
        ),
        (
            lambda log: runs(log, ended_by=RunEnd.PREEMPTED),
            "not-preemptible",
            "job j, not preemptible, is preempted at 25.000 s",
        ),
        (
            lambda log: ended(log, "j", end_s=None, end_state=EndState.UNFINISHED),
            "all-jobs-end",
            "job j fits and has not ended",
        ),
        (
            lambda log: ended(log, "wide", first_start_s=3.0),
            "all-jobs-end",
            "job wide started, though it fits nowhere",
        ),
        (
            lambda log: limited(log, "j", nodes=frozenset({"a"})),
            "job-nodes",
            "job j holds c at 5.000 s; it is none of its nodes",
        ),
        (lambda log: limited(log, "j", min_nodes=2), "node-counts", "job j at 5.000 s on c:2"),
        (
            lambda log: also(
                limited(log, "i", max_nodes=1),
                replace(log.runs[0], copy=1, since_s=2.0, configuration=on(c=1)),
            ),
            "node-counts",
            "job i at 2.000 s on 2 nodes of 1",
        ),
        # Two copies on a node are on one; a drained node may keep what runs there.
        (
            lambda log: also(limited(log, "i", max_nodes=1), replace(log.runs[0], copy=1)),
            "node-counts",
            "",
        ),
        (lambda log: closed(log, 6.0, NodeCondition.DRAINED), "capacity", ""),
    ],
)
def test_each_contract_on_logs_finds_what_it_is_about(
    trial: Trial, doctor: Callable[[RunLog], RunLog], contract: str, words: str
) -> None:
    assert trial.log is not None
    said = found(replace(trial, log=doctor(trial.log)), contract)
    assert words in said
    assert bool(words) == bool(said)


@pytest.mark.parametrize(
    ("from_s", "doctor", "words"),
    [
        (25.0, lambda log: log, ""),
        (20.0, lambda log: limited(log, "j", time_limit_s=15.0), ""),
        (20.0, lambda log: limited(log, "j", time_limit_s=16.0), "reaches into window w"),
        (20.0, lambda log: limited(log, "j", preemptible=True, time_limit_s=15.0), "reaches into"),
        (1.0, lambda log: log, "job j from 5.000 s on ['c'] reaches into window w"),
        (25.0, lambda log: runs(log, ended_by=RunEnd.NODE_LOST), "it was not told to leave"),
    ],
)
def test_what_reaches_into_a_window_is_found(
    trial: Trial, from_s: float, doctor: Callable[[RunLog], RunLog], words: str
) -> None:
    assert trial.log is not None
    windows = (Window(frozenset({"c"}), from_s, 100.0, "w"),)
    scenario = replace(trial.scenario, settings=replace(SimulationSettings(), windows=windows))
    said = found(replace(trial, scenario=scenario, log=doctor(trial.log)), "windows")
    assert words in said
    assert bool(words) == bool(said)
