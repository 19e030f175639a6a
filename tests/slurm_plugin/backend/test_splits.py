"""How Slurm has split a job's GPUs over its nodes: asked once a run, and only where needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.types import Configuration
from slurm_plugin.backend import JobState, RefusedError, Resources, SlurmJob
from slurm_plugin.backend.splits import Splits, parse_split
from tests.slurm_plugin.daemon.fake_slurm import RIGID, Site, node, running, state

# What scontrol of Slurm 26.05 prints, the middle left out.
TOLD = (
    "JobId=5 JobName=x JobState=RUNNING JOB_GRES=gpu:v100:4 "
    "Nodes=n0 CPU_IDs=0 Mem=100 GRES=gpu:v100:1(IDX:3) "
    "Nodes=n[1-2] CPU_IDs=0-1 Mem=200 GRES=gpu:v100:2(IDX:0-1) "
    "Nodes=n3 CPU_IDs=0 Mem=100 GRES= MinCPUsNode=1"
)
IN_ALL = Resources((2, 0), 2, "gres/gpu:3", "", "", "")
UNEVEN = replace(running(RIGID, "n0"), nodes=("n0", "n1"), gpus=3, resources=IN_ALL, reservation="")


class Scontrol:
    """Tells what it has, and notes what it was asked for."""

    def __init__(self, told: str = TOLD) -> None:
        self.told, self.asked = told, list[str]()

    def __call__(self, words: list[str]) -> str:
        self.asked.append(words[-1])
        if not self.told:
            raise RefusedError("Invalid job id specified")
        return self.told


def split(splits: Splits, *jobs: SlurmJob) -> list[tuple[int, ...]]:
    seen = splits.told(state(*jobs)).jobs
    return [tuple(count for _, count in seen[job.id].gpus_on) for job in jobs]


def test_gpus_are_told_by_node_those_that_have_none_too() -> None:
    two = (("v100", 2),)
    assert parse_split(TOLD) == {"n0": (("v100", 1),), "n1": two, "n2": two, "n3": ()}
    assert parse_split("JobId=5 JobState=PENDING Nodes= GRES=") == {}


def test_each_run_is_asked_for_once() -> None:
    scontrol = Scontrol()
    splits = Splits(scontrol)
    assert [split(splits, UNEVEN) for _ in range(3)] == [[(1, 2)]] * 3
    assert scontrol.asked == ["5"]
    again = replace(UNEVEN, start_s=(UNEVEN.start_s or 0.0) + 9, restarts=1)
    assert split(splits, again) == [(1, 2)]
    assert scontrol.asked == ["5", "5"]


@pytest.mark.parametrize(
    "job",
    [
        replace(UNEVEN, nodes=("n0",), gpus=1),
        replace(UNEVEN, resources=Resources((2, 2), 2, "", "gres/gpu:1", "", ""), gpus=2),
        replace(UNEVEN, state=JobState.PENDING, nodes=()),
        replace(UNEVEN, gpus=0),
    ],
    ids=["one node", "by node", "waits", "no GPUs"],
)
def test_what_cannot_be_uneven_is_not_asked_for(job: SlurmJob) -> None:
    scontrol = Scontrol()
    assert split(Splits(scontrol), job) == [()]
    assert scontrol.asked == []


def test_what_completes_has_the_gpus_that_it_had_on_the_nodes_that_are_left() -> None:
    by_node = Resources((3, 3), 3, "", "gres/gpu:4", "", "")
    even = replace(UNEVEN, nodes=("n0", "n1", "n2"), gpus=12, resources=by_node)
    for job, left in ((even, [(), (4, 4), (4,)]), (UNEVEN, [(1, 2), (2,), ()])):
        splits = Splits(Scontrol())
        split(splits, job)
        ends = replace(job, state=JobState.COMPLETING)
        found = [split(splits, replace(ends, nodes=job.nodes[at:]))[0] for at in range(3)]
        assert found == left


@pytest.mark.parametrize("told", ["", "JobId=5", TOLD.replace("gpu:v100:1", "gpu:v100:9")])
def test_what_is_not_told_or_does_not_add_up_is_taken_to_be_even(told: str) -> None:
    assert split(Splits(Scontrol(told)), UNEVEN) == [()]


BOTH_ON_N0 = (("n0-t4", 1), ("n0-v100", 2))
MIXED = replace(node("n0"), gpus=(("t4", 2), ("v100", 4)))
BOTH = TOLD.replace("GRES=gpu:v100:1(IDX:3)", "GRES=gpu:t4:1(IDX:4),gpu:v100:2(IDX:0-1)")


@pytest.mark.parametrize(
    ("job", "told", "found", "asked"),
    [
        # Slurm's totals name the type: nothing is asked.
        (running(RIGID, "n0", gpus=2), BOTH, (("n0-v100", 2),), []),
        (replace(running(RIGID, "n0", gpus=3), gpu_types=()), BOTH, BOTH_ON_N0, ["5"]),
        (replace(running(RIGID, "n0", gpus=3), gpu_types=("t4", "v100")), BOTH, BOTH_ON_N0, ["5"]),
        (replace(running(RIGID, "n0", gpus=3), gpu_types=()), "", (), ["5"]),
        (replace(running(RIGID, "n0", gpus=0), gpu_types=()), BOTH, (), []),
        (
            replace(UNEVEN, gpus=5, gpu_types=()),
            BOTH,
            (*BOTH_ON_N0, ("n1", 2)),
            ["5"],
        ),
    ],
    ids=["one type", "untold", "both types", "refused", "no GPUs", "beside a node of one type"],
)
def test_gpus_on_a_node_with_several_types_are_told_by_type(
    job: SlurmJob, told: str, found: tuple[tuple[str, int], ...], asked: list[str]
) -> None:
    scontrol = Scontrol(told)
    shown = state(job, nodes=(MIXED, node("n1")))
    assert Splits(scontrol).told(shown).jobs["5"].gpus_on == found
    assert scontrol.asked == asked


def test_a_run_is_told_anew_once_a_node_of_it_has_other_types() -> None:
    by_node = Resources((2, 2), 2, "", "gres/gpu:2", "", "")
    job = replace(UNEVEN, gpus=4, resources=by_node, gpu_types=("v100",))
    splits, plain = Splits(Scontrol("")), (node("n0"), node("n1"))
    for nodes, told in (
        (plain, ()),
        ((MIXED, node("n1")), (("n0-v100", 2), ("n1", 2))),
        (plain, ()),
    ):
        assert splits.told(state(job, nodes=nodes)).jobs["5"].gpus_on == told


@pytest.mark.parametrize(
    ("counts", "holds"),
    [((), {"n0": 2, "n1": 1}), ((1, 2), {"n0": 1, "n1": 2}), ((0, 3), {"n1": 3})],
)
def test_a_job_holds_the_gpus_that_it_has(counts: tuple[int, ...], holds: dict[str, int]) -> None:
    gpus_on = tuple(zip(("n0", "n1"), counts, strict=False))
    site = Site(replace(UNEVEN, gpus_on=gpus_on), nodes=(node("n0", used=2), node("n1", used=2)))
    site.cycle()
    (run,) = site.world.jobs["5"].runs
    assert run.configuration == Configuration.of(holds)
