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
from hetsched_core.sweep.runs import digest
from hetsched_core.traces.cluster_file import ClusterFile, format_cluster
from tests.hetsched_core.worlds import cluster_of

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
MINE = (Path(__file__).parents[3] / "docs/policies/example_policy.py").read_text()
CLUSTER = format_cluster(ClusterFile(cluster_of(a=("a100", 8), v=("v100", 8))))


def sweep(folder: Path, seeds: int = 2, more: str = "") -> list[str]:
    """Write a sweep and return the words of the command that runs it."""
    (folder / "cluster.toml").write_text(CLUSTER)
    path = folder / "try.toml"
    path.write_text(SWEEP.format(seeds=seeds, more=more))
    return ["sweep", str(path), f"--out={folder / 'out'}"]


def results(folder: Path) -> dict[Path, int]:
    """The results that are there, and when each was written."""
    files = (folder / "out/runs").glob("[!.]*.json")
    return {file: file.stat().st_mtime_ns for file in files}


def test_every_run_is_a_row_and_the_page_has_means_over_the_seeds(tmp_path: Path) -> None:
    assert main([*sweep(tmp_path), "--at-once=2"]) == 0
    rows = read_columns(tmp_path / "out/results.parquet")
    assert rows["policy"] == ["fifo", "las"] * 2
    assert rows["seed"] == [0, 0, 1, 1]
    written = {
        (result.input.settings["seed"], policy): measures.avg_jct_s
        for result in map(read_result, results(tmp_path))
        for policy, measures in result.policies.items()
    }
    runs = zip(rows["seed"], map(str, rows["policy"]), strict=True)
    assert len(written) == len(results(tmp_path)) == 4
    assert [written[run] for run in runs] == rows["avg_jct_s"]
    assert all(0 < float(str(value)) <= 1 for value in rows["jain_slowdown"])
    assert all(float(str(value)) >= 0 for value in rows["worst_share_error"])
    page = (tmp_path / "out/sweep.html").read_text()
    assert "4 of 4 runs are done" in page
    assert "Evenness of users’ slowdowns" in page
    mean = estimate([float(str(v)) for v in rows["restarts"][1::2]])
    assert mean is not None
    assert f"{mean.mean:.0f}" in page
    assert '<span class="unit">± ' in page
    assert "<script" not in page
    assert "http" not in page


def test_a_sweep_that_was_killed_goes_on_with_the_runs_that_are_missing(tmp_path: Path) -> None:
    words = sweep(tmp_path, seeds=12)
    command = [*HETSCHED, *words]
    killed = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(results(tmp_path)) < 4:
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    before = results(tmp_path)
    assert 4 <= len(before) < 24
    assert main(words) == 0
    after = results(tmp_path)
    assert len(after) == 24
    assert {file: after[file] for file in before} == before


def test_runs_that_fail_are_told_and_the_others_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(sweep(tmp_path, seeds=1, more='[[policies]]\nname = "hare"\n')) == 1
    said = capsys.readouterr()
    assert "1 of 3 runs failed" in said.err
    assert (
        "drawn, hare, seed 0: hetsched: error: hare: these policies schedule the tasks" in said.out
    )
    assert read_columns(tmp_path / "out/results.parquet")["policy"] == ["fifo", "las"]
    assert "<strong>1 are missing</strong>" in (tmp_path / "out/sweep.html").read_text()


def test_a_policy_by_its_file_is_run_anew_when_the_file_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(MINE)
    more = '[[policies]]\nname = "mine.py:WidestFirst"\nparameters = { most = [1, 9] }\n'
    words = sweep(tmp_path, seeds=1, more=more)
    assert main(words) == 0
    first = results(tmp_path)
    labels = read_columns(tmp_path / "out/results.parquet")["label"]
    assert labels == ["fifo", "las", "widest-first most=1", "widest-first most=9"]
    mine.write_text(MINE + "\n")
    digest.cache_clear()
    capsys.readouterr()
    assert main([*words, "--dry-run"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [f"--policy={mine}:WidestFirst" in line for line in printed] == [True, True]
    assert main(words) == 0
    assert len(results(tmp_path)) == len(first) + 2
    assert {file: results(tmp_path)[file] for file in first} == first


@pytest.mark.parametrize(
    ("written", "asked", "says"),
    [
        (None, "mine.py:WidestFirst", "there is no file"),
        (MINE, "mine.py:Other", "unknown class of"),
        (
            MINE.replace('"widest-first"', '"las"'),
            "mine.py:WidestFirst",
            "policy 'las' is there twice",
        ),
    ],
)
def test_a_file_that_has_no_policy_of_a_name_of_its_own_is_refused(
    tmp_path: Path, written: str | None, asked: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if written is not None:
        (tmp_path / "mine.py").write_text(written)
    words = sweep(tmp_path, seeds=1, more=f'[[policies]]\nname = "{asked}"\n')
    assert main(words) == 1
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_dry_run_prints_commands_and_runs_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*sweep(tmp_path), "--dry-run"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4
    assert all(line.startswith("hetsched replay ") for line in printed)
    assert not (tmp_path / "out").exists()


DRAWN = "jobs = 40, load = 1.0"
LAS = 'name = "las"'


@pytest.mark.parametrize(
    ("was", "put", "words"),
    [
        (LAS, 'name = "hop"', "did you mean 'hops'"),
        (
            LAS,
            'name = "hops"\nparameters = { lam = "x" }',
            "try.toml: hops.lam='x' is not a number",
        ),
        (LAS, LAS + "\n[options]\nrestart_cost = -10", "try.toml: options: restart_cost = -10"),
        (DRAWN, "jobs = 0", "jobs = 0 is not within 2 and 1e+09"),
        (DRAWN, 'jobs = 40, like = "phily"', "unknown trace 'phily': did you mean 'philly'"),
        (DRAWN, "jobs = 40, elastic_share = 2.0", "elastic_share = 2.0 is not within 0 and 1"),
        (DRAWN, 'jobs = "many"', "'many' is not a valid integer"),
        (DRAWN, "jobs = 40, arrival_cv = 0.1", "variation of arrivals"),
        (DRAWN, 'models = "hops", throughputs = "cluster.toml"', "--models or --throughputs"),
    ],
)
def test_what_cannot_be_run_or_drawn_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], was: str, put: str, words: str
) -> None:
    command = sweep(tmp_path)
    path = tmp_path / "try.toml"
    path.write_text(path.read_text().replace(was, put))
    assert main(command) == 1
    said = capsys.readouterr().err
    assert words in said
    assert was != DRAWN or "try.toml: workload 'drawn': generate: " in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "code", "words"),
    [
        ("--on=slrum", 1, "unknown runner 'slrum': did you mean 'slurm'"),
        ("--submit=partition", 1, "expected NAME=VALUE"),
        ("--submit=partition=cpu", 1, "runs in local processes have no options"),
        ("--out=try.toml", 2, "try.toml is a file; give a folder, which is made if missing"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    code: int,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*sweep(tmp_path), option]) == code
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
