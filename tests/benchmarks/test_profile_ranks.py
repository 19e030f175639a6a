"""The order of the built-in speeds is that of measurements, as far as the page on it says."""

from pathlib import Path

import pytest

from benchmarks.profile_ranks import FIGURES, PAGE, RankAgreement


@pytest.mark.parametrize(
    ("pairs", "spearman", "factor"),
    [([(1, 2), (2, 4), (3, 6)], 1, 2), ([(1, 4), (4, 1)], -1, 4), ([(1, 1), (2, 2)], 1, 1)],
)
def test_agreement_is_in_order_and_in_size(
    pairs: list[tuple[float, float]], spearman: float, factor: float
) -> None:
    found = RankAgreement.of(pairs)
    assert found.count == len(pairs)
    assert found.spearman == pytest.approx(spearman)
    assert found.factor == pytest.approx(factor)


@pytest.mark.parametrize("name", FIGURES)
def test_the_page_is_what_the_command_writes(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HETSCHED_DATA", str(data_dir))
    assert f"<!-- figures: {name} -->\n{FIGURES[name]()}\n<!-- end -->" in PAGE.read_text()
