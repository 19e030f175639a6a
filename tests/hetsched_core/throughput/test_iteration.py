"""Worked example W8 of the Hops estimator, and what holds for every iteration."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.throughput.iteration import (
    Bandwidths,
    IterationTimes,
    Pattern,
    communication_s,
    inference_s,
    iteration_s,
)

W8 = IterationTimes(data_s=0.05, forward_s=0.1, backward_s=0.2, update_s=0.01, sync_wait_s=0.005)
PARAMETERS = 1e8
FAST = Bandwidths(link=2e9, network=5e8)
SLOW = Bandwidths(link=2e9, network=1e8)


@pytest.mark.parametrize(
    ("gpus", "nodes", "bandwidths", "communication", "overlapped", "serial"),
    [
        pytest.param(1, 1, FAST, 0.0, 0.315, 0.365, id="1 GPU"),
        pytest.param(2, 1, FAST, 0.025, 0.320, 0.370, id="2 on one node"),
        pytest.param(4, 1, FAST, 0.0375, 0.3225, 0.3725, id="4 on one node"),
        pytest.param(8, 1, FAST, 0.04375, 0.32375, 0.37375, id="8 on one node"),
        pytest.param(2, 2, FAST, 0.2, 0.355, 0.405, id="1+1 on two nodes"),
        pytest.param(2, 2, SLOW, 1.0, 1.115, 1.165, id="1+1 over a slow network"),
    ],
)
def test_the_table_of_w8_comes_out(
    gpus: int,
    nodes: int,
    bandwidths: Bandwidths,
    communication: float,
    overlapped: float,
    serial: float,
) -> None:
    found = communication_s(PARAMETERS, gpus, nodes, bandwidths)
    assert found == pytest.approx(communication, abs=1e-9)
    assert iteration_s(W8, found, Pattern(1)) == pytest.approx(overlapped, abs=1e-9)
    assert iteration_s(W8, found, Pattern(2)) == pytest.approx(serial, abs=1e-9)


def test_the_rates_and_sensitivities_of_w8_come_out() -> None:
    def time(gpus: int, nodes: int, bandwidths: Bandwidths, pattern: int) -> float:
        communication = communication_s(PARAMETERS, gpus, nodes, bandwidths)
        return iteration_s(W8, communication, Pattern(pattern))

    assert 4 * 64 / time(4, 1, FAST, 1) == pytest.approx(793.798450, abs=5e-7)
    for pattern, fast, slow in ((1, 1.126984, 3.539683), (2, 1.109589, 3.191781)):
        single = time(1, 1, FAST, pattern)
        assert time(2, 2, FAST, pattern) / single == pytest.approx(fast, abs=5e-7)
        assert time(2, 2, SLOW, pattern) / single == pytest.approx(slow, abs=5e-7)


def test_a_job_that_waits_for_its_data_is_as_slow_as_w8_says() -> None:
    data_bound = IterationTimes(0.5, 0.1, 0.2, 0.01, 0.005)
    communication = communication_s(PARAMETERS, 4, 1, FAST)
    assert iteration_s(data_bound, communication, Pattern(1)) == pytest.approx(0.605, abs=1e-9)


def test_inference_takes_what_w8_says() -> None:
    assert inference_s(0.05, 0.1, Pattern.OVERLAPPED_DATA) == pytest.approx(0.1, abs=1e-9)
    assert inference_s(0.05, 0.1, Pattern.SERIAL_DATA) == pytest.approx(0.15, abs=1e-9)


seconds = st.floats(0, 100)


@given(st.builds(IterationTimes, *[seconds] * 5), seconds, seconds)
def test_more_communication_never_makes_an_iteration_shorter(
    times: IterationTimes, some: float, more: float
) -> None:
    for pattern in Pattern:
        assert iteration_s(times, some + more, pattern) >= iteration_s(times, some, pattern)
        assert iteration_s(times, some, Pattern(1)) <= iteration_s(times, some, Pattern(2))
