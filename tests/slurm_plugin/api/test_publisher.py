"""What is published, and what is said before and after."""

import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from immutables import Map

from hetsched_core.errors import InputError
from hetsched_core.policies.fifo import Fifo
from slurm_plugin.api import publisher as publishing
from slurm_plugin.api.answers import Peer
from slurm_plugin.api.publisher import Publisher
from slurm_plugin.daemon.process.configuration import DaemonConfiguration
from tests.hetsched_core.worlds import cluster_of, snapshot_of, view

ADMIN = Peer("root", admin=True)
CONFIGURATION = DaemonConfiguration(partitions=frozenset({"gpu"}), database=Path("x"))
SNAPSHOT = snapshot_of(cluster_of(n0=("a100", 4)), [view("1")], now=100.0)


def test_before_slurm_was_read_there_is_no_answer() -> None:
    publisher = Publisher(CONFIGURATION, 50.0)
    publisher.publish(None, Fifo().plan(SNAPSHOT), 0, away="munge is away")
    with pytest.raises(InputError, match="has not read Slurm yet"):
        publisher.answer({"ask": "status"}, ADMIN)


def test_an_answer_is_as_old_as_what_was_seen_last() -> None:
    publisher = Publisher(CONFIGURATION, 50.0)
    publisher.publish(SNAPSHOT, Fifo().plan(SNAPSHOT), 3)
    publisher.publish(SNAPSHOT, Fifo().plan(SNAPSHOT), 3, away="slurmctld is away")
    said = publisher.answer({"ask": "status"}, ADMIN)
    assert (said["at_s"], said["up_since_s"], said["away"]) == (100.0, 50.0, "slurmctld is away")


@pytest.mark.parametrize(("now", "says"), [(101.0, "here$"), (126.0, "look, 26 s ago; ask again")])
def test_a_job_that_may_have_come_since_the_last_look_is_not_denied_outright(
    now: float, says: str
) -> None:
    publisher = Publisher(CONFIGURATION, 50.0, clock=lambda: now)
    publisher.publish(SNAPSHOT, Fifo().plan(SNAPSHOT), 3)
    with pytest.raises(InputError, match=says):
        publisher.answer({"ask": "why", "job": "2"}, ADMIN)


def test_an_element_is_asked_for_as_its_job() -> None:
    publisher = Publisher(CONFIGURATION, 50.0, clock=lambda: 101.0)
    publisher.publish(SNAPSHOT, Fifo().plan(SNAPSHOT), 3)
    for ask in ("why", "explain"):
        asked = publisher.answer({"ask": ask, "job": "1_3"}, ADMIN)
        assert asked == publisher.answer({"ask": ask, "job": "1"}, ADMIN)


def test_a_slow_why_keeps_nobody_from_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "_PATIENCE_S", 0.1)
    publisher = Publisher(CONFIGURATION, 50.0)
    publisher.publish(SNAPSHOT, Fifo().plan(SNAPSHOT), 3)
    heard: list[str] = []

    class Asker(dict[str, object]):
        """A question that is answered for as long as the others are asked."""

        def get(self, key: str, default: object = None) -> object:
            if key == "job":
                heard.append(publisher.answer({"ask": "status"}, ADMIN)["policy"])
                with pytest.raises(InputError, match="too many questions"):
                    publisher.answer({"ask": "why", "job": "1"}, ADMIN)
            return super().get(key, default)

    with pytest.raises(InputError, match="no active job"):
        publisher.answer(Asker(ask="why", job="none"), ADMIN)
    assert heard == [CONFIGURATION.policy]


def test_one_user_s_many_whys_are_answered_one_by_one_and_others_between_them() -> None:
    publisher = Publisher(CONFIGURATION, 50.0)
    publisher.publish(SNAPSHOT, Fifo().plan(SNAPSHOT), 3)
    order: list[str] = []
    all_have_come = threading.Event()

    def asks(user: str) -> None:
        class Noted(dict[str, object]):
            def get(self, key: str, default: object = None) -> object:
                if key == "job":
                    assert all_have_come.wait(60)
                    order.append(user)
                return super().get(key, default)

        with suppress(InputError):
            publisher.answer(Noted(ask="why", job="none"), Peer(user, admin=False))

    threads = [threading.Thread(target=asks, args=(u,)) for u in ("eve", "eve", "eve", "ann")]
    for there, thread in enumerate(threads, 1):
        thread.start()
        while len(publisher.turns) < there:
            time.sleep(0.001)
    all_have_come.set()
    for thread in threads:
        thread.join()
    assert order == ["eve", "ann", "eve", "eve"]


def test_the_plans_time_is_that_of_the_decision() -> None:
    publisher = Publisher(CONFIGURATION, 50.0)
    plan = Fifo().plan(SNAPSHOT)
    publisher.publish(SNAPSHOT, plan, 0)
    assert publisher.answer({"ask": "status"}, ADMIN)["plan_s"] is None
    for now, decisions, made in ((110.0, 1, 110.0), (120.0, 1, 110.0), (130.0, 2, 130.0)):
        publisher.publish(
            snapshot_of(SNAPSHOT.cluster, SNAPSHOT.jobs.values(), now=now), plan, decisions
        )
        said = publisher.answer({"ask": "status"}, ADMIN)
        assert (said["at_s"], said["plan_s"]) == (now, made)


def test_another_configuration_is_what_is_told_from_the_next_cycle_on() -> None:
    publisher = Publisher(CONFIGURATION, 50.0)
    publisher.adopt(
        DaemonConfiguration(
            partitions=frozenset({"gpu"}), policy="las", parameters=Map({}), private_jobs=True
        )
    )
    publisher.publish(SNAPSHOT, Fifo().plan(SNAPSHOT), 1)
    assert publisher.answer({"ask": "status"}, ADMIN)["policy"] == "las"
    assert publisher.answer({"ask": "queue"}, Peer("eve"))["jobs"] == []
