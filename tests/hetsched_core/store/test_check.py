"""The check finds what does not hold together."""

import pytest

from hetsched_core.store import DataTimes, Moments, Store
from tests.hetsched_core.store.measured import RESNET, measured


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
