"""Policies that are each wrong in one way, for the suite to find out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from immutables import Map

from hetsched_core.placement import Packing, pack
from hetsched_core.policy import PolicyInfo
from hetsched_core.types import (
    ALL_SHAPES,
    Cluster,
    Entry,
    JobView,
    Knowledge,
    Placed,
    Plan,
    Reason,
    ReasonCode,
    Replan,
    Snapshot,
    Trigger,
    Waiting,
    submission_order,
)

NEVER = Waiting(Reason(ReasonCode.NEVER_FITS))
NO_ROOM = Waiting(Reason(ReasonCode.NO_ROOM))


@dataclass(frozen=True)
class Sound:
    """Serve jobs in the order of submission: keeps every contract."""

    info: ClassVar[PolicyInfo] = PolicyInfo(name="sound", summary="first come", paper="")

    def plan(self, snapshot: Snapshot) -> Plan:
        return pack(snapshot, snapshot.by_submission(), Packing.STRICT_ORDER, Replan())


def changed(plan: Plan, entries: Mapping[str, Entry]) -> Plan:
    """The plan made afresh, with some entries replaced."""
    return Plan(plan.entries.update(entries), replan=plan.replan)


@dataclass(frozen=True)
class Ignores(Sound):
    """Pack as if something about every job were not so, and as if none were held."""

    fields: Mapping[str, object]

    def plan(self, snapshot: Snapshot) -> Plan:
        blind = {
            job: replace(view, job=replace(view.job, **self.fields), blocked=None)  # type: ignore[arg-type]
            for job, view in snapshot.jobs.items()
        }
        return super().plan(replace(snapshot, jobs=Map(blind)))


@dataclass(frozen=True)
class IgnoresOfNodes(Sound):
    """Pack as if something about every node were not so."""

    fields: Mapping[str, object]

    def plan(self, snapshot: Snapshot) -> Plan:
        blind = {name: replace(view, **self.fields) for name, view in snapshot.nodes.items()}  # type: ignore[arg-type]
        return super().plan(replace(snapshot, nodes=Map(blind)))


@dataclass(frozen=True)
class Claims(Sound):
    """Answer with the plan, but with something else in it, right or wrong."""

    parts: Mapping[str, object]

    def plan(self, snapshot: Snapshot) -> Plan:
        return replace(super().plan(snapshot), **self.parts)  # type: ignore[arg-type]


class WaitsForAll(Sound):
    """Let whoever does not fit keep all behind it waiting, whatever nodes they may use."""

    def plan(self, snapshot: Snapshot) -> Plan:
        plan = super().plan(snapshot)
        kept, late = {}, False
        for view in snapshot.by_submission():
            entry = plan.entries[view.id]
            late |= isinstance(entry, Waiting) and view.blocked is None and entry != NEVER
            if late and view.waiting and isinstance(entry, Placed):
                kept[view.id] = NO_ROOM
        return changed(plan, kept)


class Raises(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Fail when four jobs are active."""
        if len(snapshot.jobs) == 4:
            raise ZeroDivisionError("four jobs")
        return super().plan(snapshot)


class AnswersNothing(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Return no plan."""
        return None  # type: ignore[return-value]


@dataclass(frozen=True)
class Says(Sound):
    """Tell whoever waits with one word another."""

    told: Waiting
    instead: Waiting

    def plan(self, snapshot: Snapshot) -> Plan:
        plan = super().plan(snapshot)
        return changed(plan, {j: self.instead for j, e in plan.entries.items() if e == self.told})


class Starves(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Never serve jobs whose id ends in 3."""
        plan = super().plan(snapshot)
        return changed(plan, dict.fromkeys((j for j in snapshot.jobs if j.endswith("3")), NO_ROOM))


class Thrashes(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Take every job off its GPUs again a second after it has started."""
        replan = Replan(at_s=snapshot.now + 1.0)
        if any(view.runs for view in snapshot.jobs.values()):
            return Plan(Map(dict.fromkeys(snapshot.jobs, NO_ROOM)), replan=replan)
        return replace(super().plan(replace(snapshot, previous=Plan(Map()))), replan=replan)


class StopsWhatMayNotBeStopped(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Let all jobs compete at each start of a round, now the first first, now the last."""
        for job, view in snapshot.jobs.items():
            blind = replace(view, job=replace(view.job, preemptible=True))
            snapshot = replace(snapshot, jobs=snapshot.jobs.set(job, blind))
        starts_round = Trigger.ROUND in snapshot.triggers
        return pack(
            snapshot,
            snapshot.by_submission()[:: -1 if snapshot.round.index % 2 else 1],
            Packing.PREEMPT if starts_round else Packing.FILL,
            Replan(on=frozenset(Trigger)),
        )


@dataclass(frozen=True)
class OrdersBy(Sound):
    """Order by something of each job, without saying that it must know it."""

    what: str

    def plan(self, snapshot: Snapshot) -> Plan:
        def key(view: JobView) -> tuple[float, tuple[float, str]]:
            seen = view if hasattr(view, self.what) else view.job
            return getattr(seen, self.what) or 0.0, submission_order(view)

        return pack(
            snapshot, sorted(snapshot.jobs.values(), key=key), Packing.STRICT_ORDER, Replan()
        )


class KnowsSizes(OrdersBy):
    info: ClassVar[PolicyInfo] = replace(Sound.info, knows=frozenset({Knowledge.TOTAL_SAMPLES}))


class InOrderOfASet(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Serve the jobs in the order in which a set holds them."""
        order = [snapshot.jobs[job] for job in set(snapshot.jobs)]
        return pack(snapshot, order, Packing.FILL, Replan())


@dataclass(frozen=True)
class Counts(Sound):
    """Tells apart how often it was asked."""

    asked: list[int] = field(default_factory=list)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Serve in turn the first and the last first."""
        self.asked.append(1)
        order = snapshot.by_submission()[:: 1 if len(self.asked) % 2 else -1]
        return pack(snapshot, order, Packing.FILL, Replan())


class WritesIntoMemory(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Change the notes of the plan before."""
        notes = snapshot.previous.memory
        if isinstance(notes, dict) and notes:
            notes["plans"] = notes["plans"] + 1
        plan = super().plan(snapshot)
        return replace(plan, memory={"version": 1, "plans": 0})


class WritesIntoSpeeds(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Change the estimates that it is shown."""
        table = snapshot.speeds.table(snapshot.speeds.profiles[0])
        table.one_node[...] = 0.999 * table.one_node
        return super().plan(snapshot)


class NeedsItsNotes(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Fail where the plan in force has jobs and the notes have not."""
        known = snapshot.previous.memory["jobs"] if snapshot.previous.entries else []
        plan = super().plan(snapshot)
        return replace(plan, memory={"version": 1, "jobs": [known, len(plan.entries)][-1:]})


class StartsAfresh(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Place running jobs anew when the plan in force is not known."""
        if snapshot.previous.entries:
            return super().plan(snapshot)
        idle = {job: replace(view, runs=()) for job, view in snapshot.jobs.items()}
        return super().plan(replace(snapshot, jobs=Map(idle)))


class GivesAnotherReason(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Tell held jobs that there is no room."""
        held = [job for job, view in snapshot.jobs.items() if view.blocked is not None]
        return changed(super().plan(snapshot), dict.fromkeys(held, NO_ROOM))


class IgnoresLostShapes(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Pack as if who was told a place could still have every shape."""
        jobs = snapshot.jobs
        for job, entry in snapshot.previous.entries.items():
            if isinstance(entry, Placed) and job in jobs:
                shaped = replace(jobs[job].job, shapes=ALL_SHAPES)
                jobs = jobs.set(job, replace(jobs[job], job=shaped))
        return super().plan(replace(snapshot, jobs=jobs))


class NeverAgain(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Let whoever was told "never" be told so for good."""
        before = snapshot.previous.entries
        lost = [job for job, entry in before.items() if entry == NEVER and job in snapshot.jobs]
        return changed(super().plan(snapshot), dict.fromkeys(lost, NEVER))


class StopsForNobody(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Take the first job that runs off its GPUs now and then, and leave them idle."""
        plan = super().plan(snapshot)
        runs = [view.id for view in snapshot.by_submission() if view.configuration is not None]
        if not runs or len(snapshot.jobs) % 3:
            return plan
        return changed(plan, {runs[0]: NO_ROOM})


class MovesForNobody(Sound):
    def plan(self, snapshot: Snapshot) -> Plan:
        """Pack everybody anew when a round starts, from the last node on."""
        if Trigger.ROUND not in snapshot.triggers:
            plan = super().plan(snapshot)
            return replace(plan, replan=Replan(on=frozenset(Trigger)))
        nodes = tuple(reversed(tuple(snapshot.cluster)))
        jobs = {
            job: replace(view, runs=()) if view.job.preemptible else view
            for job, view in snapshot.jobs.items()
        }
        turned = replace(snapshot, cluster=Cluster(nodes), jobs=Map(jobs), previous=Plan(Map()))
        return replace(super().plan(turned), replan=Replan(on=frozenset(Trigger)))


class SwapsEquals(Sound):
    triggers: ClassVar[frozenset[Trigger]] = frozenset({Trigger.ROUND})

    def plan(self, snapshot: Snapshot) -> Plan:
        """Serve in turn the first and the last first, whenever it is asked so."""
        again = bool(self.triggers & snapshot.triggers)
        odd = (snapshot.round.index + int(snapshot.now)) % 2
        order = snapshot.by_submission()[:: -1 if again and odd else 1]
        return pack(
            snapshot,
            order,
            Packing.PREEMPT if again else Packing.FILL,
            Replan(on=frozenset(Trigger)),
        )


class SwapsWithinRounds(SwapsEquals):
    info: ClassVar[PolicyInfo] = replace(Sound.info, takes_turns=True)
    triggers: ClassVar[frozenset[Trigger]] = frozenset(Trigger)


@dataclass
class NotFrozen:
    info: ClassVar[PolicyInfo] = Sound.info

    def plan(self, snapshot: Snapshot) -> Plan:
        return Sound().plan(snapshot)


def described(kind: str, /, **info: Any) -> Sound:
    """A sound policy with something else in its description."""
    found: Sound = type(kind, (Sound,), {"info": replace(Sound.info, **info)})()
    return found
