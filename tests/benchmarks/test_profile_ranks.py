"""The order of the built-in speeds is that of measurements, as far as the page on it says."""

from pathlib import Path

import pytest

from benchmarks.profile_ranks import (
    GAVEL,
    MLPERF,
    RankAgreement,
    gavel_ranks,
    hare_agreement,
    mlperf_orders,
    page,
    timm_agreement,
)

PAGE = Path(__file__).parents[2] / "docs/reproduction/profiles.md"


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


@pytest.mark.parametrize("name", GAVEL)
def test_models_on_each_type_that_gavel_measured_are_in_order(data_dir: Path, name: str) -> None:
    ranks = gavel_ranks(data_dir / "throughputs" / name)
    assert set(ranks.by_type) == {"k80", "p100", "v100"}
    assert min(agreement.spearman for agreement in ranks.by_type.values()) > 0.9
    assert ranks.everything.count > 70
    assert ranks.everything.factor < 2
    assert ranks.four_gpus.spearman > 0.75
    assert ranks.unknown == ("A3C",)


def test_types_are_in_order_for_most_models_of_gavels_physical_cluster(data_dir: Path) -> None:
    ranks = gavel_ranks(data_dir / "throughputs" / GAVEL[0])
    right = [agreement.spearman == pytest.approx(1) for agreement in ranks.by_model.values()]
    assert len(right) == 24
    assert sum(right) >= 20
    assert min(agreement.spearman for agreement in ranks.by_model.values()) >= 0.5


def test_newer_types_are_in_the_order_of_mlperf(data_dir: Path) -> None:
    orders = mlperf_orders(data_dir / "throughputs" / MLPERF)
    assert len(orders) == 4
    for found in orders.values():
        speeds = [speed for _, speed, _ in found]
        assert speeds == sorted(speeds)
    assert [gpu for gpu, *_ in orders["resnet", 8]] == ["l40s", "h100_pcie", "h100", "h200"]


def test_image_models_on_an_rtx_3090_and_the_models_of_hare_are_in_order() -> None:
    assert timm_agreement().spearman > 0.8
    assert timm_agreement().factor < 1.5
    assert hare_agreement().spearman > 0.75


def test_the_page_is_what_the_command_writes(data_dir: Path) -> None:
    assert PAGE.read_text() == page(data_dir / "throughputs")
