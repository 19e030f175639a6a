"""GPU types: what a name in a log is taken for."""

import pytest

from hetsched_core.throughput.gpus import FALLBACK, known_gpus, match_gpu


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("nvidia_a100-sxm4-40gb", "a100"),
        ("a100_80", "a100_80"),
        ("NVIDIA A100-SXM4-80GB", "a100_80"),
        ("nvidia_a100_80gb_pcie", "a100_80"),
        ("tesla_v100-sxm2-32gb", "v100"),
        ("NVIDIA-Tesla-K80", "k80"),
        ("rtx30", "rtx30"),
        ("geforce_rtx_3090", "rtx30"),
        ("nvidia_h100_80gb_hbm3", "h100"),
        ("nvidia_h100_pcie", "h100_pcie"),
        ("l40s", "l40s"),
        ("NVIDIA T400 4GB", "t400"),
        ("nvidia_geforce_gtx_1080_ti", "gtx1080ti"),
        ("NVIDIA RTX A2000", "a2000"),
    ],
)
def test_a_name_as_sites_write_it_finds_its_type(name: str, found: str) -> None:
    match = match_gpu(name)
    assert (match.spec.name, match.assumed) == (found, "")


@pytest.mark.parametrize("name", ["a4000", "l400", "a300", "mi250x", "gpu", "", "xa100", "p1000"])
def test_a_name_nothing_is_known_about_is_taken_for_the_fallback_and_says_so(name: str) -> None:
    match = match_gpu(name)
    assert match.spec.name == FALLBACK
    assert repr(name) in match.assumed
    assert FALLBACK in match.assumed


def test_a_mig_slice_is_its_share_of_the_gpu_and_says_so() -> None:
    whole = match_gpu("h100").spec
    match = match_gpu("nvidia_h100_80gb_hbm3_3g.40gb")
    assert match.spec.half_tflops == pytest.approx(whole.half_tflops * 3 / 7)
    assert match.spec.memory_gb_s == pytest.approx(whole.memory_gb_s * 3 / 7)
    assert match.spec.memory_gb == 40
    assert match.spec.link_gb_s < whole.link_gb_s
    assert "MIG" in match.assumed


def test_every_type_has_rates_a_source_and_aliases_that_find_it() -> None:
    for spec in known_gpus():
        assert spec.source
        assert spec.single_tflops > 0
        assert spec.half_tflops >= 0
        assert min(spec.memory_gb, spec.memory_gb_s, spec.link_gb_s, spec.network_gb_s) > 0
        for alias in spec.aliases:
            assert match_gpu(f"NVIDIA {alias.upper()}").spec == spec
