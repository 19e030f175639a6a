"""`hetsched replay --report` and `--seeds`: the page, what is refused, and the command it names."""

import hashlib
import json
import os
import re
import shlex
import sys
from html import unescape
from pathlib import Path

import pytest

from hetsched_core.traces.bundled import cluster_path, log_path
from tests.hetsched_core.cli.conftest import JOB, V100S, Run, result_file, write
from tests.hetsched_core.traces.worlds import FOX

CLUSTER = (
    f'schema = "hetsched-cluster/1"\nname = "campus"\n{V100S}'
    '[[nodes]]\nnodes = "k1"\ngpu_type = "k80"\ngpus = 2\n'
).replace("gpus = 4", "gpus = 2")
LOG = ("replay", "log.txt", "--cluster=c.toml")


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    """A log whose jobs say nothing of their models, a workload, a cluster."""
    hours = [f"2024-01-01T{at:02}:" for at in range(17)]
    rows = [
        f"{at}|u{at % 3}|COMPLETED|{hours[at]}00:00|{hours[at]}00:00|{hours[at + 5]}30:00|n1|"
        "gres/gpu=2|gres/gpu:v100=2"
        for at in range(12)
    ]
    header = "JobID|User|State|Submit|Start|End|NodeList|ReqTRES|AllocTRES"
    log = "\n".join([header, *rows, ""])
    write(folder, {"log.txt": log, "jobs.jsonl": JOB, "c.toml": CLUSTER})


def page(folder: str = "out") -> str:
    return Path(folder, "report.html").read_text()


def values(text: str, measure: str) -> list[float]:
    row = re.search(rf'<tr id="m-{measure}".*?</tr>', text, re.DOTALL)
    assert row is not None
    return [float(value) for value in re.findall(r'<data value="([^"]*)"', row[0])]


def test_the_command_in_the_page_makes_the_page_again(folder: Path, hetsched: Run) -> None:
    options = ("--policy=fifo,srtf", "--seed=3", "--elastic", "--tz=Europe/Oslo")
    made = hetsched(*LOG, *options, "--report", folder / "one", "--json=r.json", "--run-log=logs")
    assert f"report: {folder}/one/report.html (" in made.err
    first, written = page("one"), result_file("r.json")["policies"]
    for measure in ("completed", "avg_jct_s", "avg_wait_s", "gpu_utilisation", "restarts"):
        assert values(first, measure) == [written[name][measure] for name in ("fifo", "srtf")]
    assert hashlib.sha256(Path("log.txt").read_bytes()).hexdigest() in first
    (code,) = re.findall(r"<pre><code>(.*?)</code></pre>", first, re.DOTALL)
    words = shlex.split(unescape(re.sub("<[^>]*>", "", code)))
    assert words[:3] == ["hetsched", "replay", "log.txt"]
    assert "--json" not in words
    again = hetsched(*words[1:])
    assert again.code == 0, again.err
    assert page("DIR") == first


def test_seeds_draw_anew_and_all_of_them_are_kept(hetsched: Run) -> None:
    options = ("--policy=fifo", "--seed=5", "--seeds=3", "--report=out", "--json=r.json")
    result = hetsched(*LOG, *options, "--run-log=logs")
    assert result.code == 0, result.err
    whole = result_file("r.json")
    assert (whole["input"]["settings"]["seed"], list(whole["other_seeds"])) == (5, ["6", "7"])
    times = [whole["policies"]["fifo"]["avg_jct_s"]]
    times += [one["fifo"]["avg_jct_s"] for one in whole["other_seeds"].values()]
    assert len(set(times)) > 1
    assert values(page(), "avg_jct_s") == pytest.approx([sum(times) / 3])
    assert "Means over 3 seeds (5 to 7)" in page()
    # Each seed is what a replay with that seed alone gives, and run logs are of the first.
    hetsched(*LOG, "--policy=fifo", "--seed=7", "--json=7.json")
    assert result_file("7.json")["policies"]["fifo"]["avg_jct_s"] == times[2]
    (run_log,) = Path("logs").iterdir()
    assert run_log.name == "fifo.jsonl"
    assert json.loads(run_log.read_text().splitlines()[0])["seed"] == 5


def test_input_in_which_nothing_is_drawn_says_so(hetsched: Run) -> None:
    options = ("--cluster=c.toml", "--policy=fifo,las", "--seeds=2", "--report=out")
    result = hetsched("replay", "jobs.jsonl", *options)
    assert result.code == 0, result.err
    assert "All policies: the same for every seed, since nothing is drawn" in page()


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A package of the extra that cannot be imported."""
    known = ("hetsched_core.report.", "hetsched_core.cli.replay_report")
    for name in [name for name in sys.modules if name.startswith(known)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, request.param, None)
    return str(request.param)


@pytest.mark.parametrize("without", ["matplotlib", "jinja2"], indirect=True)
def test_without_the_extra_the_error_names_it_before_any_work_and_everything_else_works(
    hetsched: Run, without: str
) -> None:
    assert hetsched("replay", "absent.txt", "--report=out") == (
        1,
        "",
        (
            f"hetsched: error: --report needs {without}, which is not installed: "
            "pip install 'hetsched[report]'\n"
        ),
    )
    assert not Path("out").exists()
    result = hetsched(*LOG, "--policy=fifo", "--seeds=2", "--json=r.json")
    assert result.code == 0, result.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("log.txt --seeds=2", 2, "add --report DIR or --json FILE"),
        ("log.txt --seeds=0", 2, "0"),
        (
            "pipe --seeds=2 --json=r.json",
            1,
            "reads pipe 2 times, and it is no regular file: save what it gives",
        ),
    ],
)
def test_seeds_that_nothing_shows_or_that_a_pipe_cannot_give_are_refused(
    folder: Path, hetsched: Run, words: str, code: int, says: str
) -> None:
    os.mkfifo(folder / "pipe")
    result = hetsched("replay", *words.split(), "--cluster=c.toml")
    assert result.code == code
    assert says in result.err


def test_the_best_policy_is_the_same_whichever_way_the_cluster_names_its_nodes(
    folder: Path, hetsched: Run
) -> None:
    head, *tables = cluster_path().read_text().split("[[nodes]]")
    both = []
    for number, order in enumerate((tables, tables[::-1])):
        cluster = folder / f"{number}.toml"
        cluster.write_text(head + "".join(f"[[nodes]]{table.rstrip()}\n\n" for table in order))
        options = ("--cluster", cluster, "--tz=UTC", "--policy=slurm,las")
        both.append(
            re.findall(
                "^verdict: (.*)$", hetsched("replay", log_path(), *options).out, re.MULTILINE
            )
        )
    (trusted, best), (trusted_too, best_too) = both
    assert re.match(r"las has .* \d+ to \d+ % below .*\sh or .*\sh under slurm\.", best)
    assert best == best_too
    for each in (trusted, trusted_too):
        assert "depending on which nodes the cluster names first" in each


def test_the_report_of_the_fox_log_says_that_it_cannot_tell_schedulers_apart(
    hetsched: Run, data_dir: Path
) -> None:
    log = data_dir / "sacct/fox_sacct_P_noheader.txt"
    options = ("--sacct-fields", FOX, "--tz=Europe/Oslo", "--report=out")
    result = hetsched("replay", log, *options)
    assert result.code == 0, result.err
    text = page().replace("\N{NO-BREAK SPACE}", " ")
    assert "from Sun 2025-09-07 22:16 to Fri 2025-09-26 09:11 (Europe/Oslo)" in text
    assert "No job waits for more than a minute" in text
    assert "60 of 65 jobs were submitted in the last tenth of the time" in text
    assert "Nodes and GPUs were inferred from the log" in text
    assert values(text, "avg_wait_s") == [0.0, 0.0, 0.0, 0.0]
    # What the site did to the same jobs is another matter.
    assert "jobs wait 12.0 h on average before they start in the log, and 0 h under slurm" in text
    assert "its jobs held 2.0 of 47 GPUs on average" in text
