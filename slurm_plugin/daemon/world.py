"""The live counterpart of the simulated world: what Slurm shows, as views that snapshots carry.

Nothing here decides. A view is replaced only when something about it changed, so that a snapshot
costs by what changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from immutables import Map

from hetsched_core.errors import InputError
from hetsched_core.errors import described as described_error
from hetsched_core.store import JobProgress
from hetsched_core.types import (
    ALL_SHAPES,
    Cluster,
    Configuration,
    ExecutionModel,
    JobView,
    Knowledge,
    Node,
    NodeCondition,
    NodeView,
    Placement,
    Reason,
    ReasonCode,
    Run,
    Shape,
    Speeds,
    Trigger,
)
from slurm_plugin.backend import Cancel, JobState, SlurmJob, SlurmNode, SlurmSite, SlurmState
from slurm_plugin.backend.gres import UNTYPED
from slurm_plugin.daemon.accepted import accepted
from slurm_plugin.daemon.checkpoint import may_move
from slurm_plugin.daemon.copies import (
    ELEMENTS,
    Elements,
    blocked,
    in_turn,
    leader_of,
    left_of,
    parted,
    startable,
    waits_for,
)
from slurm_plugin.daemon.gangs import (
    finishing,
    folded,
    job_of,
    leftover,
    missed,
    of_leader,
    pieces_held,
    spares,
)
from slurm_plugin.daemon.managed import (
    LIMITS,
    QUOTA_S,
    Managed,
    blocked_by,
    described,
    editable,
    to_begin_later,
)
from slurm_plugin.daemon.mark import Mark, read_mark, read_nonce
from slurm_plugin.daemon.node_use import Use, node_views, not_ours, used_by
from slurm_plugin.daemon.runs import as_run, run_of
from slurm_plugin.daemon.settings import LIVE_SHAPES, DaemonSettings, Mode
from slurm_plugin.daemon.site import site_warnings
from slurm_plugin.daemon.sound import sound
from slurm_plugin.daemon.speeds import LiveSpeeds
from slurm_plugin.daemon.terms import limit_min, needs_of

_PART = "only a part of it runs"
_MISSED = "some of its elements are queued again"
_ELSEWHERE = "it has not ended where it ran, or runs on nodes that are not managed"
_FAILED = "its node went down, and its last run may still be ending there"


class LiveWorld:
    """Everything that was true at the last read.

    Attributes:
        cluster, nodes, jobs, speeds: as in a snapshot.
        managed: job id -> what is known of each job of ours.
        later: jobs that their users let start later only, and no policy is told of.
        estimates: what the speeds come from.
        triggers: reasons to plan that have come up and not been served.
        changed, gone, nodes_changed: what differs since the last plan was asked for.
        warnings: what was wrong with jobs that carry our mark, by job id.
        lost: jobs as they were seen last that the last read did not show any more, though they had
            not ended.
        leaderless: the end of elements of gangs whose leader has ended, and of copies of jobs that
            are over.
        odd: records that are left out, such as `job 12`, each with what is wrong.
        elements: how elements of arrays follow placements.
    """

    def __init__(
        self,
        settings: DaemonSettings,
        knows: frozenset[Knowledge],
        estimates: LiveSpeeds | None = None,
        mode: Mode = Mode.ENFORCE,
        elements: Elements = ELEMENTS[ExecutionModel.GANG],
    ) -> None:
        """Start with nothing known but the estimates of speeds."""
        self._settings, self._mode = settings, mode
        self.estimates = estimates or LiveSpeeds()
        self._knows, self.elements = knows, elements
        self._site: SlurmSite | None = None
        self.cluster: Cluster | None = None
        self.nodes: Map[str, NodeView] = Map()
        self.jobs: Map[str, JobView] = Map()
        self.managed: dict[str, Managed] = {}
        self.later: dict[str, JobView] = {}
        self.triggers: set[Trigger] = set()
        self.changed: set[str] = set()
        self.gone: set[str] = set()
        self.nodes_changed = True
        self.warnings: dict[str, str] = {}
        self.lost: list[SlurmJob] = []
        self.leaderless: tuple[Cancel, ...] = ()
        self.odd: dict[str, str] = {}

    def observe(self, state: SlurmState, now: float) -> None:
        """Take in one read."""
        read = sound(state)
        state, self.odd = read.state, dict(read.odd)
        before = used_by(self._leaving_in_time(now))
        cluster = self._observe_cluster(state.nodes, now)
        forked, others = parted(state.jobs)
        jobs, left = folded(others)
        state = replace(state, jobs={**jobs, **forked})
        ours = self._settings.partitions
        self.leaderless = (
            *leftover((j for j in left if j.partition in ours), jobs, now, self._settings.grace_s),
            *left_of(j for j in forked.values() if j.partition in ours),
        )
        if any(what.startswith("job ") for what in self.odd):
            # The leader of these may be among what is left out.
            self.leaderless = ()
        self.lost = []
        for job_id in list(self.managed):
            seen = state.jobs.get(job_id)
            known = self.managed[job_id]
            same = seen is not None and seen.mark == known.slurm.mark
            if seen is not None and same and seen.state is not JobState.ENDED:
                continue
            if seen is None or (not same and read_nonce(seen.mark) != known.mark.nonce):
                self.lost.append(known.slurm)
            self._leave(job_id)
        self._note_failed(state, now)
        # Anew each time: others may look at the old one.
        self.later = {}
        for seen in state.jobs.values():
            if seen.partition in self._settings.partitions and seen.state is not JobState.ENDED:
                try:
                    self._observe_job(seen, cluster, now)
                except Exception as error:
                    self._leave_out(seen.id, error)
        for job_id in [job_id for job_id in self.warnings if job_id not in state.jobs]:
            del self.warnings[job_id]
        self._observe_nodes(state.nodes, before)

    @property
    def speeds(self) -> Speeds | None:
        """The speeds that policies are told of; None while no cluster is known."""
        return self.estimates.speeds

    @property
    def suspended(self) -> frozenset[str]:
        """The jobs that somebody has suspended in Slurm."""
        ours = self.managed.items()
        return frozenset(job for job, k in ours if k.slurm.state is JobState.SUSPENDED)

    def units(self) -> Iterator[Managed]:
        """Yield what is started and stopped by itself: jobs, and elements of jobs of copies."""
        for known in self.managed.values():
            yield from known.copies.values() or (known,)
            yield from known.surplus.values()

    def unit(self, changed: str) -> Managed | None:
        """Return the job, or the element of a job of copies, that was changed under an id."""
        known = self.managed.get(job_of(changed))
        return known and (known.copies | known.surplus).get(changed, known)

    def placed(self, changed: str, placement: Placement) -> None:
        """Note what a job was placed for; its next run there is that."""
        known = self.unit(changed)
        if known is not None:
            for each in (known, *known.copies.values()):
                each.placement = placement

    def stopped(self, changed: str) -> None:
        """Note that Slurm has taken the stop of a present run, a gang's leader's: it is over."""
        known = self.unit(changed)
        if known is not None and (known.slurm.id == changed or of_leader(changed)):
            known.stopped = known.slurm.restarts

    def refused(self, changed: str, words: str, now: float) -> None:
        """Note that Slurm has not taken a placement: it is not to be asked in every cycle."""
        known = self.unit(changed)
        if known is not None:
            # What was asked stands before its answer.
            reason = Reason(ReasonCode.REFUSED, detail=words.rpartition(": ")[2])
            known.quota = reason, now + QUOTA_S

    def heard(self, told: Iterable[JobProgress], now: float) -> None:
        """Take in how far jobs are, by nonce."""
        by_nonce = {known.mark.nonce: known for known in self.managed.values()}
        for progress in told:
            known = by_nonce.get(progress.nonce)
            if known is None or known.progress == progress or self.cluster is None:
                continue
            known.settle(now, self.cluster)
            known.hear(progress)
            self._describe(known, known.slurm)
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
            self.jobs = self.jobs.set(known.slurm.id, known.seen(self._settings.restart_cost_s))
            self.changed.add(known.slurm.id)

    def observe_site(self, site: SlurmSite) -> None:
        """Take in what the site has set."""
        before, self._site = self._site, site
        if site.limits is None and before is not None:
            self._site = replace(site, limits=before.limits)
        if before is None or before.limits != self._site.limits:
            self._describe_all()

    @property
    def site_warnings(self) -> dict[str, str]:
        """What is wrong with how the site is set up, by what it is about; "" for nothing."""
        return {} if self._site is None else site_warnings(self._site, self._settings)

    @property
    def private_jobs(self) -> bool:
        """Whether Slurm shows users their own jobs alone."""
        return self._site is not None and self._site.private_jobs

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

    def limit_min(self, known: Managed, configuration: Configuration) -> int | None:
        """Return the time limit of a run there, in minutes; None for a job without one."""
        if known.limit_s is None or self.cluster is None or self.speeds is None:
            return None
        longest_s = self._site.longest_s.get(known.slurm.partition) if self._site else None
        return limit_min(
            known.limit_s,
            known.job,
            known.mark.default_count,
            configuration,
            self.cluster,
            self.speeds,
            longest_s,
        )

    def gpu_type(self, nodes: Iterable[str]) -> str:
        """Return the type of GPUs that nodes share, as Slurm names it; "" if it names none.

        A job that asks for it comes under limits on that type.
        """
        assert self.cluster is not None
        types = {self.cluster[name].gpu_type for name in nodes}
        return types.pop() if len(types) == 1 and UNTYPED not in types else ""

    def served(self) -> None:
        """Forget what a plan has been asked for."""
        self.triggers.clear()
        self.changed, self.gone, self.nodes_changed = set(), set(), False
        self.estimates.retain({known.job.profile for known in self.managed.values()})

    def adopt(
        self,
        settings: DaemonSettings,
        knows: frozenset[Knowledge],
        mode: Mode,
        elements: Elements = ELEMENTS[ExecutionModel.GANG],
    ) -> None:
        """Go on under other settings, for a policy that may know other things of a job."""
        self._settings, self._knows, self._mode = settings, knows, mode
        if elements is not self.elements:
            # What the runs of a job of copies are is another thing from now on.
            self.elements = elements
            for job_id in [job for job, known in self.managed.items() if known.mark.copies]:
                self._leave(job_id)
        for job_id, known in list(self.managed.items()):
            if known.slurm.partition not in settings.partitions or not self._is_ours(known.mark):
                self._leave(job_id)
        self._describe_all()

    # -- the cluster -------------------------------------------------------------------------------

    def _observe_cluster(self, nodes: tuple[SlurmNode, ...], now: float) -> Cluster:
        described = tuple(
            Node(node.name, node.gpus[0][0], node.gpus[0][1], node.cpus, node.memory_mb)
            for node in nodes
            # Of a node with several types nothing can be pinned to one of them by count alone.
            if len(node.gpus) == 1 and self._manages(node)
        )
        if self.cluster is None or self.cluster.nodes != described:
            before, self.cluster = self.cluster, Cluster(described, "slurm")
            for known in self.managed.values():
                if before is not None:
                    known.settle(now, before)
                # Of a run on a node that is gone nothing more can be said.
                for unit in (known, *known.copies.values()):
                    if unit.run and any(
                        name not in self.cluster for name, _ in unit.run.configuration
                    ):
                        unit.run = None
            self.nodes = Map({node.name: NodeView(node) for node in described})
            self.nodes_changed = True
            self.estimates.on(self.cluster)
            self.triggers.add(Trigger.NODE)
            self._describe_all()
        return self.cluster

    def _manages(self, node: SlurmNode) -> bool:
        """Whether jobs of ours can run on a node at all: it is in a partition that is managed."""
        own = node.partitions
        return own is None or not own.isdisjoint(self._settings.partitions)

    def _observe_nodes(self, nodes: tuple[SlurmNode, ...], before: Mapping[str, Use]) -> None:
        for new in node_views(nodes, self.nodes, self.units(), before):
            name = new.node.name
            view = self.nodes[name]
            if new == view:
                continue
            self.nodes = self.nodes.set(name, new)
            if not_ours(new) != not_ours(view):
                self.nodes_changed = True
                self.triggers.add(Trigger.NODE)

    # -- jobs --------------------------------------------------------------------------------------

    def _leaving_in_time(self, now: float) -> Iterator[Managed]:
        """Yield what is ours on the nodes: not what ends for so long that it may never."""
        return (unit for unit in self.units() if not unit.lingers(now, self._settings.grace_s))

    def _leave_out(self, job_id: str, error: Exception) -> None:
        """Go on without a job of which nothing can be made: it must not cost all others theirs."""
        self.odd[f"job {job_id}"] = described_error(error)
        if job_id in self.managed:
            self._leave(job_id)

    def _leave(self, job_id: str) -> None:
        del self.managed[job_id]
        self.jobs = self.jobs.delete(job_id) if job_id in self.jobs else self.jobs
        self.changed.discard(job_id)
        self.gone.add(job_id)
        self.triggers.add(Trigger.END)

    def _note_failed(self, state: SlurmState, now: float) -> None:
        """Let jobs wait whose node went down under them: Slurm queues them again at once.

        Their processes may still be ending there, and a second run beside them would undo what they
        save; where it is on the same node, Slurm drains the node and holds the job.
        """
        down = {node.name for node in state.nodes if node.condition is NodeCondition.DOWN}
        if not down:
            return
        shown = {each.id: each for job in state.jobs.values() for each in (job, *job.copies)}
        for known in self.units():
            seen, was = shown.get(known.slurm.id), known.slurm
            # That of a gang reads as ending while others of its elements still run.
            again = seen is not None and seen.state in (JobState.PENDING, JobState.COMPLETING)
            held = {name for name, _ in pieces_held(was)}
            if again and was.state is not JobState.PENDING and not down.isdisjoint(held):
                waits_s = min(self._settings.grace_s, QUOTA_S)
                known.quota = Reason(ReasonCode.RESTARTING, detail=_FAILED), now + waits_s

    def _observe_job(self, seen: SlurmJob, cluster: Cluster, now: float) -> None:
        known = self.managed.get(seen.id)
        if known is None:
            mark = self._mark(seen)
            if mark is None:
                return
            if not self._is_ours(mark):
                self.warnings[seen.id] = (
                    f"submitted while hetsched_enforce did not name partition {seen.partition}, it "
                    "starts by itself and is not managed"
                )
                return
            if mark.begin_s > now:
                if seen.state is JobState.PENDING:
                    self.later[seen.id] = to_begin_later(seen, mark)
                return
            waited_s = max(0.0, now - max(mark.submitted_s or seen.submit_s, mark.begin_s))
            known = Managed(mark, seen, described(seen, mark), observed_s=now, wait_s=waited_s)
            known.limit_s = mark.limit_s
            self.managed[seen.id] = known
            self.triggers.add(Trigger.ARRIVAL)
        was = known.slurm
        edited = editable(seen) != editable(was)
        if edited or seen.id not in self.jobs:
            self._reread(known, seen)
        held, could = known.runs, startable(known)
        if seen.copies:
            known.settle(now, cluster)
        observed = self._observe_copies if seen.copies else self._observe_run
        run, kept_back = observed(known, seen, cluster, now)
        holds = known.runs if seen.copies else (run,) if run is not None else ()
        able = startable(known)
        before = held, could, known.blocked, known.slurm.restarts
        same = before == (holds, able, kept_back, seen.restarts)
        if same and not edited and seen.id in self.jobs:
            known.slurm = seen
            return
        known.settle(now, cluster)
        paused = (was.state is JobState.SUSPENDED) != (seen.state is JobState.SUSPENDED)
        if paused or (known.blocked, could) != (kept_back, able):
            self.triggers.add(Trigger.ARRIVAL)
        if len(holds) < len(held):
            self.triggers.add(Trigger.END)
            known.placement = None
        known.slurm, known.run, known.blocked = seen, run, kept_back
        self._describe(known, seen)
        if known.first_start_s is None:
            known.first_start_s = min((run.since_s for run in holds if run.begun), default=None)
        self.jobs = self.jobs.set(seen.id, known.seen(self._settings.restart_cost_s))
        self.changed.add(seen.id)

    def _observe_run(
        self, known: Managed, seen: SlurmJob, cluster: Cluster, now: float
    ) -> tuple[Run | None, Reason | None]:
        """Return what a job holds, and why it may not start."""
        run = run_of(known, seen, cluster, self.speeds, self._settings, now)
        if run is not None:
            run = self.elements.named(run, cluster)
        kept_back = known.refused or self._quota(known, seen, now) or blocked_by(seen)
        if seen.array and seen.state is JobState.RUNNING and run is None:
            kept_back = Reason(ReasonCode.RESTARTING, detail=_PART)
        elif kept_back is None and missed(seen):
            kept_back = Reason(ReasonCode.RESTARTING, detail=_MISSED)
        elif kept_back is None and run is None and seen.state is not JobState.PENDING:
            # Slurm would not start it, and no other job could have the place that it was given.
            kept_back = Reason(ReasonCode.RESTARTING, detail=_ELSEWHERE)
        return run, kept_back

    def _observe_copies(
        self, known: Managed, seen: SlurmJob, cluster: Cluster, now: float
    ) -> tuple[Run | None, Reason | None]:
        """Take in the elements of a job of copies.

        Returns:
            its run where there may be only one, and why none of them may start.
        """
        before, leader = known.copies | known.surplus, leader_of(seen.copies)
        known.copies, known.surplus = {}, {}
        most = self.elements.runs_per_job
        for number, each in enumerate(in_turn(seen.copies)):
            unit = before.get(each.id) or Managed(known.mark, each, known.job, observed_s=now)
            unit.job, unit.needs, unit.limit_s = known.job, known.needs, known.limit_s
            unit.progress = None if each.element else known.progress
            if most is None or number < most:
                unit.leader = waits_for(each, leader)
                unit.run, unit.blocked = self._observe_run(unit, each, cluster, now)
                known.copies[each.id] = unit
            else:
                # What it still holds is nothing of the job's: it counts as others' until it ends.
                unit.run, unit.leader = None, leader
                known.surplus[each.id] = unit
            unit.slurm = each
        return (known.runs[0] if most == 1 and known.runs else None), blocked(known)

    def _quota(self, known: Managed, seen: SlurmJob, now: float) -> Reason | None:
        """Return the limit, or what else Slurm said of its last placement, that keeps a job back.

        Slurm names it once the job is placed. To place it again in each cycle would not help.
        """
        named = blocked_by(seen)
        if named is not None and named.code in LIMITS:
            known.quota = named, now + QUOTA_S
        elif (seen.state is JobState.RUNNING and known.partial_s is None) or (
            known.quota and not now < known.quota[1] <= now + QUOTA_S
        ):
            known.quota = None
        return known.quota[0] if known.quota and seen.state is JobState.PENDING else None

    def _reread(self, known: Managed, seen: SlurmJob) -> None:
        """Take in what a job asks for beside GPUs, which its user may change while it waits."""
        known.needs = needs_of(seen, known.mark)
        parked = seen.state is JobState.PENDING and not seen.pinned
        # What a placed job shows is the limit of that run, and not its user's.
        if parked and known.limit_s is not None and seen.time_limit_s is not None:
            known.limit_s = seen.time_limit_s
        self._describe(known, seen)

    def _describe(self, known: Managed, seen: SlurmJob) -> None:
        """Make anew what policies see of the job itself; who calls it renews the view."""
        mark = known.mark
        assert self.cluster is not None
        limits = self._site.limits if self._site else None
        limit = limits.of(seen) if limits is not None else None
        wishes = accepted(mark, self.cluster, limit, known.run.configuration if known.run else None)
        known.refused = wishes.refused
        if wishes.warning:
            self.warnings[seen.id] = wishes.warning
        told = known.progress is not None and known.progress.checkpoint_s > 0
        # What is suspended is not stopped, and a job that was to have its GPUs would only wait.
        stoppable = seen.state is not JobState.SUSPENDED and not finishing(seen)
        movable = may_move(mark, seen.submit_line, told, self._settings)
        profile = self.estimates.name(mark.profile, seen.user, measurable=movable)
        known.job = replace(
            described(seen, mark),
            requirements=wishes.requirements,
            gpu_types=wishes.gpu_types,
            profile=profile,
            preemptible=movable and stoppable,
            time_limit_s=known.limit_s if mark.limit_s is not None else seen.time_limit_s,
            cpus_per_gpu=float(known.needs.cpus_per_gpu),
            memory_mb_per_gpu=float(known.needs.memory_mb_per_gpu),
            shapes=self._shapes(mark, seen),
            copies=self._copies(known),
        ).hidden_from(self._knows)

    @staticmethod
    def _copies(known: Managed) -> int:
        """Return how many copies a job can have, at least the one that it waits for."""
        if known.copies:
            return max(1, startable(known))
        return known.mark.elements if known.mark.copies else 1

    def _describe_all(self) -> None:
        """Make all jobs anew, after a change that is none of theirs."""
        for job_id, known in list(self.managed.items()):
            try:
                self._describe(known, known.slurm)
            except Exception as error:
                self._leave_out(job_id, error)
                continue
            self.jobs = self.jobs.set(job_id, known.seen(self._settings.restart_cost_s))
            self.changed.add(job_id)

    def _shapes(self, mark: Mark, seen: SlurmJob) -> frozenset[Shape]:
        """Return the shapes that a job takes beside those that one Slurm job can have."""
        # In shadow nothing was made of it, and nothing is placed. What runs may stay as it is.
        waits = seen.state is JobState.PENDING and not mark.shadow
        whole = not waits or spares(seen) >= mark.elements - 1
        return ALL_SHAPES - LIVE_SHAPES if mark.any_shape and whole else frozenset()

    @property
    def shapes(self) -> frozenset[Shape]:
        """The shapes that all jobs take."""
        ours = self.managed.values()
        return ALL_SHAPES if ours and all(each.job.shapes for each in ours) else LIVE_SHAPES

    def _is_ours(self, mark: Mark) -> bool:
        """Whether a job with this mark takes part.

        One that was submitted in shadow starts by itself, and cannot be placed in another shape.
        """
        return self._mode is Mode.SHADOW or not mark.shadow

    def _mark(self, seen: SlurmJob) -> Mark | None:
        try:
            return read_mark(seen.mark)
        except InputError as error:
            self.warnings[seen.id] = str(error)
            return None
