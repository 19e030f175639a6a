"""Policies of one's own in `hetsched replay`, `policies` and `sweep`, and broken ones."""

import signal
from pathlib import Path

import pytest

from hetsched_core.traces.bundled import cluster_path
from tests.hetsched_core.cli.conftest import JOB, V100S, Result, Run, result_file, short_log, write

MINE = """
import shutil
import signal
from dataclasses import dataclass
from typing import ClassVar

from hetsched_core.policies.fifo import Fifo
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.types import Plan, Snapshot


@dataclass(frozen=True)
class Mine:
    info: ClassVar[PolicyInfo] = PolicyInfo(name="mine", summary="for tests", paper="")
    how: str = parameter("well", "how it ends")

    def plan(self, snapshot: Snapshot) -> Plan:
        return getattr(self, self.how)(snapshot)

    def well(self, snapshot):
        return Fifo().plan(snapshot)

    def raises(self, snapshot):
        return snapshot.jobs[
            "no\\nbody"
        ]

    def later(self, snapshot):
        return self.raises(snapshot) if snapshot.seed else self.well(snapshot)

    def nothing(self, snapshot):
        return None

    def empty(self, snapshot):
        return Plan(snapshot.previous.entries.__class__())

    def looks(self, snapshot):
        shutil.copy("result.json", "seen.json")
        return self.well(snapshot)

    def interrupted(self, snapshot):
        signal.raise_signal(signal.SIGINT)
"""
PLAN = 1 + MINE.splitlines().index("    def plan(self, snapshot: Snapshot) -> Plan:")
RAISES = 2 + MINE.splitlines().index("    def raises(self, snapshot):")

BROKEN = """
[hetsched.policies]
no-module = third_party_that_is_not_there:Policy
no-policy = json:JSONDecoder
exits = third_party_that_exits:Policy
"""


@pytest.fixture
def own(folder: Path) -> Path:
    """A log, and a policy beside it."""
    write(folder, {"mine.py": MINE, "sacct.txt": short_log()})
    return folder


@pytest.fixture
def replay(hetsched: Run, own: Path) -> Run:
    """Runs `hetsched replay` with all outputs under some policies and options."""

    def replay(policies: str, *options: object) -> Result:
        files = ("--json=result.json", "--run-log=runs", "--report=report", "--rejects=rejects")
        words = ("replay", "sacct.txt", "--cluster", cluster_path(), "--policy", policies)
        return hetsched(*words, *files, *options)

    return replay


@pytest.fixture
def broken(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package all of whose policies are broken."""
    (own / "third_party_that_exits.py").write_text("raise SystemExit('no licence')\n")
    metadata = own / "third_party-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\n")
    (metadata / "entry_points.txt").write_text(BROKEN)
    monkeypatch.syspath_prepend(own)


def told(result: Result) -> list[str]:
    return [line for line in result.err.splitlines() if line.startswith("hetsched: ")]


def test_a_policy_is_given_by_its_file_beside_names_and_has_the_name_it_gives_itself(
    replay: Run,
) -> None:
    result = replay("fifo,./mine.py:Mine", "--set=mine.how=well")
    assert result.code == 0
    written = result_file()
    assert list(written["policies"]) == ["fifo", "mine"]
    assert written["input"]["parameters"]["mine"] == {"how": "well"}
    assert {path.name for path in Path("runs").iterdir()} == {"fifo.jsonl", "mine.jsonl"}
    assert replay("mine.py").code == 0


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("raises", f"mine.py:{RAISES}: KeyError: 'no\\nbody'"),
        ("nothing", f"mine.py:{PLAN}: PlanError: plan() returned a NoneType, not a Plan"),
        ("empty", f"mine.py:{PLAN}: PlanError: policy 'mine' made an invalid plan at t="),
        ("later", f"mine.py:{RAISES}: KeyError: 'no\\nbody'"),
    ],
)
def test_a_policy_that_fails_costs_one_line_and_no_other_policy_its_result(
    replay: Run, how: str, why: str
) -> None:
    result = replay("fifo,mine.py:Mine,las", f"--set=mine.how={how}", "--seeds=2")
    assert result.code == 1
    (line,) = told(result)
    assert line.startswith(f"hetsched: error: policy 'mine' failed and is left out: {why}")
    written = result_file()
    for kept in (written["policies"], written["other_seeds"]["1"], written["accounts"]):
        assert list(kept) == ["fifo", "las"]
    assert written["input"]["assumptions"][-1].startswith(f"Policy mine is left out: {why}")
    assert {"fifo.jsonl", "las.jsonl"} <= {path.name for path in Path("runs").iterdir()}
    assert "Policy mine is left out" in Path("report/report.html").read_text()
    assert {"fifo", "las"} <= {line.partition(" ")[0] for line in result.out.splitlines()}


def test_where_every_policy_fails_nothing_is_written_but_what_was_rejected(
    replay: Run, own: Path
) -> None:
    before = {*own.iterdir()}
    result = replay("mine.py:Mine", "--set=mine.how=raises")
    assert (result.code, result.out) == (1, "")
    assert len(told(result)) == 1
    assert {*own.iterdir()} - before - {own / "__pycache__"} == {own / "rejects"}


def test_what_has_ended_is_written_before_the_next_policy_begins(replay: Run) -> None:
    assert replay("fifo,mine.py:Mine", "--set=mine.how=looks").code == 0
    seen = result_file("seen.json")
    assert list(seen["policies"]) == ["fifo"]
    assert seen["input"]["assumptions"][-1] == "Policy mine is left out: it has not ended yet."
    assert list(result_file()["policies"]) == ["fifo", "mine"]


def test_where_no_policy_ends_the_result_of_an_earlier_replay_stays(replay: Run) -> None:
    assert replay("fifo").code == 0
    before = Path("result.json").read_bytes()
    assert replay("mine.py:Mine", "--set=mine.how=raises").code == 1
    assert Path("result.json").read_bytes() == before


def test_an_interrupt_keeps_what_has_ended_and_leaves_no_empty_folder(
    replay: Run, own: Path
) -> None:
    # What runs in the background of a shell ignores interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = {*own.iterdir()}
    result = replay("mine.py:Mine,fifo", "--set=mine.how=interrupted")
    assert (result.code, told(result)) == (130, ["hetsched: interrupted"])
    assert {*own.iterdir()} - before - {own / "__pycache__"} == {own / "rejects"}
    result = replay("fifo,mine.py:Mine,las", "--set=mine.how=interrupted")
    assert (result.code, told(result)) == (130, ["hetsched: interrupted"])
    assert list(result_file()["policies"]) == ["fifo"]
    assert [path.name for path in Path("runs").iterdir()] == ["fifo.jsonl"]
    assert Path("report/report.html").exists()
    why = "is left out: the replay was interrupted."
    assert result_file()["input"]["assumptions"][-2:] == [f"Policy mine {why}", f"Policy las {why}"]


@pytest.mark.parametrize(
    ("word", "code", "says"),
    [
        ("./none.py:Mine", 2, "there is no file none.py"),
        ("mine.py:Mien", 2, "unknown class of mine.py 'Mien': did you mean 'Mine'?"),
        ("mine.py:Fifo,fifo", 2, "--policy names fifo twice"),
        ("mine.py:Plan", 1, "policy 'mine.py:Plan' is no dataclass with an `info` and a `plan`"),
        ("raises.py", 1, "cannot be loaded: ZeroDivisionError: division by zero (raises.py:2)"),
        ("wrong.py", 1, "cannot be loaded: SyntaxError: "),
        ("two.py", 2, "two.py has 2 policies; name one class, as in two.py:Mine"),
        ("empty.py", 2, "empty.py has 0 policies"),
        ("named.py", 2, "the name in its info is '../x'; expected one word"),
        ("bare.py", 1, "give every field a default"),
    ],
)
def test_a_file_without_the_policy_is_refused_and_the_message_says_what_to_give(
    replay: Run, own: Path, word: str, code: int, says: str
) -> None:
    files = {
        "raises.py": "\n1 / 0\n",
        "wrong.py": "def\n",
        "two.py": MINE + "\nclass Other(Mine):\n    pass\n",
        "empty.py": "",
        "named.py": MINE.replace('name="mine"', 'name="../x"'),
        "bare.py": MINE.replace(' = parameter("well", "how it ends")', ""),
    }
    write(own, files)
    result = replay(word)
    assert result.code == code
    assert says in result.err
    assert not Path("result.json").exists()


def test_policies_lists_and_checks_one_in_a_file_and_names_the_line_that_broke_a_contract(
    hetsched: Run, own: Path
) -> None:
    listed = hetsched("policies", "./mine.py:Mine", "fifo")
    assert listed.code == 0
    assert listed.out.startswith("mine: for tests\n")
    assert "how=well  how it ends" in listed.out
    (own / "mine.py").write_text(MINE.replace('"well"', '"raises"'))
    checked = hetsched("policies", "./mine.py:Mine", "--check")
    assert checked.code == 1
    assert f"seed 0: mine.py:{RAISES}: KeyError: 'no\\nbody'" in checked.out
    assert told(checked) == ["hetsched: error: contracts are broken by mine"]


@pytest.mark.usefixtures("broken")
def test_a_broken_package_is_named_in_a_line_for_each_policy_and_the_others_are_listed(
    hetsched: Run,
) -> None:
    every = hetsched("policies")
    assert every.code == 0
    exits, no_module, no_policy = told(every)
    assert exits.startswith("hetsched: error: policy 'exits' (third_party_that_exits:Policy)")
    assert "SystemExit: no licence (third_party_that_exits.py:1)" in exits
    assert "ModuleNotFoundError: No module named 'third_party_that_is_not_there'" in no_module
    assert "policy 'no-policy' (json:JSONDecoder) is no dataclass" in no_policy
    assert "\nlas: " in every.out
    asked = hetsched("policies", "fifo", "exits")
    assert (asked.code, told(asked)) == (1, [exits])
    assert asked.out.startswith("fifo: ")
    assert hetsched("policies", "exits").code == 1


@pytest.mark.usefixtures("broken")
def test_a_replay_goes_on_without_a_broken_package(replay: Run) -> None:
    result = replay("no-module,fifo")
    assert result.code == 1
    (line,) = told(result)
    assert line.startswith("hetsched: error: policy 'no-module' (third_party_that_is_not_there")
    assert list(result_file()["policies"]) == ["fifo"]


@pytest.mark.usefixtures("broken")
def test_a_sweep_goes_on_without_a_broken_package(hetsched: Run, own: Path) -> None:
    (own / "cluster.toml").write_text('schema = "hetsched-cluster/1"\n' + V100S)
    (own / "jobs.jsonl").write_text(JOB)
    policies = "".join(f'[[policies]]\nname = "{name}"\n' for name in ("fifo", "exits"))
    (own / "sweep.toml").write_text(
        'schema = "hetsched-sweep/1"\nseeds = 2\n[[workloads]]\nname = "one"\n'
        f'logs = ["jobs.jsonl"]\ncluster = "cluster.toml"\n{policies}'
    )
    result = hetsched("sweep", "sweep.toml", "--out=out")
    assert result.code == 1
    (line,) = told(result)
    assert line.startswith("hetsched: error: policy 'exits' (third_party_that_exits:Policy)")
    assert len([*Path("out/runs").glob("*.json")]) == 2
