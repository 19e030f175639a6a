"""What the daemon answers, from a published state."""

from dataclasses import replace
from typing import Any

import pytest

from hetsched_core.errors import InputError
from hetsched_core.policies.fifo import Fifo
from hetsched_core.types import (
    JobView,
    NodeCondition,
    Purpose,
    Reason,
    ReasonCode,
    Shape,
    Waiting,
    Window,
)
from slurm_plugin.api.answers import CycleView, Peer, answer
from slurm_plugin.cli.ask import _print_why
from tests.hetsched_core.worlds import cluster_of, held, on, plan_of, profiling, snapshot_of, view
from tests.slurm_plugin.daemon.fake_slurm import WAITING, running

CLUSTER = cluster_of(n0=("a100", 4), n1=("t4", 4), n2=("t4", 4))
ADMIN = Peer("root", admin=True)


def owned(job: str, user: str, *runs: Any, **more: Any) -> JobView:
    seen = view(job, *runs, **more)
    return replace(seen, job=replace(seen.job, user=user))


def published(**more: Any) -> CycleView:
    snapshot = snapshot_of(
        CLUSTER,
        [
            owned("1", "ada", held(on(n0=3)), counts=(3,)),
            owned("2", "bob", counts=(2, 4), submit_s=1.0),
            owned("3", "bob", counts=(16,), submit_s=2.0),
        ],
        now=60.0,
        shapes=frozenset({Shape.SINGLE_NODE}),
        nodes={"n1": {"condition": NodeCondition.DRAINED}, "n2": {"foreign_gpus": 3}},
    )
    plan = Fifo().plan(snapshot)
    return CycleView(60.0, 0.0, Fifo(), "enforce", snapshot, plan, **more)


def test_status_counts_jobs_and_every_gpu_once_and_nodes_tell_what_is_in_use() -> None:
    said = answer(published(decisions=7), {"ask": "status"}, ADMIN)
    told = tuple(said[name] for name in ("schema", "policy", "mode", "decisions"))
    assert told == (1, "fifo", "enforce", 7)
    assert said["jobs"] == {"running": 1, "waiting": 2}
    assert said["gpus"]["a100"] == {"all": 4, "held": 3, "foreign": 0, "closed": 0, "idle": 1}
    assert said["gpus"]["t4"] == {"all": 8, "held": 0, "foreign": 3, "closed": 4, "idle": 1}
    rows = {row["node"]: row for row in answer(published(), {"ask": "nodes"}, ADMIN)["nodes"]}
    assert rows["n1"]["condition"] == "drained"
    assert (rows["n2"]["foreign"], rows["n2"]["idle"]) == (3, 1)


def test_what_is_reserved_for_others_now_is_not_idle() -> None:
    state = published()
    now, later = (Window(frozenset({n}), at, 99.0, n) for n, at in (("n0", 60.0), ("n2", 61.0)))
    state = replace(state, snapshot=replace(state.snapshot, windows=(now, later)))
    rows = {row["node"]: row for row in answer(state, {"ask": "nodes"}, ADMIN)["nodes"]}
    told = {name: (row["condition"], row["closed"], row["idle"]) for name, row in rows.items()}
    assert told == {"n0": ("reserved", 1, 0), "n1": ("drained", 4, 0), "n2": ("up", 0, 1)}
    assert answer(state, {"ask": "status"}, ADMIN)["gpus"]["a100"]["idle"] == 0


def test_a_job_whose_nodes_are_all_drained_waits_for_them_in_the_queue_and_in_why() -> None:
    own = owned("4", "bob", counts=(2,), nodes=frozenset({"n1"}))
    drained = {"n1": {"condition": NodeCondition.DRAINED}}
    snapshot = snapshot_of(CLUSTER, [own], nodes=drained)
    state = replace(published(), snapshot=snapshot, plan=Fifo().plan(snapshot))
    (row,) = answer(state, {"ask": "queue"}, ADMIN)["jobs"]
    assert row["reason"] == "nodes_down"
    (reason,) = answer(state, {"ask": "why", "job": "4"}, ADMIN)["reasons"]
    assert (reason["code"], reason["sentence"].rpartition(": ")[2]) == ("nodes_down", "n1")


def test_the_queue_is_in_the_order_of_submission_with_squeues_letters() -> None:
    jobs = answer(published(), {"ask": "queue"}, ADMIN)["jobs"]
    assert [(row["job"], row["state"]) for row in jobs] == [("1", "R"), ("2", "PD"), ("3", "PD")]
    assert jobs[0]["nodes"] == {"n0": 3}
    assert jobs[0]["reason"] is None
    assert (jobs[1]["gpus"], jobs[1]["reason"]) == ("2,4", "no_room")
    assert jobs[2]["reason"] == "never_fits"


def test_a_suspended_job_is_told_with_squeues_letter_and_why_says_so() -> None:
    suspended = published(suspended=frozenset({"1"}))
    row = answer(suspended, {"ask": "queue"}, ADMIN)["jobs"][0]
    assert (row["state"], row["nodes"]) == ("S", {"n0": 3})
    said = answer(suspended, {"ask": "why", "job": "1"}, ADMIN)
    assert (said["state"], said["holds"]) == ("S", {"n0": 3})
    assert [reason["code"] for reason in said["reasons"]] == ["suspended"]


def test_of_a_job_that_runs_slurms_word_for_others_of_its_elements_is_not_told() -> None:
    waits = replace(WAITING, id="1", reason="Resources", array="1", unsplit=(2, 3))
    said = answer(published(records={"1": waits}), {"ask": "why", "job": "1"}, ADMIN)
    assert (said["state"], said["slurm"]) == ("R", "")
    said = answer(published(records={"2": waits}), {"ask": "why", "job": "2"}, ADMIN)
    assert (said["state"], said["slurm"]) == ("PD", "Resources")


def test_a_job_whose_nodes_are_being_woken_is_not_running_yet() -> None:
    waking = view("1", held(on(n0=4), begun=False), counts=(4,))
    snapshot = replace(snapshot_of(CLUSTER, [waking]), asleep=frozenset({"n1"}))
    record = running(replace(WAITING, id="1"), "n0")
    records = {"1": replace(record, configuring=True)}
    state = replace(published(records=records), snapshot=snapshot, plan=Fifo().plan(snapshot))
    assert answer(state, {"ask": "status"}, ADMIN)["jobs"] == {"placed": 1}
    (row,) = answer(state, {"ask": "queue"}, ADMIN)["jobs"]
    assert (row["state"], row["nodes"], row["ran_s"]) == ("CF", {"n0": 4}, 0.0)
    said = answer(state, {"ask": "why", "job": "1"}, ADMIN)
    assert (said["state"], said["reasons"][0]["code"]) == ("CF", "placed")
    assert said["reasons"][0]["sentence"].endswith("its nodes are being woken or booted")
    rows = {row["node"]: row for row in answer(state, {"ask": "nodes"}, ADMIN)["nodes"]}
    assert (rows["n1"]["condition"], rows["n1"]["idle"]) == ("asleep", 4)


def test_why_tells_reasons_by_horizon_and_what_would_help() -> None:
    said = answer(published(), {"ask": "why", "job": "2"}, ADMIN)
    assert (said["state"], said["holds"]) == ("PD", None)
    assert said["reasons"][0]["code"] == "no_room"
    assert said["reasons"][0]["horizon"] == "not yet"
    assert said["would_help"] == ["1 GPU on a100 or t4 would start now"]


@pytest.mark.parametrize(
    ("peer", "private", "sees"),
    [
        (Peer("bob"), True, {"2", "3"}),
        (Peer("ada"), True, {"1"}),
        (Peer("eve"), True, set()),
        (ADMIN, True, {"1", "2", "3"}),
        (Peer("eve"), False, {"1", "2", "3"}),
    ],
)
def test_where_jobs_are_private_users_see_their_own(
    peer: Peer, private: bool, sees: set[str]
) -> None:
    state = published(private_jobs=private)
    assert {row["job"] for row in answer(state, {"ask": "queue"}, peer)["jobs"]} == sees
    for job in ("1", "2", "3"):
        if job in sees:
            assert answer(state, {"ask": "why", "job": job}, peer)["job"] == job
        else:
            with pytest.raises(InputError, match=f"no active job '{job}'"):
                answer(state, {"ask": "why", "job": job}, peer)


def test_private_jobs_are_not_named_by_those_behind_them() -> None:
    state = published(private_jobs=True)
    behind = Waiting(Reason(ReasonCode.AHEAD, behind=("1", "3")))
    state = replace(state, plan=state.plan.revise({"2": behind}))
    for peer, named in ((Peer("bob"), ["3"]), (ADMIN, ["1", "3"])):
        reasons = answer(state, {"ask": "why", "job": "2"}, peer)["reasons"]
        assert reasons[0]["behind"] == named
        assert ("1" in reasons[0]["sentence"]) is ("1" in named)
        decided = answer(state, {"ask": "explain", "job": "2"}, peer)["decided_by"]
        assert decided.endswith(f"go first ({', '.join(named)}))")


def test_an_unknown_question_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown question 'whi': did you mean 'why'\?.*queue"):
        answer(published(), {"ask": "whi"}, ADMIN)


def test_a_job_that_is_measured_is_one_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run = replace(held(on(n0=1)), purpose=Purpose.PROFILE)
    snapshot = snapshot_of(CLUSTER, [view("1", run), view("2")], now=60.0)
    plan = plan_of(
        dict.fromkeys("12", Waiting(Reason(ReasonCode.PROFILING))),
        profiles={"1": profiling(on(n0=1), until_s=300.0)},
    )
    state = CycleView(60.0, 0.0, Fifo(), "enforce", snapshot, plan)
    one, two = answer(state, {"ask": "queue"}, ADMIN)["jobs"]
    assert (one["state"], one["nodes"], one["reason"]) == ("R", {"n0": 1}, None)
    assert (two["state"], two["nodes"], two["reason"]) == ("PD", None, "profiling")
    said = answer(state, {"ask": "why", "job": "1"}, ADMIN)
    assert (said["measured"], said["measured_until_s"], said["reasons"]) == (True, 300.0, [])
    assert answer(state, {"ask": "explain", "job": "1"}, ADMIN)["chosen"] == {"n0": 1}
    _print_why(said)
    words = "job 1: R on n0:1, to be measured, until 1970-01-01T00:05:00Z at the latest\n"
    assert capsys.readouterr().out == words


def test_a_job_that_is_placed_does_not_run_yet(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [held(on(n0=1)), replace(held(on(n1=1), copy=1), begun=False)]
    views = [view("1", runs[1]), view("2", *runs), view("3", counts=(16,))]
    snapshot = snapshot_of(CLUSTER, views, now=60.0)
    state = CycleView(60.0, 0.0, Fifo(), "enforce", snapshot, Fifo().plan(snapshot))
    jobs = answer(state, {"ask": "status"}, ADMIN)["jobs"]
    assert list(jobs.items()) == [("running", 1), ("placed", 1), ("waiting", 1)]
    placed, both, _ = answer(state, {"ask": "queue"}, ADMIN)["jobs"]
    assert (placed["state"], placed["phase"], placed["reason"]) == ("PL", "placed", "placed")
    assert (placed["nodes"], placed["ran_s"], placed["waited_s"]) == ({"n1": 1}, 0.0, 60.0)
    assert (both["state"], both["phase"], both["reason"]) == ("R", "running", None)
    assert (both["nodes"], both["ran_s"], both["waited_s"]) == ({"n0": 1, "n1": 1}, 60.0, 0.0)
    _print_why(answer(state, {"ask": "why", "job": "1"}, ADMIN))
    assert capsys.readouterr().out == (
        "job 1: PL to start on n1:1\n"
        "  not yet: its GPUs are kept for it, and Slurm has yet to start it\n"
    )


@pytest.mark.parametrize(("mode", "word"), [("enforce", "planned"), ("shadow", "shadow")])
def test_a_job_that_the_plan_places_and_that_holds_nothing_says_so(
    mode: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = snapshot_of(CLUSTER, [view("1")], now=60.0)
    state = CycleView(60.0, 0.0, Fifo(), mode, snapshot, Fifo().plan(snapshot))
    assert answer(state, {"ask": "queue"}, ADMIN)["jobs"][0]["reason"] == word
    _print_why(answer(state, {"ask": "why", "job": "1"}, ADMIN))
    assert ("in shadow mode Slurm starts it" in capsys.readouterr().out) is (mode == "shadow")
