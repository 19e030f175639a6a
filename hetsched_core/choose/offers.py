"""A problem as its loops want it: what options take, each different thing once; and serving jobs.

A *slot* is a kind of piece, (class, GPUs); a *bundle* is what an option takes, slots and on how
many nodes each of them.
Jobs are served one after another: what they chose if it fits, then what others take of the rest.
A choice is made better by exchanging what a few nodes at a time are used for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose.problem import (
    ChooseProblem,
    JobPieces,
    NodeClasses,
    bundle_codes,
    in_order,
    runs_of,
    starts_of,
)
from hetsched_core.kernels.exchange import exchange
from hetsched_core.kernels.fill import fill
from hetsched_core.kernels.prices import node_worth

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SWEEPS = 4

STEPS, CHAINS = 30, 60
"""How often a few nodes are shared out anew, alone and in chains, of which one a node is enough."""


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """The options of a problem, by job, as values and numbered bundles of slots.

    Attributes:
        problem: whose options they are.
        starts: (J + 1,) where the options of each job begin.
        value: (Q,) in units of the caller.
        bundle: (Q,) what the option takes, 0 to B - 1.
        bundle_starts: (B + 1,) where the slots of each bundle begin.
        bundle_slots: (E,) slot of each piece, the widest of a bundle first.
        bundle_nodes: (E,) on how many nodes it is.
        slot_class: (K,) class of each slot, ascending.
        slot_gpus: (K,) GPUs of each slot, ascending inside a class.
        slot_starts: (C + 1,) where the slots of each class begin.
    """

    problem: ChooseProblem
    starts: Ints
    value: Floats
    bundle: Ints
    bundle_starts: Ints
    bundle_slots: Ints
    bundle_nodes: Ints
    slot_class: Ints
    slot_gpus: Ints
    slot_starts: Ints

    @property
    def classes(self) -> NodeClasses:
        """The node classes."""
        return self.problem.classes

    @property
    def free_of_charge(self) -> Floats:
        """(B,) costs of 0."""
        return np.zeros(len(self.bundle_starts) - 1)

    def cost(self, price: Floats) -> Floats:
        """Return (B,) what each bundle costs at (K,) prices of slots."""
        pieces = price[self.bundle_slots] * self.bundle_nodes
        return np.add.reduceat(pieces, self.bundle_starts[:-1])

    def idle_worth(self, price: Floats) -> Floats:
        """Return (C, G + 1) what the best cut of so many GPUs of a node of each class is worth.

        G is the GPUs of the largest nodes; `price` are (K,) prices of slots.
        """
        classes = self.classes
        worth = np.empty((len(classes), int(classes.capacity.max()) + 1))
        node_worth(classes.capacity, self.slot_starts, self.slot_gpus, price, worth)
        return worth

    def worth(self, option: Ints) -> float:
        """Return the sum of the values of (J,) options chosen, -1 for none."""
        return float(self.value[option[option >= 0]].sum())

    def job_of(self, options: Ints) -> Ints:
        """Return the job of each option."""
        return np.searchsorted(self.starts, options, side="right") - 1

    def pieces(self, options: Ints) -> tuple[Ints, Ints, Ints]:
        """Return of which of these options each piece is, its slot, the widest first, and nodes."""
        owner, at = runs_of(self.bundle_starts, self.bundle[options])
        return owner, self.bundle_slots[at], self.bundle_nodes[at]

    @property
    def wide(self) -> Ints:
        """(B,) on how many nodes each bundle is."""
        return np.add.reduceat(self.bundle_nodes, self.bundle_starts[:-1])

    def widest_first(self, option: Ints, best: Floats) -> Ints:
        """Return the jobs, those with the widest piece chosen first, then those that gain most.

        Args:
            option: (J,) what was chosen, -1 for none.
            best: (J,) what each job gains.
        """
        width = np.zeros(len(option), np.int64)
        has = option >= 0
        first = self.bundle_starts[self.bundle[option[has]]]
        width[has] = self.slot_gpus[self.bundle_slots[first]]
        return np.lexsort((-best, -width))


def offers_of(problem: ChooseProblem, unit: float = 1.0) -> Offers:
    """Return the offers of a problem with at least one option, their values divided by `unit`."""
    options, classes = problem.options, problem.classes
    pieces = options.piece_class, options.piece_gpus, options.piece_nodes
    bundle, first = in_order(bundle_codes(options.starts, *pieces), options.bundle)
    owner, at = runs_of(options.starts, first)
    width = int(classes.capacity.max()) + 1
    key = options.piece_class[at] * width + options.piece_gpus[at]
    used = np.zeros(len(classes) * width, np.bool_)
    used[key] = True
    kinds = np.flatnonzero(used)
    of_class, gpus = kinds // width, kinds % width
    slots = (np.cumsum(used) - 1)[key]
    widest_first = np.lexsort((-gpus[slots], owner))
    return Offers(
        problem=problem,
        starts=np.searchsorted(options.job, np.arange(problem.jobs + 1)),
        value=options.value / unit,
        bundle=bundle,
        bundle_starts=starts_of(np.diff(options.starts)[first]),
        bundle_slots=slots[widest_first],
        bundle_nodes=options.piece_nodes[at][widest_first],
        slot_class=of_class,
        slot_gpus=gpus,
        slot_starts=np.searchsorted(of_class, np.arange(len(classes) + 1)),
    )


def serve(
    offers: Offers,
    order: Ints,
    of_node: Ints,
    free: Ints,
    choice: Ints,
    cost: Floats,
    sweeps: int,
) -> HeldNodes:
    """Serve jobs in order on nodes, as the kernel `fill` does; return the nodes that they hold.

    Args:
        offers: what jobs could take.
        order: the jobs to be served.
        of_node: (N,) class of each node.
        free: (N,) in and out, its GPUs.
        choice: (J,) in and out, the option of each job.
        cost: (B,) of each bundle.
        sweeps: how often jobs may take what is left.
    """
    held = HeldNodes.room_for(offers)
    fill(
        of_node,
        order,
        offers.starts,
        offers.value,
        offers.bundle,
        cost,
        offers.bundle_starts,
        offers.slot_class[offers.bundle_slots],
        offers.slot_gpus[offers.bundle_slots],
        offers.bundle_nodes,
        sweeps,
        choice,
        free,
        held.starts,
        held.node,
    )
    return held


@dataclass(frozen=True, slots=True, eq=False)
class HeldNodes:
    """The nodes of J jobs, one for each piece; there is room for the most that each could take.

    Attributes:
        starts: (J + 1,) where the nodes of each job begin.
        node: (H,) the nodes.
    """

    starts: Ints
    node: Ints

    @classmethod
    def room_for(cls, offers: Offers) -> HeldNodes:
        """Return room for the nodes of each job, of whatever it takes."""
        most = np.zeros(len(offers.starts) - 1, np.int64)
        some = np.diff(offers.starts) > 0
        most[some] = np.maximum.reduceat(offers.wide[offers.bundle], offers.starts[:-1][some])
        starts = starts_of(most)
        return cls(starts, np.full(starts[-1], -1, np.int64))

    def pieces(self, offers: Offers, choice: Ints) -> JobPieces:
        """Return the nodes and GPUs of the jobs that have an option, the (J,) `choice`."""
        has = np.flatnonzero(choice >= 0)
        owner, slot, nodes = offers.pieces(choice[has])
        sizes = np.bincount(has[owner], weights=nodes, minlength=len(choice)).astype(np.int64)
        starts = starts_of(sizes)
        first = np.repeat(self.starts[:-1] - starts[:-1], sizes)
        node = self.node[first + np.arange(starts[-1])]
        return JobPieces(starts, node, np.repeat(offers.slot_gpus[slot], nodes))


def serve_idle(offers: Offers, order: Ints, option: Ints, cost: Floats, sweeps: int) -> Ints:
    """Return the options of the jobs that find room, and what others take of the rest.

    Args:
        offers: what jobs could take.
        order: (J,) the jobs, the first to be served first.
        option: (J,) what was chosen, -1 for none.
        cost: (B,) of each bundle.
        sweeps: how often jobs may take what is left.
    """
    of_node, choice = offers.classes.of_node, option.copy()
    serve(offers, order, of_node, offers.classes.capacity[of_node], choice, cost, sweeps)
    return choice


def improve_by_exchange(
    offers: Offers,
    price: Floats,
    best: Floats,
    option: Ints,
    tried: NDArray[np.bool_],
    enough: float,
) -> Ints:
    """Return a choice that is worth as much or more.

    Args:
        offers: what jobs could take.
        price: (K,) prices of slots, which say what is worth a try.
        best: (J,) what each job gains at the prices with its best option.
        option: (J,) what was chosen so far; what finds no room is left out.
        tried: (Q,) the options that may be taken.
        enough: what is good enough.
    """
    classes, cost = offers.classes, offers.cost(price)
    of_node, choice = classes.of_node, option.copy()
    free = classes.capacity[of_node]
    order = offers.widest_first(option, best)
    held = serve(offers, order, of_node, free, choice, cost, 0).pieces(offers, choice)
    sizes = np.diff(held.starts)
    narrow = np.flatnonzero((sizes == 1) | (sizes == 2))
    on_two = np.full((len(choice), 2), -1, np.int64)
    on_two[narrow, 0] = held.node[held.starts[narrow]]
    on_two[narrow, 1] = held.node[held.starts[narrow + 1] - 1]
    many = np.repeat(sizes > 2, sizes)
    opened = np.flatnonzero(tried)
    open_starts = np.searchsorted(opened, offers.starts)
    bundle_starts, slots = _narrow(offers)
    exchange(
        of_node,
        offers.starts,
        offers.value,
        offers.bundle,
        bundle_starts,
        offers.slot_class[slots],
        offers.slot_gpus[slots],
        cost,
        best,
        offers.idle_worth(price),
        np.flatnonzero((np.diff(open_starts) > 0) | (choice >= 0)),
        open_starts,
        opened,
        enough,
        STEPS,
        min(CHAINS, len(of_node)),
        choice,
        free,
        on_two,
        starts_of(np.where(sizes > 2, sizes, 0)),
        held.node[many],
        held.gpus[many],
    )
    return choice


def _narrow(offers: Offers) -> tuple[Ints, Ints]:
    """Return where each bundle begins and its slots, node by node, of wide ones three."""
    wide = offers.wide
    owner = np.repeat(np.arange(len(wide)), np.diff(offers.bundle_starts))
    times = np.where(wide[owner] > 2, 3, offers.bundle_nodes)
    slots, kept = np.repeat(offers.bundle_slots, times), np.repeat(owner, times)
    # Jobs are moved to one node or two: of others no more is asked.
    nth = np.arange(len(kept)) - np.searchsorted(kept, kept)
    some = nth < 3
    return starts_of(np.minimum(wide, 3)), slots[some]
