"""The theoretical layer: basic times, and modes of the data time."""

from dataclasses import replace

import numpy as np
import pytest

from hetsched_core.store import (
    BandwidthMeasurement,
    BandwidthTerm,
    DataTimes,
    Moments,
    Store,
)
from hetsched_core.store.measurements import MAX_FITTED
from hetsched_core.throughput.data_time import fit_modes
from hetsched_core.throughput.iteration import Pattern
from tests.hetsched_core.store.measured import RESNET, TIMES


def test_profiling_runs_are_merged(store: Store) -> None:
    forward_s, backward_s = Moments.of([0.2, 0.3]), Moments(2, 0.5)
    store.record_basic_times([TIMES])
    store.record_basic_times(
        [replace(TIMES, forward_s=forward_s, backward_s=backward_s, update_s=Moments(2, 0.01))]
    )
    theory = store.layers([RESNET], ["v100", "a100"]).theory
    assert (theory.profile.tolist(), theory.gpu_type.tolist()) == ([0], [1])
    assert theory.count.tolist() == [3]
    assert theory.forward_s.tolist() == [pytest.approx(0.2)]
    assert theory.backward_s.tolist() == [pytest.approx(0.4)]
    assert theory.update_s.tolist() == [pytest.approx(0.01)]
    assert (theory.batch_size.tolist(), theory.parameters.tolist()) == ([64], [25_000_000])
    assert theory.pattern.tolist() == [Pattern.SERIAL_DATA]
    # Without data times loading takes none.
    assert theory.modes.tolist() == [[[1, 0, 0, 0], [0, 0, 0, 0]]]
    with store.transaction() as transaction:
        ((m2,),) = transaction.rows("SELECT forward_m2 FROM theory")
    assert m2 == pytest.approx(Moments.of([0.1, 0.2, 0.3]).m2)


@pytest.mark.parametrize(
    "changes",
    [{"batch_size": 128}, {"parameters": 1000}, {"pattern": Pattern.OVERLAPPED_DATA}],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_another_job_under_an_old_name_begins_anew(
    store: Store, changes: dict[str, int], at_once: bool
) -> None:
    other = replace(TIMES, forward_s=Moments(1, 0.4), **changes)  # type: ignore[arg-type]
    for times in [[TIMES, other]] if at_once else [[TIMES], [other]]:
        store.record_basic_times(times)
    theory = store.layers([RESNET], ["a100"]).theory
    assert theory.count.tolist() == [1]
    assert theory.forward_s.tolist() == [0.4]
    for name, value in changes.items():
        assert getattr(theory, name).tolist() == [value]


def fitted(store: Store) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """(2, 4) share, mean and deviation of T_d, mean of T_w."""
    store.record_basic_times([TIMES])
    (modes,) = store.layers([RESNET], ["a100"]).theory.modes
    return np.asarray(modes)


def test_one_mode_has_the_moments_of_the_data_times_though_they_are_kept_in_bins(
    store: Store,
) -> None:
    data_s = np.random.default_rng(1).normal(0.1, 0.02, 256)
    wait_s = np.linspace(0.001, 0.003, 256)
    store.record_data_times([DataTimes(RESNET, "a100", tuple(data_s), tuple(wait_s))])
    first, second = fitted(store)
    assert first.tolist() == pytest.approx([1.0, data_s.mean(), data_s.std(), 0.002], rel=1e-9)
    assert second[0] == 0


def test_hits_and_misses_of_the_cache_are_told_apart(store: Store) -> None:
    rng = np.random.default_rng(2)
    miss = rng.random(256) < 0.25
    data_s = np.where(miss, rng.normal(0.30, 0.03, 256), rng.normal(0.02, 0.002, 256))
    wait_s = np.where(miss, 0.02, 0.002)
    store.record_data_times([DataTimes(RESNET, "a100", tuple(data_s), tuple(wait_s))])
    binned = fitted(store)
    from_the_values = [
        [mode.share, mode.data_s, mode.data_sd_s, mode.wait_s] for mode in fit_modes(data_s, wait_s)
    ]
    assert binned.tolist() == [pytest.approx(mode, rel=1e-3) for mode in from_the_values]
    assert binned[0] == pytest.approx([1 - miss.mean(), 0.02, 0.002, 0.002], rel=0.1)
    assert binned[1] == pytest.approx([miss.mean(), 0.30, 0.03, 0.02], rel=0.1)


def test_modes_are_fitted_again_whenever_data_times_have_doubled(store: Store) -> None:
    store.record_basic_times([TIMES])
    seen = []
    for at in range(8):
        store.record_data_times([DataTimes(RESNET, "a100", (0.1 * (at + 1),), (0.0,))])
        seen.append(store.layers([RESNET], ["a100"]).theory.modes[0, 0, 1])
    assert seen == pytest.approx([0.1, 0.15, 0.15, 0.25, 0.25, 0.25, 0.25, 0.45])


def test_a_second_mode_goes_when_it_is_no_more(store: Store) -> None:
    two = DataTimes(RESNET, "a100", (0.01, 0.0101, 0.0102, 0.0099) * 8 + (0.5,) * 8, (0.0,) * 40)
    store.record_data_times([two])
    assert fitted(store)[1, 0] == pytest.approx(0.2)
    one = DataTimes(RESNET, "a100", (0.0100, 0.0101, 0.0102, 0.0099) * 25_000, (0.0,) * 100_000)
    store.record_data_times([one])
    assert fitted(store)[1].tolist() == [0, 0, 0, 0]


def test_a_long_history_is_fitted_by_a_bounded_number_of_values(store: Store) -> None:
    data_s = np.random.default_rng(3).normal(0.1, 0.02, 20_000)
    store.record_data_times([DataTimes(RESNET, "a100", tuple(data_s), (0.0,) * 20_000)])
    assert len(data_s) > 10 * MAX_FITTED
    assert fitted(store)[0, 1:3].tolist() == pytest.approx([0.1, 0.02], rel=0.02)
    with store.transaction() as transaction:
        ((kept,),) = transaction.rows("SELECT count(*) FROM data_time")
    assert kept < 60


@pytest.mark.parametrize("data_s", [0.0, 1e-9, 1e-6, 86_400.0])
def test_the_shortest_and_longest_data_times_have_a_bin(store: Store, data_s: float) -> None:
    store.record_data_times([DataTimes(RESNET, "a100", (data_s,) * 4, (0.5,) * 4)])
    assert fitted(store)[0].tolist() == pytest.approx([1.0, data_s, 0.0, 0.5])


def test_bandwidths_are_means_and_what_is_not_measured_is_not_known(store: Store) -> None:
    measured = [
        ("a100", BandwidthTerm.LINK, Moments(1, 2e9)),
        ("a100", BandwidthTerm.LINK, Moments(3, 4e9)),
        ("a100", BandwidthTerm.NETWORK, Moments(1, 5e8)),
        ("a100", BandwidthTerm.NETWORK_RING, Moments(1, 0.5)),
        ("v100", BandwidthTerm.NETWORK, Moments(1, 1e8)),
    ]
    store.record_bandwidths([BandwidthMeasurement(*one, 1e9) for one in measured])
    store.record_bandwidths([])
    v100, h100, a100 = store.bandwidths(["v100", "h100", "a100"])
    assert (a100.link, a100.network, a100.network_ring) == (3.5e9, 5e8, 0.5)
    assert (v100.network, v100.network_ring) == (1e8, 0.0)
    assert np.isnan([v100.link, h100.link, h100.network]).all()
