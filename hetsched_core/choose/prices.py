"""Prices of GPUs at which jobs, left to themselves, take about what there is; and the bound.

Give each piece size s of each node class c a price. Whatever the prices, no choice is worth more
than what the jobs gain beyond the prices, each with its best option, plus what the nodes are worth,
each cut in its best way (Lagrangian duality):

    bound(prices) = sum_i max(0, max_q value_iq - price(q)) + sum_c count_c * worth_c(prices)

The least of these bounds is the optimum of the linear programme over node classes. It is looked for
by Newton's method on a smoothed bound, in which each maximum is a log-sum-exp of some softness,
while the softness falls; where Newton's path leads is guessed from its last two points. Prices are
first one for each class, by GPU, then one for each class and piece size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose.offers import Offers
from hetsched_core.choose.problem import NodeClasses, runs_of, starts_of
from hetsched_core.choose.program import patterns
from hetsched_core.kernels.prices import Choosers, best_offers, least_soft_bound, soft_bound

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COARSE = (0.3, 0.05)
FINE = (0.01,)
BY_SIZE = (0.01, 0.003, 0.001, 0.0003)
"""Softness of each step, as a share of what a GPU is worth."""

WARM = (0.05,)
"""The same in place of `COARSE` where earlier prices are known."""

_SAMPLE = 2000
"""Coarse prices are found from about so many jobs."""

MOST_CUTS = 1000
"""A class with more ways to cut a node has one price per GPU."""

MOST_SIZES = 400
"""With more prices by class and size than this, each class has one price per GPU."""

MOST_CLASSES = 1000
"""Beyond it, classes of one capacity share a price."""


@dataclass(frozen=True, slots=True, eq=False)
class PriceLoopResult:
    """What came of the price loop.

    Attributes:
        slot: (K,) price of each slot.
        per_gpu: (C,) what a node of each class is worth, by GPU.
        bound: proven: no choice is worth more.
        best: (J,) what each job gains beyond the prices with its best option, or 0.
        second: (J,) the same with the best but one; below 0 possible where none is the best.
        choice: (J,) its best option, -1 for none.
    """

    slot: Floats
    per_gpu: Floats
    bound: float
    best: Floats
    second: Floats
    choice: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Scheme:
    """How V price variables x make prices: slot k costs `amount[k] * x[variable[k]]`."""

    variable: Ints
    amount: Floats
    variables: int
    nodes: Choosers

    def slot_prices(self, x: Floats) -> Floats:
        """Return (K,) the price of each slot."""
        return self.amount * x[self.variable]

    def jobs(self, offers: Offers) -> Choosers:
        """Return the jobs as choosers."""
        return Choosers(
            offers.starts,
            np.ones(len(offers.starts) - 1),
            offers.value,
            offers.bundle,
            offers.bundle_starts,
            self.variable[offers.bundle_slots],
            self.amount[offers.bundle_slots] * offers.bundle_nodes,
        )


def find_prices(offers: Offers, earlier: Floats | None = None) -> PriceLoopResult:
    """Return prices whose bound is near the least.

    Args:
        offers: what jobs could take.
        earlier: (C,) prices per GPU to start from, of the last round, say.
    """
    classes, has = offers.classes, np.diff(offers.starts) > 0
    most = np.maximum.reduceat(offers.value, offers.starts[:-1][has])
    unit = float(most.sum() / max(1, classes.capacity @ classes.count))
    by_gpu = _one_price_each(offers)
    steps: tuple[float, ...] = COARSE
    x = np.full(by_gpu.variables, unit)
    if earlier is not None:
        steps = WARM
        shared = _shared(classes)
        x = np.bincount(shared, weights=earlier) / np.bincount(shared)
    jobs = by_gpu.jobs(offers)
    *_, x = _follow(by_gpu, _sampled(jobs), x, unit, steps)
    found = [by_gpu.slot_prices(x) for x in _follow(by_gpu, jobs, x, unit, FINE)]
    by_size = _price_each_size(offers)
    if by_size is not None:
        x = np.zeros(by_size.variables)
        x[by_size.variable] = found[-1] / by_size.amount
        found += [
            by_size.slot_prices(x) for x in _follow(by_size, by_size.jobs(offers), x, unit, BY_SIZE)
        ]
    # The last ones are the best almost always, and any are valid.
    return min((priced_at(offers, slot) for slot in found[-2:]), key=lambda priced: priced.bound)


def priced_at(offers: Offers, slot: Floats) -> PriceLoopResult:
    """Return what (K,) prices of slots prove."""
    classes, jobs = offers.classes, offers.problem.jobs
    best, second, choice = np.empty(jobs), np.empty(jobs), np.empty(jobs, np.int64)
    cost = offers.cost(slot)
    best_offers(offers.starts, offers.value, offers.bundle, cost, best, second, choice)
    worth = offers.idle_worth(slot)[np.arange(len(classes)), classes.capacity]
    bound = float(best.sum() + worth @ classes.count)
    per_gpu = worth / np.maximum(1, classes.capacity)
    return PriceLoopResult(slot, per_gpu, bound, best, second, choice)


def _follow(
    scheme: _Scheme, jobs: Choosers, x: Floats, unit: float, steps: tuple[float, ...]
) -> Iterator[Floats]:
    """Yield the price variables at the least smoothed bound, for each softness in turn."""
    before = x
    for at, step in enumerate(steps):
        start = x
        if at > 1:
            # The path is nearly straight.
            guess = x + (x - before) * (steps[at - 1] - step) / (steps[at - 2] - steps[at - 1])
            sums = [_bound(scheme, jobs, y, step * unit) for y in (x, guess)]
            start = guess if sums[1] < sums[0] else x
        before, x = x, start.copy()
        least_soft_bound(jobs, scheme.nodes, step * unit, x)
        yield x


def _bound(scheme: _Scheme, jobs: Choosers, x: Floats, softness: float) -> float:
    """Return the soft bound at the price variables x."""
    bound, gradient, hessian = np.empty(1), np.empty(len(x)), np.empty((len(x), len(x)))
    soft_bound(jobs, scheme.nodes, x, softness, bound, gradient, hessian)
    return float(bound[0])


def _sampled(jobs: Choosers) -> Choosers:
    """Return every so manieth job, with the weight of those left out."""
    number = len(jobs.weight)
    every = max(1, number // _SAMPLE)
    if every == 1:
        return jobs
    kept = np.arange(0, number, every)
    at = runs_of(jobs.starts, kept)[1]
    return jobs._replace(
        starts=starts_of(np.diff(jobs.starts)[kept]),
        weight=np.full(len(kept), number / len(kept)),
        value=jobs.value[at],
        bundle=jobs.bundle[at],
    )


def _shared(classes: NodeClasses) -> Ints:
    """Return (C,) the variable that is the price of a GPU of each class."""
    if len(classes) <= MOST_CLASSES:
        return np.arange(len(classes))
    return np.unique(classes.capacity, return_inverse=True)[1].astype(np.int64)


def _one_price_each(offers: Offers) -> _Scheme:
    """Return the scheme of one price per GPU for each class."""
    classes = offers.classes
    variable, every = _shared(classes), np.arange(len(classes) + 1)
    return _Scheme(
        variable=variable[offers.slot_class],
        amount=offers.slot_gpus.astype(np.float64),
        variables=int(variable.max()) + 1,
        # A node sells all its GPUs, or none.
        nodes=Choosers(
            every,
            classes.count.astype(np.float64),
            np.zeros(len(classes)),
            every[:-1],
            every,
            variable,
            -classes.capacity.astype(np.float64),
        ),
    )


def _price_each_size(offers: Offers) -> _Scheme | None:
    """Return the scheme of one price for each slot; None if it would add nothing.

    Where there is one node only, or too many ways to cut it, a GPU has a price.
    """
    classes, slots = offers.classes, len(offers.slot_gpus)
    gpus, bounds = offers.slot_gpus.tolist(), pairwise(offers.slot_starts.tolist())
    sales = [
        _sales(capacity, tuple(gpus[begin:end])) if count > 1 and end > begin else None
        for capacity, count, (begin, end) in zip(
            classes.capacity.tolist(), classes.count.tolist(), bounds, strict=True
        )
    ]
    wide = sum(sale.sizes for sale in sales if sale is not None)
    if wide == 0 or wide + len(classes) > MOST_SIZES:
        return None
    variable, amount = np.empty(slots, np.int64), np.ones(slots)
    sizes, variables, amounts, free = [], [], [], 0
    for c, sale in enumerate(sales):
        mine = slice(offers.slot_starts[c], offers.slot_starts[c + 1])
        if sale is None:
            variable[mine], amount[mine] = free, offers.slot_gpus[mine]
            sale = _whole(int(classes.capacity[c]))
        else:
            variable[mine] = free + np.arange(sale.sizes)
        variables.append(free + sale.size)
        amounts.append(sale.amount)
        sizes.append(sale.pieces)
        free += sale.sizes
    ways = sum(map(len, sizes))
    return _Scheme(
        variable,
        amount,
        free,
        Choosers(
            starts_of([len(each) for each in sizes]),
            classes.count.astype(np.float64),
            np.zeros(ways),
            np.arange(ways),
            starts_of(np.concatenate(sizes)),
            np.concatenate(variables),
            np.concatenate(amounts),
        ),
    )


class _Sale(NamedTuple):
    """The ways in which a node sells its GPUs, as terms: (E,) which size, and minus how many.

    `pieces` is (Z,) how many terms each way has, `sizes` how many sizes there are.
    """

    size: Ints
    amount: Floats
    pieces: Ints
    sizes: int


def _whole(capacity: int) -> _Sale:
    """Return how a node sells all its GPUs at one price."""
    one = np.ones(1, np.int64)
    return _Sale(np.zeros(1, np.int64), np.array([-float(max(1, capacity))]), one, 1)


@lru_cache(maxsize=1 << 10)
def _sales(capacity: int, gpus: tuple[int, ...]) -> _Sale | None:
    """Return the ways to cut a node into these sizes, those that waste GPUs included.

    None if there are too many.
    """
    # A piece of one GPU that no option asks for is waste.
    cuts = patterns(capacity, (1, *gpus), MOST_CUTS)
    if cuts is None:
        return None
    sold = cuts[:, 1:]
    sold = sold[sold.any(axis=1)]
    way, size = np.nonzero(sold)
    return _Sale(size, -sold[way, size].astype(np.float64), np.bincount(way), len(gpus))
