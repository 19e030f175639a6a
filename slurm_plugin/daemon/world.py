"""The live counterpart of the simulated world: what Slurm shows, as views that snapshots carry.

Nothing here decides. A view is replaced only when something about it changed, so that a snapshot
costs by what changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from immutables import Map

from hetsched_core.errors import described as described_error
from hetsched_core.policy import News
from hetsched_core.store import JobProgress
from hetsched_core.types import (
    Cluster,
    Configuration,
    ExecutionModel,
    JobView,
    Knowledge,
    NodeCondition,
    NodeView,
    Placement,
    Reason,
    ReasonCode,
    Run,
    Shape,
    Speeds,
    Trigger,
    Window,
)
from slurm_plugin.backend import (
    Cancel,
    JobState,
    Release,
    RequeueEnded,
    SlurmJob,
    SlurmNode,
    SlurmSite,
    SlurmState,
    hold_named,
)
from slurm_plugin.daemon.jobs.candidates import candidates
from slurm_plugin.daemon.jobs.copies import (
    ELEMENTS,
    Elements,
    blocked,
    in_turn,
    jobs_of_copies,
    left_of,
    startable,
)
from slurm_plugin.daemon.jobs.descriptions import Descriptions
from slurm_plugin.daemon.jobs.gangs import (
    element_id,
    job_of,
    jobs_of_gangs,
    lacks_members,
    leftover,
    of_leader,
    own_pieces,
    pieces_held,
)
from slurm_plugin.daemon.jobs.intake import Intake
from slurm_plugin.daemon.jobs.kept_back import QUOTA_S, Ban
from slurm_plugin.daemon.jobs.managed import LINGERS_S, ManagedJob, blocked_by, editable
from slurm_plugin.daemon.jobs.quotas import Quotas
from slurm_plugin.daemon.jobs.remembered_requests import Requests
from slurm_plugin.daemon.jobs.runs import as_run, run_of
from slurm_plugin.daemon.jobs.service import Unseen
from slurm_plugin.daemon.jobs.site_standing import Standing
from slurm_plugin.daemon.jobs.slurm_order import Line
from slurm_plugin.daemon.jobs.slurm_reasons import of_job
from slurm_plugin.daemon.nodes.closures import Closures
from slurm_plugin.daemon.nodes.hold import hold_name
from slurm_plugin.daemon.nodes.kept_for_gpus import has_place
from slurm_plugin.daemon.nodes.managed_nodes import ManagedNodes
from slurm_plugin.daemon.nodes.node_use import Use, node_views, not_ours, used_by
from slurm_plugin.daemon.odd_records import sound
from slurm_plugin.daemon.settings import DaemonSettings
from slurm_plugin.daemon.site_warnings import site_warnings
from slurm_plugin.daemon.speeds import LiveSpeeds

_PART = "only a part of it runs"
_MISSED = "some of its elements are queued again"
_ELSEWHERE = "it has not ended where it ran, or runs on nodes that are not managed"
_OVER = Reason(ReasonCode.NOT_PLANNED, detail="it has ended, and has not yet freed its GPUs")
_FAILED = "its node went down, and its last run may still be ending there"


class LiveWorld:
    """Everything that was true at the last read.

    Attributes:
        managed_nodes: what is known of the nodes.
        jobs: as in a snapshot.
        managed: job id -> what is known of each job of ours.
        records: all of Slurm's records of jobs.
        estimates: what the speeds come from.
        news: what has come about since the last plan was asked for.
        lost: jobs as they were seen last that the last read did not show any more, though they had
            not ended.
        ended: jobs that the last read showed to have ended.
        unseen: what became of jobs that ended while no daemon looked, by what names them for good.
        forgotten: what queues jobs again of which Slurm has forgotten that it stopped them.
        leaderless: the end of elements of gangs whose leader has ended, and of copies of jobs that
            are over.
        odd: records that are left out, such as `job 12`, each with what is wrong.
        elements: how elements of arrays follow placements.
        requests: what jobs ask for.
        intake: what becomes of jobs that are not managed.
        hold: the name of the reservation.
        comers: what enters the nodes since the last read.
    """

    def __init__(
        self,
        settings: DaemonSettings,
        knows: frozenset[Knowledge],
        estimates: LiveSpeeds | None = None,
        elements: Elements = ELEMENTS[ExecutionModel.GANG],
    ) -> None:
        """Start with nothing known but the estimates of speeds."""
        self.estimates = estimates or LiveSpeeds()
        self.elements = elements
        self.managed_nodes = ManagedNodes()
        self.jobs: Map[str, JobView] = Map()
        self.managed: dict[str, ManagedJob] = {}
        self.records: Mapping[str, SlurmJob] = {}
        self.news = News(nodes_changed=True)
        self.lost: list[SlurmJob] = []
        self.ended: dict[str, SlurmJob] = {}
        self.unseen: dict[str, Unseen] = {}
        self.forgotten: tuple[RequeueEnded, ...] = ()
        self.leaderless: tuple[Cancel, ...] = ()
        self.hold = hold_named(1)
        self._now = 0.0
        self.odd: dict[str, str] = {}
        self._quotas = Quotas()
        self._closures = Closures(lambda nodes: self.managed_nodes.where.with_parts(nodes))
        self._descriptions = Descriptions(
            settings, knows, self.estimates, self.managed_nodes, self._closures
        )
        self.requests = Requests()
        self.intake = Intake(self.requests, self._descriptions, self._closures, self.managed_nodes)
        self.comers = self._closures.comers()
        self._line = Line()

    def observe(
        self, state: SlurmState, now: float, ask: Callable[[SlurmJob], bool] = lambda _: False
    ) -> None:
        """Take in one read.

        Args:
            state: what it shows.
            now: seconds UTC.
            ask: looks up in Slurm what a new job asks for, for `requests`; where it cannot, that
                job and those behind it are taken in another time.
        """
        self.records = state.jobs
        self.intake.delays.keep(state.jobs)
        self._line = Line(state.jobs.values(), self.standing.tiers, self._line.blamed)
        read = sound(state)
        state, self.odd = self._with_stops(read.state, now), dict(read.odd)
        before, first = used_by(self._leaving_in_time(now)), self.cluster is None
        self._now = now
        cluster = self._observe_cluster(state.nodes, now)
        self.hold = hold_name(state.reservations, now)
        of_copies, others = jobs_of_copies(candidates(self.requests.marked(state.jobs), now))
        jobs, left = jobs_of_gangs(others)
        jobs |= of_copies
        given_up = [job for job in jobs.values() if job.over and self._gives_up(job, now)]
        jobs |= {job.id: replace(job, state=JobState.ENDED) for job in given_up}
        state = replace(state, jobs=jobs)
        if first:
            self.unseen = self.requests.unseen(jobs, now)
        self.leaderless = (
            *leftover(
                (job for job in left if self.managed_nodes.may_have(job)),
                jobs,
                now,
                self._settings.grace_s,
            ),
            *left_of(job for job in of_copies.values() if self.managed_nodes.may_have(job)),
        )
        if any(what.startswith("job ") for what in self.odd):
            # The leader of these may be among what is left out.
            self.leaderless = ()
        self.intake.begin()
        self.lost, self.ended = [], {}
        for job_id in list(self.managed):
            seen = state.jobs.get(job_id)
            known = self.managed[job_id]
            if seen is not None and seen.state is not JobState.ENDED:
                request = known.request if seen is known.slurm else self.requests.of(seen)
                if request is not None and request.key == known.request.key:
                    ends = seen.state is JobState.COMPLETING
                    if not ends and not self.managed_nodes.may_have(seen):
                        # It runs elsewhere, or its user wants other nodes for it.
                        self._leave(job_id)
                    continue
                seen = None
            if seen is not None:
                told = seen.end_s is not None and seen.end_s <= now
                self.ended[job_id] = seen if told else replace(seen, end_s=known.ending_s)
            if seen is None and not self._behind(known.slurm):
                self.lost.append(known.slurm)
            self._leave(job_id)
        self._note_failed(state, now)
        ours = tuple(node for node in state.nodes if node.name in self.managed_nodes.hosts)
        moved = self._closures.note(state, self.records.values(), ours, self.standing.slurm, now)
        self.comers = self._closures.comers()
        self.odd |= {f"node {name}": said for name, said in self._closures.launches.words.items()}
        self._observe_closures(changed=moved)
        for seen in state.jobs.values():
            if seen.state is JobState.ENDED:
                continue
            if seen.id in self.managed or self.managed_nodes.may_have(seen):
                self._take_in(seen, cluster, now)
        for seen in self.intake.unread:
            # The elements of an array have one script.
            try:
                if self.requests.of(seen) is None and not ask(seen):
                    break
            except Exception as error:
                self._leave_out(seen.id, error)
                continue
            self._take_in(seen, cluster, now)
        odd = {
            what.removeprefix("job "): words
            for what, words in self.odd.items()
            if what.startswith("job ")
        }
        self.intake.aside |= {job: f"it is left out: {words}" for job, words in odd.items()}
        self.requests.forget_all_but(state.jobs.keys() | odd.keys())
        for job_id in [job_id for job_id in self.warnings if job_id not in state.jobs]:
            del self.warnings[job_id]
        self._observe_nodes(ours, before)
        self._look_for_room()

    @property
    def _settings(self) -> DaemonSettings:
        return self._descriptions.settings

    @property
    def warnings(self) -> dict[str, str]:
        """What is wrong with what jobs say of themselves, by job id."""
        return self._descriptions.warnings

    @property
    def cluster(self) -> Cluster | None:
        """What the managed nodes have; None before the first read."""
        return self.managed_nodes.cluster

    @property
    def nodes(self) -> Map[str, NodeView]:
        """How they stand."""
        return self.managed_nodes.views

    @property
    def asleep(self) -> frozenset[str]:
        """Those that are powered down."""
        return self.managed_nodes.asleep

    @property
    def windows(self) -> tuple[Window, ...]:
        """When nodes are reserved for others."""
        return self._closures.windows

    @property
    def speeds(self) -> Speeds | None:
        """The speeds that policies are told of; None while no cluster is known."""
        return self.estimates.speeds

    @property
    def suspended(self) -> frozenset[str]:
        """The jobs that somebody has suspended in Slurm."""
        ours = self.managed.items()
        return frozenset(job for job, k in ours if k.slurm.state is JobState.SUSPENDED)

    def units(self) -> Iterator[ManagedJob]:
        """Yield what is started and stopped by itself: jobs, and elements of jobs of copies."""
        for known in self.managed.values():
            yield from known.copies.values() or (known,)
            yield from known.surplus.values()

    def hopeful(self) -> Iterator[ManagedJob]:
        """Yield what waits for nothing but room, and could start if nothing else were there."""
        shut = frozenset(name for name, view in self.nodes.items() if not view.open)
        cluster, speeds = self.cluster, self.speeds
        if cluster is None or speeds is None:
            return
        for known in self.managed.values():
            reason = known.blocked
            # One that Slurm has not started where it was placed may lack what others took there.
            free = reason is None or (
                reason.code is ReasonCode.NOT_STARTED and not of_job(known.slurm.reason)
            )
            if free and not known.runs and has_place(known.job, cluster, speeds, self.shapes, shut):
                yield known

    def unit(self, changed: str) -> ManagedJob | None:
        """Return the job, or the element of a job of copies, that was changed under an id."""
        known = self.job(changed)
        return known and (known.copies | known.surplus).get(changed, known)

    def job(self, changed: str) -> ManagedJob | None:
        """Return the job that was changed, or of which an element was, under an id."""
        return self.managed.get(changed) or self.managed.get(job_of(changed))

    def placed(self, changed: str, placement: Placement) -> None:
        """Note what a job was placed for; its next run there is that."""
        known = self.unit(changed)
        if known is not None:
            for each in (known, *known.copies.values()):
                each.placement = placement

    def entered(self, jobs: Collection[str], now: float) -> None:
        """Note which jobs, and elements, Slurm has taken into the reservation."""
        self._closures.launches.placed(jobs)
        for known in filter(None, map(self.job, jobs)):
            self.intake.delays.entered(known.slurm.id, now)

    def stopped(self, changed: str, now: float) -> None:
        """Note that Slurm has taken the stop of a present run, a gang's leader's: it is over."""
        known = self.unit(changed)
        if known is not None and (known.slurm.id == changed or of_leader(changed)):
            known.stopped, known.stopped_s = known.slurm.restarts, now

    def refused(self, changed: str, words: str, now: float) -> None:
        """Note that Slurm has not taken a placement: it is not to be asked in every cycle."""
        known = self.unit(changed)
        if known is not None:
            # What was asked stands before its answer.
            reason = Reason(ReasonCode.REFUSED, detail=words.rpartition(": ")[2])
            known.kept_back.everywhere = Ban(reason, now + QUOTA_S)

    def heard(self, told: Iterable[JobProgress], now: float) -> None:
        """Take in how far jobs are, by nonce."""
        by_nonce = {known.request.mark.nonce: known for known in self.managed.values()}
        for progress in told:
            known = by_nonce.get(progress.nonce)
            if known is None or known.progress == progress or self.cluster is None:
                continue
            known.settle(now, self.cluster)
            known.hear(progress)
            self._descriptions.renew(known, known.slurm)
            unit = known.leading
            unit.progress, run = progress, unit.run
            if run is not None:
                again = as_run(
                    unit,
                    run.number,
                    run.configuration,
                    run.since_s,
                    run.draining_until_s,
                    self.speeds,
                    self._settings,
                    begun=run.begun,
                )
                unit.run = self.elements.named(again, self.cluster)
            self._show(known)

    def observe_site(self, site: SlurmSite) -> None:
        """Take in what the site has set."""
        first = self.standing.slurm is None
        if self.standing.observe(site):
            self._describe_all()
            if not first:
                # Others of those that wait may have their turn now.
                self.news.nodes_changed = True
                self.news.triggers.add(Trigger.NODE)

    @property
    def standing(self) -> Standing:
        """Where jobs stand by the site's word."""
        return self._descriptions.standing

    @property
    def sited(self) -> bool:
        """Whether a site's word is known."""
        return self.standing.site is not None

    @property
    def site_warnings(self) -> dict[str, str]:
        """What is wrong with how the site is set up, by what it is about; "" for nothing."""
        site = self.standing.slurm
        return {} if site is None else site_warnings(site, self._settings)

    @property
    def shapes(self) -> frozenset[Shape]:
        """The shapes that all jobs take."""
        return self._descriptions.shapes(self.managed.values())

    def warned(self, jobs: Collection[str], stopping: Collection[str], now: float) -> None:
        """Note which jobs, or copies, have just been told to save their state.

        Of those that are not to be stopped any more it is forgotten.
        """
        for known in self.units():
            job_id = known.slurm.id
            if job_id in jobs:
                known.warned_s = now
            elif known.warned_s is not None and job_id not in stopping:
                known.warned_s = None
            else:
                continue
            if job_id in self.jobs:
                self.news.changed.add(job_id)

    def limit_min(self, known: ManagedJob, configuration: Configuration) -> int | None:
        """Return the time limit of a run there, in minutes; None for a job without one."""
        return self._descriptions.limit_min(known, configuration)

    def served(self) -> None:
        """Forget what a plan has been asked for."""
        self.news = News()
        self.estimates.retain({known.job.profile for known in self.managed.values()})

    def adopt(
        self,
        settings: DaemonSettings,
        knows: frozenset[Knowledge],
        elements: Elements = ELEMENTS[ExecutionModel.GANG],
    ) -> None:
        """Go on under other settings, for a policy that may know other things of a job."""
        self._descriptions.settings, self._descriptions.knows = settings, knows
        if elements is not self.elements:
            # What the runs of a job of copies are is another thing from now on.
            self.elements = elements
            for job_id in [job for job, known in self.managed.items() if known.request.mark.copies]:
                self._leave(job_id)
        for job_id, known in list(self.managed.items()):
            if not self.intake.takes(known.slurm, known.request):
                self._leave(job_id)
        self._describe_all()

    # -- the cluster -------------------------------------------------------------------------------

    def _observe_cluster(self, nodes: tuple[SlurmNode, ...], now: float) -> Cluster:
        before = self.cluster
        moved = self.managed_nodes.observe(nodes, self._settings)
        self.odd |= self.managed_nodes.odd
        self._descriptions.look(now)
        cluster = self.cluster
        assert cluster is not None
        if cluster is not before:
            for known in self.managed.values():
                if before is not None:
                    known.settle(now, before)
                # Of a run on a node that is gone nothing more can be said.
                for unit in (known, *known.copies.values()):
                    if unit.run and any(name not in cluster for name, _ in unit.run.configuration):
                        unit.run = None
            self.news.nodes_changed = True
            self.estimates.on(cluster)
            self.news.triggers.add(Trigger.NODE)
        if moved or cluster is not before:
            self._describe_all()
        return cluster

    def _behind(self, was: SlurmJob) -> bool:
        """Whether one that is not shown is a waiting element of an array that is there.

        It waits behind others again, or was cancelled, of which Slurm shows nothing.
        """
        array = job_of(was.id)
        waited = was.state is JobState.PENDING and array != was.id
        return waited and any(job.array == array for job in self.records.values())

    def _observe_nodes(self, nodes: tuple[SlurmNode, ...], before: Mapping[str, Use]) -> None:
        ending, left_out = self._ending(), self._closures.left_out
        assert self.cluster is not None
        units = self.units()
        views = node_views(nodes, self.cluster, self.nodes, units, before, ending, left_out)
        for was, view in self.managed_nodes.renew(views):
            if not_ours(view) != not_ours(was):
                self.news.nodes_changed = True
                self.news.triggers.add(Trigger.NODE)

    def _ending(self) -> Mapping[str, int]:
        """Return the GPUs of jobs that end and are no runs of ours any more, by node."""
        ours = {
            each.id
            for unit in self.units()
            if unit.run is not None
            for each in (unit.slurm, *unit.slurm.members)
        }
        found: Counter[str] = Counter()
        for seen in self.records.values():
            if seen.state is JobState.COMPLETING and seen.nodes and seen.id not in ours:
                found.update(dict(own_pieces(seen)))
        return found

    def _observe_closures(self, *, changed: bool) -> None:
        """Open and close nodes to jobs."""
        for known in self.managed.values():
            if not (changed or known.closed.until_s <= self._now):
                continue
            before = known.closed.nodes
            self._descriptions.close(known)
            if known.closed.nodes != before:
                self._show(known)
                self.news.triggers.add(Trigger.NODE)

    # -- jobs --------------------------------------------------------------------------------------

    def _with_stops(self, state: SlurmState, now: float) -> SlurmState:
        """Let runs end to go on later that Slurm was told to stop, and has forgotten it."""
        ending = {}
        for known in self.units():
            if known.stopped is None:
                continue
            seen = state.jobs.get(element_id(known.slurm))
            if seen is not None and known.lost_its_stop(seen, now) and self.requests.knows(seen):
                ending[seen.id] = replace(seen, state=JobState.COMPLETING, outcome="")
        self.forgotten = tuple(map(RequeueEnded, ending))
        return replace(state, jobs={**state.jobs, **ending}) if ending else state

    def _leaving_in_time(self, now: float) -> Iterator[ManagedJob]:
        """Yield what is ours on the nodes: not what ends for so long that it may never."""
        return (unit for unit in self.units() if not unit.lingers(now, self._settings.grace_s))

    def _gives_up(self, seen: SlurmJob, now: float) -> bool:
        """Whether nothing is to wait for the GPUs of a job that is over: they count as others'."""
        known = self.managed.get(seen.id)
        units = () if known is None else known.copies.values() or (known,)
        return all(unit.lingers(now, self._settings.grace_s) for unit in units)

    def _take_in(self, seen: SlurmJob, cluster: Cluster, now: float) -> None:
        try:
            self._observe_job(seen, cluster, now)
        except Exception as error:
            self._leave_out(seen.id, error)

    def _leave_out(self, job_id: str, error: Exception) -> None:
        """Go on without a job of which nothing can be made: it must not cost all others theirs."""
        self.odd[f"job {job_id}"] = described_error(error)
        if job_id in self.managed:
            self._leave(job_id)

    def _leave(self, job_id: str) -> None:
        known = self.managed.pop(job_id)
        self._lift(known.slurm)
        self.news.disturbed |= not known.runs
        self.news.vacated |= {name for run in known.runs for name, _ in run.configuration}
        self.jobs = self.jobs.delete(job_id) if job_id in self.jobs else self.jobs
        self.news.changed.discard(job_id)
        self.news.gone.add(job_id)
        self.news.triggers.add(Trigger.END)

    def _lift(self, ended: SlurmJob) -> None:
        """Forget limits in which a job had its part: others may come under them now."""
        self._quotas.lift(ended)
        for known in self.managed.values():
            known.kept_back.limit_may_be_gone(ended, known.slurm, self._now)

    def _note_failed(self, state: SlurmState, now: float) -> None:
        """Let jobs wait whose node went down under them: Slurm queues them again at once.

        Their processes may still be ending there, and a second run beside them would undo what they
        save. On the same node that takes longer: until the end of the old run has been told to
        slurmctld, a new one there is killed with it, by the job's id, or Slurm drains the node.
        """
        down = frozenset(n.name for n in state.nodes if n.condition is NodeCondition.DOWN)
        if not down:
            return
        down = self.managed_nodes.where.with_parts(down)
        shown = {each.id: each for job in state.jobs.values() for each in (job, *job.copies)}
        for known in self.units():
            seen, was = shown.get(known.slurm.id), known.slurm
            # That of a gang reads as ending while others of its elements still run.
            again = seen is not None and seen.state in (JobState.PENDING, JobState.COMPLETING)
            held = {name for name, _ in pieces_held(was)}
            if again and was.state is not JobState.PENDING and not down.isdisjoint(held):
                until_s = now + min(self._settings.grace_s, QUOTA_S)
                why = Reason(ReasonCode.RESTARTING, detail=_FAILED)
                known.kept_back.everywhere = Ban(why, until_s)
                there = self.managed_nodes.where.with_parts(down & held)
                known.kept_back.on_nodes |= dict.fromkeys(there, Ban(why, until_s + LINGERS_S))

    def _observe_job(self, seen: SlurmJob, cluster: Cluster, now: float) -> None:
        if self._closures.is_outdated(seen):
            seen = replace(seen, reason="None")
        known = self.managed.get(seen.id)
        put_off = known is not None and seen.begin_s != known.slurm.begin_s
        if known is not None and put_off and self.intake.delays.begins_later(seen, now, known):
            # By its user, or by Slurm since it ended by itself: it waits for nothing until then.
            self._leave(seen.id)
            known = None
        if known is None:
            known = self.intake.take(seen, now)
            if known is not None:
                self.managed[seen.id] = known
                self.news.triggers.add(Trigger.ARRIVAL)
        elif seen is known.slurm and not self._quotas and known.only_waits and not seen.licenses:
            return
        if known is not None:
            self._renew(known, seen, cluster, now)

    def _renew(self, known: ManagedJob, seen: SlurmJob, cluster: Cluster, now: float) -> None:
        """Take in how a job stands, and make its view anew if policies see anything else."""
        was = known.slurm
        edited = seen is not was and editable(seen) != editable(was)
        reread = edited or seen.id not in self.jobs
        if reread:
            asked = known.whole
            self._reread(known, seen, was)
            if seen.state is JobState.PENDING and known.whole != asked:
                # It may start now where it could not, or goes before others that it was behind.
                self.news.triggers.add(Trigger.ARRIVAL)
        held, could = known.runs, startable(known)
        if seen.copies:
            known.settle(now, cluster)
        observed = self._observe_copies if seen.copies else self._observe_run
        run, kept_back = observed(known, seen, cluster, now)
        kept_back = _OVER if seen.over else kept_back
        holds = known.runs if seen.copies else (run,) if run is not None else ()
        able = startable(known)
        before = held, could, known.blocked, known.slurm.restarts
        same = before == (holds, able, kept_back, seen.restarts)
        if same and not edited and seen.id in self.jobs:
            known.slurm = seen
            if seen.state is JobState.SUSPENDED:
                # What policies see grows from when it was settled last.
                known.settle(now, cluster)
                self.jobs = self.jobs.set(seen.id, known.seen(self._settings.restart_s(None)))
            return
        known.settle(now, cluster, seen.end_s)
        paused = (was.state is JobState.SUSPENDED) != (seen.state is JobState.SUSPENDED)
        # There is nothing to plan anew before it has freed its GPUs, which is an end.
        ends = seen.over and was.state is JobState.RUNNING
        if paused or (not ends and (known.blocked, could) != (kept_back, able)):
            self.news.triggers.add(Trigger.ARRIVAL)
        if len(holds) < len(held):
            if was.state is not JobState.PENDING:
                self._lift(was)
            self.news.triggers.add(Trigger.END)
            self.news.disturbed = True
            known.placement = None
        told = known.progress
        if told and run and known.run and known.run.begun != run.begun and told.run == run.number:
            # What it has done stays; it does no more while an element of it is queued again.
            known.hear(replace(told, samples=known.samples, at_s=now))
        known.slurm, known.run, known.blocked = seen, run, kept_back
        if held or holds or seen.copies or not reread:
            self._descriptions.renew(known, seen)
        if known.first_start_s is None:
            known.first_start_s = min((run.since_s for run in holds if run.begun), default=None)
        if seen.id not in self.jobs:
            known.go_on(self.requests.service(seen), now, cluster)
        if (service := known.service(cluster)) is not None:
            self.requests.serve(seen.id, service)
        self._show(known)

    def let_go(self) -> Iterator[Release]:
        """Yield the end of each hold that Slurm has put on what it could not launch."""
        for known in self.units():
            if known.slurm.lost_reservation and known.request.placed(known.slurm):
                # As an earlier daemon had placed it.
                self._closures.launches.placed((known.slurm.id,))
        units = (known.slurm for known in self.units())
        without_gpus = (job for job, *_ in self.intake.without_gpus)
        return self._closures.launches.let_go((*units, *without_gpus))

    def _observe_run(
        self, known: ManagedJob, seen: SlurmJob, cluster: Cluster, now: float
    ) -> tuple[Run | None, Reason | None]:
        """Return what a job holds, and why it may not start."""
        run = run_of(known, seen, cluster, self.speeds, self._settings, self._line, now)
        if run is not None:
            run = self.elements.named(run, cluster)
        named, lacks = blocked_by(seen), None
        if seen.licenses and seen.state is JobState.PENDING:
            lacks = self._closures.lacks(seen)
        # What others have is counted, and free again the moment that they end.
        named = lacks or named
        kept_back = self._quotas.of(known, seen, None if lacks else named, cluster, now) or named
        if kept_back is None and run is None:
            kept_back = self._descriptions.shut_out(known, now)
        if seen.state is JobState.PENDING:
            kept_back = known.refused or kept_back
        if seen.array and seen.state is JobState.RUNNING and run is None:
            kept_back = Reason(ReasonCode.RESTARTING, detail=_PART)
        elif kept_back is None and lacks_members(seen):
            kept_back = Reason(ReasonCode.RESTARTING, detail=_MISSED)
        elif kept_back is None and run is None and seen.state is not JobState.PENDING:
            # Slurm would not start it, and no other job could have the place that it was given.
            kept_back = Reason(ReasonCode.RESTARTING, detail=_ELSEWHERE)
        return run, kept_back

    def _observe_copies(
        self, known: ManagedJob, seen: SlurmJob, cluster: Cluster, now: float
    ) -> tuple[Run | None, Reason | None]:
        """Take in the elements of a job of copies.

        Returns:
            its run where there may be only one, and why none of them may start.
        """
        before = known.copies | known.surplus
        known.copies, known.surplus = {}, {}
        most = self.elements.runs_per_job
        for number, each in enumerate(in_turn(seen.copies)):
            unit = before.get(each.id) or ManagedJob(
                known.request, each, known.whole, known.job, observed_s=now
            )
            unit.job, unit.request = known.job, known.request
            unit.progress = None if each.element else known.progress
            if most is None or number < most:
                unit.run, unit.blocked = self._observe_run(unit, each, cluster, now)
                known.copies[each.id] = unit
            else:
                # What it still holds is nothing of the job's: it counts as others' until it ends.
                unit.run = None
                known.surplus[each.id] = unit
            unit.slurm = each
        return (known.runs[0] if most == 1 and known.runs else None), blocked(known)

    def _reread(self, known: ManagedJob, seen: SlurmJob, was: SlurmJob) -> None:
        """Take in what a job asks for beside GPUs, which its user may change while it waits."""
        self.requests.edited(seen, was)
        request = self.requests.of(seen)
        if request is not None:
            known.request = request
        self._descriptions.renew(known, seen)

    def _look_for_room(self) -> None:
        """Let jobs wait for another of their partitions that has room, where theirs has none."""
        self._descriptions.look(self._now)
        if elsewhere := self._descriptions.better_elsewhere(self.managed.values()):
            self._describe_all(elsewhere)
            self.news.triggers.add(Trigger.ARRIVAL)

    def _show(self, known: ManagedJob) -> None:
        """Let policies see a job as it is now."""
        job_id = known.slurm.id
        self.jobs = self.jobs.set(job_id, known.seen(self._settings.restart_s(None)))
        self.news.changed.add(job_id)

    def _describe_all(self, jobs: Collection[ManagedJob] | None = None) -> None:
        """Make all jobs anew, or these, after a change that is none of theirs."""
        for known in list(self.managed.values()) if jobs is None else jobs:
            job_id = known.slurm.id
            try:
                self._descriptions.renew(known, known.slurm)
            except Exception as error:
                self._leave_out(job_id, error)
                continue
            self._show(known)
