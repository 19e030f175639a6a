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
from hetsched_core.store import IN_MEMORY, JobProgress, Mode, Store, StoreWriteError
from hetsched_core.types import JobView, Phase
from slurm_plugin.api.answers import Peer
from slurm_plugin.api.telemetry import Telemetry
from slurm_plugin.backend import JobState, SlurmJob, SlurmSite
from slurm_plugin.daemon import Daemon
from slurm_plugin.daemon.daemon import CycleReport
from slurm_plugin.daemon.jobs.managed import moment
from slurm_plugin.daemon.process.configuration import DaemonConfiguration
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import WAITING, Clock, daemon_of, node, state
from tests.slurm_plugin.daemon.fake_slurm import placed as placed_on
from tests.slurm_plugin.daemon.fake_slurm import running as runs_on

ROOT = Peer("root", admin=True)
CONFIGURATION = DaemonConfiguration(partitions=frozenset({"gpu"}))
CAME, PLANNED, RUNS = ("came", "4 GPUs"), ("planned", "n0:4"), ("runs", "n0:4")


def job(number: int, user: str = "ann") -> SlurmJob:
    mark = WAITING.mark.replace('"a1"', f'"x{number}"').replace('"1,2"', '"4"')
    return replace(WAITING, id=str(number), user=user, mark=mark, gpus=4)


def running(seen: SlurmJob, start_s: float) -> SlurmJob:
    return runs_on(seen, "n0", since_s=start_s, gpus=4)


PLACED = placed_on(job(1), "n0")
FIRST = running(job(1), 1000.0)
"""A job that has all GPUs, so that others wait."""


@dataclass
class Bench:
    """A daemon with its telemetry, on a clock of the test's."""

    backend: FakeBackend
    clock: Clock
    store: Store
    daemon: Daemon
    telemetry: Telemetry

    def cycle(self, *jobs: SlurmJob, seconds: float = 1.0) -> CycleReport:
        self.clock.now += seconds
        used = 4 if any(seen.state is JobState.RUNNING for seen in jobs) else 0
        self.backend.state = state(*jobs, nodes=(node("n0", used=used),))
        report = self.daemon.cycle()
        self.telemetry.note(self.daemon, report)
        return report

    def ask(self, question: str, job_id: str = "", peer: Peer = ROOT) -> dict[str, Any]:
        return self.telemetry.publisher.answer({"ask": question, "job": job_id}, peer)

    def view(self, job_id: str = "1") -> JobView:
        return self.daemon.world.jobs[job_id]

    def await_ranges(self, *waiting: SlurmJob) -> None:
        """Do cycles until all that wait behind the first job were given a range unasked."""
        deadline = time.monotonic() + 120
        while {each.job for each in self.store.ranges()} < {each.id for each in waiting}:
            assert time.monotonic() < deadline
            self.cycle(FIRST, *waiting, seconds=0.1)
            time.sleep(0.05)


def bench_on(store: Store, clock: Clock) -> Bench:
    backend = FakeBackend(state())
    daemon = daemon_of(backend, clock, settings=CONFIGURATION, store=store)
    telemetry = Telemetry(CONFIGURATION, clock(), lambda: store, time.perf_counter)
    return Bench(backend, clock, store, daemon, telemetry)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        found = bench_on(store, Clock())
        yield found
        found.telemetry.close()


def events(bench: Bench, job_id: str) -> list[tuple[str, str]]:
    return [(each.event, each.detail) for each in bench.store.events(job_id)]


def test_no_thread_is_left_that_python_could_not_end_with(bench: Bench) -> None:
    bench.cycle(*map(job, range(1, 9)))
    assert "forecasts" in {thread.name for thread in threading.enumerate()}
    bench.telemetry.close()
    assert "forecasts" not in {thread.name for thread in threading.enumerate()}


# -- what became of a job --------------------------------------------------------------------------


def test_a_job_is_followed_from_its_coming_to_its_end(bench: Bench) -> None:
    bench.cycle(job(1), job(2))
    run = running(job(1), bench.clock.now)
    bench.cycle(run, job(2))
    bench.cycle(run, job(2), seconds=300)
    bench.cycle(job(2))
    assert events(bench, "1") == [CAME, PLANNED, RUNS, ("left", "after 0.334 GPU hours")]
    waits = ("waits", "not yet: too few GPUs are free where it fits")
    assert events(bench, "2")[:2] == [CAME, waits]
    (ended,) = bench.store.jobs("1")
    assert (ended.nonce, ended.first_start_s) == ("x1", run.start_s)
    # It ran for half of its ten minutes.
    assert ended.share == pytest.approx(0.5, abs=0.02)
    raqlr = ended.wait_s / (ended.expected_s or 0.0)
    assert bench.telemetry.journal.raqlr(bench.clock.now) == pytest.approx(raqlr)
    said = bench.ask("history", "1")["jobs"]
    assert [each["event"] for each in said[0]["events"]] == ["came", "planned", "runs", "left"]
    with pytest.raises(InputError, match="nothing is known of a job '9'"):
        bench.ask("history", "9")


def test_a_job_that_is_put_off_waits_and_has_not_left(bench: Bench) -> None:
    bench.cycle(job(1), job(2))
    run = running(job(1), bench.clock.now)
    bench.cycle(run, job(2))
    begin_s = bench.clock.now + 3600
    put_off = [replace(job(number), begin_s=begin_s, restarts=2 - number) for number in (1, 2)]
    bench.cycle(*put_off, seconds=360)
    bench.cycle(*put_off)
    (_, told) = events(bench, "1")[-2:]
    assert told[0] == "waits"
    assert told[1].endswith(f"from {moment(begin_s)} on")
    assert events(bench, "2")[-1] == told
    assert [event for event, _ in events(bench, "1")] == [
        "came",
        "planned",
        "runs",
        "stopped",
        "waits",
    ]
    # A daemon that comes up meanwhile says no other thing.
    later = bench_on(bench.store, bench.clock)
    later.cycle(*put_off)
    assert events(bench, "1")[-1] == told
    later.telemetry.close()
    bench.cycle(seconds=10)
    assert events(bench, "1")[-1] == ("left", "after 0.4 GPU hours")
    assert events(bench, "2")[-1] == ("left", "without having run")


def test_an_active_job_that_the_database_does_not_have_is_not_said_to_be_unknown(
    bench: Bench,
) -> None:
    bench.cycle(job(1))
    assert bench.ask("history", "1")["jobs"]
    private = replace(CONFIGURATION, private_jobs=True)
    with Store.open(IN_MEMORY, Mode.WRITE) as replaced:
        other = Telemetry(private, bench.clock(), lambda: replaced, time.perf_counter)
        other.publisher.publish(bench.daemon.snapshot(), bench.daemon.plan, 1)
        for peer, words in (
            (ROOT, "about job '1' is in the database, though it is"),
            (Peer("ann"), "about job '1' is in the database, though it is"),
            # Who may not see it is told the same as of any id.
            (Peer("bob"), "nothing is known of a job '1'; it was never"),
        ):
            with pytest.raises(InputError, match=words):
                other.publisher.answer({"ask": "history", "job": "1"}, peer)
        other.close()


def test_of_what_goes_on_when_the_database_is_replaced_it_is_said_that_nothing_before_is_known(
    bench: Bench,
) -> None:
    bench.telemetry.close()
    with Store.open(IN_MEMORY, Mode.WRITE) as replaced:
        stores = [bench.store]
        bench.telemetry = Telemetry(
            CONFIGURATION, bench.clock(), lambda: stores[-1], time.perf_counter
        )
        bench.cycle(FIRST, job(2))
        stores.append(replaced)
        bench.cycle(FIRST, job(2))
        bench.cycle(FIRST, job(2))
        for job_id, now in (("1", "runs"), ("2", "waits")):
            (said,) = bench.ask("history", job_id)["jobs"]
            assert [each["event"] for each in said["events"]] == ["goes on", now]
            assert said["events"][0]["detail"].startswith("what was before is not known")
        bench.cycle(FIRST)
        assert [each.event for each in replaced.events("2")] == ["goes on", "waits", "left"]
        # A store that is opened again has it all.
        stores.append(bench.store)
        bench.cycle(FIRST)
        assert "goes on" not in dict(events(bench, "1"))
        with pytest.raises(InputError, match="'9'; it was never managed here, or before the"):
            bench.ask("history", "9")
        bench.telemetry.close()


def test_the_next_daemon_goes_on_with_what_the_last_one_knew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of more jobs than it remembers when it starts.
    monkeypatch.setattr("slurm_plugin.daemon.journal.REMEMBERED", 2)
    bench.cycle(job(1), job(2), job(3), job(4))
    bench.cycle(FIRST, job(2), job(3), job(4))
    bench.telemetry.close()
    bench.clock.now += 100.0
    after = bench_on(bench.store, bench.clock)
    try:
        before = max(each.decision for each in after.store.events("4"))
        after.cycle(running(job(2), after.clock.now), job(3), job(4))
        assert after.store.events("2")[-1].decision == after.daemon.decisions == before + 1
        for number in range(1, 5):
            assert events(after, str(number)).count(CAME) == 1
        # The first one left while nobody looked.
        assert {one.job.id for one in bench.store.jobs() if one.ended_s is None} == set("234")
    finally:
        after.telemetry.close()


def over(run: SlurmJob, end_s: float, outcome: str = "COMPLETED") -> SlurmJob:
    return replace(run, state=JobState.ENDED, end_s=end_s, outcome=outcome)


def taught(bench: Bench) -> list[tuple[str, str, float]]:
    snapshot = bench.daemon.snapshot()
    assert snapshot is not None
    return [(one.user, one.profile, round(one.run_s, -1)) for one in snapshot.ended.jobs]


def test_policies_are_told_how_long_jobs_ran_that_told_no_size(bench: Bench) -> None:
    bench.cycle(job(1), job(2))
    run = running(job(1), bench.clock.now)
    bench.cycle(run, job(2))
    bench.cycle(run, job(2), seconds=300)
    # What is not shown for a moment has not ended.
    bench.cycle(job(2), seconds=0)
    bench.cycle(run, job(2), seconds=0)
    bench.cycle(over(run, bench.clock.now), job(2))
    # One that nobody saw run.
    start_s = bench.clock.now + 20.0
    bench.cycle(over(running(job(2), start_s), start_s + 40.0), job(3), seconds=100)
    run = running(job(3), bench.clock.now)
    bench.cycle(run, job(4))
    bench.cycle(over(run, bench.clock.now + 5.0, "FAILED"), job(4), seconds=10)
    bench.cycle(job(4))
    expected = [("ann", "resnet50-imagenet", 300.0), ("ann", "resnet50-imagenet", 40.0)]
    assert taught(bench) == expected
    # The next daemon plans with them from its first cycle on, whatever has come since.
    bench.cycle(*map(job, range(4, 40)))
    after = daemon_of(bench.backend, bench.clock, store=bench.store)
    assert [round(one.run_s, -1) for one in after.ended.jobs] == [300.0, 40.0]


def test_an_id_that_is_handed_out_again_has_the_history_of_both(bench: Bench) -> None:
    bench.cycle(job(1))
    bench.cycle(replace(job(1), mark=job(1).mark.replace("x1", "y1")))
    assert [each["nonce"] for each in bench.ask("history", "1")["jobs"]] == ["x1", "y1"]


def test_a_store_that_takes_nothing_in_gets_it_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreWriteError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "record_history", full)
        bench.cycle(job(1))
    assert bench.telemetry.journal.trouble == "no space left"
    bench.cycle(job(1))
    assert events(bench, "1") == []
    bench.cycle(job(1), seconds=11)
    assert events(bench, "1")[0] == CAME
    assert bench.telemetry.journal.trouble == ""


@pytest.mark.parametrize("who", ["publisher.publish", "journal.note", "meters.note"])
def test_who_is_told_of_a_cycle_may_fail_and_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("strange job")

    bench.cycle(job(1))
    name, method = who.split(".")
    with monkeypatch.context() as patch:
        patch.setattr(getattr(bench.telemetry, name), method, fail)
        bench.cycle(job(1), job(2))
        bench.cycle(job(1), job(2))
    assert "KeyError: 'strange job' (test_journal.py:" in bench.telemetry.trouble
    # The others were told.
    assert ("came" in dict(events(bench, "2"))) is (name != "journal")
    assert (len(bench.ask("queue")["jobs"]) == 2) is (name != "publisher")
    cycles = bench.telemetry.meters.registry.get_sample_value("hetsched_cycles_total")
    assert cycles == (1 if name == "meters" else 3)
    bench.cycle(job(1), job(2))
    assert bench.telemetry.trouble == ""
    assert events(bench, "2")[0] == CAME


def test_the_database_is_lent_to_admins_alone_and_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_plugin.api.past.FROZEN_S", 0.1)
    with Store.open(tmp_path / "store", Mode.WRITE) as store:
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
            # With nothing frozen, the log is merged into the file.
            monkeypatch.setattr("hetsched_core.store.database.CHECKPOINT_BYTES", 1)
            bench.cycle(job(2))
            assert store.freeze()[0] > said["bytes"]
        finally:
            bench.telemetry.close()


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
    assert bench.daemon.world.intake.later == {}
    assert bench.ask("status")["jobs"] == {"waiting": 1}
    assert events(bench, "1")[0] == CAME


def test_slurms_private_data_keeps_all_of_a_job_from_others(bench: Bench) -> None:
    bench.backend.where = SlurmSite(30.0, {"gpu": None}, None, private_jobs=True)
    later = replace(job(3, "bob"), begin_s=4600.0)
    bench.cycle(FIRST, job(2, "bob"), later)
    for question in ("history", "when", "why", "explain"):
        assert bench.ask(question, "2", Peer("bob"))["job"] == "2"
        for hidden in ("2", "3"):
            with pytest.raises(InputError, match=r"no active job|nothing is known"):
                bench.ask(question, hidden, Peer("ann"))
    assert [row["job"] for row in bench.ask("queue", peer=Peer("ann"))["jobs"]] == ["1"]


def test_a_begin_time_beyond_all_dates_harms_nobody(bench: Bench) -> None:
    bench.cycle(replace(job(1), begin_s=1e300), job(2))
    (reason,) = bench.ask("why", "1")["reasons"]
    assert "it is left out: its times are" in reason["sentence"]
    assert bench.ask("why", "2")["state"] == "PD"


def test_a_moved_job_s_restarts_are_told_while_it_is_there_and_afterwards(bench: Bench) -> None:
    bench.cycle(job(1))
    for jobs in ((replace(FIRST, restarts=2),), ()):
        bench.cycle(*jobs)
        assert bench.ask("history", "1")["jobs"][0]["restarts"] == 2


def test_a_job_that_slurm_never_starts_has_had_nothing(bench: Bench) -> None:
    bench.cycle(job(1))
    bench.cycle(PLACED)
    bench.cycle(PLACED, seconds=20)
    assert bench.ask("status")["jobs"] == {"placed": 1}
    (row,) = bench.ask("queue")["jobs"]
    told = [row[name] for name in ("state", "phase", "ran_s", "nodes")]
    assert told == ["PL", "placed", 0.0, {"n0": 4}]
    # Slurm tells of the submission in whole seconds.
    assert row["waited_s"] == pytest.approx(bench.clock.now - row["submit_s"], abs=1.0)
    said = bench.ask("when", "1")
    kept_for_it = "not yet: its GPUs are kept for it, and Slurm has yet to start it"
    assert (said["why_none"], said["first_start_s"]) == (kept_for_it, None)
    view = bench.view()
    assert (view.service_at(bench.clock.now), view.samples_at(bench.clock.now)) == (0.0, 0.0)
    bench.cycle()
    never = ("left", "without having run")
    assert events(bench, "1") == [CAME, PLANNED, ("placed", "n0:4"), never]
    (ended,) = bench.store.jobs("1")
    assert (ended.first_start_s, ended.samples, ended.share) == (None, 0.0, None)
    assert ended.wait_s == pytest.approx(bench.clock.now - ended.job.submit_s, abs=1.0)


def test_a_job_has_waited_until_slurm_starts_it_and_has_had_what_came_after(bench: Bench) -> None:
    bench.cycle(job(1))
    bench.cycle(PLACED)
    before_s = bench.ask("queue")["jobs"][0]["waited_s"]
    bench.cycle(PLACED, seconds=25)
    run = running(job(1), bench.clock.now)
    bench.cycle(run)
    bench.cycle(run, seconds=300)
    (row,) = bench.ask("queue")["jobs"]
    assert (row["state"], row["ran_s"], row["waited_s"]) == ("R", 301.0, before_s + 26.0)
    bench.cycle()
    assert events(bench, "1")[2:4] == [("placed", "n0:4"), RUNS]
    assert bench.store.jobs("1")[0].first_start_s == run.start_s


def test_a_job_that_takes_too_long_to_start_has_not_been_stopped(bench: Bench) -> None:
    bench.cycle(job(1))
    bench.cycle(PLACED)
    bench.cycle(PLACED, seconds=CONFIGURATION.start_timeout_s + 1)
    assert ("unplaced", "n0:4") in events(bench, "1")
    assert not {"runs", "stopped"} & dict(events(bench, "1")).keys()
    assert bench.ask("queue")["jobs"][0]["state"] == "PD"


def test_a_run_that_was_over_before_it_was_seen_to_begin_began_when_slurm_says(
    bench: Bench,
) -> None:
    bench.cycle(job(1))
    bench.cycle(PLACED)
    start_s = bench.clock.now + 2.0
    bench.cycle(replace(running(job(1), start_s), state=JobState.COMPLETING), seconds=5)
    assert bench.view().first_start_s == start_s


def test_a_job_that_is_placed_again_where_it_ran_has_not_begun_again(bench: Bench) -> None:
    bench.cycle(FIRST)
    bench.cycle(FIRST, seconds=10)
    had_s = bench.view().service_at(bench.clock.now)
    again = replace(PLACED, restarts=1)
    bench.cycle(again, seconds=0)
    # What it tells of its last run begins no other.
    told = JobProgress("x1", "1", 0, bench.clock.now, 50.0, 10.0)
    bench.daemon.world.heard([told], bench.clock.now)
    bench.cycle(again, seconds=20)
    view, now = bench.view(), bench.clock.now
    assert view.phase(now) is Phase.PLACED
    assert (view.service_at(now), view.first_start_s) == (had_s, FIRST.start_s)
    assert view.samples_at(now) == 50.0
