"""The lease: however daemons are stopped and started, no two act at a time."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, cycle, repeat

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from slurm_plugin.backend import (
    AwayError,
    BackendError,
    Change,
    Drop,
    Hold,
    RefusedError,
    Requeue,
    SlurmReservation,
    SlurmSite,
    SlurmState,
    TakenError,
    hold_number,
)
from slurm_plugin.daemon.process.lease import ACT, RENEW, TAKE, Identity, Lease
from tests.slurm_plugin.daemon.fake_slurm import SETTINGS, node

SLACK = SETTINGS.slack_s
ACTION = Requeue("1")
NOBODY: Identity = ("", 0.0)


class Theatre:
    """Lets several run by turns on a clock of its own: each until it sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._due: list[tuple[float, int, threading.Semaphore]] = []
        self._serial, self._stage = count(), threading.Semaphore(0)
        self._faults: list[BaseException] = []
        self._over = False

    def sleep(self, seconds: float) -> None:
        """Let others go on for so long."""
        woken = threading.Semaphore(0)
        heapq.heappush(self._due, (self.now + seconds, next(self._serial), woken))
        self._stage.release()
        woken.acquire()
        if self._over:
            raise SystemExit

    def play(self, parts: Sequence[Callable[[], None]], seconds: float) -> None:
        """Let all parts run for so long; what one raises is raised."""

        def begun(part: Callable[[], None]) -> None:
            try:
                self.sleep(0.0)
                part()
            except SystemExit:
                pass
            except BaseException as error:
                self._faults.append(error)
            self._stage.release()

        threads = [threading.Thread(target=begun, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
            self._stage.acquire()
        until = self.now + seconds
        while self._due and not self._faults and self._due[0][0] < until:
            self.now, _, woken = heapq.heappop(self._due)
            woken.release()
            self._stage.acquire()
        self._over = True
        for _, _, woken in self._due:
            woken.release()
        for thread in threads:
            thread.join()
        if self._faults:
            raise self._faults[0]


@dataclass
class Controller:
    """A slurmctld that has reservations, and notes by which of them something was done.

    One of an even number stays, ended, where it is deleted, as if jobs ran in it.
    """

    clock: Callable[[], float] = lambda: 1000.0
    kept: dict[str, SlurmReservation] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    acts: list[tuple[float, str, Identity]] = field(default_factory=list)

    def read(self) -> SlurmState:
        self.kept = {
            name: each
            for name, each in self.kept.items()
            if each.end_s > self.clock() or hold_number(name) % 2 == 0
        }
        return SlurmState((node("n0"),), {}, tuple(self.kept.values()))

    def hold(self, hold: Hold, now: float) -> None:
        end_s = float(int(now) + hold.seconds)
        if hold.name in self.kept:
            if hold.owner:
                raise TakenError("Duplicate reservation name")
            self.kept[hold.name] = replace(self.kept[hold.name], end_s=end_s)
        else:
            self.kept[hold.name] = SlurmReservation(hold.name, hold.nodes, now, end_s)
            self.owners[hold.name] = hold.owner

    def drop(self, name: str) -> None:
        if hold_number(name) % 2:
            self.kept.pop(name, None)
        elif name in self.kept:
            self.kept[name] = replace(self.kept[name], end_s=self.clock())


def none_waits(_: float) -> None:
    """Let no time pass."""


@dataclass
class Link:
    """How one daemon reaches the controller: requests and answers take the times that are drawn."""

    slurm: Controller
    host: str = "a"
    sleep: Callable[[float], None] = none_waits
    there: Iterator[float] = field(default_factory=lambda: repeat(0.0))
    back: Iterator[float] = field(default_factory=lambda: repeat(0.0))
    ahead_s: float = 0.0
    away: bool = False
    by: Callable[[], Identity] = lambda: NOBODY

    def read(self) -> SlurmState:
        self._go()
        found = self.slurm.read()
        self.sleep(next(self.back))
        return found

    def site(self) -> SlurmSite:
        raise NotImplementedError

    def script(self, job: str) -> str:
        raise NotImplementedError

    def apply(self, change: Change) -> None:
        by = self.by()
        self._go()
        match change:
            case Hold():
                try:
                    self.slurm.hold(change, self.slurm.clock() + self.ahead_s)
                finally:
                    self.sleep(next(self.back))
                return
            case _:
                self.slurm.acts.append((self.slurm.clock(), self.host, by))
                if isinstance(change, Drop):
                    self.slurm.drop(change.name)
        self.sleep(next(self.back))

    def _go(self) -> None:
        if self.away:
            raise AwayError("nobody answers")
        self.sleep(next(self.there))

    def lease(self) -> Lease:
        clock = self.slurm.clock
        lease = Lease(
            self,
            SETTINGS,
            self.host,
            owner_of=self.slurm.owners.__getitem__,
            clock=clock,
            now=lambda: clock() + self.ahead_s,
        )
        self.by = lambda: lease.own or NOBODY
        return lease


def daemon(link: Link, pauses: Iterator[float], done: Iterator[str]) -> None:
    """Do what the process does: wait for its turn, act in cycles, begin again when it is lost."""
    while True:
        lease = link.lease()
        try:
            while not had(lease):
                link.sleep(3.0)
            while True:
                link.sleep(1.0 + next(pauses))
                try:
                    lease.read()
                    for what in next(done):
                        link.sleep(next(pauses))
                        lease.apply(CHANGES[what](lease))
                except BackendError:
                    continue
        except InputError:
            link.sleep(10.0)


def had(lease: Lease) -> bool:
    try:
        return lease.watch()
    except BackendError:
        return False


CHANGES: dict[str, Callable[[Lease], Change]] = {
    "a": lambda _: ACTION,
    "h": lambda _: Hold("hetsched", ("n0",), SLACK),
    "d": lambda lease: Drop(lease.own[0] if lease.own else "hetsched"),
}

short = st.floats(0.0, 2.0)
anything = short | st.floats(0.0, 4.0 * SLACK)
"""Pauses: most are short, in some the process stands still."""


def lists(each: st.SearchStrategy[float]) -> st.SearchStrategy[list[float]]:
    return st.lists(each, min_size=1, max_size=40)


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a host meets: how long its requests and answers take, when it stands still.

    `done` is what it does in each cycle: act, hold other nodes, give them back. Its clock is ahead
    of Slurm's by `ahead_s`.
    """

    there: list[float]
    back: list[float]
    pauses: list[float]
    done: list[str]
    ahead_s: float


hosts = st.builds(
    Drawn,
    # One that takes longer is what is left (docs/live/standby.md).
    lists(short | st.floats(0.0, (TAKE - ACT) * SLACK * 0.99)),
    lists(anything),
    lists(anything),
    st.lists(st.text("ah", max_size=4) | st.just("ad"), min_size=1, max_size=10),
    st.floats(-10.0, 10.0),
)


def played(drawn: Sequence[Drawn], seconds: float = 40.0 * SLACK) -> Controller:
    """Let daemons run as drawn, each on a host of its own."""
    theatre = Theatre()
    slurm = Controller(lambda: theatre.now)
    parts = []
    for host, each in zip("abc", drawn, strict=False):
        ways = cycle(each.there), cycle(each.back)
        link = Link(slurm, host, theatre.sleep, *ways, each.ahead_s)
        parts.append(partial(daemon, link, cycle(each.pauses), cycle(each.done)))
    theatre.play(parts, seconds)
    return slurm


# To make what fails smaller would take minutes.
@settings(max_examples=60, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.lists(hosts, min_size=2, max_size=3))
def test_no_two_act_at_a_time_whatever_pauses_are_drawn(drawn: list[Drawn]) -> None:
    acts = played(drawn).acts
    holders = [(host, by) for _, host, by in acts if by != NOBODY]
    # Whoever has lost it never acts by it again.
    turns = [each for at, each in enumerate(holders) if at == 0 or holders[at - 1] != each]
    assert len(turns) == len(set(turns)), acts


# -- what each rule is for -------------------------------------------------------------------------


class Stage:
    """A slurmctld, and daemons that act when they are told to, on a clock that is set."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slurm = Controller(lambda: self.now)
        self.links = {host: Link(self.slurm, host) for host in "ab"}
        self.a, self.b = (link.lease() for link in self.links.values())
        assert self.a.watch()
        assert not self.b.watch()

    def pass_s(self, seconds: float, *reading: Lease) -> None:
        """Let so much time pass, in which b looks every second, and others read."""
        for _ in range(int(seconds)):
            self.now += 1.0
            for lease in reading:
                lease.read()
            if lease_is_free(self.b):
                return


def lease_is_free(lease: Lease) -> bool:
    return lease.own is None and had(lease)


def test_another_takes_over_within_the_slack_and_no_sooner_than_the_lease_is_old() -> None:
    stage = Stage()
    stage.pass_s(10 * SLACK, stage.a)
    assert list(stage.slurm.kept) == ["hetsched"]
    assert stage.b.watched == "a (hetsched) schedules; ask there"
    stage.a.read()
    last_s = stage.now
    stage.pass_s(SLACK)
    assert stage.b.own == ("hetsched-2", stage.now)
    assert (TAKE - RENEW) * SLACK <= stage.now - last_s <= TAKE * SLACK + 1
    # The hold has not ended meanwhile, in which Slurm would have started what waits.
    assert "hetsched" in stage.slurm.kept


def test_one_that_wakes_changes_nothing_and_ends() -> None:
    stage = Stage()
    stage.pass_s(SLACK)
    there = dict(stage.slurm.kept)
    for change in (ACTION, Drop("hetsched-2"), Hold("hetsched", ("n0",), SLACK), ACTION):
        with pytest.raises(AwayError):
            stage.a.apply(change)
    with pytest.raises(InputError, match=r"another daemon has taken over \(hetsched-2\)"):
        stage.a.read()
    assert stage.slurm.acts == []
    assert stage.slurm.kept == there
    # As it is started anew it waits as the other one did.
    assert not stage.links["a"].lease().watch()


def test_one_whose_slurm_was_away_for_long_goes_on_at_once_if_nobody_has_taken_over() -> None:
    for ended in (False, True):
        stage = Stage()
        stage.now += 2 * SLACK if ended else SLACK - 1
        with pytest.raises(AwayError, match="too old"):
            stage.a.apply(ACTION)
        stage.a.read()
        stage.a.apply(ACTION)
        assert stage.a.own == ("hetsched" if ended else "hetsched-2", stage.now)


def test_one_that_is_renewed_in_the_moment_before_another_takes_over_keeps_it() -> None:
    stage = Stage()
    stage.pass_s(TAKE * SLACK - 1)
    link = stage.links["b"]

    def renewed(seconds: float) -> None:
        if seconds:
            stage.slurm.hold(Hold("hetsched", ("n0",), SLACK), stage.now)

    stage.now += 1.0
    # On the way of the second call, by which it is made.
    link.sleep, link.there = renewed, iter([0.0, 1.0, 0.0, 0.0])
    assert not stage.b.watch()
    assert stage.b.own is None
    assert stage.slurm.kept["hetsched-2"].end_s == stage.now


def test_one_that_takes_over_as_the_other_has_made_its_own_anew_gives_way() -> None:
    stage = Stage()
    stage.pass_s(TAKE * SLACK - 1)
    link = stage.links["b"]

    def long_on_its_way(seconds: float) -> None:
        stage.now += seconds
        if seconds > 1.0:
            # Slurm has forgotten the first one, and numbers begin again.
            stage.a.read()
            stage.a.apply(Hold("hetsched", ("n0",), SLACK))
            stage.a.apply(ACTION)

    link.sleep, link.there = long_on_its_way, iter([1.0, SLACK / 3, 0.0, 0.0])
    assert not stage.b.watch()
    assert stage.b.own is None
    assert [(host, by[0]) for _, host, by in stage.slurm.acts if by != NOBODY] == [
        ("a", "hetsched")
    ]


def test_one_whose_renewal_is_refused_reads_all_the_same() -> None:
    stage = Stage()
    stage.now += RENEW * SLACK
    gone = stage.slurm.hold

    def refuse(hold: Hold, now: float) -> None:
        if "n0" in hold.nodes:
            raise RefusedError("Invalid node name specified")
        gone(hold, now)

    stage.slurm.hold = refuse  # type: ignore[method-assign]
    for _ in range(3):
        assert stage.a.read().nodes
        stage.now += 1.0
    with pytest.raises(RefusedError, match="Invalid node name"):
        stage.a.apply(Hold("hetsched", ("n0",), SLACK))
    stage.a.apply(Hold("hetsched", ("n1",), SLACK))
    stage.a.read()
    assert stage.a.own == ("hetsched", 1000.0)


def test_one_whose_renewal_arrives_after_another_has_taken_over_sees_it() -> None:
    stage = Stage()
    stage.pass_s(TAKE * SLACK - 1)
    link = stage.links["a"]
    link.sleep, link.there = stage.pass_s, iter([2.0, 0.0])
    with pytest.raises(InputError, match=r"taken over \(hetsched-2\)"):
        stage.a.read()


def test_while_slurm_does_not_answer_nobody_s_time_runs_out() -> None:
    stage = Stage()
    stage.pass_s(TAKE * SLACK - 1)
    stage.links["b"].away = True
    stage.pass_s(5)
    stage.links["b"].away = False
    stage.pass_s(10)
    assert stage.b.own is None


def test_the_longer_of_two_slacks_counts() -> None:
    stage, long = Stage(), 4 * SLACK
    stage.slurm.hold(Hold("hetsched", ("n0",), long), stage.now)
    stage.slurm.owners["hetsched"] = f"a:{long}"
    stage.b = stage.links["b"].lease()
    stage.pass_s(TAKE * long)
    assert stage.b.own is None
    stage.pass_s(2)
    assert stage.b.own is not None


def test_nodes_that_are_given_back_are_held_anew_under_the_next_number() -> None:
    stage = Stage()
    stage.pass_s(SLACK)
    stage.b.apply(Drop("hetsched-2"))
    for _ in range(5):
        stage.now += 1.0
        stage.b.read()
        with pytest.raises(AwayError):
            stage.b.apply(ACTION)
    stage.b.apply(Hold("hetsched", ("n0",), SLACK))
    stage.b.apply(ACTION)
    assert stage.b.own == ("hetsched-3", stage.now)


def test_a_reservation_that_somebody_deletes_is_made_anew() -> None:
    stage = Stage()
    stage.slurm.kept.clear()
    stage.now += 1.0
    stage.a.read()
    with pytest.raises(AwayError):
        stage.a.apply(ACTION)
    stage.a.apply(Hold("hetsched", ("n0",), SLACK))
    stage.a.apply(ACTION)
    assert stage.a.own == ("hetsched", stage.now)


def test_a_reservation_that_slurm_refuses_is_told() -> None:
    class Refusing(Controller):
        def hold(self, hold: Hold, now: float) -> None:
            raise RefusedError("Access denied")

    with pytest.raises(RefusedError, match="Access denied"):
        Link(Refusing()).lease().watch()
