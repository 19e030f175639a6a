"""Choosing: prices, exchanges, then an integer programme over what the prices leave open.

At prices with a bound U, an option *loses* what its job would gain more with its best option. A
choice with an option that loses more than d is worth at most U - d. So the programme is solved over
the options that lose d or less, jobs without a second such option being settled, and what it proves
holds for the whole problem, up to U - d. It looks only for choices worth more than would make the
best one so far good enough; mostly there are none, which is soon proven. If d is so small that
U - d is worth more, d grows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose.nodes import (
    drop_unplaced,
    fits,
    node_by_node,
    surely_fits,
)
from hetsched_core.choose.offers import SWEEPS, Offers, improve_by_exchange, offers_of, serve_idle
from hetsched_core.choose.pools import MergedKinds, merge_kinds, split_kinds
from hetsched_core.choose.prices import PriceLoopResult, find_prices, priced_at
from hetsched_core.choose.problem import Choice, ChooseProblem, NodeClasses
from hetsched_core.choose.program import SHARE, solve_open

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ALL = "integer programme over node classes"
OPEN = "prices, then an integer programme over the options left open"
ROUNDED = "prices, then one job after another"
EXCHANGED = "prices, then one job after another, then exchanges"
BY_NODE = "integer programme over nodes"

FEW_OPTIONS = 500
"""So many options are all left open at once."""

TRIED = 400
"""So many options besides the best ones are tried in exchanges."""

FIRST_OPEN, MORE_OPEN = 300, 1000
"""Options besides the best ones that are left open at first, and so many more each time after."""

ENOUGH_OPEN = 2000
"""If so few options have to be left open to prove that a choice is good enough, they all are."""

FEW_BY_CLASS = 2000
"""Up to so many options are looked at by class where a choice among kinds is not good enough."""

MOST_OPEN = 20_000
"""No more options than this are left open to improve a choice, in all programmes together."""

MOST_WORK = 600_000
"""Work of the solver of integer programmes in a choice, as in `Limits`: some 0.6 s.

No problem of `benchmarks.choose_scale` and `benchmarks.choose_groups` takes more. Without a limit
one plan took 25 s of `benchmarks.slowest_plans`.
"""

_NEARLY = 1 - 1e-6
"""A gap that is not missed by a rounding error."""


def choose(
    problem: ChooseProblem,
    gap: float = 5e-4,
    prices: Floats | None = None,
    work: int = MOST_WORK,
) -> Choice:
    """Choose at most one option for each job so that the values add up to the most.

    Equal input gives an equal result: limits are in work of the solver and options.

    Args:
        problem: what there is to choose.
        gap: relative gap between the choice and the bound at which it is good enough.
        prices: (C,) finite prices per GPU to start from, such as those of an earlier choice.
        work: what integer programmes may take in all; a choice is then as good as it is.
    """
    if len(problem.options) == 0:
        nothing = np.full(problem.jobs, -1, np.int64)
        return Choice(nothing, 0.0, 0.0, ALL, np.zeros(len(problem.classes)))
    top = float(problem.options.value.max())
    offers = offers_of(problem, top)
    earlier = None if prices is None else prices / top
    whole = merge_kinds(problem)
    if whole is None:
        priced = find_prices(offers, earlier)
        found = _search(offers, priced, _rounding(offers, priced), gap, work)
    else:
        priced, found = _by_kind(whole, offers, earlier, gap, work, top)
    # In the problem's own units of value.
    objective = float(problem.options.value[found.option[found.option >= 0]].sum())
    bound, per_gpu = max(objective, found.bound * top), priced.per_gpu * top
    return Choice(found.option, objective, bound, found.method, per_gpu, found.limits, found.work)


def choose_in_order(problem: ChooseProblem) -> Ints:
    """Give one job after another its most valuable option among those that still fit.

    Hops for a lambda beyond the precision of any gap: strict priority.

    Returns:
        (J,) the option of each job, -1 for none.
    """
    option = np.full(problem.jobs, -1, np.int64)
    if len(problem.options) == 0:
        return option
    offers = offers_of(problem)
    return serve_idle(offers, np.arange(problem.jobs), option, offers.free_of_charge, 1)


def _by_kind(
    whole: MergedKinds, offers: Offers, earlier: Floats | None, gap: float, work: int, unit: float
) -> tuple[PriceLoopResult, _Incumbent]:
    """Choose among kinds of nodes first; where that cannot be told apart, among classes."""
    together, options = offers_of(whole.problem, unit), offers.problem.options
    if earlier is not None:
        earlier = np.bincount(whole.kind, weights=earlier) / np.bincount(whole.kind)
    price = find_prices(together, earlier)
    found = _search(together, price, _rounding(together, price), SHARE * gap, work)
    # Prices of kinds are prices of classes, and prove the same.
    width = int(together.classes.capacity.max()) + 1
    key = together.slot_class * width + together.slot_gpus
    own = whole.kind[offers.slot_class] * width + offers.slot_gpus
    priced = priced_at(offers, price.slot[np.searchsorted(key, own)])
    option = split_kinds(whole, offers, found.option)
    used = found.work
    if _gap_missed(offers, option, found.bound, gap):
        left = work - used
        option, more = _rechoose_kinds(whole, offers.problem, option, found.option, gap, left)
        used += more
    best = max(option, _rounding(offers, priced).option, key=offers.worth)
    start = _Incumbent(best, found.bound, found.method, found.limits, used)
    if len(options) > FEW_BY_CLASS:
        start = _improve(offers, priced, _losses(offers, priced), start, gap)
        if _gap_missed(offers, start.option, start.bound, gap):
            start = replace(start, limits=(*start.limits, "nodes of one kind in pools"))
        return priced, _fit_nodes(offers, start, gap, work)
    return priced, _search(offers, priced, start, gap, work)


def _rechoose_kinds(
    whole: MergedKinds, problem: ChooseProblem, option: Ints, wanted: Ints, gap: float, work: int
) -> tuple[Ints, int]:
    """Return what was chosen, or better, and the work: kinds that lacked room are chosen anew.

    Args:
        whole: the problem over kinds.
        problem: the problem itself.
        option: (J,) what was chosen in it.
        wanted: (J,) what was chosen among kinds.
        gap: relative gap.
        work: what integer programmes may take in all.
    """
    classes, options = problem.classes, problem.options
    value = np.append(options.value, 0.0)
    sought = np.append(whole.problem.options.value, 0.0)
    lost = value[option] < sought[wanted] * (1 - gap)
    _, classes_wanted, _ = whole.problem.options.by_node(wanted[lost & (wanted >= 0)])
    hit = np.unique(classes_wanted)
    kind, used = whole.kind[options.piece_class], 0
    for each in hit.tolist():
        there = kind == each
        inside = np.logical_and.reduceat(there, options.starts[:-1])[options.bundle]
        some = np.logical_or.reduceat(there, options.starts[:-1])[options.bundle]
        free = (lost & (option < 0)) | np.append(inside, False)[option]
        kept = np.flatnonzero(inside & free[options.job])
        if np.append(some, False)[option[~free]].any() or not 0 < len(kept) <= FEW_BY_CLASS:
            continue
        alone = NodeClasses(classes.capacity, classes.count, classes.label)
        chosen = choose(
            ChooseProblem(alone, options.only(kept), problem.jobs), gap, work=work - used
        )
        used += chosen.work
        anew = option.copy()
        anew[free] = np.append(kept, -1)[chosen.option][free]
        if value[anew].sum() > value[option].sum():
            option = anew
    return option, used


def _rounding(offers: Offers, priced: PriceLoopResult) -> _Incumbent:
    """Return what jobs take at the prices, one after another."""
    return _Incumbent(_fill_rest(offers, priced, priced.choice), priced.bound, ROUNDED)


def _fill_rest(offers: Offers, priced: PriceLoopResult, option: Ints) -> Ints:
    """Return what was chosen with what it leaves used up, the widest pieces going first."""
    order = offers.widest_first(option, priced.best)
    return serve_idle(offers, order, option, offers.cost(priced.slot), SWEEPS)


@dataclass(frozen=True, slots=True, eq=False)
class _Incumbent:
    """The best so far: an option for each job, what is proven about all others, and the work."""

    option: Ints
    bound: float
    method: str
    limits: tuple[str, ...] = ()
    work: int = 0


def _search(
    offers: Offers, priced: PriceLoopResult, best: _Incumbent, gap: float, work: int
) -> _Incumbent:
    """Exchange options, then leave more and more of them open until the gap is reached."""
    if not _gap_missed(offers, best.option, best.bound, gap):
        return _fit_nodes(offers, best, gap, work)
    loss = _losses(offers, priced)
    best = _improve(offers, priced, loss, best, gap)
    chosen = int((priced.choice >= 0).sum())
    most, total = chosen + FIRST_OPEN, 0
    while _gap_missed(offers, best.option, best.bound, gap):
        # The choice is good enough if none is worth more than this.
        enough = (1 + _NEARLY * gap) * offers.worth(best.option)
        within = missing = priced.bound - enough
        if len(loss) <= FEW_OPTIONS:
            within = math.inf
        elif within > _loss_within(loss, chosen + ENOUGH_OPEN):
            within = min(within, _loss_within(loss, most))
            most += MORE_OPEN
        opened, fixed = _open_options(offers, priced, loss, within)
        total += len(opened)
        if total > MOST_OPEN:
            best = replace(best, limits=("options left open",))
            break
        if best.work >= work:
            best = replace(best, limits=("work",))
            break
        found = solve_open(offers, opened, fixed, enough, gap, work - best.work)
        option, proven = best.option, enough
        if found.x is not None:
            taken = np.concatenate([fixed, opened[found.x[: len(opened)] > 0.5]])
            option = np.full(offers.problem.jobs, -1, np.int64)
            option[offers.job_of(taken)] = taken
            used_up = _fill_rest(offers, priced, option)
            option = max((best.option, option, used_up), key=offers.worth)
            proven = math.inf
            if found.bound is not None:
                proven = found.bound + float(offers.value[fixed].sum())
        elif found.limits:
            proven = math.inf
            if found.bound is not None:
                proven = max(enough, found.bound + float(offers.value[fixed].sum()))
        improved = offers.worth(option) > offers.worth(best.option)
        best = _Incumbent(
            option,
            min(best.bound, max(proven, priced.bound - within)),
            ALL if math.isinf(within) else OPEN,
            found.limits,
            best.work + found.work,
        )
        if best.limits or math.isinf(within) or (within >= missing and not improved):
            break
    return _fit_nodes(offers, best, gap, work)


def _gap_missed(offers: Offers, option: Ints, bound: float, gap: float) -> bool:
    """Return whether the bound is further from a choice than the gap."""
    return bound > (1 + gap) * offers.worth(option)


def _improve(
    offers: Offers, priced: PriceLoopResult, loss: Floats, best: _Incumbent, gap: float
) -> _Incumbent:
    """Exchange options until the gap is reached, if it can be."""
    if not _gap_missed(offers, best.option, best.bound, gap):
        return best
    pool = offers.classes.pool
    # What is on offer in several pools is there as often.
    pools = 1 if pool is None else len(np.unique(pool))
    tried = loss <= _loss_within(loss, pools * (int((priced.choice >= 0).sum()) + TRIED))
    enough = best.bound / (1 + gap)
    option = improve_by_exchange(offers, priced.slot, priced.best, best.option, tried, enough)
    if offers.worth(option) <= offers.worth(best.option):
        return best
    return replace(best, option=option, method=EXCHANGED)


def _losses(offers: Offers, priced: PriceLoopResult) -> Floats:
    """Return (Q,) what each option loses: what its job would gain more with its best one."""
    profit = offers.value - offers.cost(priced.slot)[offers.bundle]
    return np.repeat(priced.best, np.diff(offers.starts)) - profit


def _loss_within(loss: Floats, number: int) -> float:
    """Return the loss within which so many options are; infinity for all."""
    if len(loss) <= number:
        return math.inf
    return max(0.0, float(np.partition(loss, number)[number]))


def _open_options(
    offers: Offers, priced: PriceLoopResult, loss: Floats, within: float
) -> tuple[Ints, Ints]:
    """Return the options that lose so much at most, and apart those of jobs with a single one.

    A job that could lose no more by getting nothing has a second one.
    """
    settled = (priced.choice >= 0) & (priced.best - priced.second > within)
    loose = np.repeat(~settled, np.diff(offers.starts))
    return np.flatnonzero(loose & (loss <= within)), priced.choice[settled]


def _fit_nodes(offers: Offers, found: _Incumbent, gap: float, work: int) -> _Incumbent:
    """Return what was found where it fits on nodes; else the best that does, as far as known.

    The class formulation lets two pieces of one job share a node where they are small enough.
    """
    problem = offers.problem
    if surely_fits(offers) or fits(problem, found.option):
        return found
    if (nodes := node_by_node(problem)) is not None:
        alone, origin = nodes
        best = choose(alone, gap, work=work - found.work)
        option = np.where(best.option >= 0, origin[best.option], -1)
        if fits(problem, option):
            bound = min(found.bound, best.bound / float(problem.options.value.max()))
            return _Incumbent(option, bound, BY_NODE, best.limits, found.work + best.work)
    return replace(
        found,
        option=drop_unplaced(problem, found.option),
        limits=(*found.limits, "pieces of one job on one node"),
    )
