"""`hetsched db`."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched_core.policy import make_policy
from hetsched_core.records.decision_record import DecisionWriter
from hetsched_core.records.runlog import PlanRecord
from hetsched_core.store import (
    BandwidthMeasurement,
    BandwidthTerm,
    Decision,
    Measurement,
    Mode,
    Moments,
    ProfileKey,
    Store,
)
from hetsched_core.store import store as store_module
from hetsched_core.store.migrations import migrations
from hetsched_core.throughput.builtin import bandwidths
from hetsched_core.throughput.gpus import match_gpu
from hetsched_core.types import Reason, ReasonCode, Waiting
from tests.hetsched_core.cli.conftest import Run
from tests.hetsched_core.worlds import cluster_of, snapshot_of, view

RESNET = ProfileKey("resnet50", "alice")

Said = Callable[..., str]


@pytest.fixture
def said(hetsched: Run) -> Said:
    """Runs `hetsched db` with some words and returns what it says where all is well."""

    def run(*words: object) -> str:
        code, out, err = hetsched("db", *words)
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def complaint(hetsched: Run) -> Said:
    """Runs `hetsched db` with some words and returns the one line that it complains in."""

    def run(*words: object) -> str:
        code, out, err = hetsched("db", *words)
        assert (code, out) == (1, "")
        (line,) = err.splitlines()
        return line.removeprefix("hetsched: error: ")

    return run


@pytest.fixture
def path(folder: Path) -> Path:
    """A store with a few speeds."""
    path = folder / "store.duckdb"
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
    assert lines[10] == f"{path}: schema 5, 2 profiles, 2 GPU types, 2 nodes"
    assert lines[11] == "measurements: 4 in 3 rows by type and 3 by node"


def test_show_tells_which_bandwidths_were_measured_and_which_are_published_or_assumed(
    path: Path, said: Said
) -> None:
    with Store.open(path, Mode.WRITE) as store:
        measured = Moments.of([1.5e9, 2.5e9])
        store.record_bandwidths(
            [
                BandwidthMeasurement("a100", BandwidthTerm.NETWORK, measured, 1.7e9),
                BandwidthMeasurement("fastest-yet", BandwidthTerm.LINK, Moments(1, 3e10), 1.7e9),
            ]
        )
    lines = said("show", path).splitlines()
    published = bandwidths(match_gpu("a100").spec).link
    assert [line.split() for line in lines[4:11]] == [
        ["GPU_TYPE", "OVER", "PARAMETERS/S", "SOURCE", "RUNS", "LAST"],
        ["a100", "link", f"{published:.6g}", "published", "0", "-"],
        ["a100", "network", "2e+09", "measured", "2", "2023-11-14T22:13:20Z"],
        ["fastest-yet", "link", "3e+10", "measured", "1", "2023-11-14T22:13:20Z"],
        ["fastest-yet", "network", lines[8].split()[2], "assumed", "0", "-"],
        ["v100", "link", lines[9].split()[2], "published", "0", "-"],
        ["v100", "network", lines[10].split()[2], "published", "0", "-"],
    ]
    sources = json.loads(said("show", path, "--json"))["bandwidth_sources"]
    assert [each["source"] for each in sources].count("measured") == 2


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
    (speed,) = json.loads(said("show", path, "--profile", "lm", "--json"))["speeds"]
    where = {"gpu_type": "v100", "node": "", "nodes": 1, "gpus": 1}
    assert speed == {**where, "count": 1, "mean": 12.5, "sd": 0.0, "last_s": 1.7e9}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "show store.duckdb --profile=resnet --owner=alice",
            "unknown profile of alice 'resnet': did you mean 'resnet50'? valid: resnet50",
        ),
        ("publish store.duckdb --profile=resnet --owner=alice", "did you mean 'resnet50'"),
        ("export store.duckdb text", "text is a file; give a folder, which need not exist yet"),
        ("import store.duckdb text", "expected owner, profile, gpu_type"),
        ("import store.duckdb absent.csv", "No such file"),
        ("show text", "is no hetsched store"),
        ("check text", "is no hetsched store"),
        ("export text out", "is no hetsched store"),
        ("import text speed.csv", "is no hetsched store"),
        ("show gone", "gone does not exist; "),
        ("check gone", "gone does not exist; "),
        ("publish gone --profile=a --owner=b", "gone does not exist"),
    ],
)
@pytest.mark.usefixtures("path")
def test_what_is_wrong_is_one_line_and_nothing_is_made(
    folder: Path, complaint: Said, words: str, says: str
) -> None:
    (folder / "text").write_bytes(b"speeds of my cluster\n" * 900)
    header = "owner,profile,gpu_type,node,nodes,gpus,count,mean,m2,first_s,last_s\n"
    (folder / "speed.csv").write_text(header)
    before = sorted(folder.iterdir())
    assert says in complaint(*words.split())
    assert sorted(folder.iterdir()) == before


def test_an_owner_without_a_profile_is_wrong_usage(path: Path, hetsched: Run) -> None:
    code, _, err = hetsched("db", "show", path, "--owner", "nobody")
    assert code == 2
    assert "add --profile NAME" in err


def test_an_export_can_be_imported(path: Path, said: Said) -> None:
    table = Path("new/tables/speed.csv")
    assert str(table) in said("export", path, table.parent, "--format", "csv").split()
    assert said("import", "other.duckdb", table) == f"{table}: 4 rows of 4 measurements\n"
    assert said("show", "other.duckdb").splitlines()[1:4] == said("show", path).splitlines()[1:4]
    # Parquet is what is exported if nothing is said.
    written = said("export", path, "new/tables").split()
    assert {Path(name).suffix for name in written} == {".parquet"}


def test_a_folder_that_an_export_makes_is_its_owner_s_alone_under_any_umask(
    path: Path, folder: Path, said: Said
) -> None:
    made = folder / "tables"
    before = os.umask(0)
    try:
        said("export", path, made)
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        # One that is there stays as it is.
        made.chmod(0o755)
        said("export", path, made)
        assert stat.S_IMODE(made.stat().st_mode) == 0o755
    finally:
        os.umask(before)


def test_tables_of_gavel_are_imported_for_everybody_or_for_one(
    folder: Path, data_dir: Path, said: Said
) -> None:
    table = data_dir / "throughputs/gavel_physical_cluster_throughputs.json.gz"
    path = folder / "store.duckdb"
    assert "measurements" in said("import", path, table)
    assert "public" in said("show", path).splitlines()[1]
    assert "measurements" in said("import", path, table, "--owner", "alice")
    assert said("show", path, "--profile", "A3C", "--owner", "alice")


def test_nothing_is_imported_if_one_table_has_a_fault(
    path: Path, folder: Path, said: Said, complaint: Said
) -> None:
    said("export", path, folder, "--format", "csv")
    good, bad, other = (folder / name for name in ("speed.csv", "bad.csv", "other.duckdb"))
    bad.write_text(good.read_text().replace("12.5", "nan"))
    message = complaint("import", other, good, bad)
    assert message == f"{bad}: line 2: a mean of nan; expected a finite number"
    assert not other.exists()


def test_check_says_whether_a_store_is_whole(path: Path, said: Said, complaint: Said) -> None:
    assert said("check", path) == f"{path}: whole, 4 measurements\n"
    with Store.open(path, Mode.WRITE) as store, store.transaction() as transaction:
        transaction.run("UPDATE speed SET mean = -1 WHERE nodes = 1")
    message = complaint("check", path)
    assert message.startswith(f"{path} does not hold together: 2 measured speeds that cannot")


def test_a_profile_is_published_and_withdrawn(path: Path, said: Said) -> None:
    names = ("--profile", "resnet50", "--owner", "alice")
    assert said("publish", path, *names) == "resnet50 of alice: read by everybody\n"
    assert said("show", path).splitlines()[2].split()[3] == "public"
    assert said("publish", path, *names, "--withdraw") == "resnet50 of alice: read by its owner\n"
    assert said("show", path).splitlines()[2].split()[3] == "owner"


def test_a_store_of_an_older_version_is_carried_forward_and_it_says_what_is_kept(
    tmp_path: Path, hetsched: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now = tmp_path / "older.duckdb", migrations()
    monkeypatch.setattr(store_module, "migrations", lambda: now[:4])
    with Store.open(path, Mode.WRITE) as store:
        store.record([Measurement(RESNET, "a100", 4, 1, Moments(1, 100.0), 1.7e9)])
    monkeypatch.undo()
    words = ("--profile", "resnet50", "--owner", "alice")
    code, out, err = hetsched("db", "publish", path, *words)
    assert (code, out) == (0, "resnet50 of alice: read by everybody\n")
    assert err.endswith("as it was it is kept as older.duckdb.version-4-1\n")
    assert hetsched("db", "publish", path, *words)[2] == ""


def test_decisions_are_made_again_and_differences_told(
    folder: Path, said: Said, hetsched: Run
) -> None:
    snapshot = snapshot_of(cluster_of(a=("v100", 4)), [view("j", counts=(2,))])
    policy = make_policy("fifo")
    plan = policy.plan(snapshot)
    writer = DecisionWriter(policy)
    wrong = plan.revise({"j": Waiting(Reason(ReasonCode.NO_ROOM))})
    # Of a bygone form, a false one, and as fifo makes it.
    documents = ('{"schema":1}', writer.write(snapshot, wrong), writer.write(snapshot, plan))
    path = folder / "decided.duckdb"
    with Store.open(path, Mode.WRITE) as store:
        for document in documents:
            record = PlanRecord(1e9, frozenset(), 0.1, 1, 0)
            store.record_decision(Decision("fifo", record, document=document))
    code, out, err = hetsched("db", "repeat", path)
    assert code == 1
    assert out.splitlines() == [
        "decision 1: schema is 1; a record of a decision has 'hetsched-decision/1'",
        "decision 2 differs in job j",
    ]
    assert "1 decisions come out the same, 1 otherwise, 1 cannot be made again" in err
    assert said("repeat", path, "--after", "2").endswith(
        "1 decisions come out the same, 0 otherwise, 0 cannot be made again\n"
    )
