"""The Gantt chart: no GPU twice, nothing lost, and shades that add up."""

from itertools import pairwise

import numpy as np
import pytest

from hetsched_core.report import figures as gantt
from hetsched_core.report.figures import bars, fits_bars, shades
from hetsched_core.report.history import Pieces
from hetsched_core.types import Cluster, Node
from tests.hetsched_core.report.runs import CLUSTER, usual


def pieces(*rows: tuple[int, int, int, float, float]) -> Pieces:
    """Pieces from (node, job, GPUs, since, until)."""
    return Pieces(*(np.array(column) for column in zip(*rows, strict=True)))


def test_bars_overlap_nowhere_and_cover_what_was_held() -> None:
    (history,) = usual("las")
    drawn = bars(history.pieces, CLUSTER)
    by_lane: dict[int, list[tuple[float, float]]] = {}
    for first, gpus, since_s, until_s in zip(
        drawn.first, drawn.gpus, drawn.since_s, drawn.until_s, strict=True
    ):
        for lane in range(first, first + gpus):
            by_lane.setdefault(lane, []).append((since_s, until_s))
    for times in by_lane.values():
        times.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(times))
    area = (drawn.gpus * (drawn.until_s - drawn.since_s)).sum()
    assert area == pytest.approx(history.jobs.gpu_hours.sum() * 3600)


def test_a_job_takes_the_first_free_gpus_of_its_node() -> None:
    # Job 0 holds GPU 0, job 1 GPU 1; job 2 gets GPU 0 again, and job 3 what is left around job 1.
    rows = [(1, 0, 1, 0.0, 5.0), (1, 1, 1, 0.0, 9.0), (1, 2, 1, 5.0, 6.0), (1, 3, 2, 6.0, 9.0)]
    drawn = bars(pieces(*rows), Cluster((Node("x", "a", 2), Node("y", "a", 3))))
    found = zip(drawn.job.tolist(), drawn.first.tolist(), drawn.gpus.tolist(), strict=True)
    assert list(found) == [(0, 2, 1), (1, 3, 1), (2, 2, 1), (3, 2, 1), (3, 4, 1)]


def test_tasks_that_share_a_gpu_between_two_plans_are_drawn_all_the_same() -> None:
    drawn = bars(pieces((0, 0, 1, 0.0, 5.0), (0, 1, 1, 1.0, 6.0)), Cluster((Node("x", "a", 1),)))
    assert drawn.first.tolist() == [0, 0]


def test_shades_are_shares_of_the_gpus_of_a_row() -> None:
    (history,) = usual("fifo")
    edges = np.linspace(*history.span_s, 8)
    drawn = shades(history.pieces, CLUSTER, edges)
    assert drawn.types == (("a100", 0), ("v100", 1))
    assert drawn.share.shape == (3, 7)
    held = (drawn.share * np.array([[2], [4], [4]])).sum(axis=0)
    assert held == pytest.approx(history.held.mean_over(edges))


def test_many_nodes_share_rows_within_their_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gantt, "MAX_ROWS", 2)
    nodes = (("a", "x", 2), ("b", "y", 4), ("c", "x", 2), ("d", "y", 1), ("e", "x", 1))
    cluster = Cluster(tuple(Node(*node) for node in nodes))
    held = pieces((1, 0, 4, 0.0, 10.0), (4, 1, 1, 0.0, 5.0))
    drawn = shades(held, cluster, np.array([0.0, 10.0]))
    assert drawn.nodes_each == 3
    assert drawn.types == (("x", 0), ("y", 1))
    assert drawn.share[:, 0] == pytest.approx([0.5 / 5, 4 / 5])


def test_bars_give_way_to_shades_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    histories = usual("fifo", "las")
    most = max(len(history.pieces) for history in histories)
    for name, value, fits in (
        ("MAX_BARS", most, True),
        ("MAX_BARS", most - 1, False),
        ("MAX_LANES", 10, True),
        ("MAX_LANES", 9, False),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(gantt, name, value)
            assert fits_bars(histories) is fits
