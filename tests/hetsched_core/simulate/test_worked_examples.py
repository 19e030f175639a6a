"""The worked examples that go through the simulator, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from immutables import Map

from hetsched_core.policy import PolicyInfo, make_policy
from hetsched_core.runlog import RunLog
from hetsched_core.simulate import Settings, simulate
from hetsched_core.types import (
    Cluster,
    ExecutionModel,
    Node,
    Placed,
    Plan,
    Replan,
    Snapshot,
    TaskBlock,
    TaskItem,
    TaskSequence,
    TaskShape,
    TaskTimes,
)
from tests.hetsched_core.worlds import linear_speeds, submission


def ends(log: RunLog) -> dict[str, float | None]:
    return {record.job.id: record.end_s for record in log.jobs}


@pytest.mark.parametrize(
    ("policy", "completions"), [("srtf", (2.0, 5.0, 9.0)), ("las", (4.0, 7.0, 9.0))]
)
def test_fig_12_of_hare_on_one_gpu_with_one_second_rounds(
    policy: str, completions: tuple[float, float, float]
) -> None:
    one_gpu = Cluster((Node("n0", "k80", 1),))
    log = simulate(
        [submission(f"J{n}", float(n + 1)) for n in (1, 2, 3)],
        one_gpu,
        make_policy(policy),
        linear_speeds(one_gpu, {"m": {"k80": 1.0}}),
        Settings(round_s=1.0, restart_cost_s=0.0),
    )
    assert ends(log) == dict(zip(("J1", "J2", "J3"), completions, strict=True))


@dataclass(frozen=True)
class InSequence:
    """Run a given sequence of tasks on the only GPU."""

    blocks: tuple[TaskBlock, ...]
    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="in-sequence", summary="", paper="", model=ExecutionModel.TASKS
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        entries = {job: Placed(()) for job in snapshot.jobs}
        sequence = TaskSequence("n0", 0, self.blocks)
        return Plan(Map(entries), sequences=(sequence,), replan=Replan(on=frozenset()))


@pytest.mark.parametrize(
    ("blocks", "completions", "gpu_free_s"),
    [
        ((TaskBlock((TaskItem("A", 0), TaskItem("B", 0)), times=3),), {"A": 6.0, "B": 6.0}, 6.0),
        (
            (TaskBlock((TaskItem("A", 0),), times=3), TaskBlock((TaskItem("B", 0),), times=3)),
            {"A": 6.0, "B": 8.0},
            8.0,
        ),
    ],
    ids=["interleaved", "job after job"],
)
def test_r3_a_job_fills_the_time_in_which_another_synchronises(
    blocks: tuple[TaskBlock, ...], completions: dict[str, float], gpu_free_s: float
) -> None:
    one_gpu = Cluster((Node("n0", "k80", 1),))
    times = {"a": {"k80": TaskTimes(1.0, 1.0)}, "b": {"k80": TaskTimes(1.0, 0.0)}}
    speeds = linear_speeds(one_gpu, {"a": {"k80": 1.0}, "b": {"k80": 1.0}}, tasks=times)
    log = simulate(
        [
            submission("A", 3.0, profile="a", tasks=TaskShape(scale=1, rounds=3)),
            submission("B", 3.0, profile="b", tasks=TaskShape(scale=1, rounds=3)),
        ],
        one_gpu,
        InSequence(blocks),
        speeds,
        Settings(switch=0.0),
    )
    assert ends(log) == completions
    assert max(run.freed_s for run in log.runs) == gpu_free_s
