"""docs/reproduction/hare.md: every figure is there, and its bound is one for every policy."""

from __future__ import annotations

import pytest

from benchmarks.papers import hare

SMALL = hare.HareCase(gpus=16, jobs=12)


@pytest.mark.parametrize("figure", sorted(hare.FIGURES))
def test_the_page_has_a_table_for_each_figure(figure: str) -> None:
    _, begin, rest = hare.PAGE.read_text().partition(f"<!-- figures: {figure} -->\n")
    table, end, _ = rest.partition("\n<!-- end -->")
    assert begin
    assert end
    lines = table.splitlines()
    assert "<!--" not in table
    assert len(lines) > 3
    assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize(
    ("name", "policy", "settings"), [*hare.OFFLINE, *hare.ONLINE], ids=lambda v: str(v)[:24]
)
def test_no_policy_is_better_than_what_is_proven_to_be_best(
    name: str, policy: str, settings: tuple[tuple[str, str], ...]
) -> None:
    log = hare.run(SMALL, policy, settings)
    assert all(record.end_s is not None for record in log.jobs)
    assert hare.weighted_jct_s(log) >= hare.bound_s(SMALL) > 0.0
