"""Files that are damaged, or no stores: refused, and not touched."""

import random
import sqlite3
from pathlib import Path

import pytest

from hetsched_core.store import (
    DataTimes,
    Mode,
    Moments,
    NotAStoreError,
    Store,
    StoreDamagedError,
    StoreError,
)
from tests.hetsched_core.store.batches import batch, batches, killed
from tests.hetsched_core.store.measured import RESNET, measured


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"x", "one byte"),
        (b"owner,profile\n" * 2000, "text"),
        (b"\0" * 20_000, "zeros"),
    ],
)
def test_what_is_no_database_is_refused_and_not_touched(
    path: Path, mode: Mode, content: bytes, why: str
) -> None:
    path.write_bytes(content)
    with pytest.raises(NotAStoreError, match="is no hetsched store"):
        Store.open(path, mode)
    assert path.read_bytes() == content
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("mode", list(Mode))
def test_a_database_of_another_program_is_refused_without_asking_the_network(
    path: Path, mode: Mode
) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE speed (a)")
    connection.close()
    with pytest.raises(NotAStoreError, match=r"no hetsched store.*an SQLite database") as refused:
        Store.open(path, mode)
    assert "download" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "mode"), [("", Mode.READ), ("", Mode.WRITE), ("no/store.duckdb", Mode.WRITE)]
)
def test_a_folder_and_what_lies_in_none_cannot_be_opened(
    tmp_path: Path, name: str, mode: Mode
) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        Store.open(tmp_path / name, mode)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a store of five batches."""
    path = tmp_path_factory.mktemp("whole") / "store.duckdb"
    with Store.open(path, Mode.WRITE) as store:
        for number in range(5):
            store.record(batch(number))
    return path.read_bytes()


def test_what_the_check_passes_can_be_used_wherever_the_damage_is(path: Path, whole: bytes) -> None:
    messages = []
    positions = range(0, len(whole), len(whole) // 24)
    for position in positions:
        damaged = bytearray(whole)
        for at in range(position, min(position + 64, len(whole))):
            damaged[at] ^= 0xA5
        path.write_bytes(damaged)
        try:
            assert batches(path) == 5
        except (StoreDamagedError, NotAStoreError) as error:
            messages.append(str(error))
        else:
            with Store.open(path, Mode.WRITE) as store:
                store.record(batch(5))
            assert batches(path) == 6
    # The others are parts that are not in use.
    assert 2 <= len(messages) < len(positions)
    assert all(str(path) in message for message in messages)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_file_that_is_cut_off_is_damaged(path: Path, whole: bytes, share: float) -> None:
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(StoreDamagedError, match="restore a copy"):
        batches(path)


def test_a_log_of_another_store_is_not_mixed_in(path: Path, whole: bytes) -> None:
    killed(path, 2)
    path.write_bytes(whole)
    with pytest.raises(StoreDamagedError, match="does not match"):
        Store.open(path, Mode.WRITE)


@pytest.mark.parametrize("damage", ["start", "all"])
def test_a_log_of_which_nothing_can_be_read_is_told_and_kept(
    path: Path, new: bytes, damage: str
) -> None:
    path.write_bytes(new)
    log = killed(path, 3)
    data = log.read_bytes()
    spoilt = b"\xff" * 4 + data[4:] if damage == "start" else random.Random(0).randbytes(300)
    log.write_bytes(spoilt)
    with Store.open(path) as store:
        assert store.unread_log == log
    with Store.open(path, Mode.WRITE) as store:
        aside = store.unread_log
        store.record(batch(0))
    assert aside is not None
    assert aside.read_bytes() == spoilt
    with Store.open(path) as store:
        assert store.unread_log is None
    assert batches(path) == 1


@pytest.fixture
def filled(store: Store) -> Store:
    speed = Moments(2, 100.0, 8.0)
    store.record([measured(speed, "n1", gpus=4), measured(speed, "n1", "n2", gpus=4)])
    store.record_data_times([DataTimes(RESNET, "a100", (0.1, 0.2), (0.0, 0.0))])
    return store


def test_what_the_store_writes_holds_together(filled: Store) -> None:
    assert filled.faults() == ()


@pytest.mark.parametrize(
    ("sabotage", "found"),
    [
        ("DELETE FROM profile", "3 measured speeds of no profile"),
        ("DELETE FROM node WHERE name = 'n2'", "1 measured speeds of no profile, GPU type or node"),
        ("UPDATE speed SET mean = 'nan'", "3 measured speeds that cannot have been measured"),
        ("UPDATE speed SET mean = -1 WHERE nodes = 1", "1 measured speeds that cannot"),
        ("UPDATE speed SET m2 = 'inf' WHERE nodes = 1", "1 measured speeds that cannot"),
        ("UPDATE speed SET count = 0 WHERE nodes = 1", "1 measured speeds that cannot"),
        ("UPDATE speed SET last_s = 0 WHERE nodes = 1", "1 measured speeds that cannot"),
        ("UPDATE speed SET count = 3 WHERE nodes = 2 AND node = 1", "the row of a node is missing"),
        ("INSERT INTO basic_times SELECT 99, 1, 1, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1", "of no prof"),
        ("INSERT INTO basic_times SELECT 1, 1, 1, 1, 9, 1, 1, 0, 1, 0, 1, 0, 1, 1", "basic times"),
        ("DELETE FROM data_mode", "1 pairs whose data times have no modes"),
        ("UPDATE data_mode SET share = 0.5", "modes that do not add up to 1"),
        ("INSERT INTO speed FROM speed", "3 rows of the table speed stand twice"),
        ("INSERT INTO data_mode FROM data_mode", "1 rows of the table data_mode stand twice"),
        ("INSERT INTO node VALUES (90, 'n1')", "1 rows of the table node stand twice"),
        (
            "INSERT INTO profile VALUES (90, 'bob', 'x', true), (91, 'eve', 'x', true)",
            "1 names of which several profiles are published",
        ),
    ],
)
def test_what_somebody_else_wrote_is_found(filled: Store, sabotage: str, found: str) -> None:
    with filled.transaction() as transaction:
        transaction.run(sabotage)
    assert any(found in fault for fault in filled.faults()), filled.faults()
