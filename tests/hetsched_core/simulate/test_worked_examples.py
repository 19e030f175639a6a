"""The worked examples that go through the simulator, exactly."""

from __future__ import annotations

import pytest

from hetsched_core.policy import make_policy
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import (
    Cluster,
    ExecutionModel,
    Node,
    Placed,
    TaskBlock,
    TaskItem,
    TaskSequence,
    TaskShape,
    TaskTimes,
)
from tests.hetsched_core.simulate.runs import ends
from tests.hetsched_core.simulate.timetable import Step, timetable
from tests.hetsched_core.worlds import linear_speeds, submission


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
        SimulationSettings(round_s=1.0, restart_cost_s=0.0),
    )
    assert ends(log) == dict(zip(("J1", "J2", "J3"), completions, strict=True))


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
    shape = TaskShape(scale=1, rounds=3)
    jobs = [submission(name, 3.0, profile=name.lower(), tasks=shape) for name in "AB"]
    step = Step({job: Placed(()) for job in "AB"}, sequences=(TaskSequence("n0", 0, blocks),))
    policy = timetable({0.0: step}, on=frozenset(), model=ExecutionModel.TASKS)
    log = simulate(jobs, one_gpu, policy, speeds, SimulationSettings(switch=0.0))
    assert ends(log) == completions
    assert max(run.freed_s for run in log.runs) == gpu_free_s
