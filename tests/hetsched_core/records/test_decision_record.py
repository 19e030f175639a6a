"""A recorded decision is asked again and answered the same."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import fields, replace

import numpy as np
import pytest
from immutables import Map

from hetsched_core.contract.scenario import random_scenario
from hetsched_core.contract.trial import run_trial
from hetsched_core.errors import InputError
from hetsched_core.policy import Policy, make_policy, policy_names
from hetsched_core.records import decision_record
from hetsched_core.records.decision_record import DecisionWriter, differences, read_decision
from hetsched_core.types import (
    EndedJob,
    EndedJobs,
    ExecutionModel,
    Plan,
    Reason,
    ReasonCode,
    Snapshot,
    SpeedTable,
    Waiting,
)
from hetsched_core.types.site import Association, Limit, ShareTree, Site
from hetsched_core.values.records import to_json
from tests.hetsched_core.worlds import cluster_of, held, on, placed, plan_of, snapshot_of, view

LIVE = [
    name
    for name in policy_names()
    if make_policy(name).info.live and make_policy(name).info.model is ExecutionModel.GANG
]


def decided(policy: Policy, seed: int, most: int = 12) -> list[tuple[Snapshot, Plan, str]]:
    """Decisions of a random trial with their records, all written by one writer."""
    trial = run_trial(policy, random_scenario(seed))
    assert trial.error is None
    writer = DecisionWriter(policy)
    all_of_them = [(d.snapshot, d.plan, writer.write(d.snapshot, d.plan)) for d in trial.decisions]
    return all_of_them[:: max(1, len(all_of_them) // most)]


@pytest.mark.parametrize("name", LIVE)
def test_a_policy_that_is_asked_again_answers_the_same(name: str) -> None:
    policy = make_policy(name)
    asked = 0
    for seed in (3, 8):
        for snapshot, plan, document in decided(policy, seed):
            recorded = read_decision(document)
            assert differences(recorded.plan, plan) == ()
            assert differences(recorded.again(), plan) == ()
            assert recorded.snapshot.jobs == snapshot.jobs
            assert recorded.snapshot.nodes == snapshot.nodes
            asked += 1
    assert asked >= 10


def test_the_parameters_of_the_policy_are_those_it_had() -> None:
    policy = make_policy("hops", {"lam": "inf", "window": "0.5"})
    for _, plan, document in decided(policy, seed=5, most=3):
        recorded = read_decision(document)
        assert (recorded.parameters["lam"], recorded.parameters["window"]) == ("inf", "0.5")
        assert differences(recorded.again(), plan) == ()


def test_everything_that_a_snapshot_holds_is_kept() -> None:
    cluster = cluster_of(a=("v100", 4), b=("a100", 4))
    blocked = Reason(ReasonCode.QUOTA, ("x",), "QOSMaxJobs")
    views = [
        view("j", held(on(a=2)), counts=(2, 4), submit_s=1.5),
        view("k", blocked=blocked, gpu_types=frozenset({"v100"})),
        view("p", held(on(b=1), begun=False)),
    ]
    before = plan_of({"j": placed(a=2), "gone": Waiting(blocked)})
    snapshot = replace(
        snapshot_of(cluster, views, previous=before, nodes={"b": {"foreign_gpus": 3}}),
        runs_per_job=1,
        grace_s=7.5,
        seed=9,
        asleep=frozenset({"b"}),
        ended=EndedJobs.of([EndedJob("ann", "m", 12.5), EndedJob("bob", "m", 3.0, 60.0)]),
    )
    plan = plan_of({"j": placed(a=4), "k": Waiting(blocked)})
    found = read_decision(DecisionWriter(make_policy("fifo")).write(snapshot, plan)).snapshot
    whole = {part.name for part in fields(Snapshot)} - {"cluster", "previous", "speeds"}
    assert found.ended.jobs == snapshot.ended.jobs
    for part in whole - {"ended"}:
        assert getattr(found, part) == getattr(snapshot, part), part
    assert found.cluster.nodes == cluster.nodes
    assert differences(found.previous, before) == ()
    mine, theirs = (speeds.table("m") for speeds in (found.speeds, snapshot.speeds))
    for column in fields(SpeedTable):
        one, other = getattr(mine, column.name), getattr(theirs, column.name)
        np.testing.assert_array_equal(one, other)
        assert not isinstance(one, np.ndarray) or one.dtype == other.dtype


def test_the_word_of_the_site_is_kept_and_its_tree_is_encoded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare, plan = small()
    tree = ShareTree(
        {("science", ""): 3, ("physics", ""): None, ("physics", "alice"): 2}, {"physics": "science"}
    )
    limits = {"QOS normal: GPUs of user alice": Limit(gpus=8), "account root: jobs": Limit(jobs=3)}
    used: Map[Association, float] = Map([(("physics", "alice"), 1.5), (("physics", "bob"), 0.1)])
    limited = view("j", account="physics", user="alice", tier=2, limits=tuple(limits))
    snapshot = replace(bare, site=Site(tree, used, limits), jobs=bare.jobs.set("j", limited))
    writer = DecisionWriter(make_policy("fifo"))
    found = read_decision(writer.write(snapshot, plan)).snapshot
    assert found.site is not None
    assert found.site.tree is not None
    assert (found.site.tree.shares, found.site.tree.parents) == (tree.shares, tree.parents)
    assert (found.site.used, found.site.limits) == (used, limits)
    assert found.jobs == snapshot.jobs
    monkeypatch.setattr(decision_record, "_tree_to_json", None)
    later = replace(snapshot, site=Site(tree, used.set(("physics", "bob"), 9.0), limits))
    again = read_decision(writer.write(later, plan)).snapshot
    assert again.site is not None
    assert again.site.used["physics", "bob"] == 9.0
    assert "tree" not in json.loads(unpacked(DecisionWriter(make_policy("fifo")).write(bare, plan)))


def unpacked(document: str) -> str:
    return zlib.decompress(base64.b64decode(json.loads(document)["repeat"])).decode()


def small() -> tuple[Snapshot, Plan]:
    cluster = cluster_of(a=("v100", 4))
    snapshot = snapshot_of(cluster, [view("j"), view("k", counts=(4,))])
    plan = plan_of({"j": placed(a=1), "k": Waiting(Reason(ReasonCode.NO_ROOM))})
    return snapshot, plan


def test_who_is_where_and_why_others_wait_can_be_read_without_unpacking() -> None:
    document = json.loads(DecisionWriter(make_policy("fifo")).write(*small()))
    assert document["placed"] == {"j": [["a", 1]]}
    assert document["waiting"] == {"k": "no_room"}
    assert document["policy"]["name"] == "fifo"


def test_what_changed_is_written_anew_and_what_did_not_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot, plan = small()
    writer = DecisionWriter(make_policy("fifo"))
    writer.write(snapshot, plan)
    encoded: list[object] = []
    plain = to_json

    def watched(value: object, *more: object) -> object:
        encoded.append(value)
        return plain(value, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(decision_record, "to_json", watched)
    new = replace(snapshot.jobs["k"], wait_s=99.0)
    later = replace(snapshot, jobs=snapshot.jobs.set("k", new), now=99.0)
    found = read_decision(writer.write(later, plan))
    assert found.snapshot.jobs["k"].wait_s == 99.0
    assert new in encoded
    assert snapshot.jobs["j"] not in encoded
    assert plan.entries["j"] not in encoded


def test_a_snapshot_that_is_too_long_is_left_out_and_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decision_record, "MOST_CHARACTERS", 100)
    document = DecisionWriter(make_policy("fifo")).write(*small())
    assert json.loads(document)["placed"] == {"j": [["a", 1]]}
    with pytest.raises(InputError, match=r"cannot be repeated: the snapshot, of \d+ characters"):
        read_decision(document)


def _damaged(**changes: object) -> str:
    document = json.loads(DecisionWriter(make_policy("fifo")).write(*small()))
    return json.dumps(document | changes)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("", "no record"),
        ("[]", "no record"),
        ('{"schema": 1}', "schema is 1"),
        (_damaged(repeat="%%%"), "cannot be read"),
        (_damaged(repeat=base64.b64encode(b"no zlib").decode()), "cannot be read"),
        (_damaged(repeat=base64.b64encode(zlib.compress(b"{}")).decode()), "cannot be read"),
        (_damaged(policy={}), "cannot be read"),
    ],
)
def test_what_is_no_record_is_refused(document: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_decision(document)


def test_differences_are_named() -> None:
    _, plan = small()
    other = plan.revise({"j": plan.entries["k"]}, memory={"version": 1})
    assert differences(plan, plan) == ()
    assert differences(plan, other) == ("job j", "memory")
    assert differences(plan, plan.revise({}, ["k"])) == ("job k",)
