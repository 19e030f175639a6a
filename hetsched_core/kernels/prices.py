"""Jobs that choose among priced bundles of GPUs: the loops behind the prices of node classes.

A *bundle* is what an option takes, as the numbers of its pieces of each (class, GPUs). Far fewer
bundles than options are different, so prices are added up once for each bundle. The naive twins are
in `tests/hetsched_core/choose/naive.py`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hetsched_core.kernels import Floats, FloatsOut, FloatTableOut, Ints, IntsOut, kernel, scalar

NEGLIGIBLE = 40.0
"""Weights below exp of minus this do not show in a sum of float64."""

NEWTON_STEPS, HALVINGS = 12, 12
TOLERANCE, RIDGE, REACH = 1e-6, 1e-9, 10.0


@kernel()
def number_bundles(
    starts: Ints, slot: Ints, slots: int, bundle: IntsOut, first: IntsOut, found: IntsOut
) -> None:
    """Number the different sequences of pieces in order of first appearance.

    Args:
        starts: (Q + 1,) where each option's pieces begin.
        slot: (P,) kind of each piece, 0 to slots - 1.
        slots: number of kinds.
        bundle: (Q,) out, number of the option's sequence.
        first: (Q,) out, the first option with each sequence.
        found: (1,) out, number of different sequences.
    """
    # A prefix and the next piece lead to a longer prefix: open addressing over such pairs.
    size = 1024
    keys = np.full(size, -1, np.int64)
    leads_to = np.empty(size, np.int64)
    # Number of the sequence that ends with a prefix, -1 for none yet; prefix 0 is the empty one.
    ends = np.full(len(slot) + 1, -1, np.int64)
    prefixes, bundles = 1, 0
    for q in range(len(bundle)):
        prefix = 0
        for p in range(starts[q], starts[q + 1]):
            key = prefix * slots + slot[p]
            at = (key * 0x9E3779B97F4A7C1) & (size - 1)
            while keys[at] >= 0 and keys[at] != key:
                at = (at + 1) & (size - 1)
            if keys[at] < 0:
                keys[at] = key
                leads_to[at] = prefixes
                prefix = prefixes
                prefixes += 1
                if 2 * prefixes > size:
                    old_keys, old_leads = keys, leads_to
                    size *= 2
                    keys = np.full(size, -1, np.int64)
                    leads_to = np.empty(size, np.int64)
                    for i in range(len(old_keys)):
                        if old_keys[i] >= 0:
                            to = (old_keys[i] * 0x9E3779B97F4A7C1) & (size - 1)
                            while keys[to] >= 0:
                                to = (to + 1) & (size - 1)
                            keys[to] = old_keys[i]
                            leads_to[to] = old_leads[i]
            else:
                prefix = leads_to[at]
        if ends[prefix] < 0:
            ends[prefix] = bundles
            first[bundles] = q
            bundles += 1
        bundle[q] = ends[prefix]
    found[0] = bundles


class Choosers(NamedTuple):
    """Those that choose among offers; what these cost follows from V price variables.

    Attributes:
        starts: (I + 1,) where the offers of each chooser begin.
        weight: (I,) how many choosers of a kind there are.
        value: (Q,) value of each offer.
        bundle: (Q,) its bundle.
        term_starts: (B + 1,) where each bundle's terms begin; each has at least one.
        variable: (E,) price variable of a term.
        amount: (E,) d cost / d variable.
    """

    starts: IntsOut
    weight: FloatsOut
    value: FloatsOut
    bundle: IntsOut
    term_starts: IntsOut
    variable: IntsOut
    amount: FloatsOut


@scalar
def _add_soft_surplus(
    surplus: float,
    choosers: Choosers,
    x: Floats,
    softness: float,
    gradient: Floats,
    hessian: Floats,
) -> float:
    """Return a surplus and the soft surplus of choosers at prices x, and add its derivatives."""
    starts, weight, value, bundle, term_starts, variable, amount = choosers
    cost = np.empty(len(term_starts) - 1)
    for b in range(len(cost)):
        first = term_starts[b]
        rest = 0.0
        for e in range(first + 1, term_starts[b + 1]):
            rest += x[variable[e]] * amount[e]
        cost[b] = x[variable[first]] * amount[first] + rest
    # What the choosers take of each variable on average; zero outside `touched`.
    mean = np.zeros(len(x))
    touched = np.empty(len(x), np.int64)
    seen = np.zeros(len(x), np.bool_)
    for i in range(len(weight)):
        best = 0.0
        for q in range(starts[i], starts[i + 1]):
            best = max(best, value[q] - cost[bundle[q]])
        floor = best - NEGLIGIBLE * softness
        total = math.exp(-best / softness)
        for q in range(starts[i], starts[i + 1]):
            profit = value[q] - cost[bundle[q]]
            if profit > floor:
                total += math.exp((profit - best) / softness)
        surplus += weight[i] * (best + softness * math.log(total))
        size = 0
        for q in range(starts[i], starts[i + 1]):
            b = bundle[q]
            profit = value[q] - cost[b]
            if profit <= floor:
                continue
            share = math.exp((profit - best) / softness) / total
            curve = weight[i] * share / softness
            for e in range(term_starts[b], term_starts[b + 1]):
                u = variable[e]
                if not seen[u]:
                    seen[u] = True
                    touched[size] = u
                    size += 1
                mean[u] += share * amount[e]
                for f in range(term_starts[b], term_starts[b + 1]):
                    hessian[u, variable[f]] += curve * amount[e] * amount[f]
        for s in range(size):
            u = touched[s]
            gradient[u] -= weight[i] * mean[u]
            curve = weight[i] * mean[u] / softness
            for t in range(size):
                hessian[u, touched[t]] -= curve * mean[touched[t]]
        for s in range(size):
            mean[touched[s]] = 0.0
            seen[touched[s]] = False
    return surplus


@scalar
def _soft_bound(
    jobs: Choosers, nodes: Choosers, x: Floats, softness: float, gradient: Floats, hessian: Floats
) -> float:
    """Return the soft bound at prices x, and fill in its derivatives."""
    gradient[:] = 0.0
    hessian[:] = 0.0
    surplus = _add_soft_surplus(0.0, jobs, x, softness, gradient, hessian)
    return _add_soft_surplus(surplus, nodes, x, softness, gradient, hessian)


@kernel()
def soft_bound(
    jobs: Choosers,
    nodes: Choosers,
    x: Floats,
    softness: float,
    bound: FloatsOut,
    gradient: FloatsOut,
    hessian: FloatTableOut,
) -> None:
    """Find the soft bound at prices: what jobs and nodes gain, each with its best offer, softened.

    A chooser's soft surplus is softness * log(1 + sum_q exp((value_q - cost_q) / softness)): smooth
    in the prices, and the surplus of the best offer where softness is small.

    Args:
        jobs: those that buy.
        nodes: those that sell: at prices above 0 their offers cost less than nothing.
        x: (V,) the price variables.
        softness: above 0, in units of value.
        bound: (1,) out.
        gradient: (V,) out, by the price variables.
        hessian: (V, V) out.
    """
    bound[0] = _soft_bound(jobs, nodes, x, softness, gradient, hessian)


@kernel()
def least_soft_bound(jobs: Choosers, nodes: Choosers, softness: float, x: FloatsOut) -> None:
    """Follow Newton's method from prices to those at which the soft bound is about the least.

    Args:
        jobs: those that buy.
        nodes: those that sell.
        softness: above 0, in units of value.
        x: (V,) in and out, the price variables.
    """
    gradient, after = np.empty(len(x)), np.empty(len(x))
    hessian, curved = np.empty((len(x), len(x))), np.empty((len(x), len(x)))
    bound = _soft_bound(jobs, nodes, x, softness, gradient, hessian)
    for _ in range(NEWTON_STEPS):
        # Where no job is in two minds the bound is flat: no step is longer than the prices allow.
        reach = REACH * max(softness, np.abs(x).max())
        trace = 0.0
        for v in range(len(x)):
            trace += hessian[v, v]
        ridge = max(RIDGE * trace, math.sqrt(np.dot(gradient, gradient)) / reach)
        if not 0.0 < ridge < np.inf:
            break
        for v in range(len(x)):
            hessian[v, v] += ridge
        step = -np.linalg.solve(hessian, gradient)
        slope = np.dot(gradient, step)
        if -slope <= TOLERANCE * bound:
            break
        found = False
        for _ in range(HALVINGS):
            there = _soft_bound(jobs, nodes, x + step, softness, after, curved)
            if there <= bound + 1e-4 * slope:
                found = True
                break
            step, slope = step / 2, slope / 2
        if not found:
            break
        x += step
        bound = there
        gradient, after = after, gradient
        hessian, curved = curved, hessian


@kernel()
def best_offers(
    starts: Ints,
    value: Floats,
    bundle: Ints,
    cost: Floats,
    best: FloatsOut,
    second: FloatsOut,
    choice: IntsOut,
) -> None:
    """Find each job's best offer at the costs, the first of equal ones.

    Args:
        starts: (J + 1,) where the offers of each job begin.
        value: (Q,) value of each offer.
        bundle: (Q,) its bundle.
        cost: (B,) cost of each bundle.
        best: (J,) out, value less cost of the best offer, 0 if none is above.
        second: (J,) out, the same of the second best, none included.
        choice: (J,) out, the best offer, -1 for none.
    """
    for j in range(len(choice)):
        first, next_best, taken = 0.0, 0.0, -1
        for q in range(starts[j], starts[j + 1]):
            profit = value[q] - cost[bundle[q]]
            if profit > first:
                first, next_best, taken = profit, first, q
            elif profit > next_best:
                next_best = profit
        if taken < 0:
            # None is the best; what it is better than is below 0.
            next_best = -math.inf
            for q in range(starts[j], starts[j + 1]):
                next_best = max(next_best, value[q] - cost[bundle[q]])
        best[j], second[j], choice[j] = first, next_best, taken


@kernel()
def node_worth(
    capacity: Ints, slot_starts: Ints, slot_gpus: Ints, price: Floats, worth: FloatTableOut
) -> None:
    """Find what the best cut of so many GPUs of a node of each class is worth at prices by piece.

    Args:
        capacity: (C,) GPUs of a node.
        slot_starts: (C + 1,) where the piece sizes of each class begin.
        slot_gpus: (K,) GPUs of a piece.
        price: (K,) price of a piece.
        worth: (C, G + 1) out, up to the GPUs of the node; 0 beyond.
    """
    for c in range(len(capacity)):
        most = worth[c]
        most[:] = 0.0
        for gpus in range(1, capacity[c] + 1):
            most[gpus] = most[gpus - 1]
            for k in range(slot_starts[c], slot_starts[c + 1]):
                if slot_gpus[k] <= gpus:
                    most[gpus] = max(most[gpus], most[gpus - slot_gpus[k]] + price[k])
