"""The sweep file: read, expanded and refused; runs and their names."""

from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.sweep.file import Sweep, read_sweep
from hetsched_core.sweep.runs import SweepRun, digest, runs_of

REPLAY = ("cluster", "round", "elastic", "tz")
GENERATE = ("jobs", "load")

WHOLE = """\
schema = "hetsched-sweep/1"
seeds = [3, 5]

[[workloads]]
name = "log"
logs = ["sacct.txt"]
cluster = "cluster.toml"
elastic = true

[[workloads]]
name = "drawn"
generate = { jobs = 10, load = 0.5 }
cluster = "cluster.toml"

[[policies]]
name = "fifo"

[[policies]]
name = "hops"
parameters = { lam = [1, 2.5], adjustment = false }

[options]
round = [90, 360]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sacct.txt").write_text("JobID\n")
    (tmp_path / "cluster.toml").write_text("nodes\n")
    return tmp_path


def read(folder: Path, text: str) -> Sweep:
    (folder / "sweep.toml").write_text(text)
    return read_sweep(folder / "sweep.toml", REPLAY, GENERATE)


def runs(folder: Path, text: str = WHOLE) -> dict[tuple[str, str, int, str], SweepRun]:
    """The runs by workload, policy, seed and options."""
    found = list(runs_of(read(folder, text), folder / "out"))
    named = {(r.workload.name, r.contender.label, r.seed, str(r.options)): r for r in found}
    assert len(named) == len(found) == len({run.name for run in found})
    return named


def test_lists_are_varied_and_everything_is_combined(folder: Path) -> None:
    sweep = read(folder, WHOLE)
    assert [c.label for c in sweep.contenders] == ["fifo", "hops lam=1", "hops lam=2.5"]
    assert sweep.options == ({"round": 90}, {"round": 360})
    assert sweep.varied == ("round",)
    assert [workload.seeds for workload in sweep.workloads] == [(3, 5), (3, 5)]
    assert len(runs(folder)) == 2 * 3 * 2 * 2


def test_a_workload_may_have_seeds_of_its_own(folder: Path) -> None:
    found = runs(folder, WHOLE.replace('name = "drawn"', 'name = "drawn"\nseeds = [8, 9, 10]'))
    seeds = {(workload, seed) for workload, _, seed, _ in found}
    assert seeds == {("log", 3), ("log", 5), ("drawn", 8), ("drawn", 9), ("drawn", 10)}


def test_the_arguments_are_those_of_replay_and_generate(folder: Path) -> None:
    found, cluster = runs(folder), f"--cluster={folder / 'cluster.toml'}"
    run = found["log", "hops lam=2.5", 5, "{'round': 90}"]
    assert run.generate_arguments() == []
    assert run.replay_arguments() == [
        str(folder / "sacct.txt"),
        *("--policy=hops", "--set=hops.lam=2.5", "--set=hops.adjustment=false", "--round=90"),
        *(cluster, "--elastic", "--seed=5", f"--json={run.result}"),
    ]
    drawn = found["drawn", "fifo", 3, "{'round': 90}"]
    generated = str(drawn.generated)
    assert drawn.generate_arguments() == ["--jobs=10", "--load=0.5", cluster, "--seed=3", generated]
    assert drawn.replay_arguments()[0] == generated


def test_a_run_keeps_its_name_until_something_that_decides_it_changes(folder: Path) -> None:
    def names(text: str) -> dict[tuple[str, str, int, str], str]:
        return {key: run.name for key, run in runs(folder, text).items()}

    before = names(WHOLE)
    logged = {key for key in before if key[0] == "log"}
    assert names(WHOLE.replace("[3, 5]", "[5, 3, 9]")).items() >= before.items()
    after = names(WHOLE.replace("load = 0.5", "load = 0.6"))
    assert {key for key in before if before[key] == after[key]} == logged
    (folder / "sacct.txt").write_text("JobID\n1\n")
    digest.cache_clear()
    after = names(WHOLE)
    assert {key for key in before if before[key] != after[key]} == logged


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("sweep/1", "sweep/2", "a sweep has the line schema"),
        ("seeds = [3, 5]", "seeds = []", "seeds is []"),
        ("seeds = [3, 5]", "sedes = 3", "unknown key 'sedes': did you mean 'seeds'"),
        ('name = "log"', 'name = "log"\nseeds = -1', "workload 'log': seeds is -1"),
        ('name = "log"', 'name = "a/b"', "workload name 'a/b'"),
        ('name = "log"', 'name = "drawn"', "workload 'drawn' is there twice"),
        ("[1, 2.5]", "[1, 1]", "policy 'hops lam=1' is there twice"),
        ("[1, 2.5]", "[]", "an empty list leaves nothing to run"),
        ("[1, 2.5]", "[[1]]", "policy 'hops': lam is [1]"),
        ('logs = ["sacct.txt"]', "", "give logs = [FILE, ...], or a table generate"),
        ('logs = ["sacct.txt"]', 'logs = ["no.txt"]', "there is no file"),
        ("jobs = 10", "jbos = 10", "unknown option of hetsched workload generate"),
        ("round = [90", "runod = [90", "unknown option of hetsched replay 'runod'"),
        ("[options]", "[[options]]", "expected a table [options]"),
    ],
)
def test_what_is_wrong_is_refused_with_the_key_and_what_is_right(
    folder: Path, old: str, new: str, words: str
) -> None:
    text = WHOLE.replace(old, new)
    with pytest.raises(InputError) as refused:
        read(folder, text)
    assert words in str(refused.value)
    assert "sweep.toml" in str(refused.value)
