"""The costs of all policies by size: what is measured, and that the page has it."""

from __future__ import annotations

import resource

import pytest

from benchmarks import cost_by_size
from benchmarks.cost_by_size import FILE, PAGE, CostLine, cost_of, table_of
from benchmarks.papers.page import filled
from benchmarks.scale_lines import read
from hetsched_core.policy import policy_names


def test_the_table_is_of_what_was_measured_and_has_every_policy() -> None:
    page, lines = PAGE.read_text(), read(CostLine, FILE)
    assert {policy for policy, _ in lines} == set(policy_names())
    assert filled(page, {"cost-by-size": table_of(lines)}) == page


@pytest.mark.parametrize("policy", ["fifo", "hadare", "hlas", "hare"])
def test_enough_plans_are_measured_of_each_execution_model_and_where_a_world_has_one_alone(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_by_size, "LEAST_PLANS", 3)
    before = resource.getrlimit(resource.RLIMIT_CPU)
    line = cost_of(policy, 40)
    # What ends a plan that takes too long ends nothing that comes after it.
    assert resource.getrlimit(resource.RLIMIT_CPU) == before
    assert line.plans >= 3
    assert line.median_s is not None
    assert line.slowest_s is not None
    assert line.peak_mib is not None
    assert 0.0 < line.median_s <= line.slowest_s
    assert line.peak_mib > 0


def test_what_takes_too_long_is_told_and_what_was_left_out_is_not_there() -> None:
    lines = {
        (line.policy, line.gpus): line
        for line in (CostLine("a", 8, 20, 0.0123, 1.5, 200), CostLine("b", 8), CostLine("a", 16))
    }
    assert table_of(lines).splitlines()[2:] == [
        "| `a` | 12 / 1,500; 200 | over 10 s |",
        "| `b` | over 10 s | – |",
    ]
