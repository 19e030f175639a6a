"""The measured layers: what is recorded by node is seen by node and by type, exactly."""

from collections import defaultdict
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched_core.errors import InputError, UnknownNameError
from hetsched_core.store import (
    IN_MEMORY,
    SITE,
    Mode,
    Moments,
    ProfileKey,
    SpeedColumns,
    Store,
    StoredLayers,
)
from tests.hetsched_core.store.measured import RESNET, measured

BERT = ProfileKey("bert", "alice")
TYPES = ["a100", "v100"]


def test_aggregated_and_distributed_tables_are_kept_apart(store: Store) -> None:
    for speed, nodes in ((100.0, "1"), (70.0, "12"), (60.0, "123")):
        store.record([measured(speed, *(f"n{node}" for node in nodes), gpus=4)])
    store.record([])
    views = ("entity_aggregated", "entity_distributed", "type_aggregated", "type_distributed")
    with store.transaction() as transaction:
        found = {
            view: transaction.rows(f"SELECT * EXCLUDE (first_s, last_s) FROM {view} ORDER BY ALL")
            for view in views
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


Cell = tuple[str, str, str | None, int, int]


def by_cell(layers: StoredLayers, columns: SpeedColumns) -> dict[Cell, Moments]:
    """Moments by (profile, GPU type, node, nodes, GPUs), by name; their deviation is checked."""
    found: dict[Cell, Moments] = {}
    for at, count in enumerate(columns.count.tolist()):
        entity = columns.entity[at]
        cell = (
            layers.profiles[columns.profile[at]].name,
            layers.gpu_types[columns.gpu_type[at]],
            layers.nodes[entity] if entity >= 0 else None,
            int(columns.nodes[at]),
            int(columns.gpus[at]),
        )
        found[cell] = Moments(count, float(columns.mean[at]), float(columns.m2[at]))
        if count > 1:
            assert columns.sd[at] == pytest.approx((columns.m2[at] / (count - 1)) ** 0.5)
    assert len(found) == len(columns.count)
    return found


def same(found: Mapping[Cell, Moments], wanted: Mapping[Cell, Moments]) -> None:
    assert found.keys() == wanted.keys()
    for cell, moments in wanted.items():
        assert found[cell].count == moments.count
        assert found[cell].mean == pytest.approx(moments.mean)
        assert found[cell].m2 == pytest.approx(moments.m2, rel=1e-9, abs=1e-3)


@settings(max_examples=20)
@given(st.lists(CELLS, min_size=1, max_size=12), st.data())
def test_however_measurements_are_batched_the_layers_have_the_moments_of_all_values(
    cells: list[tuple[ProfileKey, str, tuple[str, ...], int, list[float]]], data: st.DataObject
) -> None:
    values: dict[Cell, list[float]] = defaultdict(list)
    measurements = []
    for profile, gpu_type, nodes, gpus, speeds in cells:
        # A distributed run counts once for the type and once for each node.
        for entity in (None, *nodes):
            values[profile.name, gpu_type, entity, max(1, len(nodes)), gpus].extend(speeds)
        moments = Moments.of(speeds)
        one = measured(moments, *nodes, gpus=gpus, profile=profile, gpu_type=gpu_type)
        measurements.append(one)
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        cut = data.draw(st.integers(0, len(measurements)))
        store.record(measurements[:cut])
        store.record(measurements[cut:])
        layers = store.layers([RESNET, BERT], TYPES)
        with store.transaction() as transaction:
            by_view = transaction.rows(
                "SELECT profile, gpu_type, nodes, gpus, count, mean, m2 FROM speed_by_type"
            )
    expected = {cell: Moments.of(speeds) for cell, speeds in values.items()}
    of_types = {cell: moments for cell, moments in expected.items() if cell[2] is None}
    same(by_cell(layers, layers.by_type), of_types)
    same(by_cell(layers, layers.by_entity), {c: expected[c] for c in expected.keys() - of_types})
    # The view is the twin, in SQL, of what the columns are made by.
    same({(*row[:2], None, *row[2:4]): Moments(*row[4:]) for row in by_view}, of_types)


def test_times_of_first_and_last_stay_right_when_the_clock_goes_back(store: Store) -> None:
    for at_s in (2e9, 1e9, 1.5e9):
        store.record([measured(100.0, "n1", at_s=at_s)])
    layers = store.layers([RESNET], TYPES)
    for columns in (layers.by_entity, layers.by_type):
        assert columns.first_s.tolist() == [1e9]
        assert columns.last_s.tolist() == [2e9]
        assert columns.count.tolist() == [3]


def test_columns_say_which_pair_they_belong_to_in_the_order_that_was_asked(store: Store) -> None:
    pairs = [(1.0, BERT, "v100"), (2.0, RESNET, "a100"), (3.0, RESNET, "v100")]
    store.record([measured(mean, profile=profile, gpu_type=t) for mean, profile, t in pairs])
    layers = store.layers([RESNET, ProfileKey("gpt2", "bob"), BERT], ["v100", "h100", "a100"])
    found = layers.by_type
    means = list(zip(found.profile, found.gpu_type, found.mean, strict=True))
    assert means == [(0, 0, 3.0), (0, 2, 2.0), (2, 0, 1.0)]
    # A profile may be asked for twice.
    twice = store.layers([BERT, BERT], ["v100"]).by_type
    assert (twice.profile.tolist(), twice.mean.tolist()) == ([0, 1], [1.0, 1.0])


@pytest.mark.parametrize(
    ("profiles", "types"), [([], TYPES), ([RESNET], []), ([], []), ([BERT], ["h100"])]
)
def test_asking_for_nothing_or_for_what_is_not_there_gives_nothing(
    store: Store, profiles: list[ProfileKey], types: list[str]
) -> None:
    store.record([measured(100.0, "n1")])
    layers = store.layers(profiles, types)
    assert len(layers.by_entity) == len(layers.by_type) == len(layers.theory) == 0


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
