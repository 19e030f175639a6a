"""What live policies are told of speeds: the store's layers, by owner, else what is assumed."""

from collections.abc import Sequence

import numpy as np
import pytest

from hetsched_core.store import (
    IN_MEMORY,
    BasicTimes,
    Measurement,
    Mode,
    Moments,
    ProfileKey,
    Store,
    StoreDamagedError,
    StoredLayers,
)
from hetsched_core.throughput.builtin import builtin_tables
from hetsched_core.throughput.iteration import Pattern
from hetsched_core.types import Cluster, Configuration, Layer, Node, Speeds, SpeedTable
from slurm_plugin.daemon.speeds import ASSUMED_PROFILE, LiveSpeeds

CLUSTER = Cluster((Node("n0", "a100", 4), Node("n1", "v100", 8), Node("n2", "a100", 4)))
MINE, THEIRS = ProfileKey("mynet", "ann"), ProfileKey("mynet", "bob")
ON_N0, ON_N2 = Configuration.of({"n0": 2}), Configuration.of({"n2": 2})


class Live(LiveSpeeds):
    """The speeds of a cluster, by profiles of ann's."""

    def __init__(self, store: Store | None, *, measures: bool = True) -> None:
        super().__init__(store, measures=measures)
        self.on(CLUSTER)

    @property
    def known(self) -> Speeds:
        assert self.speeds is not None
        return self.speeds

    def of(self, key: str = "mynet", user: str = "ann", *, measurable: bool = True) -> SpeedTable:
        name = self.name(key, user, measurable=measurable)
        return self.known.table(name)

    def two(self, user: str = "ann") -> float:
        """The speed for each of two A100 GPUs."""
        return self.of(user=user).per_gpu("a100", 2, 1)

    def measure(self, key: ProfileKey, speed: float, node: str = "n0", gpus: int = 2) -> None:
        """Learn of a run on GPUs of a node."""
        assert self._store is not None
        kind, moments = CLUSTER[node].gpu_type, Moments(5, speed)
        self._store.record([Measurement(key, kind, gpus, 1, moments, 1e9, (node,))])
        self.learned([key])

    def profile(self, key: ProfileKey, speed: float, gpu_type: str) -> None:
        """Learn of a profiling run."""
        assert self._store is not None
        forward, backward, update = (Moments(1, share * 32 / speed) for share in (0.3, 0.6, 0.1))
        times = (Pattern.OVERLAPPED_DATA, forward, backward, update, 1e9)
        self._store.record_basic_times([BasicTimes(key, gpu_type, 32, 0, *times)])
        self.learned([key])


def test_a_key_that_nobody_measured_has_the_assumed_speeds_as_a_first_estimate(
    store: Store,
) -> None:
    table = Live(store).of()
    assumed = builtin_tables(CLUSTER.gpu_types, CLUSTER.gpus)[ASSUMED_PROFILE]
    np.testing.assert_array_equal(table.one_node, assumed.one_node)
    assert not table.profiled("a100")
    assert set(table.layers.ravel().tolist()) == {Layer.FIRST_ESTIMATE}


@pytest.mark.parametrize(
    ("measures", "key", "measurable"),
    [(False, "mynet", True), (True, "mynet", False), (True, "", True), (True, "a b\n", True)],
    ids=["nothing is measured", "the job cannot be stopped", "no key", "no name for a profile"],
)
def test_what_cannot_be_measured_is_taken_as_it_is(
    store: Store, measures: bool, key: str, measurable: bool
) -> None:
    table = Live(store, measures=measures).of(key, measurable=measurable)
    assert all(table.profiled(kind) for kind in CLUSTER.gpu_types)


def test_measured_speeds_take_the_place_of_the_assumed_and_only_their_profile_is_revised(
    store: Store,
) -> None:
    live = Live(store)
    other, assumed = live.of("other"), live.known.table(ASSUMED_PROFILE)
    live.measure(MINE, 300.0)
    live.measure(MINE, 270.0, "n2")
    name = live.name("mynet", "ann", measurable=True)
    # 285 for the type, and each node as it was measured.
    assert live.two() == pytest.approx(285.0)
    assert live.known.speed(name, ON_N0) == pytest.approx(2 * 300.0, rel=0.03)
    assert live.known.speed(name, ON_N2) < live.known.speed(name, ON_N0)
    assert live.of("other") is other
    assert live.known.table(ASSUMED_PROFILE) is assumed


def test_the_layer_of_a_speed_and_the_batch_of_a_profiling_run_are_told(store: Store) -> None:
    live = Live(store)
    live.profile(MINE, 200.0, "v100")
    table = live.of()
    assert (table.profiled("v100"), table.profiled("a100")) == (True, False)
    assert table.per_gpu("v100", 1, 1) == pytest.approx(200.0)
    assert table.batch_size == 32
    live.measure(MINE, 200.0, "n1", gpus=1)
    table = live.of()
    layers = dict(zip(table.gpu_types, table.layers.tolist(), strict=True))
    assert layers["v100"] == [Layer.GPU_TYPE] + [Layer.THEORY] * (len(table.counts) - 1)
    assert layers["a100"] == [Layer.FIRST_ESTIMATE] * len(table.counts)


def test_a_profile_is_its_owners_until_it_is_published(store: Store) -> None:
    live = Live(store)
    assumed = live.two("bob")
    live.measure(MINE, 300.0)
    assert live.two() == pytest.approx(300.0)
    assert live.two("bob") == assumed
    store.publish(MINE)
    live.learned([MINE])
    assert live.two("bob") == pytest.approx(300.0)
    # Their own measurements come before what is published.
    live.measure(THEIRS, 100.0)
    assert live.two("bob") == pytest.approx(100.0)
    assert live.two() == pytest.approx(300.0)


def test_a_builtin_model_keeps_its_formula_corrected_by_what_was_measured(store: Store) -> None:
    live = Live(store)
    before = live.of(ASSUMED_PROFILE)
    assert before.profiled("v100")
    half = before.per_gpu("a100", 1, 1) / 2
    live.measure(ProfileKey(ASSUMED_PROFILE, "ann"), half, gpus=1)
    after = live.of(ASSUMED_PROFILE)
    assert after.per_gpu("a100", 4, 1) == pytest.approx(before.per_gpu("a100", 4, 1) / 2)
    assert after.profiled("a100")


def test_a_type_that_was_tried_in_vain_is_settled_there_alone(store: Store) -> None:
    live = Live(store)
    live.settle(live.name("mynet", "ann", measurable=True), "v100")
    assert (live.of().profiled("v100"), live.of().profiled("a100")) == (True, False)


def test_of_what_was_tried_in_vain_the_latest_is_remembered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_plugin.daemon.speeds._MOST_SETTLED", 2)
    live = Live(store)
    keys = ("first", "second", "third")
    for key in keys:
        live.settle(live.name(key, "ann", measurable=True), "v100")
    live.learned(ProfileKey(key, "ann") for key in keys)
    assert [live.of(key).profiled("v100") for key in keys] == [False, True, True]


def test_names_that_no_job_carries_any_more_are_forgotten(store: Store) -> None:
    live = Live(store)
    kept, gone, also = (live.name(key, "ann", measurable=True) for key in ("mynet", "other", "x"))
    table = live.of()
    live.retain({kept, also})
    assert gone in live.known.profiles
    live.retain({kept})
    assert live.known.profiles == tuple(sorted((kept, ASSUMED_PROFILE)))
    assert live.of() is table
    assert live.name("other", "ann", measurable=True) == gone
    assert gone in live.known.profiles


def test_a_new_cluster_keeps_what_was_learned(store: Store) -> None:
    live = Live(store)
    live.measure(MINE, 300.0)
    assert live.two() == pytest.approx(300.0)
    live.on(Cluster((Node("n0", "a100", 4), Node("n9", "h100", 8))))
    name = live.name("mynet", "ann", measurable=True)
    assert name in live.known.profiles
    assert live.two() == pytest.approx(300.0)
    assert live.of().runs_on("h100")


class Broken(Store):
    """A store of which nothing can be read back."""

    def layers(self, profiles: Sequence[ProfileKey], gpu_types: Sequence[str]) -> StoredLayers:
        raise StoreDamagedError("a block cannot be read back")


def test_where_the_store_fails_or_is_none_what_is_assumed_has_to_do(store: Store) -> None:
    Live(store).measure(MINE, 777.0)
    assumed = Live(None).two()
    with Broken.open(IN_MEMORY, Mode.WRITE) as broken:
        live = Live(broken)
        assert live.two() == assumed
        failure = live.failure
        assert isinstance(failure, StoreDamagedError)
        # Another store answers for what was asked of the first.
        live.look_up_in(store, measures=True)
    assert live.failure is None
    assert live.two() == pytest.approx(777.0)
    # What was measured is forgotten with it.
    live.look_up_in(None, measures=False)
    assert live.two() == assumed
