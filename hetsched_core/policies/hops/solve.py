"""One plan of Hops (SoCC '24, section 3.6): some jobs, some idle GPUs, the best configurations.

The integer programme maximises sum (prior_i + bias)^lambda G_ij X_ij with at most one configuration
a job and no GPU used twice. Where jobs weigh so little that they cannot move the objective by more
than the gap, they are served in queue order instead, each with the best configuration still free:
what the programme becomes for lambda towards infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose import (
    MOST_WORK,
    ChooseProblem,
    JobPieces,
    OptionColumns,
    assign_nodes,
    choose,
    choose_in_order,
)
from hetsched_core.choose.problem import starts_of
from hetsched_core.policies.hops.configurations import (
    Catalogue,
    Generator,
    JobOptions,
    options_of,
)
from hetsched_core.policies.hops.demand import HopsDemand
from hetsched_core.policies.hops.room import Classes, Room

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NOTHING = (np.zeros(0, np.int64), np.zeros(0, np.int64))

MOST_OPTIONS = 1_500_000
"""Options of one programme; 50,000 jobs on 100,000 GPUs have 1.1 million.

With more, there are fewer distributed configurations of a count, and jobs from the queue's end are
served in turn. Without a limit one plan took 23 s and 1.3 GiB of `benchmarks.slowest_plans`.
"""

SMALLEST_GAP = 1e-9
"""Values that differ by less than this part of each other count as equal."""


@dataclass(frozen=True, slots=True, eq=False)
class SolverInput:
    """What all plans of one round have in common.

    Attributes:
        generator: what the jobs ask for, and what generates their configurations.
        gap: relative gap at which a solution is good enough.
        held: what each job has, as nodes and GPUs, whether it got there or not.
        held_speed: (J,) samples/s there.
        credit: (J,) what a job's present configuration is worth more to it than its gain, as a part
            of that; all 0 where a restart counts for nothing.
        offer_held: whether a job may keep what no new configuration is.
        gain: (M,) positions of jobs, and their Q options -> (Q,) what each is worth, unweighted.
    """

    generator: Generator
    gap: float
    held: Mapping[int, tuple[Ints, Ints]]
    held_speed: Floats
    credit: Floats
    offer_held: bool
    gain: Callable[[Ints, JobOptions], Floats]


@dataclass(frozen=True, slots=True)
class SolverOutput:
    """Where jobs go: job -> nodes and GPUs; and how that was found.

    `objective` counts jobs that were served in turn by their gains over what was left to them,
    which may be less or more than over everything. `bound` is what no plan could exceed; None where
    jobs were served in turn alone. `work` is what the solver of integer programmes took.
    """

    placed: Mapping[int, tuple[Ints, Ints]] = field(default_factory=dict)
    objective: float = 0.0
    bound: float | None = None
    method: str = ""
    limits: tuple[str, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    work: int = 0


def plan_once(
    setting: SolverInput,
    jobs: Ints,
    weights: Floats,
    room: Room,
    prices: Mapping[str, float],
    *,
    strict: bool,
    work: int = MOST_WORK,
) -> SolverOutput:
    """Choose configurations and nodes for some jobs on what is free.

    Args:
        setting: what is known.
        jobs: (M,) positions of the jobs, in queue order.
        weights: (M,) (prior + bias)^lambda of each, descending, at most 1.
        room: what is free; what the jobs have counts as free too.
        prices: by class of node, from an earlier plan: where to begin the search.
        strict: serve the jobs in turn, whatever they weigh (lambda = infinity).
        work: what integer programmes may take.
    """
    task = _Task.of(setting, jobs, room)
    first = len(task.jobs)
    best, wanted = np.zeros(len(jobs)), 0
    if not strict:
        behind = _best(setting, jobs, weights, room, first)
        best = np.concatenate([task.best(weights[:first]), *behind])
        wanted = jobs_that_count(best, setting.gap)
    outcome = SolverOutput(bound=None if strict else 0.0)
    if head := min(first, wanted):
        outcome = task.programme(head, weights[:head], prices, work)
    limits = ("options",) if head < wanted else ()
    left, at = room.copy(), head
    take(left, setting.generator.demand, outcome.placed)
    while at < len(jobs):
        task = _Task.of(setting, jobs[at:], left)
        in_turn = task.in_turn(weights[at : at + len(task.jobs)])
        take(left, setting.generator.demand, in_turn.placed)
        at += len(task.jobs)
        outcome = replace(
            outcome,
            placed={**outcome.placed, **in_turn.placed},
            objective=outcome.objective + in_turn.objective,
        )
    if head == len(jobs):
        return outcome
    turns = f"{len(jobs) - head} in turn"
    return replace(
        outcome,
        bound=None if outcome.bound is None else outcome.bound + float(best[head:].sum()),
        method=f"{outcome.method}; {turns}" if head else turns,
        limits=(*outcome.limits, *limits),
    )


def _best(
    setting: SolverInput, jobs: Ints, weights: Floats, room: Room, at: int
) -> Iterator[Floats]:
    """Yield the most that each job from a place in the queue on could add, some at a time."""
    while at < len(jobs):
        task = _Task.of(setting, jobs[at:], room)
        begin, at = at, at + len(task.jobs)
        yield task.best(weights[begin:at])


def jobs_that_count(best: Floats, gap: float) -> int:
    """Return how many jobs from the head of the queue can move the objective beyond the gap.

    Args:
        best: (M,) the most that each job could add to it, in queue order.
        gap: relative gap.
    """
    rest = np.cumsum(best[::-1])[::-1]
    return int((rest > max(gap, SMALLEST_GAP) * best.max(initial=0.0)).sum())


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """Jobs of one plan with everything that each could get: no more than `MOST_OPTIONS`.

    Attributes:
        setting: what is known.
        jobs: (M,) positions of the jobs.
        room: what is free.
        classes: its nodes.
        options: what each job could get; whose it is counts from 0 to M - 1.
        worth: (Q,) gain, and what a restart costs that is spared.
    """

    setting: SolverInput
    jobs: Ints
    room: Room
    classes: Classes
    options: JobOptions
    worth: Floats

    @classmethod
    def of(cls, setting: SolverInput, jobs: Ints, room: Room) -> _Task:
        """Return the task of the first of these jobs, of as many as have so few options."""
        generator = setting.generator
        generated, many = generator.within(room, jobs, MOST_OPTIONS)
        jobs = jobs[:many]
        own = np.full(len(jobs), -1, np.int64)
        if setting.offer_held:
            catalogue, own = _add_held(setting, jobs, room, generated.classes, generated.catalogue)
            generated = replace(generated, catalogue=catalogue)
        options = options_of(generator, generated, jobs, own, setting.held_speed[jobs])
        credit = options.stays * setting.credit[jobs][options.job]
        worth = setting.gain(jobs, options) * (1.0 + credit)
        return cls(setting, jobs, room, generated.classes, options, worth)

    def best(self, weights: Floats) -> Floats:
        """Return (M,) the most that each job could add to the objective."""
        best = np.zeros(len(self.jobs))
        np.maximum.at(best, self.options.job, self.worth * weights[self.options.job])
        return best

    def programme(
        self, head: int, weights: Floats, prices: Mapping[str, float], work: int
    ) -> SolverOutput:
        """Choose for the first `head` jobs by the integer programme."""
        problem = self._problem(head, weights)
        labels = self.classes.nodes.label
        choice = choose(problem, self.setting.gap, _warm_prices(labels, prices), work)
        return SolverOutput(
            placed=self._nodes(problem, choice.option),
            objective=choice.objective,
            bound=choice.bound,
            method=choice.method,
            limits=choice.limits,
            prices=dict(zip(labels, choice.prices.tolist(), strict=True)),
            work=choice.work,
        )

    def in_turn(self, weights: Floats) -> SolverOutput:
        """Give each job its best configuration that is still free, in queue order."""
        problem = self._problem(len(self.jobs), np.ones(len(self.jobs)))
        option = choose_in_order(problem)
        placed = option >= 0
        return SolverOutput(
            placed=self._nodes(problem, option),
            objective=float((weights[placed] * problem.options.value[option[placed]]).sum()),
        )

    def _problem(self, head: int, weights: Floats) -> ChooseProblem:
        options = self.options
        many = int(np.searchsorted(options.job, head))
        node_class, gpus, nodes = np.ascontiguousarray(options.catalogue.pieces.T)
        return ChooseProblem(
            self.classes.nodes,
            OptionColumns(
                job=options.job[:many],
                value=self.worth[:many] * weights[options.job[:many]],
                bundle=options.configuration[:many],
                starts=options.catalogue.piece_from,
                piece_class=node_class,
                piece_gpus=gpus,
                piece_nodes=nodes,
            ),
            head,
        )

    def _nodes(self, problem: ChooseProblem, option: Ints) -> dict[int, tuple[Ints, Ints]]:
        """Return nodes for what was chosen, those that jobs have if they may keep them."""
        jobs, classes = self.jobs[: problem.jobs], self.classes
        now = self._held_pieces(jobs)
        found = assign_nodes(problem, option, classes.member_class, now)
        if found is None:
            # Pieces of one job may share a node in the programme. Without such jobs it always fits.
            alone = problem.options.nodes[option] == 1
            option = np.where(alone, option, -1)
            found = assign_nodes(problem, option, classes.member_class, now)
        assert found is not None
        node = classes.members[found.node]
        placed = {
            job: (node[a:b], found.gpus[a:b])
            for job, (a, b) in zip(jobs.tolist(), pairwise(found.starts.tolist()), strict=True)
            if b > a
        }
        left = self.room.copy()
        demand = self.setting.generator.demand
        take(left, demand, placed)
        return _drop_overdrawn(self.room, demand, placed) if left.overdrawn else placed

    def _held_pieces(self, jobs: Ints) -> JobPieces:
        """Return what jobs have of the members of the classes; nothing of a job on other nodes."""
        held = self.setting.held
        member = np.full(len(self.room.gpus), -1, np.int64)
        member[self.classes.members] = np.arange(len(self.classes.members))
        pieces = [held.get(job, _NOTHING) for job in jobs.tolist()]
        sizes = np.array([len(nodes) for nodes, _ in pieces], np.int64)
        owner = np.repeat(np.arange(len(jobs)), sizes)
        nodes = np.concatenate([_NOTHING[0], *(nodes for nodes, _ in pieces)])
        gpus = np.concatenate([_NOTHING[1], *(gpus for _, gpus in pieces)])
        elsewhere = np.zeros(len(jobs), np.bool_)
        elsewhere[owner[member[nodes] < 0]] = True
        sizes[elsewhere] = 0
        here = ~elsewhere[owner]
        return JobPieces(starts_of(sizes), member[nodes[here]], gpus[here])


def _add_held(
    setting: SolverInput, jobs: Ints, room: Room, classes: Classes, catalogue: Catalogue
) -> tuple[Catalogue, Ints]:
    """Add what the jobs have to the catalogue, and return where it is for each, -1 for nothing."""
    own = np.full(len(jobs), -1, np.int64)
    holders = [at for at, job in enumerate(jobs.tolist()) if job in setting.held]
    if not holders:
        return catalogue, own
    pieces = [setting.held[job] for job in jobs[holders].tolist()]
    starts = starts_of([len(nodes) for nodes, _ in pieces])
    nodes = np.concatenate([nodes for nodes, _ in pieces])
    gpus = np.concatenate([gpus for _, gpus in pieces])
    class_of = np.full(len(room.gpus), -1, np.int64)
    class_of[classes.members] = classes.member_class
    lost = (class_of[nodes] < 0) | (gpus > room.gpus[nodes])
    kept = ~np.logical_or.reduceat(lost, starts[:-1])
    each = list(zip(class_of[nodes].tolist(), gpus.tolist(), strict=True))
    seen: dict[tuple[tuple[int, int], ...], int] = {}
    for at, (begin, end), stays in zip(holders, pairwise(starts.tolist()), kept, strict=True):
        if stays:
            own[at] = seen.setdefault(tuple(sorted(each[begin:end])), len(seen))
    own[own >= 0] += len(catalogue.piece_from) - 1
    return catalogue.with_more(list(seen)), own


def take(room: Room, demand: HopsDemand, placed: Mapping[int, tuple[Ints, Ints]]) -> None:
    """Take what jobs were given."""
    if placed:
        needs = [demand.needs[k] for k in demand.need[demand.kind[list(placed)]]]
        pieces = [len(nodes) for nodes, _ in placed.values()]
        room.take_all(
            np.concatenate([nodes for nodes, _ in placed.values()]),
            np.concatenate([gpus for _, gpus in placed.values()]),
            np.repeat([need.cpus_per_gpu for need in needs], pieces),
            np.repeat([need.memory_mb_per_gpu for need in needs], pieces),
        )


def _drop_overdrawn(
    room: Room, demand: HopsDemand, placed: Mapping[int, tuple[Ints, Ints]]
) -> dict[int, tuple[Ints, Ints]]:
    """Leave out jobs for which CPUs or memory are too few, the last in the queue first."""
    left, kept = room.copy(), {}
    for job, (nodes, gpus) in placed.items():
        need = demand.needs[demand.need[demand.kind[job]]]
        if left.holds(nodes, gpus, need):
            left.take(nodes, gpus, need)
            kept[job] = nodes, gpus
    return kept


def _warm_prices(labels: Sequence[str], prices: Mapping[str, float]) -> Floats | None:
    """Return earlier prices, the mean of the known ones for a class that is new."""
    known = [prices[label] for label in labels if label in prices]
    if not known:
        return None
    mean = sum(known) / len(known)
    return np.array([prices.get(label, mean) for label in labels])
