"""Tables out of a store and into another."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pytest

from hetsched_core.errors import InputError
from hetsched_core.records.runlog import PlanRecord
from hetsched_core.store import (
    DataTimes,
    Decision,
    Format,
    Mode,
    Moments,
    ProfileKey,
    Store,
    StoreWriteError,
    read_speed_csv,
    read_speed_tables,
)
from hetsched_core.traces.gavel import read_throughputs
from tests.hetsched_core.store.measured import RESNET, TIMES, measured

HEADER = "owner,profile,gpu_type,node,nodes,gpus,count,mean,m2,first_s,last_s\n"


def fill(store: Store) -> None:
    """Record something in every table that has layers in it."""
    rng = np.random.default_rng(7)
    odd = ProfileKey('BERT, "large" – ü', "bob")
    for profile in (RESNET, odd, ProfileKey("lm")):
        for nodes in ((), ("n1",), ("n2",), ("n1", "n2")):
            speed = Moments.of(rng.normal(100, 5, 7))
            store.record([measured(speed, *nodes, gpus=4, profile=profile)])
    store.record_basic_times([TIMES])
    store.record_data_times([DataTimes(RESNET, "a100", tuple(rng.random(30)), (0.1,) * 30)])
    store.record_decision(Decision("hops", PlanRecord(1e9, frozenset(), 0.1, 1, 2)))


def test_what_is_exported_and_imported_is_the_same_to_the_last_bit_or_merges(
    store: Store, tmp_path: Path
) -> None:
    fill(store)
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    store.export(first, Format.CSV)
    with (first / "speed.csv").open(newline="") as file:
        speeds = list(read_speed_csv(file, "speed.csv"))
    with Store.open(tmp_path / "other.duckdb", Mode.WRITE) as other:
        other.import_speeds(speeds)
        other.export(second, Format.CSV)
        assert other.faults() == ()
    for table in ("speed.csv", "type_aggregated.csv", "type_distributed.csv"):
        assert (first / table).read_bytes() == (second / table).read_bytes()
        assert len((first / table).read_text().splitlines()) > 3
    # A store that knows something learns it besides.
    before = store.layers([RESNET], ["a100"]).by_type
    store.import_speeds(speeds)
    after = store.layers([RESNET], ["a100"]).by_type
    assert after.count.tolist() == (2 * before.count).tolist()
    assert after.mean.tolist() == pytest.approx(before.mean.tolist())
    assert after.m2.tolist() == pytest.approx((2 * before.m2).tolist())


@pytest.mark.parametrize("form", list(Format))
def test_every_table_is_exported_in_both_formats(
    store: Store, tmp_path: Path, form: Format
) -> None:
    fill(store)
    written = store.export(tmp_path, form)
    assert sorted(written) == sorted(tmp_path.glob(f"*.{form}"))
    counts = {}
    with duckdb.connect() as reader:
        for path in written:
            ((counts[path.stem],),) = reader.execute(f"SELECT count(*) FROM '{path}'").fetchall()
    assert counts.pop("data_time") > 1
    empty = ["bandwidth", "gpu_spec", "run", "rejected", "job", "job_event", "start_range"]
    filled = {"speed": 15, "type_aggregated": 3, "type_distributed": 3}
    assert counts == filled | {"theory": 1, "profile": 3, "decision": 1} | dict.fromkeys(empty, 0)
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize("form", Format)
def test_what_only_its_owner_may_read_is_exported_for_its_owner_alone(
    store: Store, tmp_path: Path, form: Format
) -> None:
    fill(store)
    folder = tmp_path / "tables"
    folder.mkdir()
    for mode in (0o600, 0o640, 0o644):
        store.path.chmod(mode)
        found = {path.stat().st_mode & 0o777 for path in store.export(folder, form)}
        assert found == {mode}


def test_an_export_that_does_not_fit_leaves_the_files_that_were_there(
    store: Store, small_disk: Callable[[str], Path]
) -> None:
    folder = small_disk("100k")
    store.export(folder, Format.CSV)
    before = (folder / "speed.csv").read_bytes()
    names = [f"n{number}" for number in range(5000)]
    store.record([measured(9.0, name) for name in names])
    with pytest.raises(StoreWriteError, match=rf"^{folder}/\S*speed\.csv\S* cannot be written"):
        store.export(folder, Format.CSV)
    assert (folder / "speed.csv").read_bytes() == before
    assert not list(folder.glob(".*"))
    # The store itself is as usable as before.
    assert store.summary().measurements == 5000
    assert store.faults() == ()


def test_an_export_takes_the_place_of_no_folder_and_makes_none(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "theory.csv").mkdir()
    with pytest.raises(StoreWriteError, match=r"theory\.csv cannot be written: Is a directory"):
        store.export(tmp_path, Format.CSV)
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(StoreWriteError, match="cannot be written"):
        store.export(tmp_path / "absent", Format.PARQUET)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("alice,lm,a100,n1,1,4,1,nan,0,1,1", "mean of nan"),
        ("alice,lm,a100,n1,1,4,1,-5,0,1,1", "speed of -5.0"),
        ("alice,lm,a100,n1,1,4,1,fast,0,1,1", "mean is 'fast'"),
        ("alice,lm,a100,n1,1,4,1,1e13,0,1,1", "speed of 1"),
        ("alice,lm,a100,n1,1,4,0,5,0,1,1", "count of 0"),
        ("alice,lm,a100,n1,1,4,1.5,5,0,1,1", "count is '1.5'"),
        ("alice,lm,a100,n1,1,4,1,5,-1,1,1", "squares of -1"),
        ("alice,lm,a100,n1,8,4,1,5,0,1,1", "4 GPUs on 8 nodes"),
        ("alice,lm,a100,n1,1,-4,1,5,0,1,1", "gpus is '-4'"),
        ("alice,lm,a100,n1,1,4,1,5,0,2,1", "last_s 1 is before first_s 2"),
        ("alice,lm,a100,n1,1,4,1,5,0,1,1e99", "time of 1e"),
        ("alice,,a100,n1,1,4,1,5,0,1,1", "profile ''"),
        ("alice,lm,,n1,1,4,1,5,0,1,1", "GPU type ''"),
        ("alice,lm,a100,n1,1,4,1,5,0,1", "10 cells; expected 11"),
        ('alice,"lm"x,a100,n1,1,4,1,5,0,1,1', "not valid CSV"),
    ],
)
def test_a_bad_row_is_named_by_its_line(row: str, named: str) -> None:
    good = "alice,lm,a100,n1,1,4,1,5,0,1,1\n"
    with pytest.raises(InputError, match=f"^mine.csv: line 3.*{named}"):
        list(read_speed_csv([HEADER, good, f"{row}\n"], "mine.csv"))


@pytest.mark.parametrize("header", ["", "owner,profile\n", f"more,{HEADER}"])
def test_other_columns_are_refused_with_those_expected(header: str) -> None:
    with pytest.raises(InputError, match="expected owner, profile, gpu_type"):
        list(read_speed_csv([header], "mine.csv"))


def test_columns_may_stand_in_any_order() -> None:
    names = HEADER.strip().split(",")
    values = ["alice", "lm", "a100", "n1", "1", "4", "2", "5", "0.5", "1", "3"]
    lines = [",".join(reversed(part)) + "\n" for part in (names, values)]
    (row,) = read_speed_csv(lines, "mine.csv")
    assert row.measurement.speed == Moments(2, 5.0, 0.5)
    assert (row.node, row.measurement.at_s, row.last_s) == ("n1", 1.0, 3.0)


def test_half_of_a_distributed_speed_is_refused_and_nothing_is_imported(store: Store) -> None:
    lines = [f"alice,lm,a100,n1,{nodes},4,1,5,0,1,1\n" for nodes in (1, 2)]
    rows = list(read_speed_csv([HEADER, *lines], "mine.csv"))
    with pytest.raises(InputError, match="1 distributed speeds have rows for some of their nodes"):
        store.import_speeds(rows)
    assert store.summary().measurements == 0


def test_tables_of_gavel_are_speeds_of_a_type(store: Store, data_dir: Path) -> None:
    path = data_dir / "throughputs/gavel_simulation_throughputs.json.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    store.import_speeds(list(read_speed_tables(read_throughputs(text, "gavel"), "", 1e9)))
    # Of each table the speeds of jobs that run alone; apart is no place for one GPU.
    singles = {
        (table, key): entry["null"]
        for table, row in json.loads(text).items()
        for key, entry in row.items()
        if entry.get("null") and not (table.endswith("_unconsolidated") and key.endswith(", 1)"))
    }
    assert store.summary().measurements == len(singles)
    types = ["v100", "k80"]
    found = store.layers([ProfileKey("LM (batch size 20)", "anybody")], types).by_type
    assert len(found) == 14
    for at, gpus in enumerate(found.gpus):
        table = types[found.gpu_type[at]] + ("_unconsolidated" if found.nodes[at] > 1 else "")
        assert found.mean[at] == singles[table, f"('LM (batch size 20)', {gpus})"] / gpus
