"""`hetsched replay --report` and `--seeds`: the page, what is refused, and the command it names."""

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import NamedTuple

import pytest

from hetsched_core.cli import main

CLUSTER = """schema = "hetsched-cluster/1"
name = "campus"
[[nodes]]
nodes = "n[1-2]"
gpu_type = "v100"
gpus = 2
[[nodes]]
nodes = "k1"
gpu_type = "k80"
gpus = 2
"""
FOX_FIELDS = (
    "JobID,JobIDRaw,User,Account,State,Start,End,AveCPU,AveDiskRead,AveDiskWrite,AveRSS,AveVMSize,"
    "ElapsedRaw,ExitCode,Layout,MaxRSS,MaxVMSize,MinCPU,ReqCPUS,ReqMem,ReqNodes,Reservation,Submit,"
    "Suspended,SystemCPU,TimelimitRaw,UserCPU,NodeList,Partition,AllocTRES,Priority,JobName"
)


class Result(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `hetsched replay` with some arguments."""

    def run(*args: str | Path) -> Result:
        code = main(["replay", *map(str, args)])
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: a log whose jobs say nothing of their models, a workload, a cluster."""
    lines = ["JobID|User|State|Submit|Start|End|NodeList|ReqTRES|AllocTRES"]
    jobs = ['{"schema": "hetsched-workload/1"}']
    for at in range(12):
        hour = f"2024-01-01T{at:02}:00:00"
        end = f"2024-01-01T{at + 5:02}:30:00"
        lines.append(f"{at}|u{at % 3}|COMPLETED|{hour}|{hour}|{end}|n1|gres/gpu=2|gres/gpu:v100=2")
        jobs.append(
            f'{{"job": "{at}", "submit_s": {1704067200 + 600 * at}, "requirements": [2], '
            f'"profile": "resnet50-imagenet", "samples": {100_000 * (1 + at % 5)}}}'
        )
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "jobs.jsonl").write_text("\n".join(jobs) + "\n")
    (tmp_path / "c.toml").write_text(CLUSTER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def page(folder: Path) -> str:
    return (folder / "report.html").read_text()


def values(text: str, measure: str) -> list[float]:
    row = re.search(rf'<tr id="m-{measure}".*?</tr>', text, re.DOTALL)
    assert row is not None
    return [float(value) for value in re.findall(r'<data value="([^"]*)"', row[0])]


def test_the_page_has_the_numbers_of_the_result_file(files: Path, run: Run) -> None:
    result = run(
        *("log.txt", "--cluster", "c.toml", "--policy", "fifo,las"),
        *("--report", files / "folder", "--json", "r.json"),
    )
    assert result.returncode == 0, result.stderr
    text = page(files / "folder")
    assert f"report: {files}/folder/report.html (" in result.stderr
    written = json.loads((files / "r.json").read_text())["policies"]
    for measure in ("completed", "avg_jct_s", "avg_wait_s", "gpu_utilisation", "restarts"):
        assert values(text, measure) == [written[name][measure] for name in ("fifo", "las")]
    digest = hashlib.sha256((files / "log.txt").read_bytes()).hexdigest()
    assert digest in text


def test_the_command_in_the_page_makes_the_page_again(files: Path, run: Run) -> None:
    run(
        *("log.txt", "--cluster", "c.toml", "--policy", "fifo,srtf", "--seed", "3", "--elastic"),
        *("--tz", "Europe/Oslo", "--report", "one", "--json", "r.json", "--run-log", "logs"),
    )
    first = page(files / "one")
    (code,) = re.findall(r"<pre><code>(.*?)</code></pre>", first, re.DOTALL)
    words = shlex.split(unescape(re.sub("<[^>]*>", "", code)))
    assert words[:3] == ["hetsched", "replay", "log.txt"]
    assert "--json" not in words
    again = run(*words[2:])
    assert again.returncode == 0, again.stderr
    assert page(files / "DIR") == first


def test_seeds_draw_anew_and_all_of_them_are_kept(files: Path, run: Run) -> None:
    result = run(
        *("log.txt", "--cluster", "c.toml", "--policy", "fifo", "--seed", "5", "--seeds", "3"),
        *("--report", "out", "--json", "r.json"),
    )
    assert result.returncode == 0, result.stderr
    whole = json.loads((files / "r.json").read_text())
    assert (whole["input"]["settings"]["seed"], list(whole["other_seeds"])) == (5, ["6", "7"])
    times = [whole["policies"]["fifo"]["avg_jct_s"]]
    times += [one["fifo"]["avg_jct_s"] for one in whole["other_seeds"].values()]
    assert len(set(times)) > 1
    text = page(files / "out")
    assert values(text, "avg_jct_s") == pytest.approx([sum(times) / 3])
    assert "Means over 3 seeds (5 to 7)" in text
    # Each seed is what a replay with that seed alone gives.
    run("log.txt", "--cluster", "c.toml", "--policy", "fifo", "--seed", "7", "--json", "7.json")
    alone = json.loads((files / "7.json").read_text())["policies"]["fifo"]
    assert alone["avg_jct_s"] == times[2]


def test_input_in_which_nothing_is_drawn_says_so(files: Path, run: Run) -> None:
    result = run(
        *("jobs.jsonl", "--cluster", "c.toml", "--policy", "fifo,las", "--seeds", "2"),
        *("--report", "out"),
    )
    assert result.returncode == 0, result.stderr
    assert "All policies: the same for every seed, since nothing is drawn" in page(files / "out")


def test_run_logs_and_reports_are_of_the_first_seed(files: Path, run: Run) -> None:
    run("log.txt", "--cluster", "c.toml", "--seeds", "2", "--report", "out", "--run-log", "logs")
    assert sorted(path.name for path in (files / "logs").iterdir()) == [
        "fifo.jsonl",
        "las.jsonl",
        "slurm.jsonl",
        "srtf.jsonl",
    ]
    header = json.loads((files / "logs/fifo.jsonl").read_text().splitlines()[0])
    assert header["seed"] == 0


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_without_the_extra_the_error_names_it_before_any_work(
    files: Path, run: Run, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("hetsched_core.report.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    result = run("absent.txt", "--report", "out")
    assert result.returncode == 1
    assert result.stderr == (
        f"hetsched: error: --report needs {missing}, which is not installed: "
        "pip install 'hetsched[report]'\n"
    )
    assert not (files / "out").exists()


def test_without_the_extra_everything_else_works(
    files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("hetsched_core.report.")]:
        monkeypatch.delitem(sys.modules, name)
    for missing in ("matplotlib", "jinja2"):
        monkeypatch.setitem(sys.modules, missing, None)
    result = run("log.txt", "--cluster", "c.toml", "--seeds", "2", "--json", "r.json")
    assert result.returncode == 0, result.stderr


def test_seeds_that_nothing_would_show_are_wrong_usage(files: Path, run: Run) -> None:
    result = run("log.txt", "--cluster", "c.toml", "--seeds", "2")
    assert result.returncode == 2
    assert "add --report DIR or --json FILE" in result.stderr
    assert run("log.txt", "--seeds", "0").returncode == 2


def test_a_pipe_cannot_be_read_once_for_each_seed(files: Path, run: Run) -> None:
    os.mkfifo(files / "pipe")
    result = run("pipe", "--cluster", "c.toml", "--seeds", "2", "--json", "r.json")
    assert result.returncode == 1
    assert "reads pipe 2 times, and it is no regular file: save what it gives" in result.stderr


def test_the_report_of_the_fox_log_says_that_it_cannot_tell_schedulers_apart(
    files: Path, run: Run, data_dir: Path
) -> None:
    log = data_dir / "sacct/fox_sacct_P_noheader.txt"
    result = run(log, "--sacct-fields", FOX_FIELDS, "--tz", "Europe/Oslo", "--report", "out")
    assert result.returncode == 0, result.stderr
    text = page(files / "out")
    assert "from Sun 2025-09-07 22:16 to Fri 2025-09-26 09:11 (Europe/Oslo)" in text
    assert "No job waits for more than a minute" in text
    assert "60 of 65 jobs were submitted in the last tenth of the time" in text
    assert "Nodes and GPUs were inferred from the log" in text
    assert values(text, "avg_wait_s") == [0.0, 0.0, 0.0, 0.0]
    # What the site did to the same jobs is another matter.
    assert "jobs wait 12.0 h on average before they start in the log, and 0 h under slurm" in (
        text.replace("\N{NO-BREAK SPACE}", " ")
    )
    assert "its jobs held 2.0 of 47 GPUs on average" in text
