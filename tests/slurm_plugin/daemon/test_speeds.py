"""What live policies are told of speeds: the store's layers, by owner, else what is assumed."""

from collections.abc import Iterator, Sequence

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
from hetsched_core.types import Cluster, Configuration, Layer, Node, Speeds
from slurm_plugin.daemon.speeds import ASSUMED_PROFILE, LiveSpeeds

CLUSTER = Cluster((Node("n0", "a100", 4), Node("n1", "v100", 8), Node("n2", "a100", 4)))
MINE, THEIRS = ProfileKey("mynet", "ann"), ProfileKey("mynet", "bob")
ON_N0 = Configuration.of({"n0": 2})


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        yield store


def live(store: Store | None, *, measures: bool = True) -> LiveSpeeds:
    found = LiveSpeeds(store, measures=measures)
    found.on(CLUSTER)
    return found


def known(estimates: LiveSpeeds) -> Speeds:
    assert estimates.speeds is not None
    return estimates.speeds


def measured(key: ProfileKey, speed: float, node: str = "n0", gpus: int = 2) -> Measurement:
    return Measurement(key, CLUSTER[node].gpu_type, gpus, 1, Moments(5, speed), 1e9, (node,))


def profiled(key: ProfileKey, speed: float, gpu_type: str) -> BasicTimes:
    batch = 32
    forward, backward, update = (Moments(1, share * batch / speed) for share in (0.3, 0.6, 0.1))
    pattern = Pattern.OVERLAPPED_DATA
    return BasicTimes(key, gpu_type, batch, 0, pattern, forward, backward, update, 1e9)


def test_a_key_that_nobody_measured_has_the_assumed_speeds_as_a_first_estimate(
    store: Store,
) -> None:
    estimates = live(store)
    name = estimates.name("mynet", "ann", measurable=True)
    table = known(estimates).table(name)
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
    estimates = live(store, measures=measures)
    name = estimates.name(key, "ann", measurable=measurable)
    assert all(known(estimates).table(name).profiled(t) for t in CLUSTER.gpu_types)


def test_measured_speeds_take_the_place_of_the_assumed_and_only_their_profile_is_revised(
    store: Store,
) -> None:
    estimates = live(store)
    mine, other = (estimates.name(key, "ann", measurable=True) for key in ("mynet", "other"))
    before = known(estimates)
    store.record([measured(MINE, 300.0), measured(MINE, 270.0, "n2")])
    estimates.learned([MINE])
    after = known(estimates)
    # 285 for the type, and each node as it was measured.
    assert after.per_gpu(mine, "a100", 2) == pytest.approx(285.0)
    assert after.speed(mine, ON_N0) == pytest.approx(2 * 300.0, rel=0.03)
    assert after.speed(mine, Configuration.of({"n2": 2})) < after.speed(mine, ON_N0)
    assert after.table(other) is before.table(other)
    assert after.table(ASSUMED_PROFILE) is before.table(ASSUMED_PROFILE)


def test_the_layer_of_a_speed_is_told(store: Store) -> None:
    estimates = live(store)
    name = estimates.name("mynet", "ann", measurable=True)
    store.record([measured(MINE, 300.0, gpus=1)])
    store.record_basic_times([profiled(MINE, 300.0, "a100")])
    estimates.learned([MINE])
    table = known(estimates).table(name)
    layers = dict(zip(table.gpu_types, table.layers.tolist(), strict=True))
    assert layers["a100"] == [Layer.GPU_TYPE] + [Layer.THEORY] * (len(table.counts) - 1)
    assert layers["v100"] == [Layer.FIRST_ESTIMATE] * len(table.counts)


def test_a_profiling_run_on_a_type_makes_it_profiled_there_and_tells_the_batch(
    store: Store,
) -> None:
    estimates = live(store)
    name = estimates.name("mynet", "ann", measurable=True)
    store.record_basic_times([profiled(MINE, 200.0, "v100")])
    estimates.learned([MINE])
    table = known(estimates).table(name)
    assert (table.profiled("v100"), table.profiled("a100")) == (True, False)
    assert table.per_gpu("v100", 1, 1) == pytest.approx(200.0)
    assert table.batch_size == 32


def test_a_profile_is_its_owners_until_it_is_published(store: Store) -> None:
    estimates = live(store)
    mine = estimates.name("mynet", "ann", measurable=True)
    theirs = estimates.name("mynet", "bob", measurable=True)
    store.record([measured(MINE, 300.0)])
    estimates.learned([MINE])
    assert known(estimates).per_gpu(mine, "a100", 2) == pytest.approx(300.0)
    assert known(estimates).per_gpu(theirs, "a100", 2) != pytest.approx(300.0, rel=0.1)
    store.publish(MINE)
    estimates.learned([MINE])
    assert known(estimates).per_gpu(theirs, "a100", 2) == pytest.approx(300.0)
    # Their own measurements come before what is published.
    store.record([measured(THEIRS, 100.0)])
    estimates.learned([THEIRS])
    assert known(estimates).per_gpu(theirs, "a100", 2) == pytest.approx(100.0)
    assert known(estimates).per_gpu(mine, "a100", 2) == pytest.approx(300.0)


def test_a_builtin_model_keeps_its_formula_corrected_by_what_was_measured(store: Store) -> None:
    estimates = live(store)
    key = ProfileKey(ASSUMED_PROFILE, "ann")
    name = estimates.name(ASSUMED_PROFILE, "ann", measurable=True)
    before = known(estimates)
    assert before.table(name).profiled("v100")
    half = before.per_gpu(name, "a100", 1) / 2
    store.record([measured(key, half, gpus=1)])
    estimates.learned([key])
    after = known(estimates)
    assert after.per_gpu(name, "a100", 4) == pytest.approx(before.per_gpu(name, "a100", 4) / 2)
    assert after.table(name).profiled("a100")


def test_a_type_that_was_tried_in_vain_is_settled_there_alone(store: Store) -> None:
    estimates = live(store)
    name = estimates.name("mynet", "ann", measurable=True)
    estimates.settle(name, "v100")
    assert known(estimates).table(name).profiled("v100")
    assert not known(estimates).table(name).profiled("a100")


def test_names_that_no_job_carries_any_more_are_forgotten(store: Store) -> None:
    estimates = live(store)
    kept, gone, also = (estimates.name(k, "ann", measurable=True) for k in ("mynet", "other", "x"))
    table = known(estimates).table(kept)
    estimates.retain({kept, also})
    assert gone in known(estimates).profiles
    estimates.retain({kept})
    assert known(estimates).profiles == tuple(sorted((kept, ASSUMED_PROFILE)))
    assert known(estimates).table(kept) is table
    assert estimates.name("other", "ann", measurable=True) == gone
    assert gone in known(estimates).profiles


def test_a_new_cluster_keeps_what_was_learned(store: Store) -> None:
    estimates = live(store)
    name = estimates.name("mynet", "ann", measurable=True)
    store.record([measured(MINE, 300.0)])
    estimates.on(Cluster((Node("n0", "a100", 4), Node("n9", "h100", 8))))
    assert known(estimates).per_gpu(name, "a100", 2) == pytest.approx(300.0)
    assert known(estimates).table(name).runs_on("h100")


class Broken(Store):
    """A store of which nothing can be read back."""

    def layers(self, profiles: Sequence[ProfileKey], gpu_types: Sequence[str]) -> StoredLayers:
        raise StoreDamagedError("a block cannot be read back")


def test_where_the_store_fails_what_is_assumed_has_to_do(store: Store) -> None:
    store.record([measured(MINE, 777.0)])
    with Broken.open(IN_MEMORY, Mode.WRITE) as broken:
        estimates = live(broken)
        name = estimates.name("mynet", "ann", measurable=True)
        failure = estimates.failure
        assert isinstance(failure, StoreDamagedError)
        assumed = known(estimates).speed(name, ON_N0)
        assert assumed == known(live(None)).speed(ASSUMED_PROFILE, ON_N0)
        # Another store answers for what was asked of the first.
        estimates.look_up_in(store, measures=True)
    assert estimates.failure is None
    assert known(estimates).speed(name, ON_N0) == pytest.approx(2 * 777.0)


def test_without_a_store_what_was_measured_is_forgotten(store: Store) -> None:
    store.record([measured(MINE, 777.0)])
    estimates = live(store)
    name = estimates.name("mynet", "ann", measurable=True)
    assert known(estimates).speed(name, ON_N0) == pytest.approx(2 * 777.0)
    estimates.look_up_in(None, measures=False)
    assert known(estimates).speed(name, ON_N0) == known(estimates).speed(ASSUMED_PROFILE, ON_N0)
