"""Is a plan allowed? A common part for every plan, and one part for each execution model.

The simulator and the daemon ask the same question before anything is started or stopped.
`check_plan` looks at everything; `PlanChecker` looks only at what changed and must agree with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hetsched_core.types import (
    SLACK,
    Configuration,
    Entry,
    ExecutionModel,
    Job,
    JobView,
    NodeView,
    OfflineSnapshot,
    Placed,
    Placement,
    Plan,
    Purpose,
    Snapshot,
    TaskSequence,
    shape_of,
    submission_order,
)

_NAMED = 5
"""Most jobs that a message names; `Violation.jobs` has all."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: its name, where and how, and the jobs concerned.

    Where jobs take more than there is, they are those that find nothing left, in the order of
    submission; () where no job can be named.
    """

    rule: str
    detail: str
    jobs: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return both parts in one line."""
        return f"{self.rule}: {self.detail}"


@dataclass(slots=True)
class _Usage:
    """What placements take: GPUs by node, CPUs and memory (MiB) by host."""

    gpus: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    cpus: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    memory_mb: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, snapshot: Snapshot, job: Job, what: Configuration, sign: int = 1) -> None:
        cluster = snapshot.cluster
        for name, gpus in what.pieces:
            node = cluster.get(name)
            if node is not None:
                self.gpus[name] += sign * gpus
                self.cpus[node.host] += sign * gpus * job.cpus_per_gpu
                self.memory_mb[node.host] += sign * gpus * job.memory_mb_per_gpu

    def copy(self) -> _Usage:
        return _Usage(
            defaultdict(int, self.gpus),
            defaultdict(float, self.cpus),
            defaultdict(float, self.memory_mb),
        )


def check_plan(snapshot: Snapshot, plan: Plan, model: ExecutionModel) -> tuple[Violation, ...]:
    """Return every rule that the plan breaks, in a fixed order; empty for a valid plan.

    The common part: every active job has an entry and nothing else has; no GPU, CPU or memory is
    promised twice, on nodes that take work, of types and shapes that the job and the cluster
    accept; jobs are on as many nodes as they may be, on those that they may use; blocked jobs
    wait; what starts keeps the site's limits. Then the model's part: whole configurations from the
    requirement set (gang), one copy a node with all its GPUs (copies), each GPU one sequence and
    each training round no more tasks than its scale (tasks). A plan that was shown the future may
    have tasks of jobs that are still to arrive in its sequences.

    What runs is a fact: a run that the plan leaves as it is breaks no rule, whatever has become of
    its node or its job, and takes what it holds. What starts has to do with the rest.
    """
    found = list(_accounting(snapshot, plan))
    taken = _Usage()
    for job_id, entry in sorted(plan.entries.items()):
        view = snapshot.jobs.get(job_id)
        if view is not None:
            found += _entry(snapshot, view, entry, model)
            for placement in _placements(entry):
                taken.add(snapshot, view.job, placement.configuration)
    found += _profiles(snapshot, plan, taken)
    found += _sequences(snapshot, plan, model, taken)
    found += _capacity(snapshot, plan, taken, snapshot.cluster.names)
    found += _limits(snapshot, plan)
    return tuple(found)


class PlanChecker:
    """`check_plan` for a stream of plans, at the cost of what changed since the last valid one."""

    def __init__(self, model: ExecutionModel) -> None:
        """Check plans of one execution model."""
        self._model = model
        self._last: Plan | None = None
        self._taken = _Usage()
        self._used: dict[str, _Given] = {}
        # Whether a node takes no new work: what runs on it may stay there and nothing else.
        self._closed = False

    def check(self, snapshot: Snapshot, plan: Plan) -> tuple[Violation, ...]:
        """Return what `check_plan` would, and remember a valid plan as the one in force."""
        revises = self._last is not None and plan.base is self._last.identity
        if (
            not revises
            or plan.changed is None
            or snapshot.nodes_changed
            or plan.sequences
            or self._model is not ExecutionModel.GANG
            or snapshot.site is not None
        ):
            return self._check_all(snapshot, plan)
        return self._check_changes(snapshot, plan, plan.changed | snapshot.changed | snapshot.gone)

    def _check_all(self, snapshot: Snapshot, plan: Plan) -> tuple[Violation, ...]:
        found = check_plan(snapshot, plan, self._model)
        # An invalid plan is dropped, and what changed before it is not named again.
        self._last = None if found else plan
        if not found:
            self._taken, self._used = _Usage(), {}
            self._closed = not all(node.open for node in snapshot.node_views())
            for job_id, entry in sorted(plan.entries.items()):
                self._account(snapshot, job_id, _use_of(snapshot.jobs.get(job_id), entry))
        return found

    def _check_changes(
        self, snapshot: Snapshot, plan: Plan, changed: frozenset[str]
    ) -> tuple[Violation, ...]:
        found: list[Violation] = []
        touched: set[str] = set()
        jobs, entries = snapshot.jobs, plan.entries
        unaccounted = len(entries) != len(jobs)
        for job_id in sorted(changed):
            view, entry = jobs.get(job_id), entries.get(job_id)
            unaccounted |= (view is None) != (entry is None)
            use, before = _use_of(view, entry), self._used.get(job_id)
            new = use != before and not _has_begun(before, use)
            # What was found valid before is so still if nothing that matters has changed since.
            if (
                view is not None
                and entry is not None
                and (new or view.blocked is not None or self._closed or _limited(view.job))
            ):
                found += _entry(snapshot, view, entry, self._model)
            if new:
                touched.update(self._account(snapshot, job_id, use))
            elif use is not None:
                self._used[job_id] = use
        if unaccounted:
            found[:0] = _accounting(snapshot, plan)
        taken = self._taken
        if plan.profiles:
            taken = taken.copy()
            found += _profiles(snapshot, plan, taken)
            touched |= {n for p in plan.profiles for n, _ in p.placement.configuration}
        if touched:
            found += _capacity(snapshot, plan, taken, sorted(touched))
        # An invalid plan is dropped, but its usage is booked: look at the next one from scratch.
        self._last = None if found else plan
        return tuple(found)

    def _account(self, snapshot: Snapshot, job_id: str, use: _Given | None) -> list[str]:
        """Book this instead of what the job used; return the nodes that it is on now."""
        if (old := self._used.pop(job_id, None)) is not None:
            job, placements, _ = old
            for placement in placements:
                self._taken.add(snapshot, job, placement.configuration, -1)
        if use is None:
            return []
        self._used[job_id] = job, placements, _ = use
        for placement in placements:
            self._taken.add(snapshot, job, placement.configuration)
        return [name for placement in placements for name, _ in placement.configuration.pieces]


_Given = tuple[Job, tuple[Placement, ...], tuple[bool, ...]]
"""What a plan gives a job, and which of it runs already: what it takes of each node."""


def _use_of(view: JobView | None, entry: Entry | None) -> _Given | None:
    if view is None or not isinstance(entry, Placed):
        return None
    placements = entry.placements
    return view.job, placements, tuple([is_kept(view, each) for each in placements])


def _has_begun(before: _Given | None, use: _Given | None) -> bool:
    """Whether a job is given what it was given before, and all of that runs now.

    What was right for its start is right for it to stay, and it takes no more than was booked.
    """
    return before is not None and use is not None and before[:2] == use[:2] and all(use[2])


def _accounting(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    for job_id in sorted(set(snapshot.jobs) - set(plan.entries)):
        words = f"active job {job_id} has no entry; absence never means stop"
        yield Violation("missing", words, (job_id,))
    for job_id in sorted(set(plan.entries) - set(snapshot.jobs)):
        yield Violation("unknown-job", f"job {job_id} is not active", (job_id,))


def _placements(entry: Entry) -> tuple[Placement, ...]:
    return entry.placements if isinstance(entry, Placed) else ()


def _entry(
    snapshot: Snapshot, view: JobView, entry: Entry, model: ExecutionModel
) -> Iterator[Violation]:
    if not isinstance(entry, Placed):
        return
    mine = (view.id,)
    starts = [placement for placement in entry.placements if not is_kept(view, placement)]
    as_it_is = bool(entry.placements) and not starts
    if view.blocked is not None and not as_it_is:
        words = f"job {view.id} is placed but may not start: {view.blocked}"
        yield Violation("blocked", words, mine)
    for placement in entry.placements:
        if placement.purpose is not Purpose.RUN:
            words = f"job {view.id}: profiling runs belong in plan.profiles"
            yield Violation("purpose", words, mine)
    for placement in entry.placements:
        yield from _closed(view, placement)
    for placement in starts:
        yield from _where(snapshot, view, placement)
    if model is ExecutionModel.GANG:
        yield from _gang(view, entry, as_it_is)
    elif model is ExecutionModel.COPIES:
        if not as_it_is:
            yield from _copies(snapshot, view, entry)
    elif entry.placements:
        words = f"job {view.id} has placements beside its task sequences"
        yield Violation("tasks", words, mine)


def _where(snapshot: Snapshot, view: JobView, placement: Placement) -> Iterator[Violation]:
    """Yield what is wrong with a place in which a job is to start."""
    what, mine = placement.configuration, (view.id,)
    for name, _ in what.pieces:
        if name not in snapshot.cluster:
            yield Violation("unknown-node", f"job {view.id} on node {name}", mine)
            return
        node = snapshot.nodes[name]
        if not node.open:
            words = f"job {view.id} on {name}, which is {node.word}"
            yield Violation("node-closed", words, mine)
        if not view.job.accepts_type(node.node.gpu_type):
            words = f"job {view.id} does not accept {node.node.gpu_type} ({name})"
            yield Violation("gpu-type", words, mine)
        if not view.job.may_start_on(name) and name not in view.job.closed:
            words = f"job {view.id} on {name}, which is none of its nodes"
            yield Violation("job-nodes", words, mine)
    if not view.job.accepts_spread(what):
        words = f"job {view.id} on {what}; it asks for {_many(view.job)}"
        yield Violation("node-count", words, mine)
    shape = shape_of(what, snapshot.cluster)
    if shape not in snapshot.shapes_for(view.job):
        words = f"job {view.id}: {what} is {shape.value}, not realisable here"
        yield Violation("shape", words, mine)


def _limits(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    """Yield the limits of the site above which a plan starts something."""
    site = snapshot.site
    if site is None or not site.limits:
        return
    under: dict[str, list[tuple[JobView, Placed]]] = defaultdict(list)
    for job_id, entry in sorted(plan.entries.items()):
        view = snapshot.jobs.get(job_id)
        if view is not None and isinstance(entry, Placed) and entry.placements:
            for name in view.job.limits:
                under[name].append((view, entry))
    for name, members in sorted(under.items()):
        limit = site.limits.get(name)
        starting = tuple(
            view.id
            for view, entry in members
            if not all(is_kept(view, p) for p in entry.placements)
        )
        if limit is None or not starting:
            continue
        gpus = sum(p.configuration.gpus for _, entry in members for p in entry.placements)
        if limit.gpus is not None and gpus > limit.gpus:
            words = f"{gpus} GPUs under {name}, which allows {limit.gpus}"
            yield Violation("limit", words, starting)
        elif limit.jobs is not None and len(members) > limit.jobs:
            words = f"{len(members)} jobs under {name}, which allows {limit.jobs}"
            yield Violation("limit", words, starting)


def _closed(view: JobView, placement: Placement) -> Iterator[Violation]:
    """Yield where a window closes a node to a job, which neither starts nor stays there then."""
    for name, _ in placement.configuration:
        if name in view.job.closed:
            words = f"job {view.id} on {name}, which a window closes to it"
            yield Violation("closed", words, (view.id,))


def _limited(job: Job) -> bool:
    """Whether a run may be where the job could not begin another."""
    return bool(
        job.nodes is not None or job.closed or job.min_nodes > 1 or job.max_nodes is not None
    )


def _many(job: Job) -> str:
    """How many nodes a job may have, in words."""
    least, most = job.min_nodes, job.max_nodes
    if least == most:
        return f"{least} node" if least == 1 else f"{least} nodes in equal parts"
    if least == 1:
        return f"at most {most} nodes"
    return f"{least} {'or more' if most is None else f'to {most}'} nodes in equal parts"


def is_kept(view: JobView, placement: Placement) -> bool:
    """Whether a placement is what runs already: to keep it starts and stops nothing."""
    for run in view.runs:
        if (
            run.configuration == placement.configuration
            and run.copy == placement.copy
            and run.purpose is placement.purpose
            and run.draining_until_s is None
        ):
            return True
    return False


def _gang(view: JobView, entry: Placed, as_it_is: bool) -> Iterator[Violation]:
    if len(entry.placements) != 1 or (entry.placements[0].copy != 0 and not as_it_is):
        words = f"job {view.id} has {len(entry.placements)} placements, not one"
        yield Violation("gang", words, (view.id,))
    if as_it_is:
        return
    for placement in entry.placements:
        count = placement.configuration.gpus
        if count not in view.job.requirements:
            words = f"job {view.id} gets {count} GPUs and accepts {view.job.requirements}"
            yield Violation("requirement", words, (view.id,))


def _copies(snapshot: Snapshot, view: JobView, entry: Placed) -> Iterator[Violation]:
    """Yield what is wrong with the copies of a job of which some are to start, or all."""
    mine = (view.id,)
    if not entry.placements:
        yield Violation("copies", f"job {view.id} is placed without a copy", mine)
    if len({placement.copy for placement in entry.placements}) < len(entry.placements):
        yield Violation("copies", f"job {view.id} uses a copy number twice", mine)
    nodes = [name for placement in entry.placements for name, _ in placement.configuration]
    if len(set(nodes)) < len(nodes):
        yield Violation("copies", f"job {view.id} has two copies on one node", mine)
    for placement in entry.placements:
        name, gpus = placement.configuration.pieces[0]
        if is_kept(view, placement):
            # Begun outside the daemon, or under another policy, and not to be stopped perhaps.
            continue
        if len(placement.configuration) != 1 or (
            name in snapshot.cluster and gpus != snapshot.nodes[name].node.gpus
        ):
            words = (
                f"copy {placement.copy} of job {view.id} on {placement.configuration} "
                "is not one whole node"
            )
            yield Violation("copies", words, mine)
        elif view.job.copies is not None and gpus not in view.job.requirements:
            words = f"a copy of job {view.id} gets {gpus} GPUs and accepts {view.job.requirements}"
            yield Violation("requirement", words, mine)
    most = view.job.max_nodes
    if most is not None and len(set(nodes)) > max(most, 1):
        words = f"job {view.id} is on {len(set(nodes))} nodes of {most}"
        yield Violation("node-count", words, mine)
    if view.job.copies is not None and len(entry.placements) > max(1, view.job.copies):
        words = f"job {view.id} gets {len(entry.placements)} copies of {view.job.copies}"
        yield Violation("copies", words, mine)


def _profiles(snapshot: Snapshot, plan: Plan, taken: _Usage) -> Iterator[Violation]:
    seen: set[tuple[str, int]] = set()
    for profile in plan.profiles:
        view, placement, mine = snapshot.jobs.get(profile.job), profile.placement, (profile.job,)
        if view is None:
            yield Violation("profile", f"profiled job {profile.job} is not active", mine)
            continue
        if (profile.job, placement.copy) in seen:
            words = f"job {profile.job} uses profiling copy {placement.copy} twice"
            yield Violation("profile", words, mine)
        seen.add((profile.job, placement.copy))
        yield from _closed(view, placement)
        if not is_kept(view, placement):
            yield from _profile(snapshot, view, placement)
        taken.add(snapshot, view.job, placement.configuration)
    if snapshot.runs_per_job is not None:
        runs = Counter(profile.job for profile in plan.profiles)
        for job_id, count in sorted(runs.items()):
            entry = plan.entries.get(job_id)
            count += len(_placements(entry)) if entry is not None else 0
            view = snapshot.jobs.get(job_id)
            if count > max(snapshot.runs_per_job, 0 if view is None else view.going_on):
                words = f"job {job_id} gets {count} runs; {snapshot.runs_per_job} are possible"
                yield Violation("runs", words, (job_id,))


def _profile(snapshot: Snapshot, view: JobView, placement: Placement) -> Iterator[Violation]:
    """Yield what is wrong with a profiling run that is to start."""
    mine = (view.id,)
    if placement.purpose is not Purpose.PROFILE or placement.until_s is None:
        words = f"job {view.id}: purpose profile and until_s are needed"
        yield Violation("profile", words, mine)
    if view.blocked is not None:
        words = f"job {view.id} is profiled but may not start: {view.blocked}"
        yield Violation("blocked", words, mine)
    yield from _where(snapshot, view, placement)


def _sequences(
    snapshot: Snapshot, plan: Plan, model: ExecutionModel, taken: _Usage
) -> Iterator[Violation]:
    if model is not ExecutionModel.TASKS:
        if plan.sequences:
            yield Violation("tasks", f"a plan of model {model.value} has task sequences")
        return
    given: set[tuple[str, int]] = set()
    tasks: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    coming = snapshot.future if isinstance(snapshot, OfflineSnapshot) else ()
    known = {submission.job.id: submission.job for submission in coming}
    known |= {job_id: view.job for job_id, view in snapshot.jobs.items()}
    for sequence in plan.sequences:
        if sequence.node not in snapshot.cluster:
            yield Violation("unknown-node", f"a task sequence on node {sequence.node}")
            continue
        yield from _sequence(snapshot, known, sequence, given)
        given.add((sequence.node, sequence.gpu))
        here: set[str] = set()
        for block in sequence.blocks:
            for item in block.items:
                tasks[item.job].append((item.training_round, block.times, item.tasks))
                here.add(item.job)
        # Tasks follow each other on a GPU, so of each resource the hungriest decides.
        jobs = [known[job_id] for job_id in here if job_id in known]
        host = snapshot.cluster[sequence.node].host
        cpus = max((job.cpus_per_gpu for job in jobs), default=0.0)
        memory_mb = max((job.memory_mb_per_gpu for job in jobs), default=0.0)
        taken.gpus[sequence.node] += 1
        taken.cpus[host] += cpus
        taken.memory_mb[host] += memory_mb
    for job_id in sorted(tasks):
        view = snapshot.jobs.get(job_id)
        if view is not None and not isinstance(plan.entries.get(job_id), Placed):
            yield Violation("tasks", f"job {job_id} is in a task sequence but not placed")
        yield from _task_counts(job_id, known.get(job_id), view, tasks[job_id])
    for job_id, entry in sorted(plan.entries.items()):
        if isinstance(entry, Placed) and job_id not in tasks:
            yield Violation("tasks", f"job {job_id} is placed but in no task sequence")


def _sequence(
    snapshot: Snapshot,
    known: Mapping[str, Job],
    sequence: TaskSequence,
    given: set[tuple[str, int]],
) -> Iterator[Violation]:
    node = snapshot.nodes[sequence.node]
    where = f"{sequence.node} GPU {sequence.gpu}"
    if (sequence.node, sequence.gpu) in given:
        yield Violation("tasks", f"{where} has two sequences")
    if not 0 <= sequence.gpu < node.capacity:
        yield Violation("tasks", f"{where} does not exist or is not ours")
    if not node.open:
        yield Violation("node-closed", f"a task sequence on {where}, which is {node.word}")
    for block in sequence.blocks:
        if block.times < 1 or any(i.tasks < 1 or i.training_round < 0 for i in block.items):
            yield Violation("tasks", f"{where}: a block with counts below 1 or a round below 0")
        for item in block.items:
            job = known.get(item.job)
            if job is not None and not job.accepts_type(node.node.gpu_type):
                yield Violation(
                    "gpu-type", f"job {item.job} does not accept {node.node.gpu_type} ({where})"
                )
            if job is not None and not job.may_start_on(sequence.node):
                yield Violation("job-nodes", f"job {item.job} may not run on {where}")


def _task_counts(
    job_id: str, job: Job | None, view: JobView | None, items: list[tuple[int, int, int]]
) -> Iterator[Violation]:
    """What is wrong with the tasks of a job: `view` is None for one that has not arrived yet."""
    if job is None or job.tasks is None:
        yield Violation("tasks", f"job {job_id} in a task sequence is not an active job of tasks")
        return
    progress, shape = view.progress if view else None, job.tasks
    done_rounds = progress.rounds_done if progress else 0
    if min(first for first, _, _ in items) < done_rounds:
        yield Violation("tasks", f"job {job_id}: training rounds before {done_rounds} are done")
    if shape.rounds is not None and max(f + times for f, times, _ in items) > shape.rounds:
        yield Violation("tasks", f"job {job_id} has only {shape.rounds} training rounds")
    # A sweep over run-length items: blocks may stand for very many rounds.
    steps: dict[int, int] = defaultdict(int)
    for first, times, count in items:
        steps[first] += count
        steps[first + times] -= count
    # Tasks that are done or running are not to be run again.
    begun = (progress.tasks_done if progress else 0) + len(view.runs if view else ())
    steps[done_rounds] += begun
    steps[done_rounds + 1] -= begun
    level = 0
    for at in sorted(steps):
        level += steps[at]
        if level > shape.scale:
            yield Violation(
                "tasks",
                f"job {job_id}: {level} tasks in training round {at} of scale {shape.scale}",
            )
            return


def _capacity(
    snapshot: Snapshot, plan: Plan, taken: _Usage, names: Iterable[str]
) -> Iterator[Violation]:
    """Yield the nodes and hosts on which more is to start than what stays leaves."""
    hosts: dict[str, NodeView] = {}
    for name in names:
        if name not in snapshot.cluster:
            continue
        view = snapshot.nodes[name]
        hosts[view.node.host] = view
        use = _Use(name, "GPUs", taken.gpus[name], view.capacity)
        yield from _too_much(snapshot, plan, (name,), use, lambda _: 1.0)
    for host in sorted(hosts):
        cpus, memory_mb = snapshot.cluster.shared_on(host)
        if not (cpus or memory_mb):
            continue
        on_host = snapshot.cluster.on_host(host)
        siblings = [snapshot.nodes[name] for name in on_host]
        if cpus:
            free = cpus - sum(view.foreign_cpus for view in siblings)
            use = _Use(host, "CPUs", taken.cpus[host], free)
            yield from _too_much(snapshot, plan, on_host, use, lambda job: job.cpus_per_gpu)
        if memory_mb:
            free = memory_mb - sum(view.foreign_memory_mb for view in siblings)
            use = _Use(host, "MiB", taken.memory_mb[host], free)
            yield from _too_much(snapshot, plan, on_host, use, lambda job: job.memory_mb_per_gpu)


class _Use(NamedTuple):
    """What a plan takes somewhere, and what there is."""

    where: str
    unit: str
    whole: float
    there: float


def _too_much(
    snapshot: Snapshot,
    plan: Plan,
    names: Collection[str],
    use: _Use,
    per_gpu: Callable[[Job], float],
) -> Iterator[Violation]:
    """Yield that more is to start than what stays leaves; `per_gpu` is what a job takes of it."""
    if use.whole <= use.there + SLACK:
        return
    stays = 0.0
    starting: dict[str, float] = defaultdict(float)
    placements = [(job, each) for job, entry in plan.entries.items() for each in _placements(entry)]
    placements += [(profile.job, profile.placement) for profile in plan.profiles]
    for job_id, placement in placements:
        view = snapshot.jobs.get(job_id)
        pieces = placement.configuration.pieces
        gpus = sum(count for name, count in pieces if name in names)
        if view is None or not gpus:
            continue
        if is_kept(view, placement):
            stays += gpus * per_gpu(view.job)
        else:
            starting[job_id] += gpus * per_gpu(view.job)
    if use.whole - stays > SLACK:
        jobs = _beyond(snapshot, starting, use.there - stays)
        words = f"{use.whole:g} {use.unit} promised on {use.where}, which has {use.there:g}"
        yield Violation("capacity", words + _short(jobs), jobs)


def _short(jobs: Sequence[str]) -> str:
    """Name the jobs for which there is too little; of many only the first."""
    if not jobs:
        return ""
    more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
    return f", too few for {', '.join(jobs[:_NAMED])}{more}"


def _beyond(snapshot: Snapshot, starting: Mapping[str, float], free: float) -> tuple[str, ...]:
    """Return the jobs that find nothing left, where those submitted first start first.

    Args:
        snapshot: the state.
        starting: job -> what it takes.
        free: what there is for them.
    """
    beyond = []
    for job_id in sorted(starting, key=lambda job: submission_order(snapshot.jobs[job])):
        free -= starting[job_id]
        if free < -SLACK and starting[job_id] > 0:
            beyond.append(job_id)
            free += starting[job_id]
    return tuple(beyond)
