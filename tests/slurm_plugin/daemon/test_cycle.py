"""Cycles of the daemon on a fake Slurm: what a real one does too rarely for a test."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest

from hetsched_core.errors import InputError
from hetsched_core.policy import Policy, PolicyInfo, make_policy
from hetsched_core.store import IN_MEMORY, Store
from hetsched_core.store import Mode as StoreMode
from hetsched_core.types import EMPTY_PLAN, ExecutionModel, NodeCondition, Plan, Snapshot
from slurm_plugin.backend import (
    Asked,
    AwayError,
    JobState,
    Outcome,
    Park,
    Place,
    Push,
    Recipients,
    RefusedError,
    Release,
    Requeue,
    Signal,
    SlurmBackend,
    SlurmJob,
    SlurmNode,
    SlurmSite,
    SlurmState,
    Terms,
)
from slurm_plugin.daemon import Daemon, DaemonSettings, Mode
from slurm_plugin.daemon.changes import MOST_PUSHES
from slurm_plugin.daemon.configuration import Configuration, LogForm, read_configuration
from slurm_plugin.daemon.log import open_log
from slurm_plugin.daemon.process import _reloaded
from tests.slurm_plugin.backend.fake import PENDING, FakeBackend

SETTINGS = DaemonSettings(partitions=frozenset({"gpu"}))

WAITING = replace(
    PENDING,
    mark='hetsched/1 {"nonce":"a1","default":1,"gpu-set":"1,2"}',
    submit_s=900.0,
    begin_s=1060.0,
    time_limit_s=600.0,
)
PINNED = replace(WAITING, pinned=("n0",), begin_s=1000.0, reason="Resources")


def node(name: str, used: int = 0, condition: NodeCondition = NodeCondition.UP) -> SlurmNode:
    """A node of four V100 GPUs."""
    in_use = (("v100", used),) if used else ()
    return SlurmNode(name, condition, (("v100", 4),), in_use, 32, 0, 64000, 0)


def state(*jobs: SlurmJob, nodes: tuple[SlurmNode, ...] = (node("n0"),)) -> SlurmState:
    """What Slurm shows."""
    return SlurmState(nodes, {job.id: job for job in jobs})


@dataclass(slots=True)
class Clock:
    """A clock that a test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def daemon_of(
    backend: SlurmBackend,
    clock: Clock,
    policy: Policy | None = None,
    mode: Mode = Mode.ENFORCE,
    settings: DaemonSettings = SETTINGS,
) -> Daemon:
    """A daemon on a clock of the test's."""
    return Daemon(
        backend,
        policy or make_policy("fifo"),
        settings,
        mode=mode,
        clock=clock,
        sleep=lambda _: None,
    )


def test_a_waiting_job_is_placed_on_nodes_that_have_room() -> None:
    backend = FakeBackend(state(WAITING))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [Place("1", ("n0",), 1, Park("1", 1, 60), "v100")]


def test_a_job_that_was_placed_is_left_alone_until_it_starts() -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    backend.calls.clear()
    backend.state = state(PINNED)
    for _ in range(20):
        clock.now += 1
        daemon.cycle()
    running = replace(
        PINNED, state=JobState.RUNNING, reason="None", nodes=("n0",), start_s=clock.now
    )
    backend.state = state(running, nodes=(node("n0", used=1),))
    daemon.cycle()
    assert backend.calls == []


def test_a_job_that_does_not_start_in_time_is_parked_and_then_placed_again() -> None:
    backend, clock = FakeBackend(state(PINNED)), Clock()
    daemon = daemon_of(backend, clock)
    while not backend.calls:
        daemon.cycle()
        clock.now += 1
        assert clock.now < 1100
    assert clock.now - 1000 == pytest.approx(SETTINGS.start_timeout_s, abs=2)
    assert backend.calls == [Park("1", 1, 60)]
    parked = clock.now
    other = replace(WAITING, id="2", mark=WAITING.mark.replace("a1", "b2"))
    only_one = (node("n0", used=3),)
    backend.state = state(replace(WAITING, begin_s=clock.now + 60), other, nodes=only_one)
    daemon.cycle()
    assert backend.calls[1:] == [Place("2", ("n0",), 1, Park("2", 1, 60), "v100")]
    backend.calls.clear()
    while not backend.calls:
        backend.state = state(replace(WAITING, begin_s=clock.now + 60))
        daemon.cycle()
        clock.now += 1
        assert clock.now < parked + 100
    assert backend.calls == [Place("1", ("n0",), 1, Park("1", 1, 60), "v100")]
    assert clock.now - parked == pytest.approx(60, abs=3)


def test_a_stale_pin_is_removed_from_a_job_that_has_to_wait() -> None:
    pinned = replace(PINNED, begin_s=1060.0)
    full = (node("n0", used=4),)
    backend = FakeBackend(state(pinned, nodes=full))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [Park("1", 1, 60)]


def test_a_begin_time_is_pushed_only_when_it_comes_near() -> None:
    full = (node("n0", used=4),)
    backend, clock = FakeBackend(state(WAITING, nodes=full)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    assert backend.calls == []
    clock.now = 1031.0
    daemon.cycle()
    assert backend.calls == [Push("1", 60)]


def test_a_begin_time_that_is_too_far_ahead_is_brought_back() -> None:
    full = (node("n0", used=4),)
    backend, clock = FakeBackend(state(WAITING, nodes=full)), Clock(1000.0)
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    assert backend.calls == []
    # The clock is set back: if the daemon died now, the job would wait for over an hour.
    clock.now = 1000.0 - 3600.0
    daemon.cycle()
    assert backend.calls == [Push("1", 60)]
    # Slurm has queued it again, with a begin time two minutes ahead.
    backend.state = state(replace(WAITING, begin_s=clock.now + 121.0), nodes=full)
    backend.calls.clear()
    daemon.cycle()
    assert backend.calls == [Push("1", 60)]


def test_pushes_are_spread_over_cycles_unless_they_are_urgent() -> None:
    full = (node("n0", used=4),)

    def jobs(begin_s: float) -> list[SlurmJob]:
        return [
            replace(WAITING, id=str(k), mark=WAITING.mark.replace("a1", f"x{k}"), begin_s=begin_s)
            for k in range(300)
        ]

    backend, clock = FakeBackend(state(*jobs(1025.0), nodes=full)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    assert len(backend.calls) == MOST_PUSHES
    clock.now = 1015.0
    daemon.cycle()
    assert len(backend.calls) == MOST_PUSHES + 300


def test_a_job_waits_for_the_begin_time_that_its_user_named() -> None:
    later = WAITING.mark.replace('"default"', '"begin":1100,"default"')
    backend, clock = FakeBackend(state(replace(WAITING, mark=later, begin_s=1160.0))), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    assert backend.calls == []
    clock.now = 1101.0
    daemon.cycle()
    assert backend.calls == [Place("1", ("n0",), 1, Park("1", 1, 60), "v100")]
    assert daemon.world.jobs["1"].wait_at(clock.now) == 1.0


def test_no_new_work_is_placed_on_drained_or_lost_nodes() -> None:
    nodes = (
        node("n0", condition=NodeCondition.DRAINED),
        node("n1", condition=NodeCondition.DOWN),
        node("n2"),
    )
    backend = FakeBackend(state(WAITING, nodes=nodes))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [Place("1", ("n2",), 1, Park("1", 1, 60), "v100")]


def test_an_id_that_slurm_hands_out_again_is_another_job() -> None:
    backend, clock = FakeBackend(state(WAITING, nodes=(node("n0", used=4),))), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    again = replace(WAITING, mark=WAITING.mark.replace("a1", "b2"), submit_s=1001.0)
    backend.state = state(again, nodes=(node("n0", used=4),))
    clock.now += 5
    daemon.cycle()
    assert daemon.world.managed["1"].mark.nonce == "b2"
    assert daemon.world.jobs["1"].job.submit_s == pytest.approx(1001.0, abs=1.0)


@pytest.mark.parametrize("policy", ["fifo", "gavel", "hops"])
def test_a_job_that_takes_the_id_of_another_is_not_placed_as_that_was_to_be(policy: str) -> None:
    other = replace(WAITING, id="2", mark=WAITING.mark.replace("a1", "c3"))
    backend, clock = FakeBackend(state(WAITING, other)), Clock()
    daemon = daemon_of(backend, clock, make_policy(policy))
    daemon.cycle()
    backend.calls.clear()
    mark = 'hetsched/1 {"nonce":"b2","default":4,"gpu-set":"4"}'
    again = replace(WAITING, mark=mark, gpus_per_node=4, submit_s=999.0)
    backend.state = state(again, replace(other, submit_s=1000.0))
    clock.now += 1
    assert daemon.cycle().violations == ()
    assert {c.gpus_per_node for c in backend.calls if isinstance(c, Place) and c.job == "1"} <= {4}
    assert backend.calls != []


@pytest.mark.parametrize("policy", ["fifo", "gavel"])
def test_a_placement_that_slurm_refuses_is_tried_again_after_a_while(policy: str) -> None:
    no = RefusedError("Place(...): Requested node configuration is not available (2014)")
    backend, clock = FakeBackend(state(WAITING), errors=[no]), Clock()
    daemon = daemon_of(backend, clock, make_policy(policy))
    for _ in range(59):
        daemon.cycle()
        clock.now += 1.0
        backend.state = state(replace(WAITING, begin_s=clock.now + 60))
    assert [type(call) for call in backend.calls] == [Place, Park]
    reason = daemon.world.jobs["1"].blocked
    assert str(reason).endswith("placement: Requested node configuration is not available (2014)")
    while clock.now < 1065.0:
        daemon.cycle()
        clock.now += 1.0
    assert type(backend.calls[2]) is Place


@pytest.mark.parametrize("policy", ["fifo", "gavel"])
def test_a_job_that_is_held_after_it_was_planned_is_not_placed(policy: str) -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock, make_policy(policy))
    daemon.cycle()
    assert [type(call) for call in backend.calls] == [Place]
    for _ in range(5):
        clock.now += 1.0
        backend.state = state(replace(WAITING, held=True, reason="JobHeldUser"))
        daemon.cycle()
    assert len(backend.calls) == 1


def test_jobs_of_other_partitions_and_with_bad_marks_are_not_touched() -> None:
    other = replace(WAITING, id="2", partition="cpu")
    bad = replace(WAITING, id="3", mark="hetsched/1 nonsense")
    deep = replace(WAITING, id="4", mark="hetsched/1 " + "[" * 1010)
    backend = FakeBackend(state(other, bad, deep))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert backend.calls == []
    assert set(daemon.world.warnings) == {"3", "4"}


@dataclass(slots=True)
class AwayBackend(FakeBackend):
    """A backend whose Slurm is away at first."""

    away: int = 2

    def read(self) -> SlurmState:
        """Fail a few times."""
        if self.away:
            self.away -= 1
            raise (AwayError if self.away else RefusedError)("nobody answers")
        return self.state


def test_slurm_being_away_is_a_state() -> None:
    backend, clock = AwayBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock)
    reports = [daemon.cycle() for _ in range(3)]
    assert [report.away for report in reports] == ["nobody answers", "nobody answers", ""]
    clock.now += 10.0
    daemon.cycle()
    assert len(backend.calls) == 1


@dataclass(frozen=True)
class Forgetful:
    """A policy that plans for nobody, which is no valid plan."""

    info: ClassVar[PolicyInfo] = PolicyInfo("forgetful", "", "")
    asked: list[float] = field(default_factory=list)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Forget all jobs."""
        self.asked.append(snapshot.now)
        return EMPTY_PLAN


def test_an_invalid_plan_is_dropped_and_the_cluster_stays_as_it_is() -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock, Forgetful())
    report = daemon.cycle()
    assert report.decision is None
    assert report.violations
    assert daemon.decisions == 0
    assert backend.calls == []


@dataclass(frozen=True)
class Failing(Forgetful):
    """A policy with a mistake in it."""

    info: ClassVar[PolicyInfo] = PolicyInfo("failing", "", "")

    def plan(self, snapshot: Snapshot) -> Plan:
        """Fail on whatever job comes first."""
        self.asked.append(snapshot.now)
        raise KeyError(next(iter(snapshot.jobs)))


@pytest.mark.parametrize(("policy", "says"), [(Failing(), "KeyError: '1'"), (Forgetful(), "1")])
def test_a_policy_that_makes_no_plan_is_asked_now_and_then_and_jobs_are_still_kept_back(
    policy: Forgetful, says: str
) -> None:
    backend, clock = FakeBackend(state(replace(WAITING, begin_s=1005.0))), Clock()
    daemon = daemon_of(backend, clock, policy)
    report = daemon.cycle()
    assert says in report.violations[0]
    assert backend.calls == [Push("1", 60)]
    backend.state = state(WAITING)
    for _ in range(20):
        clock.now += 1
        daemon.cycle()
    assert policy.asked == [1000.0, 1010.0, 1020.0]


@pytest.mark.parametrize("policy", ["fifo", "hops"])
def test_a_run_on_a_node_that_slurm_does_not_know_any_more_stops_nobody(policy: str) -> None:
    running = replace(PINNED, state=JobState.RUNNING, nodes=("n0",), start_s=950.0)
    other = replace(WAITING, id="2", mark=WAITING.mark.replace("a1", "b2"))
    backend, clock = FakeBackend(state(running, nodes=(node("n0", used=1), node("n1")))), Clock()
    daemon = daemon_of(backend, clock, make_policy(policy))
    daemon.cycle()
    clock.now += 1
    backend.state = state(running, other, nodes=(node("n1"),))
    daemon.cycle()
    assert daemon.world.jobs["1"].runs == ()
    assert [call.job for call in backend.calls] == ["2"]


def test_the_site_is_looked_up_again_when_the_clock_is_set_back() -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock(100_000.0)
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    backend.where = SlurmSite(5.0, {"gpu": None})
    clock.now = 1000.0
    (said,) = daemon.cycle().warnings
    assert "KillWait = 5" in said


def test_nodes_of_partitions_that_are_not_managed_are_left_alone() -> None:
    other = replace(node("n0"), partitions=frozenset({"debug"}))
    own = replace(node("n1"), partitions=frozenset({"debug", "gpu"}))
    backend = FakeBackend(state(WAITING, nodes=(other, own)))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert [call.nodes for call in backend.calls if isinstance(call, Place)] == [("n1",)]
    assert set(daemon.world.nodes) == {"n1"}


def test_a_cluster_without_gpus_is_waited_for() -> None:
    backend, clock = FakeBackend(state(WAITING, nodes=())), Clock()
    daemon = daemon_of(backend, clock)
    assert "0 GPUs" in daemon.cycle().away
    backend.state = state(WAITING)
    daemon.cycle()
    assert len(backend.calls) == 1


def test_a_full_disk_is_said_once_and_stops_nobody(
    small_disk: Callable[[str], Path],
) -> None:
    backend, disk = FakeBackend(state(WAITING)), small_disk("3m")
    with Store.open(disk / "store.duckdb", StoreMode.WRITE) as store:
        daemon = Daemon(
            *(backend, make_policy("fifo"), SETTINGS),
            mode=Mode.ENFORCE,
            clock=Clock(),
            sleep=lambda _: None,
            store=store,
        )
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        said = [" ".join(daemon.cycle().warnings) for _ in range(3)]
    assert len(backend.calls) == 3
    assert ["not recorded" in words for words in said] == [False, True, False]


@dataclass(frozen=True)
class Evict:
    """A policy that stops whatever runs."""

    info: ClassVar[PolicyInfo] = PolicyInfo("evict", "", "")

    def plan(self, snapshot: Snapshot) -> Plan:
        """Let everybody wait."""
        from immutables import Map

        from hetsched_core.types import Reason, ReasonCode, Waiting

        return Plan(Map({job: Waiting(Reason(ReasonCode.AHEAD)) for job in snapshot.jobs}))


def test_a_stopped_job_is_requeued_once_and_then_parked() -> None:
    running = replace(PINNED, state=JobState.RUNNING, nodes=("n0",), start_s=950.0)
    backend, clock = FakeBackend(state(running, nodes=(node("n0", used=1),))), Clock()
    daemon = daemon_of(backend, clock, Evict())
    daemon.cycle()
    assert backend.calls == [Requeue("1")]
    backend.state = state(replace(running, state=JobState.COMPLETING), nodes=(node("n0", 1),))
    for _ in range(3):
        clock.now += 1
        daemon.cycle()
    assert len(backend.calls) == 1
    backend.state = state(replace(PINNED, begin_s=clock.now + 16, restarts=1))
    daemon.cycle()
    assert backend.calls[1:] == [Park("1", 1, 60)]


def test_a_job_is_warned_and_given_its_time_before_it_is_stopped() -> None:
    running = replace(PINNED, state=JobState.RUNNING, nodes=("n0",), start_s=950.0)
    backend, clock = FakeBackend(state(running, nodes=(node("n0", used=1),))), Clock()
    settings = replace(SETTINGS, checkpoint_signal="USR1", checkpoint_wait_s=5.0)
    daemon = daemon_of(backend, clock, Evict(), settings=settings)
    while len(backend.calls) < 2 and clock.now < 1020:
        daemon.cycle()
        clock.now += 1
    assert backend.calls == [Signal("1", "USR1", Recipients.ALL), Requeue("1")]
    assert clock.now == 1006


@dataclass
class EvictNowAndThen:
    """A policy that stops whatever runs, unless it is told to let it run."""

    info: ClassVar[PolicyInfo] = PolicyInfo("evict-now-and-then", "", "")
    lets_run: bool = False

    def plan(self, snapshot: Snapshot) -> Plan:
        """Let everybody wait, or everybody run where it does."""
        from immutables import Map

        from hetsched_core.types import Placed, Placement

        if not self.lets_run:
            return Evict().plan(snapshot)
        return Plan(
            Map(
                {
                    job: Placed((Placement(view.runs[0].configuration),))
                    for job, view in snapshot.jobs.items()
                }
            )
        )


def test_a_job_that_was_warned_and_then_left_alone_is_warned_anew_the_next_time() -> None:
    running = replace(PINNED, state=JobState.RUNNING, nodes=("n0",), start_s=950.0)
    backend, clock = FakeBackend(state(running, nodes=(node("n0", used=1),))), Clock()
    settings = replace(SETTINGS, checkpoint_signal="USR1", checkpoint_wait_s=5.0)
    policy = EvictNowAndThen()
    daemon = daemon_of(backend, clock, policy, settings=settings)
    signal = Signal("1", "USR1", Recipients.ALL)
    for lets_run, used, calls in (
        (False, 1, [signal]),
        (True, 2, [signal]),
        (False, 3, [signal, signal]),
    ):
        policy.lets_run = lets_run
        # GPUs of somebody else's are a reason to plan.
        backend.state = state(running, nodes=(node("n0", used=used),))
        daemon.cycle()
        assert backend.calls == calls
        clock.now += 60


def test_what_is_wrong_is_said_once() -> None:
    bad = replace(WAITING, id="3", mark="hetsched/1 nonsense")
    backend = FakeBackend(state(WAITING, bad), where=SlurmSite(10.0, {"gpu": None}))
    daemon = daemon_of(backend, Clock())
    first, second = daemon.cycle().warnings, daemon.cycle().warnings
    assert second == ()
    about_mark, about_grace = first
    assert about_mark.startswith("job=3: 'hetsched/1 nonsense' is not a mark")
    assert about_grace.startswith("grace_s = 30 is more than Slurm's KillWait = 10")
    backend.state = state(WAITING, replace(bad, id="4"))
    (new,) = daemon.cycle().warnings
    assert new.startswith("job=4: ")
    assert set(daemon.world.warnings) == {"4"}


def test_a_grace_time_that_slurm_grants_is_nothing_to_warn_of() -> None:
    backend = FakeBackend(state(WAITING), where=SlurmSite(30.0, {"gpu": None}))
    assert daemon_of(backend, Clock()).cycle().warnings == ()


def test_jobs_of_the_same_second_are_served_in_the_order_of_their_numbers() -> None:
    jobs = [
        replace(WAITING, id=str(k), mark=WAITING.mark.replace("a1", f"x{k}"), gpus_per_node=1)
        for k in (11, 9, 10, 100)
    ]
    later = replace(jobs[0], id="8", submit_s=WAITING.submit_s + 1, mark=WAITING.mark)
    backend = FakeBackend(state(*jobs, later, nodes=(node("n0", used=1),)))
    daemon_of(backend, Clock(), make_policy("sjf")).cycle()
    placed = [change.job for change in backend.calls if isinstance(change, Place)]
    assert placed == ["9", "10", "11"]


def test_a_job_whose_cpus_or_memory_are_not_free_is_not_placed() -> None:
    asks = replace(WAITING, asked=Asked(8, memory_mb_per_node=16000))
    tight = (
        replace(node("n0"), cpus_used=25, memory_used_mb=0),
        replace(node("n1"), cpus_used=0, memory_used_mb=48001),
    )
    backend = FakeBackend(state(asks, nodes=tight))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert backend.calls == []
    roomy = replace(node("n1"), cpus_used=24, memory_used_mb=48000)
    backend.state = state(asks, nodes=(tight[0], roomy))
    daemon.cycle()
    terms = Terms(time_limit_min=None, cpus=8, memory_mb=16000)
    park = Park("1", 1, 60, terms=terms)
    assert backend.calls == [Place("1", ("n1",), 1, park, "v100", terms)]


def test_cpus_that_running_jobs_of_ours_hold_are_not_taken_for_somebody_else_s() -> None:
    running = replace(
        PINNED,
        state=JobState.RUNNING,
        nodes=("n0",),
        start_s=950.0,
        asked=Asked(8, memory_mb_per_node=16000),
        cpus=8,
    )
    used = replace(node("n0", used=1), cpus_used=10, memory_used_mb=16500)
    daemon = daemon_of(FakeBackend(state(running, nodes=(used,))), Clock())
    daemon.cycle()
    view = daemon.world.nodes["n0"]
    assert (view.foreign_gpus, view.foreign_cpus, view.foreign_memory_mb) == (0, 2.0, 500.0)
    assert (view.held_gpus, view.held_cpus, view.held_memory_mb) == (1, 8.0, 16000.0)


def test_what_ended_after_the_nodes_were_read_is_not_taken_for_somebody_else_s() -> None:
    running = replace(
        PINNED, state=JobState.RUNNING, nodes=("n0",), start_s=950.0, gpus_per_node=4, cpus=8
    )
    used = replace(node("n0", used=4), cpus_used=8)
    backend, clock = FakeBackend(state(running, nodes=(used,))), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    following = replace(WAITING, id="2", mark=WAITING.mark.replace("a1", "b2"))
    backend.state = state(replace(running, state=JobState.ENDED), following, nodes=(used,))
    clock.now += 1
    report = daemon.cycle()
    view = daemon.world.nodes["n0"]
    assert (view.foreign_gpus, view.foreign_cpus) == (0, 0.0)
    assert report.violations == ()
    # What is still there at the next look is.
    clock.now += 1
    daemon.cycle()
    view = daemon.world.nodes["n0"]
    assert (view.foreign_gpus, view.foreign_cpus) == (4, 8.0)


def test_what_others_use_is_still_theirs_when_a_job_of_ours_ends_beside_it() -> None:
    running = replace(
        PINNED, state=JobState.RUNNING, nodes=("n0",), start_s=950.0, gpus_per_node=2, cpus=4
    )
    backend = FakeBackend(state(running, nodes=(replace(node("n0", used=3), cpus_used=32),)))
    daemon = daemon_of(backend, clock := Clock())
    daemon.cycle()
    view = daemon.world.nodes["n0"]
    assert (view.foreign_gpus, view.foreign_cpus) == (1, 28.0)
    freed = replace(node("n0", used=1), cpus_used=28)
    backend.state = state(replace(running, state=JobState.ENDED), nodes=(freed,))
    clock.now += 1
    daemon.cycle()
    view = daemon.world.nodes["n0"]
    assert (view.foreign_gpus, view.foreign_cpus) == (1, 28.0)


def test_a_limit_that_the_user_changes_while_the_job_waits_is_the_new_one() -> None:
    limited = replace(WAITING, mark=WAITING.mark.replace('"default"', '"limit":10,"default"'))
    full = (node("n0", used=4),)
    backend = FakeBackend(state(limited, nodes=full))
    daemon = daemon_of(backend, Clock(), make_policy("sjf"))
    daemon.cycle()
    assert daemon.world.managed["1"].limit_s == 600.0
    backend.state = state(replace(limited, time_limit_s=300.0), nodes=full)
    daemon.cycle()
    assert daemon.world.managed["1"].limit_s == 300.0
    # What a placed job shows is the limit of its run.
    pinned = replace(PINNED, mark=limited.mark, time_limit_s=9000.0)
    backend.state = state(pinned, nodes=full)
    daemon.cycle()
    assert daemon.world.managed["1"].limit_s == 300.0
    another = daemon_of(backend, Clock(), make_policy("sjf"))
    another.cycle()
    assert another.world.managed["1"].limit_s == 600.0


@dataclass(frozen=True)
class Tasks(Evict):
    """A policy of another execution model."""

    info: ClassVar[PolicyInfo] = PolicyInfo("tasks", "", "", model=ExecutionModel.TASKS)


@dataclass(frozen=True)
class ReplayOnly(Evict):
    """A policy that cannot run live."""

    info: ClassVar[PolicyInfo] = PolicyInfo("past", "", "", replay_only="it knows the future")


@pytest.mark.parametrize(
    ("policy", "says"), [(Tasks(), "only gangs run live"), (ReplayOnly(), "it knows the future")]
)
def test_a_policy_that_cannot_run_live_is_refused(policy: Policy, says: str) -> None:
    with pytest.raises(InputError, match=says):
        daemon_of(FakeBackend(), Clock(), policy)


def test_a_partition_that_slurm_does_not_have_is_told_once_with_those_it_has() -> None:
    backend = FakeBackend(state(WAITING), where=SlurmSite(30.0, {"gpu": None, "old": None}))
    settings = replace(SETTINGS, partitions=frozenset({"gpu", "gpus"}))
    daemon = daemon_of(backend, Clock(), settings=settings)
    said = [daemon.cycle().warnings for _ in range(3)]
    assert said == [("Slurm has no partition gpus; it has gpu, old",), (), ()]


def test_a_partition_that_slurm_does_not_have_is_refused_and_not_taken_for_away() -> None:
    backend = FakeBackend(state(WAITING))
    daemon = daemon_of(backend, Clock())
    daemon.check_partitions(SETTINGS)
    wrong = replace(SETTINGS, partitions=frozenset({"gpu", "nosuch"}))
    with pytest.raises(InputError, match="Slurm has no partition nosuch; it has gpu"):
        daemon.check_partitions(wrong)
    # One that goes later: no node is left, and it is said why.
    backend.where = SlurmSite(30.0, {"old": None})
    backend.state = SlurmState((), {})
    assert daemon_of(backend, Clock()).cycle().away == "Slurm has no partition gpu; it has old"


def test_a_reload_with_a_mistyped_partition_leaves_all_as_it_was() -> None:
    daemon = daemon_of(FakeBackend(state(WAITING)), Clock(), mode=Mode.SHADOW)
    daemon.cycle()
    before = Configuration(partitions=frozenset({"gpu"}))
    after = replace(before, partitions=frozenset({"nosuch"}))
    said = io.StringIO()
    assert _reloaded(daemon, before, lambda: after, open_log(LogForm.LOGFMT, said)) is before
    assert "reload_refused" in said.getvalue()
    assert "Slurm has no partition nosuch; it has gpu" in said.getvalue()
    assert set(daemon.world.managed) == {"1"}
    gone = Path("/nowhere/hetschedd.toml")
    log = open_log(LogForm.LOGFMT, said)
    assert _reloaded(daemon, before, lambda: read_configuration(gone), log) is before
    assert "/nowhere/hetschedd.toml: No such file or directory" in said.getvalue()
    assert "Errno" not in said.getvalue()


def test_a_slurm_that_does_not_answer_is_asked_for_its_partitions_later() -> None:
    class Away(FakeBackend):
        def site(self) -> SlurmSite:
            raise AwayError("nobody answers")

    daemon_of(Away(), Clock()).check_partitions(SETTINGS)


def test_a_reload_that_names_another_partition_can_be_taken_back() -> None:
    backend = FakeBackend(state(WAITING))
    daemon = daemon_of(backend, Clock(), mode=Mode.SHADOW)
    daemon.cycle()
    elsewhere = replace(SETTINGS, partitions=frozenset({"old"}))
    for settings, active in ((elsewhere, set()), (SETTINGS, {WAITING.id})):
        daemon.adopt(make_policy("las"), settings, Mode.SHADOW)
        report = daemon.cycle()
        assert report.violations == ()
        assert set(daemon.plan.entries) == active


def test_a_job_that_slurm_holds_since_it_could_not_launch_it_is_parked_and_let_go() -> None:
    failed = replace(
        PINNED, held=True, reason="launch failed requeued held", begin_s=1060.0, restarts=1
    )
    backend = FakeBackend(state(failed))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert backend.calls == [Park("1", 1, 60), Release("1")]
    # Who holds a job oneself keeps it held.
    backend.calls.clear()
    for reason in ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue"):
        backend.state = state(replace(failed, reason=reason))
        daemon.cycle()
    assert backend.calls == []


def test_a_job_whose_node_went_down_is_placed_again_only_when_its_processes_must_have_ended() -> (
    None
):
    running = replace(PINNED, state=JobState.RUNNING, nodes=("n0",), start_s=990.0)
    nodes = (node("n0", used=1), node("n1"))
    backend, clock = FakeBackend(state(running, nodes=nodes)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    requeued = replace(PINNED, restarts=1, begin_s=1121.0)
    down = (node("n0", condition=NodeCondition.DOWN), node("n1"))
    backend.state = state(requeued, nodes=down)
    daemon.cycle()
    assert backend.calls == [Park("1", 1, 60)]
    # The node is back before that.
    backend.state = state(replace(WAITING, restarts=1), nodes=(node("n0"), node("n1")))
    for _ in range(29):
        clock.now += 1
        daemon.cycle()
        assert not any(isinstance(call, Place) for call in backend.calls)
    assert "its node went down" in str(daemon.world.jobs["1"].blocked)
    clock.now += 2
    daemon.cycle()
    assert isinstance(backend.calls[-1], Place)


def test_a_job_that_slurm_does_not_know_any_more_is_told_once() -> None:
    backend = FakeBackend(state(WAITING))
    daemon = daemon_of(backend, Clock())
    assert daemon.cycle().lost == ()
    # Its id is handed out again.
    other = replace(WAITING, mark=WAITING.mark.replace("a1", "b2"))
    backend.state = state(other)
    assert [job.mark for job in daemon.cycle().lost] == [WAITING.mark]
    assert daemon.cycle().lost == ()
    # One that has ended is not lost, nor one whose comment an admin has changed in other ways.
    backend.state = state(replace(other, mark=other.mark.replace('"1,2"', '"1"')))
    assert daemon.cycle().lost == ()
    backend.state = state(replace(other, state=JobState.ENDED))
    assert daemon.cycle().lost == ()
    backend.state = state()
    assert daemon.cycle().lost == ()


@dataclass(slots=True)
class Flighty(FakeBackend):
    """Does not answer while it is told to be away."""

    away: bool = False

    def read(self) -> SlurmState:
        if self.away:
            raise AwayError("nobody answers")
        return FakeBackend.read(self)


def test_once_slurm_is_back_nothing_is_placed_before_its_nodes_have_registered() -> None:
    backend, clock = Flighty(), Clock()
    daemon = daemon_of(backend, clock)
    backend.away = True
    assert daemon.cycle().away
    backend.away, backend.state = False, state(replace(WAITING, begin_s=1014.0))
    for _ in range(10):
        daemon.cycle()
        clock.now += 1
    # It is kept back meanwhile.
    assert set(backend.calls) == {Push("1", 60)}
    daemon.cycle()
    assert isinstance(backend.calls[-1], Place)


def test_a_run_that_a_controller_has_forgotten_to_have_stopped_is_stopped_again() -> None:
    early = replace(
        WAITING,
        id="1",
        state=JobState.RUNNING,
        nodes=("n0",),
        gpus_per_node=4,
        mark=WAITING.mark.replace('"1,2"', '"4"').replace(":1,", ":4,")[:-1]
        + ',"can-checkpoint":true}',
        start_s=1000.0,
    )
    backend, clock = FakeBackend(state(early, nodes=(node("n0", used=4),))), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    daemon._carried_out((), Outcome((Requeue("1"),), (), ()), clock.now)
    assert backend.calls == []
    daemon.cycle()
    assert backend.calls == [Requeue("1")]
    # The next run is another.
    backend.state = state(replace(early, restarts=1), nodes=(node("n0", used=4),))
    backend.calls.clear()
    daemon.cycle()
    assert backend.calls == []


def test_a_read_that_waited_for_a_backup_controller_counts_as_slurm_having_been_away() -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = Daemon(
        backend,
        make_policy("fifo"),
        SETTINGS,
        mode=Mode.ENFORCE,
        clock=clock,
        sleep=lambda _: None,
        # Between any two looks at it six seconds pass.
        stopwatch=itertools.count(0.0, 6.0).__next__,
    )
    assert daemon.cycle().away == ""
    assert backend.calls == []


@pytest.mark.parametrize(("mode", "measured"), [(Mode.ENFORCE, ["1"]), (Mode.SHADOW, [])])
def test_in_shadow_nothing_is_measured_since_nobody_begins_or_ends_such_a_run(
    mode: Mode, measured: list[str], tmp_path: Path
) -> None:
    keyed = WAITING.mark.replace("}", ',"profile-key":"net","can-checkpoint":true}')
    waiting = replace(WAITING, mark=keyed)
    settings = replace(SETTINGS, spool=tmp_path)
    with Store.open(IN_MEMORY, StoreMode.WRITE) as store:
        daemon = Daemon(
            FakeBackend(state(waiting)),
            make_policy("hops"),
            settings,
            mode=mode,
            clock=Clock(),
            sleep=lambda _: None,
            store=store,
        )
        report = daemon.cycle()
        assert [profile.job for profile in daemon.plan.profiles] == measured
        assert report.decision is not None
        # A reload into the other mode is told apart, too.
        other = Mode.SHADOW if mode is Mode.ENFORCE else Mode.ENFORCE
        daemon.adopt(make_policy("hops"), settings, other)
        daemon.cycle()
        assert bool(daemon.plan.profiles) is (not measured)
