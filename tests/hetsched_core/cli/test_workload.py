"""`hetsched workload`: what it writes, prints and refuses."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import pytest

from hetsched_core.cli import main
from hetsched_core.cli.workload import generate
from hetsched_core.throughput import ProfileSet, profile_set
from hetsched_core.traces.cluster_file import read_cluster
from hetsched_core.traces.load import load_workload
from hetsched_core.traces.synthetic import SyntheticOptions
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

    def run(*args: str | float | Path) -> Result:
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
        (
            ["log", "--rules", "missing"],
            "missing does not exist; give a file of docs/formats/rules.md",
        ),
        (["log", "--cluster", "missing"], "missing"),
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


@pytest.mark.parametrize("command", ["convert", "show"])
@pytest.mark.parametrize(("option", "value"), [("--tz", "Mars/Base"), ("--sacct-fields", "JobbID")])
def test_an_option_with_a_wrong_value_is_a_usage_error(
    files: Path, run: Run, command: str, option: str, value: str
) -> None:
    named = [str(files / "log"), *([str(files / "out")] if command == "convert" else [])]
    result = run(command, *named, option, value)
    assert result.returncode == 2
    assert value in result.stderr
    assert not (files / "out").exists()


def test_a_command_line_without_files_is_a_usage_error(run: Run) -> None:
    assert run("show").returncode == 2
    assert run("convert", "one").returncode == 2


# Generated workloads ------------------------------------------------------------------------------


def test_generate_writes_a_workload_that_a_replay_takes(files: Path, run: Run) -> None:
    out, cluster = files / "w.jsonl", files / "c.toml"
    result = run("generate", out, "--cluster", cluster, "--jobs", 300, "--load", "0.7")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1].startswith("300 jobs in ")
    loaded = load_workload([out], read_cluster(cluster))
    assert len(loaded.workload.submissions) == 300
    assert any("load of the 12 GPUs is 0.70" in a for a in loaded.workload.assumptions)
    assert not (files / ".w.jsonl.part").exists()
    shown = run("show", out, "--cluster", cluster)
    assert "300 jobs, arriving over" in shown.stdout
    assert "load " in shown.stdout


def test_generate_writes_the_same_bytes_for_a_seed_and_to_standard_output(
    files: Path, run: Run
) -> None:
    asked = ("--cluster", files / "c.toml", "--jobs", 200, "--elastic-share", 0.5)
    written = {}
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        assert run("generate", files / name, *asked, "--seed", seed).returncode == 0
        written[name] = (files / name).read_text()
    assert written["one"] == written["two"] != written["other"]
    result = run("generate", "-", *asked, "--seed", 3)
    assert result.stdout == written["one"]
    assert "200 jobs in " in result.stderr


def test_generate_draws_the_models_of_a_paper(files: Path, run: Run) -> None:
    out = files / "w.jsonl"
    assert (
        run(
            *("generate", out, "--cluster", files / "c.toml", "--jobs", 3000),
            *("--models", "hops", "--like", "supercloud"),
        ).returncode
        == 0
    )
    loaded = load_workload([out], read_cluster(files / "c.toml"))
    used = {s.job.profile for s in loaded.workload.submissions}
    # What fits neither a V100 nor the unknown type, which is taken for one, is left out.
    assert used == {p.name for p in profile_set(ProfileSet.HOPS)} - {"gpt2-medium-wikitext-amp"}


def test_generate_takes_the_models_of_a_measured_table(
    files: Path, run: Run, data_dir: Path
) -> None:
    out = files / "w.jsonl"
    table = data_dir / "throughputs/gavel_physical_cluster_throughputs.json.gz"
    asked = ("--cluster", files / "c.toml", "--jobs", 2000, "--throughputs", table)
    result = run("generate", out, *asked)
    assert result.returncode == 0
    assert "no speeds on k100: no job runs there" in result.stdout
    loaded = load_workload([out], read_cluster(files / "c.toml"))
    assert "LM (batch size 80)" in loaded.workload.tables
    assert "LM (batch size 80)" in {s.job.profile for s in loaded.workload.submissions}
    assert {s.job.gpu_types for s in loaded.workload.submissions} == {frozenset({"v100"})}


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--like", "phily"], 2, "philly"),
        (["--models", "hop"], 2, "hops"),
        (["--models", "hops", "--throughputs", "table"], 2, "--models or --throughputs"),
        (["--jobs", "0"], 2, "number of jobs is 0"),
        (["--load", "-1"], 2, "load is -1"),
        (["--arrival-cv", "0.3"], 1, "variation of arrivals"),
        (["--throughputs", "missing"], 1, "--throughputs missing does not exist"),
        (["--cluster", "missing"], 1, "missing"),
    ],
)
def test_generate_refuses_what_cannot_be_drawn_and_writes_nothing(
    files: Path, run: Run, args: list[str], code: int, says: str
) -> None:
    cluster = () if "--cluster" in args else ("--cluster", files / "c.toml")
    result = run("generate", files / "out", *cluster, *args)
    assert (result.returncode, result.stdout) == (code, "")
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert not (files / "out").exists()


def test_generate_does_not_replace_what_is_no_workload(files: Path, run: Run) -> None:
    result = run("generate", files / "log", "--cluster", files / "c.toml")
    assert result.returncode == 1
    assert "is no workload" in result.stderr
    assert (files / "log").read_text() == LOG


def test_the_defaults_of_generate_are_those_of_the_options() -> None:
    chosen = {p.name: p.default for p in generate.params}
    own = SyntheticOptions()
    for field in fields(SyntheticOptions):
        if field.name != "trace":
            value = getattr(own, field.name)
            assert chosen[field.name] == value or value is None, field.name
    assert chosen["trace"] == own.trace.name
