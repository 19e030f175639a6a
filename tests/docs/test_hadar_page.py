"""docs/reproduction/hadar.md: its quick figures are those that its command computes."""

from __future__ import annotations

import pytest

from benchmarks.papers import hadar
from benchmarks.papers.workloads import name_of


@pytest.mark.parametrize("figure", ["fig1", "speeds", "aws", "lab", "gains"])
def test_the_page_shows_what_its_command_computes(figure: str) -> None:
    computed = hadar.FIGURES[figure]()
    assert f"<!-- figures: {figure} -->\n{computed}\n<!-- end -->" in hadar.PAGE.read_text()


def test_copies_use_the_cluster_more_than_any_rival_on_every_mix() -> None:
    for where in hadar.CLUSTERS:
        for name in hadar.MIXES:
            found = {name_of(v): hadar.mix_measures(where, name, v) for v in hadar.MIX_RIVALS}
            forked = found.pop("hadare")
            assert all(forked[2] > rival[2] for rival in found.values())
            assert all(forked[0] < rival[0] for rival in found.values())
