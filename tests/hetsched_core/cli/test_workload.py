"""`hetsched workload`: what it writes, prints and refuses."""

import json
from pathlib import Path

import pytest

from hetsched_core.traces.cluster_file import read_cluster
from hetsched_core.traces.load import Inputs, load_workload
from hetsched_core.traces.workload_file import SCHEMA, workload_lines
from tests.hetsched_core.cli.conftest import V100S, Run, write

# Of two types, so that job 3 has none.
CLUSTER = 'schema = "hetsched-cluster/1"\n' + V100S + V100S.replace("n[1-2]", "k").replace("v", "k")
LOG = """JobID|User|State|Submit|Start|End|NodeList|ReqTRES|AllocTRES
1|ann|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-01T02:00:00|n1|gres/gpu=1|gres/gpu:v100=1
2|ben|FAILED|2024-01-01T01:00:00|2024-01-01T01:00:00|2024-01-01T02:00:00|n2|gres/gpu=4|gres/gpu:v100=4
3|ben|COMPLETED|2024-01-01T02:00:00|2024-01-01T02:00:00|2024-01-01T04:00:00|x9|gres/gpu=2|gres/gpu=2
4|too|few
"""
WITH_CLUSTER = ("--cluster", "c.toml")
GENERATE = "generate out --cluster=c.toml"


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    write(folder, {"log": LOG, "c.toml": CLUSTER, "empty": ""})


def loaded(name: str) -> Inputs:
    return load_workload([Path(name)], read_cluster(Path("c.toml")))


def test_convert_takes_published_traces_and_tells_what_it_leaves_out(hetsched: Run) -> None:
    Path("jobs.csv").write_text("j1,i1,ann,Terminated,0,9000\n")
    rows = "j1,worker,2,Terminated,60,9000,600,29.3,100,V100\nj2,worker,1,Failed,1,2,600,2,50,T4\n"
    Path("tasks.csv").write_text(rows)
    options = (*WITH_CLUSTER, "--list-rejected")
    code, out, err = hetsched("workload", "convert", "tasks.csv", "jobs.csv", "w.jsonl", *options)
    assert (code, err) == (0, "")
    assert "tasks.csv: 2 lines: 1 GPU allocation," in out
    assert "rejected: tasks.csv: line 2: part of a GPU: asks for 50 %" in out
    assert "no GPU allocation" not in out
    (job,) = (s.job for s in loaded("w.jsonl").workload.submissions)
    assert (job.id, job.user, job.requirements.counts) == ("j1", "ann", (2,))
    code, _, err = hetsched("workload", "convert", "tasks.csv", "log", "w.jsonl", *WITH_CLUSTER)
    assert code == 1
    assert "tasks.csv (published trace), log (Slurm accounting); give those of one kind" in err


def test_convert_writes_what_a_replay_would_run(hetsched: Run) -> None:
    options = (*WITH_CLUSTER, "--tz", "UTC", "--seed", "5", "--list-rejected")
    code, out, err = hetsched("workload", "convert", "log", "w.jsonl", *options)
    assert (code, err) == (0, "")
    assert out.endswith("2 jobs written to w.jsonl\n")
    first, second = (line for line in out.splitlines() if line.startswith("rejected: "))
    assert "log: line 5" in first
    assert "job 3 (line 4)" in second
    text = Path("w.jsonl").read_text()
    assert text.startswith(f'{{"schema": "{SCHEMA}"')
    assert [s.job.id for s in loaded("w.jsonl").workload.submissions] == ["1", "2"]
    # Converted once more it stays what it is.
    assert hetsched("workload", "convert", "w.jsonl", "again.jsonl").code == 0
    assert Path("again.jsonl").read_text() == text


def test_convert_keeps_a_share_of_the_jobs_and_gives_them_a_load(hetsched: Run) -> None:
    changed = ("--thin=0.5", "--load=0.7", "--seed=3")
    code, out, _ = hetsched("workload", "convert", "log", "w.jsonl", *changed, *WITH_CLUSTER)
    assert code == 0
    assert "jobs were kept, drawn by chance (share 0.5)" in out
    assert "(0.70 at the mean speed" in hetsched("workload", "show", "w.jsonl", *WITH_CLUSTER).out


def test_convert_to_standard_output_prints_the_workload_and_nothing_else(hetsched: Run) -> None:
    _, out, err = hetsched("workload", "convert", "log", "-", *WITH_CLUSTER)
    assert out.splitlines() == list(workload_lines(loaded("log").workload))
    assert "2 jobs written" in err


def test_show_counts_jobs_and_the_load(hetsched: Run) -> None:
    code, out, _ = hetsched("workload", "show", "log", *WITH_CLUSTER, "--tz", "UTC")
    assert code == 0
    lines = out.splitlines()
    assert any(line.startswith("2 jobs, arriving over 1.0 h") for line in lines)
    assert any("12 GPUs (8 v100, 4 k100): load " in line for line in lines)
    gpus = lines[lines.index(next(line for line in lines if line.startswith("GPUS"))) + 1 :][:2]
    assert [line.split()[:2] for line in gpus] == [["1", "1"], ["4", "1"]]
    assert "rejected: neither the log nor the cluster" in out
    assert "assumed: " in out


# Generated workloads ------------------------------------------------------------------------------


def test_generate_writes_a_workload_that_a_replay_takes(hetsched: Run) -> None:
    asked = (*WITH_CLUSTER, "--jobs", 300, "--load", "0.7")
    code, out, err = hetsched("workload", "generate", "w.jsonl", *asked)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("300 jobs in ")
    workload = loaded("w.jsonl").workload
    assert len(workload.submissions) == 300
    assert any("load of the 12 GPUs is 0.70" in a for a in workload.assumptions)
    assert not list(Path().glob(".*"))


def test_generate_writes_the_same_bytes_for_a_seed_and_to_standard_output(hetsched: Run) -> None:
    asked = (*WITH_CLUSTER, "--jobs", 200, "--elastic-share", 0.5)
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        assert hetsched("workload", "generate", name, *asked, "--seed", seed).code == 0
    one, two, other = (Path(name).read_text() for name in ("one", "two", "other"))
    assert one == two != other
    _, out, err = hetsched("workload", "generate", "-", *asked, "--seed", 3)
    assert out == one
    assert "200 jobs in " in err


@pytest.mark.parametrize("measured", [False, True])
def test_generate_makes_jobs_of_tasks_for_the_policies_that_schedule_these(
    hetsched: Run, request: pytest.FixtureRequest, measured: bool
) -> None:
    models = "--models=hare"
    if measured:
        folder = request.getfixturevalue("data_dir") / "throughputs"
        models = f"--throughputs={folder / 'gavel_physical_cluster_throughputs.json.gz'}"
    asked = (*WITH_CLUSTER, "--jobs=12", "--time-scale=0.05", "--task-s=60", models)
    assert hetsched("workload", "generate", "w.jsonl", *asked).code == 0
    words = ("replay", "w.jsonl", *WITH_CLUSTER, "--policy=hlas,allox", "--json", "found.json")
    assert hetsched(*words).code == 0
    found = json.loads(Path("found.json").read_text())
    assert {name: of["completed"] for name, of in found["policies"].items()} == {
        "hlas": 12,
        "allox": 12,
    }


def test_generate_takes_the_models_of_a_measured_table(hetsched: Run, data_dir: Path) -> None:
    table = data_dir / "throughputs/gavel_physical_cluster_throughputs.json.gz"
    asked = (*WITH_CLUSTER, "--jobs", 2000, "--throughputs", table)
    code, out, _ = hetsched("workload", "generate", "w.jsonl", *asked)
    assert code == 0
    assert "no speeds on k100: no job runs there" in out
    workload = loaded("w.jsonl").workload
    assert "LM (batch size 80)" in workload.tables
    assert "LM (batch size 80)" in {s.job.profile for s in workload.submissions}
    assert {s.job.gpu_types for s in workload.submissions} == {frozenset({"v100"})}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("show missing", 1, "missing: cannot be read"),
        ("show empty", 1, "is empty"),
        ("show log --rules=missing", 1, "missing does not exist; give a file of docs/formats/r"),
        ("show log --cluster=missing", 1, "missing"),
        ("show log --tz=Mars/Base", 2, "Mars/Base"),
        ("show log --sacct-fields=JobbID", 2, "JobbID"),
        (f"{GENERATE} --like=phily", 2, "philly"),
        (f"{GENERATE} --models=hop", 2, "hops"),
        (f"{GENERATE} --models=hops --throughputs=table", 2, "--models or --throughputs"),
        (f"{GENERATE} --jobs=0", 2, "jobs = 0 is not within 2 and 1e+09"),
        (f"{GENERATE} --task-s=0", 2, "task_s = 0.0 is not within 0.001 and 1e+09"),
        (f"{GENERATE} --arrival-cv=0.3", 1, "variation of arrivals"),
        (f"{GENERATE} --throughputs=missing", 1, "--throughputs missing does not exist"),
    ],
)
def test_bad_input_is_one_line_and_exit_1_and_a_wrong_option_exit_2(
    hetsched: Run, words: str, code: int, says: str
) -> None:
    result = hetsched("workload", *words.split())
    assert (result.code, result.out) == (code, "")
    assert says in result.err
    assert "Traceback" not in result.err
    if code == 1:
        assert result.err.startswith("hetsched: error: ")
        assert result.err.count("\n") == 1
    assert not Path("out").exists()


@pytest.mark.parametrize("words", ["convert log log2", "generate log2 --cluster=c.toml"])
def test_what_is_no_workload_is_not_replaced(hetsched: Run, words: str) -> None:
    Path("log2").write_text(LOG)
    code, _, err = hetsched("workload", *words.split())
    assert code == 1
    assert "log2 exists and is no workload" in err
    assert Path("log2").read_text() == LOG
