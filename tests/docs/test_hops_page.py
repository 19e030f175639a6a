"""docs/reproduction/hops.md: its workloads, its quick figures, and its sentences."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers import hops as page
from benchmarks.papers import hops_setting
from benchmarks.papers.hops_cells import CLASS_OF, policy_of, scattered
from benchmarks.papers.hops_setting import (
    CALIBRATED_LARGE,
    GPU_HOURS,
    LARGE,
    LARGEST,
    MODELS,
    MOST_REQUIREMENTS,
    PATIENCE_S,
    SMALL,
    HopsWorld,
    cluster_of,
    world_of,
)
from benchmarks.papers.page import filled as fill
from hetsched_core.errors import InputError
from hetsched_core.measures.fairness import RunTimes
from hetsched_core.simulate import KnownSpeeds, simulate
from hetsched_core.throughput import SizeClass
from hetsched_core.types import Configuration

TEXT = page.PAGE.read_text()


def table(name: str) -> dict[str, list[str]]:
    """The cells of a table on the page by the first of each line."""
    _, _, rest = TEXT.partition(f"<!-- figures: {name} -->\n")
    lines = rest.partition("\n<!-- end -->")[0].splitlines()[2:]
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {row[0]: row[1:] for row in rows}


def mean(name: str, line: str, column: int) -> float:
    """The mean in a cell `mean ± half width`."""
    return float(table(name)[line][column].split()[0])


# -- The workloads ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large() -> HopsWorld:
    return world_of(LARGE, 0)


def test_the_clusters_are_those_of_the_paper() -> None:
    small, large = cluster_of(SMALL), cluster_of(LARGE)
    assert (len(small), small.gpus) == (10, 64)
    assert (len(large), large.gpus) == (64, 512)
    assert large.gpus_by_type() == {"gtx1080ti": 128, "titanxp": 128, "rtx3090": 256}


def test_jobs_and_arrivals_are_those_that_the_paper_draws(large: HopsWorld) -> None:
    times = RunTimes(large.by_type, large.cluster)
    for submission in large.submissions:
        requirements = submission.job.requirements
        assert len(requirements) <= MOST_REQUIREMENTS
        assert 1 <= requirements.smallest <= requirements.largest <= LARGEST
        expected_s = times.expected_run_s(submission.job, submission.samples)
        assert expected_s is not None
        assert expected_s <= PATIENCE_S * (1 + 1e-9)
    assert {s.job.profile for s in large.submissions} == {model.name for model in MODELS}
    hours = large.submissions[-1].job.submit_s / 3600
    # 499 gaps of a Poisson process: three standard deviations are 13 %.
    assert 499 / hours == pytest.approx(100, rel=0.14)


def test_calibrated_jobs_are_cut_and_ask_for_fewer_gpus(large: HopsWorld) -> None:
    world = world_of(CALIBRATED_LARGE, 0)
    times = RunTimes(world.by_type, world.cluster)
    hours = [
        s.job.requirements.mean * (times.expected_run_s(s.job, s.samples) or 0.0) / 3600
        for s in world.submissions
    ]
    assert max(hours) == pytest.approx(CALIBRATED_LARGE.most_gpu_hours)
    assert max(
        times.expected_run_s(s.job, s.samples) or 0.0 for s in world.submissions
    ) <= CALIBRATED_LARGE.patience_s * (1 + 1e-9)
    small = [
        [s.job.requirements.mean for s in jobs.submissions if CLASS_OF[s.job.profile] == "S"]
        for jobs in (world, large)
    ]
    assert np.mean(small[0]) < np.mean(small[1])


def test_jobs_that_no_requirement_set_ends_in_time_are_refused_with_what_to_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 16 GPUs for 8 hours are 128 GPU hours: a little below that one set will do.
    monkeypatch.setattr(hops_setting, "GPU_HOURS", dict.fromkeys(SizeClass, (127.9, 127.9)))
    drawn = world_of(replace(SMALL, jobs=2), 0)
    assert {str(each.job.requirements) for each in drawn.submissions} == {"16"}
    longer = {size: (low * 1.6, high * 1.6) for size, (low, high) in GPU_HOURS.items()}
    monkeypatch.setattr(hops_setting, "GPU_HOURS", longer)
    said = "GPU hours takes more than patience_s = 28800 s on LARGEST = 16 .* keep GPU_HOURS to 128"
    with pytest.raises(InputError, match=said):
        world_of(LARGE, 0)


@pytest.mark.parametrize("scale", ["small", "large"])
def test_the_calibrated_row_of_hops_is_near_that_of_the_paper(scale: str) -> None:
    name = {"small": page.SMALL, "large": page.LARGE}[scale]
    for column, published in enumerate(page.PAPER[name, "hops"][:2], 1):
        assert mean(f"{scale}-calibrated", "hops", column) == pytest.approx(published, rel=0.15)


def test_hosts_of_a_type_differ_and_their_mean_is_the_speed_of_the_type(large: HopsWorld) -> None:
    for model in MODELS:
        one = {n.name: Configuration.of({n.name: 1}) for n in large.cluster}
        for gpu_type in large.cluster.gpu_types:
            own = [
                large.speeds.speed(model.name, one[n.name])
                for n in large.cluster
                if n.gpu_type == gpu_type
            ]
            assert np.mean(own) == pytest.approx(large.by_type.per_gpu(model.name, gpu_type, 1))
            assert len({round(speed, 9) for speed in own if speed}) in (
                (0, 3) if gpu_type == "rtx3090" else (0, 1)
            )


# -- The replays -----------------------------------------------------------------------------------


def test_an_unscattered_job_has_no_more_nodes_than_it_needs_and_others_wait() -> None:
    world = world_of(SMALL, 3)
    plans = {}
    for variant in (page.SIA, page.SIA_UNSCATTERED):
        log = simulate(
            world.submissions,
            world.cluster,
            policy_of(variant),
            world.speeds,
            estimates=KnownSpeeds(world.by_type),
        )
        plans[variant] = [scattered(run.configuration, world.cluster) for run in log.runs]
    assert any(plans[page.SIA])
    assert plans[page.SIA_UNSCATTERED]
    assert not any(plans[page.SIA_UNSCATTERED])


# -- The page --------------------------------------------------------------------------------------


def test_quick_lines_of_the_small_table_are_what_the_command_computes(tmp_path: Path) -> None:
    for variant in (page.GAVEL, *page.SIMPLE):
        line = page.main_line(tmp_path, page.SMALL, variant)
        assert f"| {' | '.join(line)} |" in TEXT


def test_the_sentences_of_the_page_are_what_its_tables_say() -> None:
    # Gavel and Slurm are behind Hops in every measure.
    for setting, rival, column in product(("small", "large"), ("gavel", "slurm"), range(1, 6)):
        assert mean(setting, rival, column) > mean(setting, "hops", column)
    # The advantage is larger where arrivals are dense.
    rates = [[float(cell) for cell in row] for row in table("rates").values()]
    for more in (2, 5):
        assert rates[-1][more] > rates[0][more]
    assert min(row[2] for row in rates[3:]) > max(row[2] for row in rates[:3])
    # Lambda = 1 and 2 have the least completion time, and 2 the fewest fragments for more restarts.
    rows = {name: [float(cell) for cell in row] for name, row in table("lambdas").items()}
    one, two = rows["latency ratio, 1"], rows["latency ratio, 2"]
    assert max(one[1], two[1]) < min(rows[f"latency ratio, {other}"][1] for other in ("0", "inf"))
    assert two[4] == min(row[4] for row in rows.values())
    assert two[7] > one[7]


def test_every_figure_has_its_place_and_nothing_else_is_touched() -> None:
    filled = fill(TEXT, {name: f"new {name}" for name in page.FIGURES})
    for name in page.FIGURES:
        assert f"<!-- figures: {name} -->\nnew {name}\n<!-- end -->" in filled
    assert filled.count("<!--") == TEXT.count("<!--") == 2 * len(page.FIGURES)
