"""`hetsched db`."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched_core.cli import main
from hetsched_core.decision_record import DecisionWriter
from hetsched_core.policy import make_policy
from hetsched_core.runlog import PlanRecord
from hetsched_core.store import Decision, Measurement, Mode, Moments, ProfileKey, Store
from hetsched_core.types import Reason, ReasonCode, Waiting
from tests.hetsched_core.worlds import cluster_of, snapshot_of, view

RESNET = ProfileKey("resnet50", "alice")

Said = Callable[..., str]


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Said:
    """Runs `hetsched db` with some words and returns what it says where all is well."""

    def run(*words: object) -> str:
        code = main(["db", *map(str, words)])
        out, err = capfd.readouterr()
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def complaint(capfd: pytest.CaptureFixture[str]) -> Said:
    """Runs `hetsched db` with some words and returns the one line that it complains in."""

    def run(*words: object) -> str:
        code = main(["db", *map(str, words)])
        out, err = capfd.readouterr()
        assert (code, out) == (1, "")
        (line,) = err.splitlines()
        return line.removeprefix("hetsched: error: ")

    return run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a few speeds."""
    path = tmp_path / "store.duckdb"
    with Store.open(path, Mode.WRITE) as store:
        speeds = [
            Measurement(RESNET, "a100", 4, 1, Moments.of([100.0, 104.0]), 1.7e9, ("n1",)),
            Measurement(RESNET, "a100", 4, 2, Moments(1, 80.0), 1.76e9, ("n1", "n2")),
            Measurement(ProfileKey("lm"), "v100", 1, 1, Moments(1, 12.5), 1.7e9),
        ]
        store.record(speeds)
    return path


def test_show_lists_profiles_and_figures(path: Path, said: Said) -> None:
    lines = said("show", path).splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["PROFILE", "OWNER", "GPU_TYPE", "READ_BY", "SPEEDS", "NODES", "PROFILED", "LAST"],
        ["lm", "-", "v100", "public", "1", "0", "no", "2023-11-14T22:13:20Z"],
        ["resnet50", "alice", "a100", "owner", "3", "2", "no", "2025-10-09T08:53:20Z"],
    ]
    assert lines[4] == f"{path}: schema 5, 2 profiles, 2 GPU types, 2 nodes"
    assert lines[5] == "measurements: 4 in 3 rows by type and 3 by node"


def test_show_of_a_profile_lists_what_was_measured_by_type_and_by_node(
    path: Path, said: Said
) -> None:
    lines = said("show", path, "--profile", "resnet50", "--owner", "alice").splitlines()
    assert [line.split()[:7] for line in lines] == [
        ["GPU_TYPE", "NODE", "NODES", "GPUS", "COUNT", "MEAN", "SD"],
        ["a100", "-", "1", "4", "2", "102", "2.82843"],
        ["a100", "-", "2", "4", "1", "80", "0"],
        ["a100", "n1", "1", "4", "2", "102", "2.82843"],
        ["a100", "n1", "2", "4", "1", "80", "0"],
        ["a100", "n2", "2", "4", "1", "80", "0"],
    ]


def test_show_speaks_json(path: Path, said: Said) -> None:
    whole = json.loads(said("show", path, "--json"))
    assert (whole["schema"], whole["measurements"], whole["profiles"]) == (1, 4, 2)
    assert whole["known"][1]["profile"] == {"name": "resnet50", "owner": "alice"}
    one = json.loads(said("show", path, "--profile", "lm", "--json"))
    assert one["speeds"] == [
        {
            "gpu_type": "v100",
            "node": "",
            "nodes": 1,
            "gpus": 1,
            "count": 1,
            "mean": 12.5,
            "sd": 0.0,
            "last_s": 1.7e9,
        }
    ]


def test_show_of_an_unknown_profile_names_the_likely_one(path: Path, complaint: Said) -> None:
    message = complaint("show", path, "--profile", "resnet", "--owner", "alice")
    assert message == (
        "unknown profile of alice 'resnet': did you mean 'resnet50'? valid: resnet50"
    )


def test_an_owner_without_a_profile_is_wrong_usage(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["db", "show", str(path), "--owner", "nobody"]) == 2
    assert "add --profile NAME" in capsys.readouterr().err


def test_an_export_into_a_file_is_refused(path: Path, tmp_path: Path, complaint: Said) -> None:
    (tmp_path / "x.txt").write_text("mine")
    message = complaint("export", path, tmp_path / "x.txt")
    assert message == f"{tmp_path / 'x.txt'} is a file; give a folder, which need not exist yet"


def test_an_export_can_be_imported(path: Path, tmp_path: Path, said: Said) -> None:
    folder = tmp_path / "new" / "tables"
    assert str(folder / "speed.csv") in said("export", path, folder, "--format", "csv").split()
    other = tmp_path / "other.duckdb"
    assert said("import", other, folder / "speed.csv") == (
        f"{folder / 'speed.csv'}: 4 rows of 4 measurements\n"
    )
    assert said("show", other).splitlines()[1:4] == said("show", path).splitlines()[1:4]


def test_a_folder_that_an_export_makes_is_its_owner_s_alone_under_any_umask(
    path: Path, tmp_path: Path, said: Said
) -> None:
    folder = tmp_path / "tables"
    before = os.umask(0)
    try:
        said("export", path, folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        # One that is there stays as it is.
        folder.chmod(0o755)
        said("export", path, folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    finally:
        os.umask(before)


def test_parquet_is_what_is_exported_if_nothing_is_said(
    path: Path, tmp_path: Path, said: Said
) -> None:
    written = said("export", path, tmp_path / "tables").split()
    assert {Path(name).suffix for name in written} == {".parquet"}


def test_tables_of_gavel_are_imported_for_everybody_or_for_one(
    tmp_path: Path, data_dir: Path, said: Said
) -> None:
    table = data_dir / "throughputs/gavel_physical_cluster_throughputs.json.gz"
    path = tmp_path / "store.duckdb"
    assert "measurements" in said("import", path, table)
    assert "public" in said("show", path).splitlines()[1]
    assert "measurements" in said("import", path, table, "--owner", "alice")
    assert said("show", path, "--profile", "A3C", "--owner", "alice")


def test_nothing_is_imported_if_one_table_has_a_fault(
    path: Path, tmp_path: Path, said: Said, complaint: Said
) -> None:
    said("export", path, tmp_path, "--format", "csv")
    good, bad = tmp_path / "speed.csv", tmp_path / "bad.csv"
    bad.write_text(good.read_text().replace("12.5", "nan"))
    other = tmp_path / "other.duckdb"
    message = complaint("import", other, good, bad)
    assert message == f"{bad}: line 2: a mean of nan; expected a finite number"
    assert not other.exists()


def test_check_says_that_a_store_is_whole(path: Path, said: Said) -> None:
    assert said("check", path) == f"{path}: whole, 4 measurements\n"


def test_check_says_what_does_not_hold_together(path: Path, complaint: Said) -> None:
    with Store.open(path, Mode.WRITE) as store, store.transaction() as transaction:
        transaction.run("UPDATE speed SET mean = -1 WHERE nodes = 1")
    message = complaint("check", path)
    assert message.startswith(f"{path} does not hold together: 2 measured speeds that cannot")


@pytest.mark.parametrize("command", ["show", "check", "export", "import"])
@pytest.mark.parametrize(
    ("content", "named"),
    [(b"owner,profile\n" * 900, "is no hetsched store"), (b"", "is no hetsched store")],
)
def test_what_is_no_store_is_refused_in_one_line(
    tmp_path: Path, command: str, content: bytes, named: str, complaint: Said
) -> None:
    path, table = tmp_path / "store.duckdb", tmp_path / "speed.csv"
    path.write_bytes(content)
    table.write_text("owner,profile,gpu_type,node,nodes,gpus,count,mean,m2,first_s,last_s\n")
    last = {"export": [tmp_path / "out"], "import": [table]}.get(command, [])
    assert named in complaint(command, path, *last)


@pytest.mark.parametrize("command", ["show", "check"])
def test_a_store_that_is_not_there_is_named(tmp_path: Path, command: str, complaint: Said) -> None:
    path = tmp_path / "store.duckdb"
    assert complaint(command, path).startswith(f"{path} does not exist; ")
    assert not path.exists()


@pytest.mark.parametrize("command", ["show", "check", "export", "import"])
def test_the_process_that_holds_the_file_is_named(
    path: Path, tmp_path: Path, command: str, said: Said, complaint: Said
) -> None:
    said("export", path, tmp_path, "--format", "csv")
    script = (
        "import sys; from pathlib import Path; from hetsched_core.store import Mode, Store\n"
        "with Store.open(Path(sys.argv[1]), Mode.WRITE): print('open', flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        last = {"export": [tmp_path / "out"], "import": [tmp_path / "speed.csv"]}.get(command, [])
        message = complaint(command, path, *last)
    finally:
        holder.communicate("\n")
    where = f"process {holder.pid} on {os.uname().nodename}"
    assert message.startswith(f"{path} is open in {where} ({sys.executable} -c")


def test_a_table_that_is_neither_is_refused(path: Path, tmp_path: Path, complaint: Said) -> None:
    table = tmp_path / "table.txt"
    table.write_text("speeds of my cluster\n")
    assert "expected owner, profile, gpu_type" in complaint("import", path, table)
    assert "No such file" in complaint("import", path, tmp_path / "absent.csv")


def test_a_profile_is_published_and_withdrawn(path: Path, said: Said, complaint: Said) -> None:
    names = ("--profile", "resnet50", "--owner", "alice")
    assert said("publish", path, *names) == "resnet50 of alice: read by everybody\n"
    assert said("show", path).splitlines()[2].split()[3] == "public"
    assert said("publish", path, *names, "--withdraw") == "resnet50 of alice: read by its owner\n"
    assert said("show", path).splitlines()[2].split()[3] == "owner"
    assert "did you mean 'resnet50'" in complaint(
        "publish", path, "--profile", "resnet", "--owner", "alice"
    )


def test_publishing_makes_no_new_database(tmp_path: Path, complaint: Said) -> None:
    gone = tmp_path / "gone.duckdb"
    assert "does not exist" in complaint("publish", gone, "--profile", "a", "--owner", "b")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def decided(tmp_path: Path) -> Path:
    """A store with three decisions: as fifo makes it, of a bygone form, and a false one."""
    cluster = cluster_of(a=("v100", 4))
    snapshot = snapshot_of(cluster, [view("j", counts=(2,))])
    policy = make_policy("fifo")
    plan = policy.plan(snapshot)
    writer = DecisionWriter(policy)
    wrong = plan.revise({"j": Waiting(Reason(ReasonCode.NO_ROOM))})
    documents = (writer.write(snapshot, plan), '{"schema":1}', writer.write(snapshot, wrong))
    path = tmp_path / "decided.duckdb"
    with Store.open(path, Mode.WRITE) as store:
        for document in documents:
            record = PlanRecord(1e9, frozenset(), 0.1, 1, 0)
            store.record_decision(Decision("fifo", record, document=document))
    return path


def test_decisions_are_made_again_and_differences_told(
    decided: Path, said: Said, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["db", "repeat", str(decided)]) == 1
    out, err = capfd.readouterr()
    assert out.splitlines() == [
        "decision 2: schema is 1; a record of a decision has 'hetsched-decision/1'",
        "decision 3 differs in job j",
    ]
    assert "1 decisions come out the same, 1 otherwise, 1 cannot be made again" in err
    assert said("repeat", decided, "--after", "3").endswith(
        "0 decisions come out the same, 0 otherwise, 0 cannot be made again\n"
    )
