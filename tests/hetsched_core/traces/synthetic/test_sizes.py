"""Run times and numbers of GPUs have the published statistics, each of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.traces.synthetic.sizes import SHORTEST_S, Sizes, fit_sizes
from hetsched_core.traces.synthetic.statistics import TRACES, GpuClass, TraceStatistics

ONE_CLASS = (GpuClass(1, 1.0, 1.0),)
TOO_LONG = (GpuClass(1, 1, 1), GpuClass(2, 1, 1000))


def even(sizes: Sizes, count: int = 1_000_000) -> tuple[np.ndarray, np.ndarray]:
    """Draw jobs from numbers that fill the unit square evenly (a Fibonacci lattice)."""
    at = np.arange(count)
    golden = np.float64((5**0.5 - 1) / 2)
    seconds, chosen = sizes.draw((at + np.float64(0.5)) / count, at * golden % 1)
    return seconds, sizes.gpus[chosen]


@pytest.mark.parametrize(
    ("name", "jobs", "gpu_hours"),
    [("philly", 82_247, 978_000), ("helios", 10_796, 359_000), ("supercloud", 2_401, 44_000)],
)
def test_run_times_and_every_number_of_gpus_have_the_published_figures(
    name: str, jobs: int, gpu_hours: int
) -> None:
    trace, sizes = TRACES[name], fit_sizes(TRACES[name])
    for share, run_s in trace.percentiles:
        found, _ = sizes.draw(np.array([share]), np.array([0.5]))
        assert found[0] == pytest.approx(run_s)
    seconds, gpus = even(sizes)
    work = seconds * gpus
    assert seconds.mean() == pytest.approx(trace.mean_s, rel=1e-4)
    assert seconds.min() >= SHORTEST_S
    assert work.mean() * jobs / 3600 == pytest.approx(gpu_hours, rel=0.01)
    all_jobs = sum(c.jobs for c in trace.gpu_classes)
    all_hours = sum(c.gpu_hours for c in trace.gpu_classes)
    for part in trace.gpu_classes:
        of_part = gpus == part.gpus
        assert of_part.mean() == pytest.approx(part.jobs / all_jobs, rel=0.01)
        # One job of Philly in a thousand has 32 GPUs: a thousand of the million.
        share = work[of_part].sum() / work.sum()
        assert share == pytest.approx(part.gpu_hours / all_hours, rel=0.03)
    # Without its largest jobs a trace keeps its run times.
    seconds, gpus = even(fit_sizes(trace.at_most(8)))
    assert gpus.max() == 8
    assert seconds.mean() == pytest.approx(trace.mean_s, rel=1e-4)


def test_a_trace_without_small_enough_jobs_is_refused() -> None:
    large = TraceStatistics("large", 1, 1, ((0.5, 100.0),), 120.0, (GpuClass(4, 1, 1),))
    with pytest.raises(InputError, match="large have 4 GPUs or more"):
        large.at_most(2)


# The longest that such a mean takes stays below LONGEST_S.
@given(
    st.lists(st.floats(0.2, 2.5), min_size=5, max_size=5),
    st.floats(1.05, 20),
)
def test_any_percentiles_and_any_mean_that_they_allow_are_met(
    steps: list[float], stretch: float
) -> None:
    knots = 10 * np.exp(np.cumsum(steps))
    shares = (0.1, 0.5, 0.75, 0.9, 0.99)
    logs = np.concatenate(([0.0], np.log(knots)))
    below = np.diff((0.0, *shares)) @ (np.diff(np.exp(logs)) / np.diff(logs))
    mean = float(below + 0.01 * knots[-1] * stretch)
    percentiles = tuple(zip(shares, knots.tolist(), strict=True))
    sizes = fit_sizes(TraceStatistics("any", 1, 1, percentiles, mean, ONE_CLASS))
    widths, ends = np.diff(sizes.quantiles), np.exp(sizes.log_s)
    assert widths @ (np.diff(ends) / np.diff(sizes.log_s)) == pytest.approx(mean)
    assert np.all(np.diff(sizes.log_s) > 0)


@pytest.mark.parametrize(
    ("percentiles", "mean", "classes", "says"),
    [
        (((0.5, 100.0), (0.9, 90.0)), 120, ONE_CLASS, "do not ascend"),
        (((0.5, 100.0), (1.0, 200.0)), 120, ONE_CLASS, "do not ascend"),
        (((0.5, 100.0), (0.9, 900.0)), 50, ONE_CLASS, "mean of 50"),
        (((0.5, 100.0), (0.9, 900.0)), 1e9, ONE_CLASS, "mean of 1e"),
        (((0.5, 100.0), (0.9, 200.0)), 130, TOO_LONG, "its share of the GPU hours"),
    ],
)
def test_statistics_that_no_jobs_have_are_refused(
    percentiles: tuple[tuple[float, float], ...],
    mean: float,
    classes: tuple[GpuClass, ...],
    says: str,
) -> None:
    with pytest.raises(InputError, match=says):
        fit_sizes(TraceStatistics("odd", 1, 1, percentiles, mean, classes))
