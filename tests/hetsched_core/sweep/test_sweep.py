"""Sweeps from end to end: real replays, killed half-way and taken up again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hetsched_core.cli import main
from hetsched_core.report.estimates import estimate
from hetsched_core.report.result import read_result
from hetsched_core.store.parquet import read_columns

HETSCHED = (sys.executable, "-c", "import sys, hetsched_core.cli as c; sys.exit(c.main())")

SWEEP = """\
schema = "hetsched-sweep/1"
seeds = {seeds}

[[workloads]]
name = "drawn"
generate = {{ jobs = 40, load = 1.0 }}
cluster = "cluster.toml"

[[policies]]
name = "fifo"

[[policies]]
name = "las"
{more}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = subprocess.run(
        [*HETSCHED, "cluster", "generate", "--gpus=16", "--types=a100,v100", "--name=small"],
        capture_output=True,
        check=True,
    )
    (tmp_path / "cluster.toml").write_bytes(made.stdout)
    return tmp_path


def sweep_file(folder: Path, seeds: int = 2, more: str = "") -> Path:
    path = folder / "try.toml"
    path.write_text(SWEEP.format(seeds=seeds, more=more))
    return path


def test_every_run_is_a_row_and_the_page_has_means_over_the_seeds(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "out"
    assert main(["sweep", str(sweep_file(folder)), f"--out={out}", "--at-once=2"]) == 0
    rows = read_columns(out / "results.parquet")
    assert rows["policy"] == ["fifo", "las"] * 2
    assert rows["seed"] == [0, 0, 1, 1]
    for at, policy in enumerate(rows["policy"]):
        results = [read_result(path) for path in (out / "runs").glob("*.json")]
        measures = [
            result.policies[str(policy)]
            for result in results
            if policy in result.policies and result.input.settings["seed"] == rows["seed"][at]
        ]
        assert [m.avg_jct_s for m in measures] == [rows["avg_jct_s"][at]]
    page = (out / "sweep.html").read_text()
    assert "4 of 4 runs are done" in page
    las = [float(str(v)) for v in rows["restarts"][1::2]]
    mean = estimate(las)
    assert mean is not None
    assert f"{mean.mean:.0f}" in page
    assert "<script" not in page
    assert "http" not in page


def test_a_sweep_that_was_killed_goes_on_with_the_runs_that_are_missing(folder: Path) -> None:
    path, out = sweep_file(folder, seeds=12), folder / "out"
    command = [*HETSCHED, "sweep", str(path), f"--out={out}"]
    killed = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list((out / "runs").glob("[!.]*.json"))) < 4:
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    before = {file: file.stat().st_mtime_ns for file in (out / "runs").glob("[!.]*.json")}
    assert 4 <= len(before) < 24
    assert main(["sweep", str(path), f"--out={out}"]) == 0
    after = {file: file.stat().st_mtime_ns for file in (out / "runs").glob("[!.]*.json")}
    assert len(after) == 24
    assert {file: after[file] for file in before} == before


def test_runs_that_fail_are_told_and_the_others_kept(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = sweep_file(folder, seeds=1, more='[[policies]]\nname = "hare"\n'), folder / "out"
    assert main(["sweep", str(path), f"--out={out}"]) == 1
    said = capsys.readouterr()
    assert "1 of 3 runs failed" in said.err
    assert (
        "drawn, hare, seed 0: hetsched: error: hare: these policies schedule the tasks" in said.out
    )
    assert read_columns(out / "results.parquet")["policy"] == ["fifo", "las"]
    assert "<strong>1 are missing</strong>" in (out / "sweep.html").read_text()


def test_a_wrong_policy_or_parameter_is_refused_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, words in (
        ('[[policies]]\nname = "hop"\n', "did you mean 'hops'"),
        (
            '[[policies]]\nname = "hops"\nparameters = { lam = "x" }\n',
            "try.toml: hops.lam='x' is not a number, such as 0.5",
        ),
        ("[options]\nrestart_cost = -10\n", "try.toml: options: restart_cost = -10"),
    ):
        path = sweep_file(folder, more=more)
        assert main(["sweep", str(path), f"--out={folder / 'out'}"]) == 1
        assert words in capsys.readouterr().err
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("jobs = 0", "the number of jobs is 0; expected 2"),
        ('jobs = 40, like = "phily"', "unknown trace 'phily': did you mean 'philly'"),
        ("jobs = 40, elastic_share = 2.0", "the share of elastic jobs is 2"),
        ('jobs = "many"', "'many' is not a valid integer"),
        ("jobs = 40, arrival_cv = 0.1", "variation of arrivals"),
        ('jobs = 40, models = "hops", throughputs = "cluster.toml"', "--models or --throughputs"),
    ],
)
def test_a_workload_that_cannot_be_drawn_is_refused_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], wrong: str, words: str
) -> None:
    path = sweep_file(folder)
    path.write_text(path.read_text().replace("jobs = 40", wrong))
    assert main(["sweep", str(path), f"--out={folder / 'out'}"]) == 1
    said = capsys.readouterr().err
    assert "try.toml: workload 'drawn': generate: " in said
    assert words in said
    assert not (folder / "out").exists()


def test_a_file_is_not_taken_for_the_folder_of_results(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sweep_file(folder)
    assert main(["sweep", str(path), f"--out={path}"]) == 2
    assert "try.toml is a file; give a folder, which is made if missing" in capsys.readouterr().err


def test_dry_run_prints_commands_and_runs_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", str(sweep_file(folder)), f"--out={folder / 'out'}", "--dry-run"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4
    assert all(line.startswith("hetsched replay ") for line in printed)
    assert not (folder / "out").exists()


def test_a_wrong_runner_or_option_of_it_is_refused_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", str(sweep_file(folder)), f"--out={folder / 'out'}"]
    for more, words in (
        (["--on=slrum"], "unknown runner 'slrum': did you mean 'slurm'"),
        (["--submit=partition"], "expected NAME=VALUE"),
        (["--submit=partition=cpu"], "runs in local processes have no options"),
    ):
        assert main([*command, *more]) == 1
        assert words in capsys.readouterr().err
    assert not (folder / "out").exists()
