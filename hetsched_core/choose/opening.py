"""The part of a problem that prices leave open, and the programme over it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose.offers import Offers
from hetsched_core.choose.prices import Priced
from hetsched_core.choose.problem import NodeClasses
from hetsched_core.choose.program import formulate
from hetsched_core.optimize import Limits, Solution, Status, solve

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHARE = 0.95
"""What part of the gap asked for is left to the programme."""

_WORK, _FEWEST_NODES, _MOST_NODES = 2_000_000, 50, 5000
"""Branch-and-bound nodes times columns, and nodes, at which a solve stops."""


def losses(offers: Offers, priced: Priced) -> Floats:
    """Return (Q,) what each option loses: what its job would gain more with its best one."""
    profit = offers.value - offers.cost(priced.slot)[offers.bundle]
    return np.repeat(priced.best, np.diff(offers.starts)) - profit


def loss_within(loss: Floats, number: int) -> float:
    """Return the loss within which so many options are; infinity for all."""
    if len(loss) <= number:
        return math.inf
    return max(0.0, float(np.partition(loss, number)[number]))


def opened_within(offers: Offers, priced: Priced, loss: Floats, within: float) -> tuple[Ints, Ints]:
    """Return the options that lose so much at most, and apart those of jobs with a single one.

    A job that could lose no more by getting nothing has a second one.
    """
    settled = (priced.choice >= 0) & (priced.best - priced.second > within)
    loose = np.repeat(~settled, np.diff(offers.starts))
    return np.flatnonzero(loose & (loss <= within)), priced.choice[settled]


def solved(
    classes: NodeClasses, offers: Offers, opened: Ints, fixed: Ints, enough: float, gap: float
) -> Solution:
    """Look for a choice worth more than `enough` among the opened options; the fixed are taken."""
    if len(opened) == 0:
        return Solution(status=Status.INFEASIBLE)
    program = formulate(classes, offers, opened, fixed)
    # The programme's own gap is relative to what is open.
    settled = float(offers.value[fixed].sum())
    rest = float(np.maximum.reduceat(offers.value[opened], _firsts(offers, opened)).sum())
    share = (settled + rest) / max(rest, 1e-300)
    nodes = int(np.clip(_WORK / len(program.cost), _FEWEST_NODES, _MOST_NODES))
    limits = Limits(gap=min(1.0, SHARE * gap * share), nodes=nodes, cutoff=enough - settled)
    return solve(program, limits=limits, presolve=False)


def owners(offers: Offers, options: Ints) -> Ints:
    """Return the job of each option."""
    return np.searchsorted(offers.starts, options, side="right") - 1


def _firsts(offers: Offers, options: Ints) -> Ints:
    """Return where in `options`, ascending, those of each job begin."""
    owner = owners(offers, options)
    return np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))


def worth(offers: Offers, option: Ints) -> float:
    """Return the sum of the values of a choice."""
    return float(offers.value[option[option >= 0]].sum())
