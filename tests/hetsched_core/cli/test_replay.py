"""`hetsched replay` on the bundled log, and on what people get wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hetsched_core.cli import main
from hetsched_core.traces.bundled import cluster_path, log_path

HEAD = 60
"""Lines of the bundled log that a quick run takes."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    lines = log_path().read_text().splitlines(keepends=True)
    short = tmp_path / "sacct.txt"
    short.write_text("".join(lines[:HEAD]))
    return short


def replay(log: Path, *options: str) -> int:
    return main(["replay", str(log), "--cluster", str(cluster_path()), *options])


def test_the_result_file_has_every_key_of_schema_1(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    assert replay(log, "--policy", "fifo,las", "--json", str(out)) == 0
    result = json.loads(out.read_text())
    assert result["schema"] == 1
    assert list(result["policies"]) == ["fifo", "las"]
    wanted = (
        *("jobs", "completed", "failed", "never", "makespan_s", "avg_jct_s", "p50_jct_s"),
        *("p99_jct_s", "avg_wait_s", "max_latency_ratio", "avg_fragments", "ftf_max"),
        *("ftf_unfair_share", "gpu_utilisation", "lost_gpu_s", "restarts", "preemptions"),
        *("rounds", "plans", "plan_s", "wall_s"),
    )
    for measures in result["policies"].values():
        assert set(wanted) <= set(measures)
        assert set(measures["plan_s"]) == {"mean", "p95", "max"}


def test_the_table_has_a_row_for_each_policy(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(log, "--policy", "fifo", "--policy", "sjf, srtf") == 0
    measures, against_the_log = capsys.readouterr().out.split("\n\n")
    rows = [line.split()[0] for line in measures.splitlines()]
    assert rows[3:7] == ["logged", "fifo", "sjf", "srtf"]
    rows = [line.split()[0] for line in against_the_log.splitlines()]
    assert rows[3:] == ["fifo", "sjf", "srtf"]


def test_slurm_is_what_others_are_compared_with_unless_told_otherwise(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(log) == 0
    rows = [line.split()[:1] for line in capsys.readouterr().out.splitlines()]
    assert rows[3:8] == [["logged"], ["slurm"], ["fifo"], ["srtf"], ["las"]]


def test_the_closeness_to_the_log_is_in_the_result_file(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    assert replay(log, "--policy", "slurm,las", "--json", str(out)) == 0
    result = json.loads(out.read_text())
    assert set(result["closeness"]) == {"slurm", "las"}
    completed = result["policies"]["slurm"]["completed"]
    assert result["logged"]["completed"] == completed
    # The first jobs of the bundled log start on submission, in the log and in any replay.
    assert result["closeness"]["slurm"]["p50_error_s"] == 0.0


def test_a_workload_of_no_log_has_nothing_to_be_close_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs, out = tmp_path / "jobs.jsonl", tmp_path / "result.json"
    jobs.write_text(
        '{"schema": "hetsched-workload/1"}\n{"job": "1", "submit_s": 0, "requirements": [1], '
        '"profile": "resnet50-imagenet", "samples": 1000}\n'
    )
    assert replay(jobs, "--policy", "slurm", "--json", str(out)) == 0
    result = json.loads(out.read_text())
    assert (result["logged"], result["closeness"]) == (None, {})
    assert "log" not in capsys.readouterr().out


def test_policies_that_schedule_tasks_are_named_before_any_other_runs(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    assert replay(log, "--policy", "las,allox,sched-homo,fifo", "--run-log", str(runs)) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("hetsched: error: allox, sched-homo: ")
    assert "--policy las,fifo;" in told
    assert "docs/formats/workload.md" in told
    assert list(runs.iterdir()) == []


def test_the_example_of_a_workload_of_tasks_runs_under_the_policies_that_need_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[3] / "docs" / "formats" / "workload.md"
    example = page.read_text().partition("## Jobs of tasks")[2].split("```")[1]
    jobs, cluster = tmp_path / "jobs.jsonl", tmp_path / "cluster.toml"
    jobs.write_text(example.removeprefix("jsonl\n"))
    assert (
        main(["cluster", "generate", "--gpus", "2", "--gpus-per-node", "1", "--types", "a100"]) == 0
    )
    cluster.write_text(capsys.readouterr().out)
    out = tmp_path / "result.json"
    options = ["--policy", "allox,sched-homo,hlas", "--json", str(out)]
    for estimates in ("truth", "learned"):
        told = ["--cluster", str(cluster), "--estimates", estimates, *options]
        assert main(["replay", str(jobs), *told]) == 0
        result = json.loads(out.read_text())
        assert {name: each["completed"] for name, each in result["policies"].items()} == {
            "allox": 1,
            "sched-homo": 1,
            "hlas": 1,
        }
        given = "The times of training tasks are given, not learned."
        assert (given in result["input"]["assumptions"]) is (estimates == "learned")


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--policy", "fido", "did you mean 'fifo'"),
        ("--policy", ",", "names no policy"),
        ("--policy", "slurm,slurm", "names slurm twice"),
        ("--round", "0", "from 0.001 to"),
        ("--round", "nan", "from 0.001 to"),
        ("--restart-cost", "1e30", "from 0 to 86400"),
        ("--grace", "-1", "from 0 to 86400"),
        ("--set", "las.x", "POLICY.NAME=VALUE"),
        ("--set", "fifo.speed=3", "speed"),
        ("--set", "las.threshold_gpu_h=nan", "--set for las: "),
        ("--tz", "Nowhere/City", "Nowhere/City"),
        ("--seed", "-1", "-1"),
        ("--estimates", "guessed", "'truth', 'learned'"),
        ("--node-spread", "longhorn-bart", "did you mean 'longhorn-bert'"),
    ],
)
def test_wrong_usage_is_told_with_exit_code_2(
    log: Path, option: str, value: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(log, option, value) == 2
    assert told in capsys.readouterr().err


def test_learned_estimates_and_a_spread_of_nodes_change_the_run_and_are_told(
    log: Path, tmp_path: Path
) -> None:
    results = {}
    for name, options in {
        "plain": [],
        "truth": ["--estimates", "truth"],
        "learned": ["--estimates", "learned"],
        "again": ["--estimates", "learned"],
        "spread": ["--node-spread", "lonestar6-resnet"],
    }.items():
        out = tmp_path / f"{name}.json"
        logs = tmp_path / name
        options = [*options, "--policy", "srtf", "--json", str(out), "--run-log", str(logs)]
        assert replay(log, *options) == 0
        runs = [line for line in (logs / "srtf.jsonl").read_text().splitlines() if '"run"' in line]
        results[name] = (json.loads(out.read_text()), runs)
    assert results["plain"][1] == results["truth"][1]
    assert results["learned"][1] == results["again"][1]
    assert len({tuple(runs) for _, runs in results.values()}) == 3
    told = {name: result["input"] for name, (result, _) in results.items()}
    assert told["learned"]["settings"]["estimates"] == "learned"
    assert told["spread"]["settings"]["node_spread"] == "lonestar6-resnet"
    assert "noise of 1%" in told["learned"]["assumptions"][-1]
    assert "73 nodes with A100 of Lonestar6 did with ResNet" in told["spread"]["assumptions"][-1]


@pytest.mark.parametrize("option", ["--json", "--rejects"])
def test_no_output_replaces_an_input(
    log: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = log.read_bytes()
    assert replay(log, option, str(log)) == 1
    assert "would replace the input" in capsys.readouterr().err
    assert log.read_bytes() == before


def test_two_outputs_do_not_share_a_file(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = str(tmp_path / "same")
    assert replay(log, "--json", same, "--rejects", same) == 1
    assert "would replace the output of --json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "path", "told"),
    [
        ("--json", "missing/result.json", "there is no folder"),
        ("--json", ".", "is a folder"),
        ("--report", "missing/report", "there is no folder"),
        ("--run-log", "missing/logs", "there is no folder"),
        ("--run-log", "sacct.txt", "is a file"),
        ("--report", "sacct.txt", "is a file"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    log: Path, option: str, path: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(log, option, str(log.parent / path)) == 1
    written = capsys.readouterr()
    assert told in written.err
    assert "policy" not in written.out


@pytest.mark.parametrize("option", ["--json", "--rejects"])
def test_an_output_file_is_not_standard_output(
    log: Path,
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert replay(log, option, "-") == 1
    assert f"{option} -: standard output has the comparison" in capsys.readouterr().err
    assert not Path("-").exists()


@pytest.mark.parametrize("option", ["--cluster", "--rules", "--throughputs"])
@pytest.mark.parametrize(("path", "told"), [("/", "is a folder"), ("/none", "does not exist")])
def test_an_input_that_is_no_file_is_told_with_its_option(
    log: Path, option: str, path: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(log), option, path]) == 1
    assert f"{option} {path} {told}; give a file of docs/formats/" in capsys.readouterr().err


def test_a_log_without_a_usable_line_says_why(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header, line, *_ = log.read_text().splitlines()
    log.write_text(f"{header}\n{line}|more|fields\n")
    assert replay(log) == 1
    told = capsys.readouterr().err
    assert "1 unusable: wrong number of fields, the first: line 2" in told


def test_doubts_say_whether_all_lines_with_them_are_named(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header, *lines = log.read_text().splitlines()
    at = header.split("|").index("State")
    rows = [line.split("|") for line in lines]
    strange = ["|".join([*row[:at], "DREAMING", *row[at + 1 :]]) for row in rows]
    log.write_text("\n".join([header, *strange]) + "\n")
    assert replay(log, "--policy", "fifo") == 0
    doubts = [line for line in capsys.readouterr().err.splitlines() if "in doubt" in line]
    assert any("(the first: " in line for line in doubts)


def test_jobs_that_can_never_run_are_warned_of_and_listed(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('schema = "hetsched-rules/1"\n[[rules]]\ngpu_types = ["h100"]\n')
    rejects = tmp_path / "rejects"
    assert replay(log, "--rules", str(rules), "--rejects", str(rejects)) == 0
    assert "can never run on this cluster" in capsys.readouterr().err
    assert "can never run here" in rejects.read_text()


def test_a_full_disk_behind_standard_output_is_one_line() -> None:
    command = "from hetsched_core.cli import main; raise SystemExit(main(['policies']))"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["hetsched: error: standard output: No space left on device"]
