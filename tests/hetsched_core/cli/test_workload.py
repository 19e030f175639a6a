"""`hetsched workload`: what it writes, prints and refuses."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hetsched_core.cli import main
from hetsched_core.traces.cluster_file import read_cluster
from hetsched_core.traces.load import load_workload
from hetsched_core.traces.workload_file import SCHEMA, workload_lines


class Result(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Result]


CLUSTER = """schema = "hetsched-cluster/1"
[[nodes]]
nodes = "n[1-2]"
gpu_type = "v100"
gpus = 4
"""
LOG = """JobID|User|State|Submit|Start|End|NodeList|ReqTRES|AllocTRES
1|ann|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-01T02:00:00|n1|gres/gpu=1|gres/gpu:v100=1
2|ben|FAILED|2024-01-01T01:00:00|2024-01-01T01:00:00|2024-01-01T02:00:00|n2|gres/gpu=4|gres/gpu:v100=4
3|ben|COMPLETED|2024-01-01T02:00:00|2024-01-01T02:00:00|2024-01-01T04:00:00|x9|gres/gpu=2|gres/gpu=2
4|too|few
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command with some arguments."""

    def run(*args: str | Path) -> Result:
        code = main(["workload", *map(str, args)])
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a log and a cluster of two types, so that job 3 has no type."""
    (tmp_path / "log").write_text(LOG)
    (tmp_path / "c.toml").write_text(
        CLUSTER + CLUSTER[30:].replace("n[1-2]", "k").replace("v", "k")
    )
    return tmp_path


def test_convert_writes_what_a_replay_would_run(files: Path, run: Run) -> None:
    out = files / "w.jsonl"
    options = ("--cluster", files / "c.toml", "--tz", "UTC", "--seed", "5", "--list-rejected")
    result = run("convert", files / "log", out, *options)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith(f"2 jobs written to {out}\n")
    rejected = [line for line in result.stdout.splitlines() if line.startswith("rejected: ")]
    assert len(rejected) == 2
    assert f"{files}/log: line 5" in rejected[0]
    assert "job 3 (line 4)" in rejected[1]
    assert out.read_text().startswith(f'{{"schema": "{SCHEMA}"')
    loaded = load_workload([out], read_cluster(files / "c.toml"))
    assert [s.job.id for s in loaded.workload.submissions] == ["1", "2"]
    # Converted once more it stays what it is.
    again = files / "again.jsonl"
    assert run("convert", out, again).returncode == 0
    assert again.read_text() == out.read_text()


def test_convert_to_standard_output_prints_the_workload_and_nothing_else(
    files: Path, run: Run
) -> None:
    cluster = read_cluster(files / "c.toml")
    result = run("convert", files / "log", "-", "--cluster", files / "c.toml")
    loaded = load_workload([files / "log"], cluster)
    assert result.stdout.splitlines() == list(workload_lines(loaded.workload))
    assert "2 jobs written" in result.stderr


def test_convert_does_not_replace_what_is_no_workload(files: Path, run: Run) -> None:
    (files / "log2").write_text(LOG)
    result = run("convert", files / "log", files / "log2")
    assert result.returncode == 1
    assert "log2 exists and is no workload" in result.stderr
    assert (files / "log2").read_text() == LOG


def test_show_counts_jobs_and_the_load(files: Path, run: Run) -> None:
    result = run("show", files / "log", "--cluster", files / "c.toml", "--tz", "UTC")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert any(line.startswith("2 jobs, arriving over 1.0 h") for line in lines)
    assert any("12 GPUs (8 v100, 4 k100): load " in line for line in lines)
    gpus = lines[lines.index(next(line for line in lines if line.startswith("GPUS"))) + 1 :][:2]
    assert [line.split()[:2] for line in gpus] == [["1", "1"], ["4", "1"]]
    assert "rejected: neither the log nor the cluster" in result.stdout
    assert "assumed: " in result.stdout


@pytest.mark.parametrize("command", ["convert", "show"])
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["missing"], "missing: cannot be read"),
        (["log", "--tz", "Mars/Base"], "Mars/Base"),
        (["log", "--rules", "missing"], "missing: cannot be read"),
        (["log", "--cluster", "missing"], "missing"),
        (["log", "--sacct-fields", "JobbID"], "JobbID"),
        (["empty"], "is empty"),
    ],
)
def test_bad_input_is_one_line_on_standard_error_and_code_1(
    files: Path, run: Run, command: str, args: list[str], says: str
) -> None:
    (files / "empty").touch()
    named = [str(files / arg) if arg in ("missing", "log", "empty") else arg for arg in args]
    if command == "convert":
        named.insert(1, str(files / "out"))
    result = run(command, *named)
    assert result.returncode == 1
    assert result.stderr.startswith("hetsched: error: ")
    assert result.stderr.count("\n") == 1
    assert says in result.stderr
    assert not (files / "out").exists()


def test_a_command_line_without_files_is_a_usage_error(run: Run) -> None:
    assert run("show").returncode == 2
    assert run("convert", "one").returncode == 2
