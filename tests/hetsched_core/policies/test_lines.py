"""gavel-fifo and yarn-cs: one line, nobody overtaken, nobody stopped."""

from __future__ import annotations

import pytest

from hetsched_core.policies.gavel_fifo import GavelFifo
from hetsched_core.policies.yarn_cs import YarnCs
from hetsched_core.policy import Policy
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import NodeCondition, Shape
from tests.hetsched_core.policies.worlds import ends, planned, reasons
from tests.hetsched_core.worlds import cluster_of, held, linear_speeds, on, submission, view, where

CLUSTER = cluster_of(k=("k80", 2), v=("v100", 2), w=("v100", 2))
SPEEDS = linear_speeds(CLUSTER, {"m": {"v100": 4.0, "k80": 1.0}}, several_nodes=0.5)
EVEN = frozenset({Shape.SINGLE_NODE, Shape.EVEN})
LINES = pytest.mark.parametrize("policy", [GavelFifo(), YarnCs()], ids=["gavel-fifo", "yarn-cs"])


def test_gavel_fifo_takes_the_fastest_type_that_is_idle_and_yarn_cs_the_first_node() -> None:
    jobs = [view(f"j{n}", counts=(2,), submit_s=float(n)) for n in range(3)]
    fast, first = (planned(p, CLUSTER, *jobs, speeds=SPEEDS) for p in (GavelFifo(), YarnCs()))
    assert where(fast) == {"j0": "v:2", "j1": "w:2", "j2": "k:2"}
    assert where(first) == {"j0": "k:2", "j1": "v:2", "j2": "w:2"}


@LINES
def test_nobody_overtakes_who_is_first_in_line_though_there_is_room(policy: Policy) -> None:
    jobs = [
        view("runs", held(on(w=2)), counts=(2,)),
        view("huge", counts=(99,)),
        view("wide", counts=(4,), submit_s=1.0),
        view("small", submit_s=2.0),
    ]
    plan = planned(policy, CLUSTER, *jobs, speeds=SPEEDS)
    # Though a better place is free.
    assert where(plan) == {"runs": "w:2"}
    assert reasons(plan) == {"huge": "never_fits", "wide": "no_room", "small": "ahead"}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # a on the V100 until 10, b on the K80 until 10; then c on the V100 until 12.
        (GavelFifo(), {"a": 10.0, "b": 10.0, "c": 12.0}),
        # The K80 is the first node: a there until 40, b on the V100 until 2.5, then c there.
        (YarnCs(), {"a": 40.0, "b": 2.5, "c": 4.5}),
    ],
)
def test_by_hand_two_gpu_types_and_three_jobs(policy: Policy, expected: dict[str, float]) -> None:
    # One V100 (4/s) and one K80 (1/s); a: 40, b: 10, c: 8 samples, at 0, 0 and 1 s.
    cluster = cluster_of(k=("k80", 1), v=("v100", 1))
    speeds = linear_speeds(cluster, {"m": {"v100": 4.0, "k80": 1.0}})
    jobs = [submission("a", 40.0), submission("b", 10.0), submission("c", 8.0, submit_s=1.0)]
    assert (
        ends(simulate(jobs, cluster, policy, speeds, SimulationSettings(restart_cost_s=0.0)))
        == expected
    )


@LINES
def test_a_node_that_is_being_drained_takes_nobody(policy: Policy) -> None:
    nodes = {name: {"condition": NodeCondition.DRAINED} for name in "kv"}
    plan = planned(policy, CLUSTER, view("j"), speeds=SPEEDS, nodes=nodes)
    assert where(plan) == {"j": "w:1"}


def test_yarn_cs_waits_for_an_even_spread_where_no_other_can_be_had() -> None:
    cluster = cluster_of(a=("v100", 4), b=("v100", 4), c=("v100", 4))
    jobs = [view(f"x{n}", held(on(**{n: 1}))) for n in "abc"]
    jobs += [view("wide", counts=(8,), submit_s=1.0)]
    assert where(planned(YarnCs(), cluster, *jobs))["wide"] == "a:3+b:3+c:2"
    assert reasons(planned(YarnCs(), cluster, *jobs, shapes=EVEN)) == {"wide": "no_room"}
