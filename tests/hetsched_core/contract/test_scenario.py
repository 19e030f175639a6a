"""The scenarios: equal for equal seeds, and full of trouble."""

from __future__ import annotations

from collections import Counter

import pytest

from hetsched_core.contract import DEFAULT_SEEDS, random_scenario
from hetsched_core.contract.feasibility import Feasibility, feasibility
from hetsched_core.placement.ways import ways_to_fit
from hetsched_core.simulate import JobCrashed, NodeBack, NodeDrained, NodeLost
from hetsched_core.types import EndState, ExecutionModel, Shape
from tests.hetsched_core.worlds import cluster_of, linear_speeds, submission

MANY = range(90)
K80 = frozenset({"k80"})


def test_the_scenarios_of_the_default_seeds_hold_every_kind_of_trouble() -> None:
    kinds: Counter[str] = Counter()
    for seed in DEFAULT_SEEDS:
        scenario = random_scenario(seed)
        settings = scenario.settings
        kinds.update(type(incident).__name__ for incident in scenario.incidents)
        kinds[f"shapes {len(settings.shapes)}"] += 1
        kinds["grace"] += settings.grace_s > 0
        kinds["restart cost"] += settings.restart_cost_s > 0
        kinds["decision time"] += settings.decision_s > 0
        kinds["shared host"] += len({n.host for n in scenario.cluster}) < len(scenario.cluster)
        kinds["node without GPUs"] += any(node.gpus == 0 for node in scenario.cluster)
        kinds["estimates that change"] += type(scenario.estimates).__name__ == "ImprovingSpeeds"
        for given in scenario.submissions:
            job = given.job
            found = feasibility(
                job, scenario.cluster, scenario.truth, settings.shapes, scenario.model
            )
            kinds[f"fits {found.value}"] += 1
            kinds["cancelled"] += given.cancel_s is not None
            kinds["failing"] += given.ends_as is EndState.FAILED
            kinds["eligible late"] += job.eligible_s is not None
            kinds["typed"] += job.gpu_types is not None
            kinds["requirement set"] += len(job.requirements) > 1
            kinds["CPUs"] += job.cpus_per_gpu > 0
            kinds["memory"] += job.memory_mb_per_gpu > 0
            kinds["not preemptible"] += not job.preemptible
            kinds["nodes of its own"] += job.nodes is not None
            kinds["one node"] += job.max_nodes == 1
            kinds["several nodes"] += job.min_nodes > 1
        kinds["windows"] += bool(settings.windows)
    missing = [kind for kind, count in kinds.items() if not count]
    assert not missing
    expected = {cls.__name__ for cls in (NodeLost, NodeDrained, NodeBack, JobCrashed)}
    expected |= {f"fits {found.value}" for found in Feasibility} | {
        f"shapes {n}" for n in (1, 2, 3, 4)
    }
    assert expected <= set(kinds)


def test_the_naive_answer_to_whether_a_job_fits_agrees_with_the_packers() -> None:
    answers: Counter[Feasibility] = Counter()
    for seed in MANY:
        scenario = random_scenario(seed)
        shapes = scenario.settings.shapes
        for given in scenario.submissions:
            job = given.job
            found = feasibility(job, scenario.cluster, scenario.truth, shapes, ExecutionModel.GANG)
            ways = ways_to_fit(job, scenario.cluster, scenario.truth, shapes)
            assert (found is not Feasibility.NO) is bool(ways), f"seed {seed}, {job}"
            assert (found is Feasibility.YES) is any(not way.mixed for way in ways), (
                f"seed {seed}, {job}"
            )
            answers[found] += 1
    assert min(answers[found] for found in Feasibility) > 5


def test_a_job_of_copies_needs_a_whole_node_and_one_of_tasks_a_gpu() -> None:
    cluster = cluster_of(a=("v100", 4), b=("k80", 2))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0, "k80": 0.0}})
    job, only_k80 = (submission("j", 1.0, (64,), gpu_types=t).job for t in (None, K80))
    shapes = frozenset(Shape)
    assert feasibility(job, cluster, speeds, shapes, ExecutionModel.COPIES) is Feasibility.YES
    assert feasibility(job, cluster, speeds, shapes, ExecutionModel.GANG) is Feasibility.NO
    assert feasibility(job, cluster, speeds, shapes, ExecutionModel.TASKS) is Feasibility.NO
    assert feasibility(only_k80, cluster, speeds, shapes, ExecutionModel.COPIES) is Feasibility.NO
    (task_job, *_) = random_scenario(0, ExecutionModel.TASKS).submissions
    assert task_job.job.tasks is not None


@pytest.mark.parametrize("model", ExecutionModel)
def test_equal_seeds_give_equal_scenarios_and_others_others(model: ExecutionModel) -> None:
    one, two, other = (random_scenario(seed, model) for seed in (4, 4, 5))
    assert (one.submissions, one.cluster.nodes) == (two.submissions, two.cluster.nodes)
    assert (one.settings, one.incidents) == (two.settings, two.incidents)
    assert one.submissions != other.submissions


def test_every_node_that_goes_comes_back() -> None:
    for seed in MANY:
        away: dict[str, float] = {}
        for incident in random_scenario(seed).incidents:
            if isinstance(incident, NodeBack):
                assert away.pop(incident.node) < incident.at_s
            elif not isinstance(incident, JobCrashed):
                away[incident.node] = incident.at_s
        assert not away
