"""The measured layers: what is recorded by node is seen by node and by type, exactly."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched_core.errors import InputError, UnknownNameError
from hetsched_core.store import (
    IN_MEMORY,
    SITE,
    Measurement,
    Mode,
    Moments,
    ProfileKey,
    SpeedColumns,
    Store,
    StoredLayers,
)

RESNET = ProfileKey("resnet50", "alice")
BERT = ProfileKey("bert", "alice")
TYPES = ["a100", "v100"]


def measured(
    speed: float | Moments,
    *nodes: str,
    gpus: int = 1,
    node_count: int | None = None,
    profile: ProfileKey = RESNET,
    gpu_type: str = "a100",
    at_s: float = 1e9,
) -> Measurement:
    """One measurement; on one node if neither nodes nor their number is given."""
    moments = speed if isinstance(speed, Moments) else Moments(1, speed)
    count = node_count or max(1, len(nodes))
    return Measurement(profile, gpu_type, gpus, count, moments, at_s, nodes)


def rows(layers: StoredLayers, columns: SpeedColumns) -> list[tuple[object, ...]]:
    """(profile, GPU type, node, nodes, GPUs, count, mean, m2), by name."""
    return [
        (
            layers.profiles[profile].name,
            layers.gpu_types[gpu_type],
            layers.nodes[entity] if entity >= 0 else None,
            nodes,
            gpus,
            count,
            pytest.approx(mean),
            pytest.approx(m2, rel=1e-9, abs=1e-3),
        )
        for profile, gpu_type, entity, nodes, gpus, count, mean, m2 in zip(
            columns.profile.tolist(),
            columns.gpu_type.tolist(),
            columns.entity.tolist(),
            columns.nodes.tolist(),
            columns.gpus.tolist(),
            columns.count.tolist(),
            columns.mean.tolist(),
            columns.m2.tolist(),
            strict=True,
        )
    ]


def test_every_entity_record_is_seen_in_the_type_layer(store: Store) -> None:
    store.record([measured(100.0, "n1"), measured(104.0, "n1"), measured(90.0, "n2")])
    layers = store.layers([RESNET], TYPES)
    assert rows(layers, layers.by_entity) == [
        ("resnet50", "a100", "n1", 1, 1, 2, 102.0, 8.0),
        ("resnet50", "a100", "n2", 1, 1, 1, 90.0, 0.0),
    ]
    assert rows(layers, layers.by_type) == [("resnet50", "a100", None, 1, 1, 3, 98.0, 104.0)]


def test_what_names_no_node_counts_for_the_type_alone(store: Store) -> None:
    store.record([measured(100.0, "n1"), measured(80.0)])
    layers = store.layers([RESNET], TYPES)
    assert rows(layers, layers.by_entity) == [("resnet50", "a100", "n1", 1, 1, 1, 100.0, 0.0)]
    assert rows(layers, layers.by_type) == [("resnet50", "a100", None, 1, 1, 2, 90.0, 200.0)]


def test_a_distributed_run_counts_once_for_the_type_and_once_for_each_node(store: Store) -> None:
    store.record([measured(50.0, "n1", "n2", gpus=4), measured(60.0, "n2", "n3", gpus=4)])
    layers = store.layers([RESNET], TYPES)
    assert rows(layers, layers.by_entity) == [
        ("resnet50", "a100", "n1", 2, 4, 1, 50.0, 0.0),
        ("resnet50", "a100", "n2", 2, 4, 2, 55.0, 50.0),
        ("resnet50", "a100", "n3", 2, 4, 1, 60.0, 0.0),
    ]
    assert rows(layers, layers.by_type) == [("resnet50", "a100", None, 2, 4, 2, 55.0, 50.0)]


def test_aggregated_and_distributed_tables_are_kept_apart(store: Store) -> None:
    store.record(
        [
            measured(100.0, "n1", gpus=4),
            measured(70.0, "n1", "n2", gpus=4),
            measured(60.0, "n1", "n2", "n3", gpus=4),
        ]
    )
    with store.transaction() as transaction:
        found = {
            view: transaction.rows(f"SELECT * EXCLUDE (first_s, last_s) FROM {view} ORDER BY ALL")
            for view in (
                "entity_aggregated",
                "entity_distributed",
                "type_aggregated",
                "type_distributed",
            )
        }
    key = ("alice", "resnet50", "a100")
    assert found["entity_aggregated"] == [(*key, "n1", 4, 1, 100.0, 0.0)]
    assert found["entity_distributed"] == [
        (*key, "n1", 2, 4, 1, 70.0, 0.0),
        (*key, "n1", 3, 4, 1, 60.0, 0.0),
        (*key, "n2", 2, 4, 1, 70.0, 0.0),
        (*key, "n2", 3, 4, 1, 60.0, 0.0),
        (*key, "n3", 3, 4, 1, 60.0, 0.0),
    ]
    assert found["type_aggregated"] == [(*key, 4, 1, 100.0, 0.0)]
    assert found["type_distributed"] == [(*key, 2, 4, 1, 70.0, 0.0), (*key, 3, 4, 1, 60.0, 0.0)]


CELLS = st.tuples(
    st.sampled_from([RESNET, BERT]),
    st.sampled_from(TYPES),
    st.sampled_from([(), ("n1",), ("n2",), ("n1", "n2"), ("n2", "n3")]),
    st.sampled_from([2, 4]),
    st.lists(st.floats(0.5, 2e4), min_size=1, max_size=4),
)


@settings(max_examples=20)
@given(st.lists(CELLS, min_size=1, max_size=12), st.data())
def test_however_measurements_are_batched_the_layers_have_the_moments_of_all_values(
    cells: list[tuple[ProfileKey, str, tuple[str, ...], int, list[float]]], data: st.DataObject
) -> None:
    values = defaultdict(list)
    for profile, gpu_type, nodes, gpus, speeds in cells:
        for entity in (None, *nodes):
            cell = (profile.name, gpu_type, entity, max(1, len(nodes)), gpus)
            values[cell].extend(speeds)
    expected = {cell: Moments.of(speeds) for cell, speeds in values.items()}
    measurements = [
        measured(Moments.of(speeds), *nodes, gpus=gpus, profile=profile, gpu_type=gpu_type)
        for profile, gpu_type, nodes, gpus, speeds in cells
    ]
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        cut = data.draw(st.integers(0, len(measurements)))
        store.record(measurements[:cut])
        store.record(measurements[cut:])
        layers = store.layers([RESNET, BERT], TYPES)
        with store.transaction() as transaction:
            by_view = transaction.rows(
                "SELECT profile, gpu_type, nodes, gpus, count, mean, m2 FROM speed_by_type"
            )
    for columns, entities in ((layers.by_entity, True), (layers.by_type, False)):
        found = {row[:5]: row[5:] for row in rows(layers, columns)}
        wanted = {cell: m for cell, m in expected.items() if (cell[2] is not None) == entities}
        assert found.keys() == wanted.keys()
        for cell, moments in wanted.items():
            assert found[cell][0] == moments.count
            assert moments.mean == found[cell][1]
            assert found[cell][2] == pytest.approx(moments.m2, rel=1e-9, abs=1e-3)
    # The view is the twin, in SQL, of what the columns are made by.
    assert {(*row[:2], None, *row[2:4]): row[4:] for row in by_view} == {
        row[:5]: row[5:] for row in rows(layers, layers.by_type)
    }


def test_times_of_first_and_last_stay_right_when_the_clock_goes_back(store: Store) -> None:
    for at_s in (2e9, 1e9, 1.5e9):
        store.record([measured(100.0, "n1", at_s=at_s)])
    layers = store.layers([RESNET], TYPES)
    for columns in (layers.by_entity, layers.by_type):
        assert columns.first_s.tolist() == [1e9]
        assert columns.last_s.tolist() == [2e9]
        assert columns.count.tolist() == [3]


def test_columns_say_which_pair_they_belong_to_in_the_order_that_was_asked(store: Store) -> None:
    store.record(
        [
            measured(1.0, profile=BERT, gpu_type="v100"),
            measured(2.0, profile=RESNET, gpu_type="a100"),
            measured(3.0, profile=RESNET, gpu_type="v100"),
        ]
    )
    layers = store.layers([RESNET, ProfileKey("gpt2", "bob"), BERT], ["v100", "h100", "a100"])
    found = layers.by_type
    assert list(zip(found.profile, found.gpu_type, found.mean, strict=True)) == [
        (0, 0, 3.0),
        (0, 2, 2.0),
        (2, 0, 1.0),
    ]


def test_a_profile_may_be_asked_for_twice(store: Store) -> None:
    store.record([measured(100.0, "n1")])
    layers = store.layers([RESNET, RESNET], ["a100"])
    assert layers.by_type.profile.tolist() == [0, 1]
    assert layers.by_type.mean.tolist() == [100.0, 100.0]


@pytest.mark.parametrize(
    ("profiles", "types"), [([], TYPES), ([RESNET], []), ([], []), ([BERT], ["h100"])]
)
def test_asking_for_nothing_or_for_what_is_not_there_gives_nothing(
    store: Store, profiles: list[ProfileKey], types: list[str]
) -> None:
    store.record([measured(100.0, "n1")])
    layers = store.layers(profiles, types)
    assert len(layers.by_entity) == len(layers.by_type) == len(layers.theory) == 0


def test_recording_nothing_changes_nothing(store: Store) -> None:
    store.record([])
    assert store.summary().measurements == 0


def test_the_deviation_is_that_of_the_values(store: Store) -> None:
    values = [100.0, 104.0, 90.0]
    store.record([measured(value, "n1") for value in values])
    layers = store.layers([RESNET], TYPES)
    assert layers.by_type.sd.tolist() == [pytest.approx(np.std(values, ddof=1))]


# Whose profile ------------------------------------------------------------------------------------

BOBS = ProfileKey("resnet50", "bob")


def means(store: Store, key: ProfileKey) -> dict[str, float]:
    """Mean speed of a profile on each GPU type of which something is known."""
    found = store.layers([key], TYPES).by_type
    return {TYPES[t]: mean for t, mean in zip(found.gpu_type, found.mean.tolist(), strict=True)}


def test_a_profile_is_its_owners_until_it_is_published(store: Store) -> None:
    store.record([measured(100.0)])
    assert means(store, BOBS) == {}
    store.publish(RESNET)
    assert means(store, BOBS) == {"a100": 100.0}
    store.withdraw(RESNET)
    assert means(store, BOBS) == {}
    assert means(store, RESNET) == {"a100": 100.0}


def test_nobody_spoils_a_published_profile_and_ones_own_speeds_go_first(store: Store) -> None:
    store.record([measured(100.0), measured(50.0, gpu_type="v100")])
    store.publish(RESNET)
    store.record([measured(1.0, profile=BOBS)])
    assert means(store, RESNET) == {"a100": 100.0, "v100": 50.0}
    assert means(store, BOBS) == {"a100": 1.0, "v100": 50.0}


def test_what_belongs_to_the_site_is_public(store: Store) -> None:
    store.record([measured(100.0, profile=ProfileKey("resnet50", SITE))])
    assert means(store, BOBS) == {"a100": 100.0}
    with pytest.raises(InputError, match="belongs to the site"):
        store.withdraw(ProfileKey("resnet50", SITE))


def test_only_one_profile_of_a_name_is_public(store: Store) -> None:
    store.record([measured(100.0), measured(1.0, profile=BOBS)])
    store.publish(RESNET)
    with pytest.raises(InputError, match="published already, that of alice"):
        store.publish(BOBS)
    with pytest.raises(InputError, match="published already, that of alice"):
        store.record([measured(5.0, profile=ProfileKey("resnet50", SITE))])
    assert means(store, RESNET) == {"a100": 100.0}
    assert store.summary().measurements == 2


def test_publishing_what_is_not_there_says_what_is(store: Store) -> None:
    store.record([measured(100.0)])
    with pytest.raises(UnknownNameError, match="did you mean 'resnet50'"):
        store.publish(ProfileKey("resnet5", "alice"))


def test_what_was_recorded_is_there_after_opening_again(path: Path) -> None:
    with Store.open(path, Mode.WRITE) as store:
        store.record([measured(100.0, "n1")])
    with Store.open(path) as store:
        layers = store.layers([RESNET], TYPES)
    assert rows(layers, layers.by_entity) == [("resnet50", "a100", "n1", 1, 1, 1, 100.0, 0.0)]
