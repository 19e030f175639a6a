"""What runs in a pool and how far its trainings are, by its files alone.

A task counts once its gradient is a file. One that has trained on a member that is there is as good
as done: its gradient is on its way. One that a member has begun runs there, until it has trained or
the member is gone. So whatever is killed, what was under way is not begun, and no more is lost.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hetsched_core.errors import InputError
from hetsched_core.types import Trigger
from job_wrappers.pool.asked import SCHEMA, is_name
from slurm_plugin.pool.folder import OutcomeReader, Pool
from slurm_plugin.pool.naming import unknown_training
from slurm_plugin.pool.records import Began, Failed, Line, Result, Trained
from slurm_plugin.pool.standing import Standing
from slurm_plugin.pool.station import Station, Task
from slurm_plugin.pool.times import LearnedTimes

DEAD_S = 15.0
"""A member that has not shown itself for so long is gone; it shows itself every second."""

GIVEN_S = 10.0
"""A task that was to begin at once and has not for so long was dropped, and is planned anew."""

STEP_S = 10.0
"""A round of which nothing but its step is missing for so long has lost who was to make it."""

TOLD_S = 10.0
"""A task that need not run any more has ended, though its member has not told so for so long."""

GONE_S = 2.0
"""States that are not listed for so long are gone: a list made while they change may lack some."""

LATE_S = 1.0
"""What members told that are gone is looked for so often: another host may show it late."""

FORGOTTEN_S = 3600.0
"""One that has not for so long was killed, and does not come back."""


class PoolState:
    """All members and trainings of a pool, brought up to date by `observe`.

    Attributes:
        pool: the pool.
        stations: those members that are there, by id.
        begun: how many tasks each member has begun, by id, whether it is there or not.
        active: trainings that have not ended, by name.
        ended: names of those that have.
        times: what is known of how long tasks take.
        triggers: what has happened that may want a plan; taken away by whoever plans.
        moved: whether anything has happened since.
        now_s: when it was observed (UTC).
        problems: files that cannot be read, and why.
        failures: trainings that are to end, and why.
        unreadable: trainings that are none that can run, and why; they end, too.
        dead: members whose files are all that is left of them.
    """

    def __init__(self, pool: Pool, clock: Callable[[], float]) -> None:
        """Know nothing yet; `clock` gives seconds UTC."""
        self.pool = pool
        self.stations: dict[str, Station] = {}
        self.begun = Counter[str]()
        self.active: dict[str, Standing] = {}
        self.ended: set[str] = set()
        self.times = LearnedTimes()
        self.triggers: set[Trigger] = set()
        self.moved = False
        self.now_s = clock()
        self.problems: dict[str, str] = {}
        self.dead: set[str] = set()
        self.failures: dict[str, str] = {}
        self.unreadable: dict[str, str] = {}
        self._clock = clock
        self._outcomes = OutcomeReader(pool)
        self._pids = process_space()
        # A member that is silent for a while goes on with what it runs.
        self._known: dict[str, Station] = {}
        self._keys: dict[str, str] = {}
        self._late_s = 0.0
        self._early: dict[str, list[tuple[str, Failed | Trained]]] = {}

    def observe(self) -> None:
        """Look at all files once."""
        self.now_s = self._clock()
        self._find_trainings()
        there = self.find_members()
        if there != set(self.stations) or self.now_s >= self._late_s:
            self._late_s = self.now_s + LATE_S
            self._read_outcomes(self._outcome_files())
        self._read_outcomes(there)
        for id_ in sorted(set(self.stations) - there):
            self.stations.pop(id_).take_back()
            self._happened(Trigger.NODE)
        for station in self.stations.values():
            if station.given and self.now_s > station.since_s + GIVEN_S:
                station.take_back()
                self._happened(Trigger.NODE)
        for standing in self.active.values():
            self._progress(standing)
        # What has begun before a state was there is known with it: see `close`.
        self._read_outcomes(there)
        for station in self.stations.values():
            self._look_for_end(station)

    def close(self) -> Iterator[tuple[str, Result]]:
        """Yield how trainings ended that are done or have failed; each is taken out after that."""
        for name, why in list(self.unreadable.items()):
            yield name, Result(SCHEMA, why, "", (), self.now_s, self.now_s, 0)
            del self.unreadable[name]
            self.ended.add(name)
        for name, standing in list(self.active.items()):
            why = self.failures.get(name, "")
            if not why and (not standing.over or self._to_tell(name)):
                continue
            path = self.pool.state(name, standing.rounds)
            # Rounds that are done are known by their states; the first begins without one.
            there = standing.gone_s is None and (standing.rounds or path.exists())
            state = str(path.relative_to(self.pool.path)) if there else ""
            result = Result(
                *(SCHEMA, why, state, standing.loss(), standing.training.submit_s),
                *(self.now_s, standing.rounds),
            )
            yield name, result
            self._leave(name)

    @property
    def rejected(self) -> int:
        """How many lines of outcomes were none."""
        return self._outcomes.rejected

    def all_ended(self) -> bool:
        """Whether all trainings that are there now have ended, also those that cannot be read."""
        return self._named() <= self.ended

    def _named(self) -> set[str]:
        """Return the names of trainings; a file of another name is of none, and never ends."""
        found = self.pool.names("trainings")
        wrong = {name for name in found if not is_name(name)}
        for name in wrong - set(self.problems):
            self.problems[name] = f"{self.pool.path}/trainings: {name!r:.80} is no training's name"
        return found - wrong

    def _to_tell(self, name: str) -> bool:
        """Whether a member has yet to tell of a task, whose loss is to be in the result."""
        running = (s.running for s in self.stations.values() if not s.given)
        return any(task is not None and task[0] == name for task in running)

    def runs(self, name: str) -> list[Station]:
        """Return where tasks of a training's present round run, each once.

        One that runs a second time, since two orders have crossed, is none of them: to a policy it
        would stand for a task that nobody runs.
        """
        found: dict[Task, Station] = {}
        for _, station in sorted(self.stations.items()):
            task = station.running
            if task is not None and task[0] == name and not self.stale(task):
                found.setdefault(task, station)
        return list(found.values())

    def serving(self) -> dict[str, Station]:
        """Return the members that begin what they are given.

        Those in a task of a training that has ended are none of them: it may hang.
        """
        return {
            id_: station
            for id_, station in self.stations.items()
            if station.given or station.running is None or station.running[0] in self.active
        }

    def open(self, task: Task) -> bool:
        """Whether the round of a task has begun, or is about to."""
        standing = self.active.get(task[0])
        if standing is None:
            return False
        return task[1] <= standing.rounds

    def stale(self, task: Task) -> bool:
        """Whether a task is not to be begun any more: done, or of no training that is there."""
        standing = self.active.get(task[0])
        if standing is None or task[1] < standing.rounds or standing.over:
            return True
        return task[2] in standing.done(task[1])

    def _happened(self, trigger: Trigger) -> None:
        self.triggers.add(trigger)
        self.moved = True

    def _find_trainings(self) -> None:
        ended = self.pool.names("results")
        for name in sorted(ended & set(self.active)):
            self._leave(name)
        self.ended |= ended
        for name in sorted(self._named() - self.ended - set(self.active)):
            try:
                training = self.pool.training(name)
                # Where its rounds cannot be listed, it would begin from the first.
                self.pool.progress(name, training.scale)
            except OSError as error:
                self.problems[name] = str(error)
                continue
            except InputError as error:
                if self._under_way(name):
                    # A GPU may be at it, which has read the file when it was whole.
                    self.problems[name] = f"{error}; it is under way: mend the file"
                else:
                    self.unreadable[name] = str(error)
                continue
            self.problems.pop(name, None)
            self.active[name] = Standing(training)
            for id_, line in self._early.pop(name, []):
                self._tell(id_, line)
            self._happened(Trigger.ARRIVAL)

    def _under_way(self, name: str) -> bool:
        """Whether a training has a folder of rounds, which is opened: a name alone may be old."""
        try:
            with os.scandir(self.pool.path / "rounds" / name):
                return True
        except FileNotFoundError:
            return False

    def _leave(self, name: str) -> None:
        del self.active[name]
        self.failures.pop(name, None)
        self.ended.add(name)
        for station in self.stations.values():
            if station.running and station.running[0] == name and station.given:
                station.running, station.given = None, False
            station.dirty = station.dirty or any(task[0] == name for task in station.todo)
            station.todo = deque(task for task in station.todo if task[0] != name)
        self._happened(Trigger.END)

    def find_members(self) -> set[str]:
        """Return the ids of the members that are there, each of which is a station from now on."""
        there = set()
        # By the file system's clock: that of another host may differ.
        clock = self.pool.path / "clock"
        clock.touch(mode=0o600)
        present_s = clock.stat().st_mtime
        for id_ in sorted(self.pool.names("members")):
            try:
                station = self._known.get(id_) or Station(self.pool.member(id_))
                age_s = present_s - (self.pool.path / "members" / f"{id_}.json").stat().st_mtime
            except FileNotFoundError:
                continue
            except (OSError, InputError) as error:
                self.problems[id_] = str(error)
                if isinstance(error, OSError) and id_ in self.stations:
                    # Not seen just now; it is gone once it is silent for long.
                    there.add(id_)
                continue
            self.problems.pop(id_, None)
            self._known[id_] = station
            member = station.member
            dead = member.pids == self._pids and not _runs(member.pid)
            if dead or age_s > FORGOTTEN_S:
                self.dead.add(id_)
            if dead or age_s > DEAD_S:
                continue
            there.add(id_)
            if id_ not in self.stations:
                self.stations[id_] = station
                station.dirty = True
                self._happened(Trigger.NODE)
        return there

    def _read_outcomes(self, ids: Iterable[str]) -> None:
        for id_ in sorted(ids):
            for line in self._outcomes.new(id_):
                self._note(id_, line)

    def _outcome_files(self) -> list[str]:
        with os.scandir(self.pool.path / "outcomes") as entries:
            return [entry.name[:-6] for entry in entries if entry.name.endswith(".jsonl")]

    def _note(self, id_: str, line: Line) -> None:
        """Note what it says of the member, and what it says of the training once that is seen."""
        self.moved = True
        station = self._known.get(id_)
        if isinstance(line, Began):
            self.begun[id_] += 1
            if station is not None:
                station.begin((line.job, line.round, line.number), line.at_s)
            return
        if station is not None:
            station.end(line)
        if line.job in self.active or line.job in self.ended:
            self._tell(id_, line)
        else:
            # Another host may be shown the outcome before the training.
            self._early.setdefault(line.job, []).append((id_, line))

    def _tell(self, id_: str, line: Failed | Trained) -> None:
        """Note what a line says of a training."""
        standing = self.active.get(line.job)
        if isinstance(line, Failed):
            if standing is not None:
                self.failures.setdefault(line.job, line.why or "it failed")
            return
        key = self._key(line.job)
        if line.loss is not None and key:
            self.times.trained(key, line.gpu_type, line.train_s)
        if standing is None:
            return
        standing.trained[line.round, line.number] = id_
        standing.ended_s = max(standing.ended_s, line.at_s)
        if line.loss is not None:
            standing.tell(line.round, line.number, line.loss)

    def _key(self, name: str) -> str:
        """Return the key of a training, which may have ended."""
        if name not in self._keys:
            try:
                self._keys[name] = self.pool.training(name).key
            except (OSError, InputError):
                return ""
        return self._keys[name]

    def _look_for_step(self, standing: Standing) -> None:
        if len(standing.gradients) < standing.training.scale:
            standing.complete_s, standing.stepless = None, False
            return
        standing.complete_s = standing.complete_s or self.now_s
        # Of those that trained its tasks, the one that was to make the step may be gone.
        lost = not standing.trained or self.now_s - standing.complete_s > STEP_S
        if lost and not standing.stepless:
            self._happened(Trigger.NODE)
        standing.stepless = lost

    def _look_for_end(self, station: Station) -> None:
        """Take a task as ended whose line is lost: what comes of it is there already."""
        task = station.running
        if task is None or station.given or task[0] not in self.active or not self.stale(task):
            station.stale_s = None
            return
        station.stale_s = self.now_s if station.stale_s is None else station.stale_s
        if self.now_s > station.stale_s + TOLD_S:
            station.running = station.stale_s = None
            self._happened(Trigger.NODE)

    def _lost(self, standing: Standing, rounds: int) -> bool:
        """Whether states are gone that were there, which fails the training.

        Of the last two rounds both are there, so that one that is lost costs its round alone.
        """
        if rounds >= standing.rounds - 1:
            standing.gone_s = None
            return False
        standing.gone_s = self.now_s if standing.gone_s is None else standing.gone_s
        if self.now_s >= standing.gone_s + GONE_S:
            name = standing.training.name
            path = self.pool.state(name, standing.rounds).relative_to(self.pool.path)
            self.failures.setdefault(name, f"its state files are gone: {path}")
        return True

    def _progress(self, standing: Standing) -> None:
        training = standing.training
        before = standing.rounds, standing.gradients
        try:
            found = self.pool.progress(training.name, training.scale)
        except OSError as error:
            self.problems[training.name] = str(error)
            return
        self.problems.pop(training.name, None)
        if self._lost(standing, found[0]):
            return
        standing.rounds, standing.gradients = found
        standing.trained = {
            (round_, number): id_
            for (round_, number), id_ in standing.trained.items()
            if round_ >= standing.rounds and id_ in self.stations
        }
        if standing.rounds != before[0]:
            standing.complete_s = None
        self._look_for_step(standing)
        if (standing.rounds, standing.gradients) == before:
            return
        self.moved = True
        if standing.rounds > before[0] and standing.ended_s:
            try:
                closed_s = _written_s(self.pool.state(training.name, standing.rounds))
            except OSError:
                return
            self.times.synchronised(training.key, closed_s - standing.ended_s)


def cancel(pool: Pool, name: str) -> None:
    """End a training, as failed by its user's wish.

    Raises:
        InputError: there is none of this name, it has ended, or it cannot be read just now.
    """
    check_goes_on(pool, name)
    if _is_damaged(pool, name) and pool.end(name, _cancelled_unread(pool, name)):
        return
    state = PoolState(pool, time.time)
    state.observe()
    state.failures = {name: "cancelled"}
    for ended, result in state.close():
        if ended == name and pool.end(name, result):
            return
    why = state.problems.get(name, "it has ended meanwhile")
    raise InputError(f"training {name!r} was not cancelled: {why}")


def _is_damaged(pool: Pool, name: str) -> bool:
    """Whether a training's file can be read, and is none."""
    try:
        pool.training(name)
    except OSError:
        return False
    except InputError:
        return True
    return False


def _cancelled_unread(pool: Pool, name: str) -> Result:
    """Return the end of a training whose file cannot be read any more, but for its rounds."""
    rounds, _ = pool.progress(name, 1)
    path, now_s = pool.state(name, rounds), time.time()
    state = str(path.relative_to(pool.path)) if path.exists() else ""
    return Result(SCHEMA, "cancelled", state, (), now_s, now_s, rounds)


def check_goes_on(pool: Pool, name: str) -> None:
    """Refuse a training that is none of the pool's, or has ended.

    Raises:
        InputError: says which it is.
    """
    names, ended = pool.names("trainings"), pool.names("results")
    if name in names & ended:
        result = pool.result(name)
        how = f" as failed ({result.failed:.200})" if result is not None and result.failed else ""
        raise InputError(f"training {name!r} has ended{how}: there is nothing to cancel")
    if name not in names:
        raise unknown_training(name, names - ended)


def _written_s(path: Path) -> float:
    return path.stat().st_mtime


def process_space() -> str:
    """Return what names this machine and its process numbers, as its members do."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return f"{socket.gethostname()} {space}"


def _runs(pid: int) -> bool:
    """Whether a process of this machine is there and has not ended."""
    try:
        said = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return said.rpartition(")")[2].split()[0] not in "ZX"
