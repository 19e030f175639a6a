"""Figures of docs/reproduction/logs.md: how close replays of accounting logs come to them.

    HETSCHED_DATA=... python -m benchmarks.papers.logs

writes them between the markers of the page (about ten seconds).
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.papers.page import PAGES, PageSample, command, data_folder, markdown
from benchmarks.papers.workloads import bundled, fox, habrok, run
from hetsched_core.measures.logged import Closeness, closeness
from hetsched_core.policy import make_policy
from hetsched_core.report.history import LoggedHistory
from hetsched_core.simulate import SimulationSettings
from hetsched_core.traces.load import ReplayInputs

PAGE = PAGES / "logs.md"
SEEDS = range(4)
CLOSEST = "starts within 5 min: all jobs / those that wait"


def slurm_beside(loaded: ReplayInputs, seed: int = 0) -> Closeness:
    """Return how close `slurm` comes to the log."""
    log = run(loaded, make_policy("slurm"), SimulationSettings(seed=seed))
    found = closeness(loaded.workload.submissions, log.jobs)
    assert found is not None
    return found


def row(name: str, loaded: ReplayInputs) -> list[str]:
    """Return a log's line of the table."""
    found = slurm_beside(loaded)
    history = LoggedHistory.of(loaded.workload.submissions)
    assert history is not None
    held, rank = history.held_while_waiting(), found.wait_rank_correlation
    return [
        f"{name}, {found.jobs} jobs",
        f"{_hours(found.avg_logged_wait_s)} / {_hours(found.avg_wait_s)}",
        f"{found.close_share:.0%} / {found.waited_close} of {found.waited}",
        f"{_hours(found.p50_error_s)} / {_hours(found.p90_error_s)}",
        "–" if rank is None else f"{rank:.2f}",
        f"{held or 0.0:.1f} of {loaded.cluster.gpus}",
    ]


def seeds() -> Iterator[list[str]]:
    """Yield what the draw of the models changes of the bundled log."""
    for seed in SEEDS:
        found = slurm_beside(bundled(seed), seed)
        assert found.wait_rank_correlation is not None
        yield [
            str(seed),
            _hours(found.avg_wait_s),
            f"{found.close_share:.0%} / {found.waited_close} of {found.waited}",
            f"{found.wait_rank_correlation:.2f}",
        ]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h"


def logs() -> str:
    """Return how close `slurm` comes to each log."""
    folder = data_folder()
    heads = [
        "log",
        "mean wait, logged / `slurm`",
        CLOSEST,
        "off by: median / 90th percentile",
        "rank correlation of waits",
        "GPUs in use",
    ]
    lines = [
        row("bundled", bundled()),
        row("Fox (University of Oslo)", fox(folder)),
        row("Hábrók (University of Groningen)", habrok(folder)),
    ]
    return markdown(heads, lines)


FIGURES = {
    "logs": logs,
    "seeds": lambda: markdown(["seed", "mean wait", CLOSEST, "rank correlation of waits"], seeds()),
}
SAMPLE = PageSample(PAGE, FIGURES)


if __name__ == "__main__":
    command(PAGE, FIGURES)()
