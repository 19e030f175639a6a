"""`hetsched replay` on the bundled log, and on what people get wrong."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hetsched_core.cli.replay import _tell_result
from hetsched_core.report.result import read_result
from hetsched_core.traces.bundled import cluster_path
from tests.hetsched_core.cli.conftest import JOB, Result, Run, result_file, short_log


@pytest.fixture
def log(folder: Path) -> Path:
    log = folder / "sacct.txt"
    log.write_text(short_log())
    return log


@pytest.fixture
def replay(hetsched: Run, log: Path) -> Run:
    """Runs `hetsched replay` on the log with some options."""

    def replay(*options: object) -> Result:
        return hetsched("replay", log, "--cluster", cluster_path(), *options)

    return replay


def test_the_result_file_has_the_policies_and_their_closeness_to_the_log(replay: Run) -> None:
    assert replay("--policy", "slurm,las", "--json", "result.json").code == 0
    result = result_file()
    assert result["schema"] == 1
    assert list(result["policies"]) == ["slurm", "las"]
    assert set(result["closeness"]) == {"slurm", "las"}
    assert result["logged"]["completed"] == result["policies"]["slurm"]["completed"]
    # The first jobs of the bundled log start on submission, in the log and in any replay.
    assert result["closeness"]["slurm"]["p50_error_s"] == 0.0


def test_the_table_has_a_row_for_each_policy_and_slurm_beside_some_unless_told_otherwise(
    replay: Run,
) -> None:
    told = replay("--policy", "fifo", "--policy", "sjf, srtf").out.split("\n\n")
    measures, against_the_log, verdict = told
    policies = ["fifo", "sjf", "srtf"]
    assert [line.split()[0] for line in measures.splitlines()][3:7] == ["logged", *policies]
    assert [line.split()[0] for line in against_the_log.splitlines()][3:] == policies
    assert [line.split()[0] for line in verdict.splitlines()] == ["verdict:", "verdict:"]
    rows = [line.split()[:1] for line in replay().out.splitlines()]
    assert rows[3:8] == [["logged"], ["slurm"], ["fifo"], ["srtf"], ["las"]]


def test_what_accounts_had_is_printed_where_it_is_asked_for_and_kept_in_any_case(
    replay: Run,
) -> None:
    options = ("--policy", "fifo,las", "--json", "result.json")
    plain = replay(*options).out
    asked = replay(*options, "--accounts").out
    assert asked.startswith(plain)
    _, names, *rows = asked.removeprefix(plain).strip("\n").splitlines()
    assert names.split()[:4] == ["account", "shares", "jobs", "policy"]
    kept = result_file()["accounts"]
    assert list(kept) == ["fifo", "las"]
    accounts = [one["account"] for one in kept["fifo"] if not one["user"]]
    assert [row.split()[0] for row in rows[: 2 * len(accounts) : 2]] == accounts
    for policy, measured in kept.items():
        gpu_s = result_file()["policies"][policy]["gpu_s"]
        users = [one for one in measured if one["user"]]
        assert sum(one["had_gpu_s"] for one in users) == pytest.approx(gpu_s)
        assert sum(one["due_gpu_s"] for one in users) == pytest.approx(gpu_s)


def test_accounts_with_shares_of_the_site_are_printed_unasked(
    replay: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    replay("--policy", "fifo", "--json", "result.json")
    result = read_result(Path("result.json"))
    rows = tuple(replace(one, shares=3) for one in result.accounts["fifo"])
    for accounts, printed in ((result.accounts, False), ({"fifo": rows}, True)):
        _tell_result(replace(result, accounts=accounts), {}, accounts=False)
        assert ("account  shares  jobs" in capfd.readouterr().out) is printed


def test_a_workload_of_no_log_has_nothing_to_be_close_to(folder: Path, hetsched: Run) -> None:
    (folder / "jobs.jsonl").write_text(JOB)
    words = ("jobs.jsonl", "--cluster", cluster_path(), "--policy=slurm", "--json=result.json")
    code, out, _ = hetsched("replay", *words)
    assert code == 0
    assert (result_file()["logged"], result_file()["closeness"]) == (None, {})
    assert "log" not in out


def test_policies_that_schedule_tasks_are_named_before_any_other_runs(replay: Run) -> None:
    code, _, err = replay("--policy", "las,allox,sched-homo,fifo", "--run-log", "runs")
    assert code == 1
    told = err.splitlines()[-1]
    assert told.startswith("hetsched: error: allox, sched-homo: ")
    assert "--policy las,fifo;" in told
    assert "docs/formats/workload.md" in told
    assert not Path("runs").exists()


def test_the_example_of_a_workload_of_tasks_runs_under_the_policies_that_need_one(
    folder: Path, hetsched: Run
) -> None:
    page = Path(__file__).parents[3] / "docs" / "formats" / "workload.md"
    example = page.read_text().partition("## Jobs of tasks")[2].split("```")[1]
    (folder / "jobs.jsonl").write_text(example.removeprefix("jsonl\n"))
    made = hetsched("cluster", "generate", "--gpus=2", "--gpus-per-node=1", "--types=a100")
    (folder / "cluster.toml").write_text(made.out)
    options = ("--cluster=cluster.toml", "--policy=allox,sched-homo,hlas", "--json=result.json")
    for estimates in ("truth", "learned"):
        told = hetsched("replay", "jobs.jsonl", *options, f"--estimates={estimates}")
        assert told.code == 0
        completed = {name: each["completed"] for name, each in result_file()["policies"].items()}
        assert completed == {"allox": 1, "sched-homo": 1, "hlas": 1}
        given = "The times of training tasks are given, not learned."
        assert (given in result_file()["input"]["assumptions"]) is (estimates == "learned")


def test_learned_estimates_and_a_spread_of_nodes_change_the_run_and_are_told(replay: Run) -> None:
    inputs, runs = {}, {}
    for name, option in {
        "plain": "--seed=0",
        "truth": "--estimates=truth",
        "learned": "--estimates=learned",
        "again": "--estimates=learned",
        "spread": "--node-spread=lonestar6-resnet",
    }.items():
        written = ("--policy=srtf", "--json=result.json", f"--run-log={name}")
        assert replay(option, *written).code == 0
        inputs[name] = result_file()["input"]
        lines = Path(name, "srtf.jsonl").read_text().splitlines()
        runs[name] = tuple(line for line in lines if '"run"' in line)
    assert runs["plain"] == runs["truth"]
    assert runs["learned"] == runs["again"]
    assert len(set(runs.values())) == 3
    assert inputs["learned"]["settings"]["estimates"] == "learned"
    assert inputs["spread"]["settings"]["node_spread"] == "lonestar6-resnet"
    assert "noise of 1%" in inputs["learned"]["assumptions"][-1]
    assert "73 nodes with A100 of Lonestar6 did with ResNet" in inputs["spread"]["assumptions"][-1]


def test_sizes_that_are_hidden_are_told_to_no_policy(folder: Path, hetsched: Run) -> None:
    cluster = ("--cluster", cluster_path())
    crowd = ("--jobs=100", "--like=helios", "--load=30")
    assert hetsched("workload", "generate", "jobs", *cluster, *crowd).code == 0
    took_s = {}
    for option in ("--types=asked", "--hide-sizes"):
        options = (option, "--policy=las,srtf", "--json=result.json")
        assert hetsched("replay", "jobs", *cluster, *options).code == 0
        found = result_file()
        took_s[option] = [found["policies"][name]["avg_jct_s"] for name in ("las", "srtf")]
    (las, srtf), (las_hidden, srtf_hidden) = took_s.values()
    # The work is the same; the order of that which reads sizes is another one.
    assert las == las_hidden
    assert srtf != srtf_hidden
    assert found["input"]["settings"]["hide_sizes"] is True
    assert "No job tells how much work it is (`--hide-sizes`)." in found["input"]["assumptions"]


def test_jobs_of_a_warm_up_run_and_do_not_count(replay: Run) -> None:
    def measured(*options: str) -> dict[str, Any]:
        assert replay("--policy=fifo", "--json=result.json", "--run-log=runs", *options).code == 0
        return result_file()

    whole, runs = measured(), Path("runs", "fifo.jsonl").read_text()
    part = measured("--warm-up=1")
    assert Path("runs", "fifo.jsonl").read_text().count("\n") == runs.count("\n")
    jobs, counted = (each["policies"]["fifo"]["jobs"] for each in (whole, part))
    assert 0 < counted < jobs
    assert part["logged"]["completed"] <= counted
    assert part["input"]["settings"]["warm_up"] == 1.0
    assert f"Measures are of {counted} of {jobs} jobs" in part["input"]["assumptions"][-1]
    code, _, err = replay("--drain=1e8")
    assert code == 1
    assert "leave no job to count" in err


@pytest.mark.parametrize(
    ("option", "code", "told"),
    [
        ("--policy=fido", 2, "did you mean 'fifo'"),
        ("--policy=,", 2, "names no policy"),
        ("--policy=slurm,slurm", 2, "names slurm twice"),
        ("--round=0", 2, "from 0.001 to"),
        ("--round=nan", 2, "from 0.001 to"),
        ("--restart-cost=1e30", 2, "from 0 to 86400"),
        ("--switch-cost=.5x", 2, "is not a number of seconds from 0 to 86400"),
        ("--switch-cost=hair", 2, "is neither "),
        ("--grace=-1", 2, "from 0 to 86400"),
        ("--set=las.x", 2, "POLICY.NAME=VALUE"),
        ("--set=fifo.speed=3", 2, "speed"),
        ("--set=las.threshold_gpu_h=nan", 2, "--set for las: "),
        ("--tz=Nowhere/City", 2, "Nowhere/City"),
        ("--seed=-1", 2, "-1"),
        ("--estimates=guessed", 2, "'truth', 'learned'"),
        ("--node-spread=longhorn-bart", 2, "did you mean 'longhorn-bert'"),
        ("--json=sacct.txt", 1, "would replace the input"),
        ("--rejects=sacct.txt", 1, "would replace the input"),
        ("--json=same --rejects=same", 1, "would replace the output of --json"),
        ("--json=missing/result.json", 1, "there is no folder"),
        ("--json=.", 1, "is a folder"),
        ("--report=missing/report", 1, "there is no folder"),
        ("--run-log=missing/logs", 1, "there is no folder"),
        ("--run-log=sacct.txt", 1, "is a file"),
        ("--report=sacct.txt", 1, "is a file"),
        ("--json=-", 1, "--json -: standard output has the comparison"),
        ("--rejects=-", 1, "--rejects -: standard output has the comparison"),
        ("--cluster=/", 1, "--cluster / is a folder; give a file of docs/formats/"),
        ("--rules=/none", 1, "--rules /none does not exist; give a file of docs/formats/"),
        ("--throughputs=/none", 1, "--throughputs /none does not exist; give a file of docs/f"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_a_file_that_will_not_do_1_before_any_work(
    replay: Run, folder: Path, log: Path, option: str, code: int, told: str
) -> None:
    before = log.read_bytes()
    result = replay(*option.split())
    assert result.code == code
    assert told in result.err
    assert "policy" not in result.out
    assert list(folder.iterdir()) == [log]
    assert log.read_bytes() == before


def test_doubts_say_whether_all_lines_with_them_are_named(replay: Run, log: Path) -> None:
    header, *lines = log.read_text().splitlines()
    at = header.split("|").index("State")
    rows = [line.split("|") for line in lines]
    strange = ["|".join([*row[:at], "DREAMING", *row[at + 1 :]]) for row in rows]
    log.write_text("\n".join([header, *strange]) + "\n")
    code, _, err = replay("--policy", "fifo")
    assert code == 0
    assert any("in doubt" in line and "(the first: " in line for line in err.splitlines())


def test_jobs_that_can_never_run_are_warned_of_and_listed(replay: Run, folder: Path) -> None:
    rules = 'schema = "hetsched-rules/1"\n[[rules]]\ngpu_types = ["h100"]\n'
    (folder / "rules.toml").write_text(rules)
    code, _, err = replay("--rules=rules.toml", "--rejects=rejects")
    assert code == 0
    assert "can never run on this cluster" in err
    assert "can never run here" in (folder / "rejects").read_text()
