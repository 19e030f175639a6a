"""The comparison: its sweeps and halves fit together, its figures are what the command computes."""

from __future__ import annotations

import math
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.papers import comparison
from benchmarks.papers.comparison_inputs import SWEEPS, inputs, write_sweeps
from benchmarks.papers.comparison_runs import COLUMNS, JCT, MAX_RATIO, Row, log_ratios, shown
from benchmarks.papers.comparison_tables import (
    NOISE,
    by_workload,
    frontier,
    over_workloads,
    verdict,
)
from hetsched_core.cli.sweep import generate_options, replay_options
from hetsched_core.measures.metrics import measure
from hetsched_core.policy import make_policy, policy_names
from hetsched_core.report.estimates import Estimate
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.sweep.file import read_sweep
from hetsched_core.traces.workload_file import workload_lines
from hetsched_core.types import Speeds


@pytest.fixture
def sweeps(tmp_path: Path) -> Path:
    """The folder of the sweeps as they are run."""
    write_sweeps(tmp_path)
    return tmp_path


def sweep(file: Path) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = tomllib.loads(file.read_text())
    return found


def test_every_workload_either_chose_the_parameters_or_judges_them() -> None:
    halves = tomllib.loads((SWEEPS / "halves.toml").read_text())
    chosen, judged = set(halves["chosen_on"]), set(halves["judged_on"])
    names = {
        str(workload["name"]).rpartition("-")[0] or str(workload["name"])
        for name in comparison.COMPARED
        for workload in sweep(SWEEPS / f"{name}.toml")["workloads"]
    }
    assert not chosen & judged
    assert chosen | judged == names


def test_what_judges_shares_no_jobs_with_what_chose_nor_among_itself(sweeps: Path) -> None:
    judged = set(tomllib.loads((SWEEPS / "halves.toml").read_text())["judged_on"])
    generated = read_sweep(sweeps / "generated.toml", replay_options(), generate_options())
    judging = [seed for w in generated.workloads if w.name in judged for seed in w.seeds]
    choosing = {seed for w in generated.workloads if w.name not in judged for seed in w.seeds}
    assert len(set(judging)) == len(judging) >= 3 * 5
    assert not choosing & set(judging)


def test_every_policy_is_compared(sweeps: Path) -> None:
    compared = {
        str(policy["name"])
        for name in (*comparison.COMPARED, "tasks")
        for policy in sweep(sweeps / f"{name}.toml")["policies"]
    }
    assert compared >= set(policy_names())


def test_a_ratio_is_taken_seed_by_seed() -> None:
    mine = {0: {"max_latency_ratio": 1.0}, 1: {"max_latency_ratio": 4.0}}
    other = {1: {"max_latency_ratio": 4.0}, 2: {"max_latency_ratio": 9.0}}
    assert log_ratios(mine, other, MAX_RATIO) == [0.0]
    assert verdict(Estimate(-0.5, 0.4)) == -1
    assert verdict(Estimate(0.5, 0.6)) == 0
    assert verdict(Estimate(2 * NOISE)) == 1


def seeds(many: int, jct_s: float) -> dict[int, Row]:
    return {seed: {"avg_jct_s": jct_s} for seed in range(many)}


def test_over_workloads_each_counts_once_however_many_seeds_it_has() -> None:
    rows = {
        "many": {"steady": seeds(9, 100.0), "rival": seeds(9, 400.0)},
        "one": {"steady": seeds(1, 400.0), "rival": seeds(1, 100.0)},
    }
    found = over_workloads(by_workload(rows, "rival", JCT))
    assert found is not None
    assert math.exp(found.mean) == pytest.approx(1.0)


def test_on_the_frontier_is_who_is_beaten_in_both_measures_by_nobody() -> None:
    points = {"a": (1.0, 9.0), "b": (2.0, 3.0), "c": (2.0, 4.0), "d": (3.0, 3.0), "e": (9.0, 1.0)}
    assert frontier(points) == ["a", "b", "e"]
    assert frontier({"a": (1.0, 1.0), "b": (1.0, 1.0)}) == ["a", "b"]


def test_an_input_is_the_same_wherever_the_files_lie(data_dir: Path) -> None:
    made = next(made for made in inputs(data_dir) if made.name == "bundled")
    text = "".join(workload_lines(made.workload))
    assert str(SWEEPS.parents[2]) not in text
    assert str(data_dir) not in text


def test_the_figures_of_a_trace_are_those_of_the_page(data_dir: Path) -> None:
    page = comparison.ALL.read_text().partition("### gavel arrivals\n")[2].partition("###")[0]
    given = next(made for made in inputs(data_dir) if made.name == "gavel-arrivals")
    speeds = Speeds(given.cluster, given.workload.tables)
    for policy in ("slurm", "srtf", "las", "tiresias"):
        log = simulate(
            given.workload.submissions,
            given.cluster,
            make_policy(policy),
            speeds,
            SimulationSettings(),
        )
        measured = asdict(measure(log, speeds))
        row = {key: value for key, value in measured.items() if key != "plan_s"}
        # The time that a plan takes is the machine's; plans of these need no solver, whose next
        # version may find another plan within its gap.
        cells = [shown(column.over_seeds({0: row}), column.digits) for column in COLUMNS[:-1]]
        assert f"| {' | '.join([policy, *cells])} | " in page, (policy, cells)
