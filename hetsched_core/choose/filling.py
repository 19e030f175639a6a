"""Serving jobs one after another: what they chose if it fits, and what others take of the rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose.offers import Offers
from hetsched_core.choose.prices import Priced
from hetsched_core.choose.problem import NodeClasses
from hetsched_core.kernels.fill import fill

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SWEEPS = 4


def filled(classes: NodeClasses, offers: Offers, priced: Priced, option: Ints) -> Ints:
    """Return what was chosen with what it leaves used up, the widest pieces going first."""
    order = np.lexsort((-priced.best, -widths(offers, option)))
    return served(classes, offers, order, option, offers.cost(priced.slot), SWEEPS)


def widths(offers: Offers, option: Ints) -> Ints:
    """Return (J,) the GPUs of the widest piece that each job chose, 0 for none."""
    width = np.zeros(len(option), np.int64)
    has = option >= 0
    first = offers.bundle_starts[offers.bundle[option[has]]]
    width[has] = offers.slots.gpus[offers.bundle_slots[first]]
    return width


def served(
    classes: NodeClasses, offers: Offers, order: Ints, option: Ints, cost: Floats, sweeps: int
) -> Ints:
    """Return the options of those who find room, and what others take of the rest."""
    of_class = np.repeat(np.arange(len(classes)), classes.count)
    choice = option.copy()
    serve(offers, order, of_class, classes.capacity[of_class], choice, cost, sweeps)
    return choice


def serve(
    offers: Offers,
    order: Ints,
    of_class: Ints,
    free: Ints,
    choice: Ints,
    cost: Floats,
    sweeps: int,
) -> Ints:
    """Serve jobs in order on nodes, as the kernel `fill` does; return the (J, M) nodes they hold.

    Args:
        offers: what jobs could take.
        order: the jobs to be served.
        of_class: (N,) class of each node.
        free: (N,) in and out, its GPUs.
        choice: (J,) in and out, the option of each job.
        cost: (B,) of each bundle.
        sweeps: how often jobs may take what is left.
    """
    held = np.full((len(choice), int(np.diff(offers.bundle_starts).max())), -1, np.int64)
    fill(
        of_class,
        order,
        offers.starts,
        offers.value,
        offers.bundle,
        cost,
        offers.bundle_starts,
        offers.slots.of_class[offers.bundle_slots],
        offers.slots.gpus[offers.bundle_slots],
        sweeps,
        choice,
        free,
        held,
    )
    return held
