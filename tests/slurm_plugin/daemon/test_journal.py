"""What the daemon keeps of jobs, and the answers from it, on a fake Slurm."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hetsched_core.errors import InputError
from hetsched_core.policy import make_policy
from hetsched_core.store import IN_MEMORY, JobProgress, Store
from hetsched_core.store import Mode as StoreMode
from hetsched_core.types import Phase
from slurm_plugin.api.answers import Peer
from slurm_plugin.api.audience import Audience
from slurm_plugin.backend import JobState, SlurmJob, SlurmSite
from slurm_plugin.daemon import Daemon, Mode
from slurm_plugin.daemon.configuration import Configuration
from slurm_plugin.daemon.daemon import CycleReport
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import WAITING, Clock, node, state
from tests.slurm_plugin.daemon.fake_slurm import placed as placed_on
from tests.slurm_plugin.daemon.fake_slurm import running as runs_on

ROOT = Peer("root", admin=True)
CONFIGURATION = Configuration(partitions=frozenset({"gpu"}))


def job(number: int, user: str = "ann") -> SlurmJob:
    mark = WAITING.mark.replace('"a1"', f'"x{number}"').replace('"1,2"', '"4"')
    return replace(WAITING, id=str(number), user=user, mark=mark, gpus=4)


def running(seen: SlurmJob, start_s: float) -> SlurmJob:
    return runs_on(seen, "n0", since_s=start_s, gpus=4)


def placed(seen: SlurmJob) -> SlurmJob:
    return placed_on(seen, "n0")


@dataclass
class Bench:
    """A daemon with its audience, on a clock of the test's."""

    backend: FakeBackend
    clock: Clock
    store: Store
    daemon: Daemon
    audience: Audience

    def cycle(self, *jobs: SlurmJob, seconds: float = 1.0) -> CycleReport:
        self.clock.now += seconds
        used = 4 if any(seen.state is JobState.RUNNING for seen in jobs) else 0
        self.backend.state = state(*jobs, nodes=(node("n0", used=used),))
        report = self.daemon.cycle()
        self.audience.note(self.daemon, report)
        return report

    def ask(self, question: str, job_id: str = "", peer: Peer = ROOT) -> dict[str, Any]:
        return self.audience.publisher.answer({"ask": question, "job": job_id}, peer)


def bench_on(store: Store, clock: Clock) -> Bench:
    backend = FakeBackend(state())
    daemon = Daemon(
        backend,
        make_policy("fifo"),
        CONFIGURATION,
        mode=Mode.ENFORCE,
        clock=clock,
        sleep=lambda _: None,
        store=store,
    )
    audience = Audience(CONFIGURATION, clock(), lambda: store, time.perf_counter)
    return Bench(backend, clock, store, daemon, audience)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Store.open(IN_MEMORY, StoreMode.WRITE) as store:
        found = bench_on(store, Clock())
        yield found
        found.audience.close()


def events(bench: Bench, job_id: str) -> list[tuple[str, str]]:
    return [(each.event, each.detail) for each in bench.store.events(job_id)]


def test_no_thread_is_left_that_python_could_not_end_with(bench: Bench) -> None:
    bench.cycle(*map(job, range(1, 9)))
    assert "forecasts" in {thread.name for thread in threading.enumerate()}
    bench.audience.close()
    assert "forecasts" not in {thread.name for thread in threading.enumerate()}


def test_a_job_is_followed_from_its_coming_to_its_end(bench: Bench) -> None:
    first, second = job(1), job(2)
    bench.cycle(first, second)
    run = running(first, bench.clock.now)
    bench.cycle(run, second)
    bench.cycle(run, second, seconds=300)
    bench.cycle(second)
    assert events(bench, "1") == [
        ("came", "4 GPUs"),
        ("planned", "n0:4"),
        ("runs", "n0:4"),
        ("left", "after 0.334 GPU hours"),
    ]
    assert events(bench, "2")[:2] == [
        ("came", "4 GPUs"),
        ("waits", "not yet: too few GPUs are free where it fits"),
    ]
    (ended,) = bench.store.jobs("1")
    assert (ended.nonce, ended.first_start_s) == ("x1", run.start_s)
    # It ran for half of its ten minutes.
    assert ended.share == pytest.approx(0.5, abs=0.02)
    assert bench.audience.journal.raqlr(bench.clock.now) == pytest.approx(
        ended.wait_s / (ended.expected_s or 0.0)
    )
    said = bench.ask("history", "1")["jobs"]
    assert [each["event"] for each in said[0]["events"]] == ["came", "planned", "runs", "left"]
    with pytest.raises(InputError, match="nothing is known of a job '9'"):
        bench.ask("history", "9")


def test_an_active_job_that_the_database_does_not_have_is_not_said_to_be_unknown(
    bench: Bench,
) -> None:
    bench.cycle(job(1))
    assert bench.ask("history", "1")["jobs"]
    private = replace(CONFIGURATION, private_jobs=True)
    with Store.open(IN_MEMORY, StoreMode.WRITE) as replaced:
        other = Audience(private, bench.clock(), lambda: replaced, time.perf_counter)
        other.publisher.publish(bench.daemon.snapshot(), bench.daemon.plan, 1)
        asked = {"ask": "history", "job": "1"}
        for peer in (ROOT, Peer("ann")):
            with pytest.raises(InputError, match="about job '1' is in the database, though it is"):
                other.publisher.answer(asked, peer)
        # Who may not see it is told the same as of any id.
        with pytest.raises(InputError, match="nothing is known of a job '1'; it was never"):
            other.publisher.answer(asked, Peer("bob"))
        other.close()


def test_of_what_goes_on_when_the_database_is_replaced_it_is_said_that_nothing_before_is_known(
    bench: Bench,
) -> None:
    first, second = job(1), job(2)
    with Store.open(IN_MEMORY, StoreMode.WRITE) as replaced:
        stores = [bench.store]
        bench.audience.close()
        bench.audience = Audience(
            CONFIGURATION, bench.clock(), lambda: stores[-1], time.perf_counter
        )
        run = running(first, bench.clock.now)
        bench.cycle(run, second)
        stores.append(replaced)
        bench.cycle(run, second)
        bench.cycle(run, second)
        for job_id, now in (("1", "runs"), ("2", "waits")):
            (said,) = bench.ask("history", job_id)["jobs"]
            assert [each["event"] for each in said["events"]] == ["goes on", now]
            assert said["events"][0]["detail"].startswith("what was before is not known")
        bench.cycle(run)
        assert [each.event for each in replaced.events("2")] == ["goes on", "waits", "left"]
        # A store that is opened again has it all.
        stores.append(bench.store)
        bench.cycle(run)
        assert "goes on" not in {each.event for each in bench.store.events("1")}
        with pytest.raises(InputError, match="'9'; it was never managed here, or before the"):
            bench.ask("history", "9")
        bench.audience.close()


def test_a_job_is_suspended_for_as_long_as_slurm_says_so(bench: Bench) -> None:
    run = running(job(1), bench.clock.now)
    for now, letter in ((JobState.SUSPENDED, "S"), (JobState.RUNNING, "R")):
        bench.cycle(replace(run, state=now))
        assert [row["state"] for row in bench.ask("queue")["jobs"]] == [letter]


def test_a_range_is_told_kept_and_met_by_the_true_start(bench: Bench) -> None:
    run, waits = running(job(1), 1000.0), job(2)
    bench.cycle(run, waits)
    said = bench.ask("when", "2")
    given = said["range"]
    assert bench.clock.now <= given["low_s"] < given["high_s"] < bench.clock.now + 3600
    assert given["futures"] >= 5
    assert bench.ask("when", "2")["range"] == given
    assert said["past"] is None
    bench.cycle(run, waits, seconds=200)
    bench.cycle(running(waits, bench.clock.now), seconds=1)
    kept = bench.store.ranges("2")
    assert {each.start_s for each in kept} == {bench.clock.now - 1}
    assert bench.ask("when", "2")["why_none"] == "it has its GPUs"
    past = bench.ask("when", "2")["past"]
    assert (past["ranges"], past["median_wait_s"]) == (1, pytest.approx(200.0, abs=2))


def test_who_comes_is_given_a_range_without_asking(bench: Bench) -> None:
    bench.cycle(running(job(1), 1000.0), job(2), job(3))
    deadline = time.monotonic() + 120
    while len(bench.store.ranges()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        bench.cycle(running(job(1), 1000.0), job(2), job(3), seconds=0.1)
    assert {each.job for each in bench.store.ranges()} == {"2", "3"}


def test_what_was_told_of_a_plan_that_is_gone_is_kept_by_nobody(bench: Bench) -> None:
    run = running(job(1), 1000.0)
    bench.cycle(run, job(2), job(3))
    bench.ask("when", "2")
    plan = bench.daemon.plan
    bench.cycle(run, job(2), job(3), job(4))
    assert bench.daemon.plan is not plan
    bench.ask("when", "3")
    told = dict(bench.audience._forecasts._told)
    assert {each[0] for each in told.values()} == {bench.daemon.plan.identity}


def test_between_two_looks_ahead_only_who_asks_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_plugin.api.forecasts.LEAST_REST_S", 600.0)
    run = running(job(1), 1000.0)
    deadline = time.monotonic() + 120
    while not bench.store.ranges():
        assert time.monotonic() < deadline
        bench.cycle(run, job(2), seconds=0.1)
        time.sleep(0.05)
    bench.cycle(run, job(2), job(3))
    time.sleep(0.5)
    bench.cycle(run, job(2), job(3))
    assert {each.job for each in bench.store.ranges()} == {"2"}
    assert bench.ask("when", "3")["range"] is not None


def test_a_future_in_which_the_policy_fails_ends_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("strange job")

    monkeypatch.setattr("slurm_plugin.api.forecasts.REST", 0.0)
    monkeypatch.setattr("slurm_plugin.api.forecasts.LEAST_REST_S", 0.05)
    jobs = (running(job(1), 1000.0), *(job(number) for number in range(2, 9)))
    with monkeypatch.context() as patch:
        patch.setattr("slurm_plugin.api.forecasts.possible_starts", fail)
        bench.cycle(*jobs)
        with pytest.raises(KeyError):
            bench.ask("when", "2")
        time.sleep(0.3)
    deadline = time.monotonic() + 120
    while len(bench.store.ranges()) < 7:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        bench.cycle(*jobs, seconds=0.1)


def test_a_job_that_may_not_start_is_given_no_range_but_the_reason(bench: Bench) -> None:
    held = replace(job(2), held=True, reason="JobHeldUser")
    bench.cycle(running(job(1), 1000.0), held)
    said = bench.ask("when", "2")
    assert said["range"] is None
    assert said["why_none"] == "not yet: its user, an admin or Slurm holds it: JobHeldUser"


def test_the_next_daemon_goes_on_with_what_the_last_one_knew(bench: Bench) -> None:
    first, second, third = job(1), job(2), job(3)
    bench.cycle(first, second, third)
    run = running(first, bench.clock.now)
    bench.cycle(run, second, third)
    bench.ask("when", "2")
    bench.cycle(run, second, third)
    bench.audience.close()
    bench.clock.now += 100.0
    after = bench_on(bench.store, bench.clock)
    try:
        after.cycle(running(second, after.clock.now))
        assert [each for each in events(after, "2") if each[0] == "came"] == [("came", "4 GPUs")]
        # The first one left while nobody looked.
        assert [one.job.id for one in bench.store.jobs() if one.ended_s is None] == ["2"]
        assert len(after.audience.journal.past) == 3
    finally:
        after.audience.close()


def test_an_id_that_is_handed_out_again_has_the_history_of_both(bench: Bench) -> None:
    bench.cycle(job(1))
    again = replace(job(1), mark=job(1).mark.replace("x1", "y1"))
    bench.cycle(again)
    assert [each["nonce"] for each in bench.ask("history", "1")["jobs"]] == ["x1", "y1"]


def test_slurms_private_data_keeps_history_and_ranges_from_others(bench: Bench) -> None:
    bench.backend.where = SlurmSite(30.0, {"gpu": None}, None, private_jobs=True)
    bench.cycle(running(job(1, "ann"), 1000.0), job(2, "bob"))
    for question in ("history", "when", "why", "explain"):
        assert bench.ask(question, "2", Peer("bob"))["job"] == "2"
        with pytest.raises(InputError, match=r"no active job|nothing is known"):
            bench.ask(question, "2", Peer("ann"))
    assert [row["job"] for row in bench.ask("queue", peer=Peer("ann"))["jobs"]] == ["1"]


def test_a_store_that_takes_nothing_in_gets_it_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hetsched_core.store import StoreWriteError

    def full(*_: object, **__: object) -> None:
        raise StoreWriteError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "record_history", full)
        bench.cycle(job(1))
    assert bench.audience.journal.trouble == "no space left"
    bench.cycle(job(1))
    assert events(bench, "1") == []
    bench.cycle(job(1), seconds=11)
    assert events(bench, "1")[0] == ("came", "4 GPUs")
    assert bench.audience.journal.trouble == ""


def test_nothing_is_drawn_while_the_loop_works(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, waits = running(job(1), 1000.0), job(2)
    monkeypatch.setattr("slurm_plugin.api.forecasts.Forecasts._is_new", lambda *_: False)
    said: list[Any] = []
    asking = threading.Thread(target=lambda: said.append(bench.ask("when", "2")["range"]))
    with bench.audience.standing_still():
        bench.cycle(run, waits)
        with monkeypatch.context() as patch:
            patch.setattr("slurm_plugin.api.forecasts.LONGEST_S", 0.3)
            assert bench.ask("when", "2")["range"] is None
        # The time for which it stands still is not taken from that for drawing.
        monkeypatch.setattr("slurm_plugin.api.forecasts.MOST_S", 1.0)
        asking.start()
        asking.join(1.5)
        assert said == []
    asking.join(30)
    assert said[0] is not None


@pytest.mark.parametrize("who", ["publisher.publish", "journal.note", "meters.note"])
def test_who_is_told_of_a_cycle_may_fail_and_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("strange job")

    bench.cycle(job(1))
    name, method = who.split(".")
    with monkeypatch.context() as patch:
        patch.setattr(getattr(bench.audience, name), method, fail)
        bench.cycle(job(1), job(2))
        bench.cycle(job(1), job(2))
    assert "KeyError: 'strange job' (test_journal.py:" in bench.audience.trouble
    # The others were told.
    assert ("came" in dict(events(bench, "2"))) is (name != "journal")
    assert (len(bench.ask("queue")["jobs"]) == 2) is (name != "publisher")
    cycles = bench.audience.meters.registry.get_sample_value("hetsched_cycles_total")
    assert cycles == (1 if name == "meters" else 3)
    bench.cycle(job(1), job(2))
    assert bench.audience.trouble == ""
    assert events(bench, "2")[0] == ("came", "4 GPUs")


def test_of_very_many_jobs_the_next_daemon_knows_all_that_are_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_plugin.daemon.journal.REMEMBERED", 2)
    jobs = [job(number) for number in range(1, 6)]
    bench.cycle(*jobs)
    bench.audience.close()
    after = bench_on(bench.store, bench.clock)
    try:
        after.cycle(*jobs[1:])
        for number in range(1, 6):
            assert [each[0] for each in events(bench, str(number))].count("came") == 1
        assert {one.job.id for one in bench.store.jobs() if one.ended_s is None} == set("2345")
    finally:
        after.audience.close()


def test_the_database_is_lent_to_admins_alone_and_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_plugin.api.past.LENT_S", 0.1)
    with Store.open(tmp_path / "store", StoreMode.WRITE) as store:
        bench = bench_on(store, Clock())
        try:
            bench.cycle(job(1))
            with pytest.raises(InputError, match="only root and the daemon's user"):
                bench.ask("db", peer=Peer("ann"))
            said = bench.ask("db")
            assert said["path"] == str((tmp_path / "store").resolve())
            assert said["bytes"] > 0
            for thread in threading.enumerate():
                if isinstance(thread, threading.Timer):
                    thread.join(5)
            # With nothing lent, the log is merged into the file.
            monkeypatch.setattr("hetsched_core.store.database.CHECKPOINT_BYTES", 1)
            bench.cycle(job(2))
            assert store.lend()[0] > said["bytes"]
        finally:
            bench.audience.close()


def test_a_job_that_is_to_begin_later_is_told_of_and_no_policy_s_business(bench: Bench) -> None:
    later = replace(job(1), begin_s=4600.0)
    bench.cycle(later)
    said = "not yet: its user lets it start later: from 1970-01-01T01:16:40Z on"
    assert (bench.daemon.world.managed, bench.backend.calls) == ({}, [])
    (row,) = bench.ask("queue")["jobs"]
    told = [row[name] for name in ("job", "state", "reason", "waited_s", "nodes")]
    assert told == ["1", "PD", "begin", 0.0, None]
    assert [reason["sentence"] for reason in bench.ask("why", "1")["reasons"]] == [said]
    assert bench.ask("when", "1")["why_none"] == said
    assert bench.ask("status")["jobs"] == {"later": 1}
    for question in ("explain", "history"):
        with pytest.raises(InputError, match=said):
            bench.ask(question, "1")
    bench.clock.now = 4600.0
    bench.cycle(later)
    assert bench.daemon.world.later == {}
    assert bench.ask("status")["jobs"] == {"waiting": 1}
    assert next(event for event, _ in events(bench, "1")) == "came"


def test_a_job_that_begins_later_is_private_as_others_are(bench: Bench) -> None:
    bench.backend.where = SlurmSite(30.0, {"gpu": None}, private_jobs=True)
    bench.cycle(replace(job(1), begin_s=4600.0))
    assert bench.ask("queue", peer=Peer("bob"))["jobs"] == []
    for question in ("why", "when", "explain", "history"):
        with pytest.raises(InputError, match=r"no active job|nothing is known"):
            bench.ask(question, "1", Peer("bob"))


def test_a_begin_time_beyond_all_dates_harms_nobody(bench: Bench) -> None:
    bench.cycle(replace(job(1), begin_s=1e300), job(2))
    (reason,) = bench.ask("why", "1")["reasons"]
    assert "it is left out: its times are" in reason["sentence"]
    assert bench.ask("why", "2")["state"] == "PD"


def test_a_moved_job_s_restarts_are_told_while_it_is_there(bench: Bench) -> None:
    bench.cycle(job(1))
    bench.cycle(replace(running(job(1), bench.clock.now), restarts=2))
    assert bench.ask("history", "1")["jobs"][0]["restarts"] == 2
    bench.cycle()
    assert bench.ask("history", "1")["jobs"][0]["restarts"] == 2


def test_a_job_that_frees_its_gpus_has_no_range_and_is_not_said_to_have_them(bench: Bench) -> None:
    bench.cycle(job(1))
    bench.cycle(running(job(1), bench.clock.now))
    assert bench.ask("when", "1")["why_none"] == "it has its GPUs"
    bench.cycle(replace(running(job(1), bench.clock.now), state=JobState.COMPLETING))
    says = bench.ask("when", "1")["why_none"]
    assert says == "it is to go on on n0:4 once it has freed what it holds"


def test_a_range_that_there_was_no_time_for_says_how_far_it_came(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.cycle(running(job(1), 1000.0), job(2))
    monkeypatch.setattr("slurm_plugin.api.forecasts.MOST_S", 0.0)
    said = bench.ask("when", "2")
    assert said["range"] is None
    assert said["why_none"].startswith("only 0 of 24 futures were done in 0 s, and 5 are the least")


def test_a_start_beyond_all_futures_is_no_range(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.cycle(running(job(1), 1000.0), job(2))
    monkeypatch.setattr("slurm_plugin.api.past.HORIZON_S", 1.0)
    said = bench.ask("when", "2")
    assert said["range"] is None
    assert said["why_none"].startswith("in hardly any of 24 futures does it start within ")


def test_a_job_that_slurm_never_starts_has_had_nothing(bench: Bench) -> None:
    bench.cycle(job(1))
    bench.cycle(placed(job(1)))
    bench.cycle(placed(job(1)), seconds=20)
    assert bench.ask("status")["jobs"] == {"placed": 1}
    (row,) = bench.ask("queue")["jobs"]
    told = [row[name] for name in ("state", "phase", "ran_s", "nodes")]
    assert told == ["PL", "placed", 0.0, {"n0": 4}]
    # Slurm tells of the submission in whole seconds.
    assert row["waited_s"] == pytest.approx(bench.clock.now - row["submit_s"], abs=1.0)
    kept_for_it = "not yet: its GPUs are kept for it, and Slurm has yet to start it"
    assert bench.ask("when", "1")["why_none"] == kept_for_it
    assert bench.ask("when", "1")["first_start_s"] is None
    view = bench.daemon.world.jobs["1"]
    assert (view.service_at(bench.clock.now), view.samples_at(bench.clock.now)) == (0.0, 0.0)
    bench.cycle()
    assert events(bench, "1") == [
        ("came", "4 GPUs"),
        ("planned", "n0:4"),
        ("placed", "n0:4"),
        ("left", "without having run"),
    ]
    (ended,) = bench.store.jobs("1")
    assert (ended.first_start_s, ended.samples, ended.share) == (None, 0.0, None)
    assert ended.wait_s == pytest.approx(bench.clock.now - ended.job.submit_s, abs=1.0)


def test_a_job_has_waited_until_slurm_starts_it_and_has_had_what_came_after(bench: Bench) -> None:
    bench.cycle(job(1))
    bench.cycle(placed(job(1)), seconds=1)
    before_s = bench.ask("queue")["jobs"][0]["waited_s"]
    bench.cycle(placed(job(1)), seconds=25)
    run = running(job(1), bench.clock.now)
    bench.cycle(run, seconds=1)
    bench.cycle(run, seconds=300)
    (row,) = bench.ask("queue")["jobs"]
    assert (row["state"], row["ran_s"], row["waited_s"]) == ("R", 301.0, before_s + 26.0)
    bench.cycle()
    assert events(bench, "1")[2:] == [
        ("placed", "n0:4"),
        ("runs", "n0:4"),
        ("left", "after 0.334 GPU hours"),
    ]
    assert bench.store.jobs("1")[0].first_start_s == run.start_s


def test_what_a_job_tells_of_its_last_run_begins_no_other(bench: Bench) -> None:
    again = replace(placed(job(1)), restarts=1)
    bench.cycle(replace(job(1), restarts=1))
    bench.cycle(again)
    told = JobProgress("x1", "1", 0, bench.clock.now, 50.0, 10.0)
    bench.daemon.world.heard([told], bench.clock.now)
    bench.cycle(again, seconds=5)
    view = bench.daemon.world.jobs["1"]
    assert view.phase(bench.clock.now) is Phase.PLACED
    assert (view.samples_at(bench.clock.now), view.service_at(bench.clock.now)) == (50.0, 0.0)


def test_a_job_that_takes_too_long_to_start_has_not_been_stopped(bench: Bench) -> None:
    bench.cycle(job(1))
    bench.cycle(placed(job(1)))
    bench.cycle(placed(job(1)), seconds=CONFIGURATION.start_timeout_s + 1)
    assert ("unplaced", "n0:4") in events(bench, "1")
    assert not {"runs", "stopped"} & {event for event, _ in events(bench, "1")}
    assert bench.ask("queue")["jobs"][0]["state"] == "PD"


def test_a_run_that_was_over_before_it_was_seen_to_begin_began_when_slurm_says(
    bench: Bench,
) -> None:
    bench.cycle(job(1))
    bench.cycle(placed(job(1)))
    start_s = bench.clock.now + 2.0
    ending = replace(running(placed(job(1)), start_s), state=JobState.COMPLETING)
    bench.cycle(ending, seconds=5)
    assert bench.daemon.world.jobs["1"].first_start_s == start_s


def test_a_job_that_is_placed_again_where_it_ran_has_not_begun_again(bench: Bench) -> None:
    run = running(job(1), bench.clock.now)
    bench.cycle(run)
    bench.cycle(run, seconds=10)
    had_s = bench.daemon.world.jobs["1"].service_at(bench.clock.now)
    bench.cycle(replace(placed(job(1)), restarts=1), seconds=0)
    bench.cycle(replace(placed(job(1)), restarts=1), seconds=20)
    view = bench.daemon.world.jobs["1"]
    assert view.phase(bench.clock.now) is Phase.PLACED
    assert (view.service_at(bench.clock.now), view.first_start_s) == (had_s, run.start_s)
