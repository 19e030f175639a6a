"""Making a choice better by exchanging what a few nodes at a time are used for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose.filling import serve, widths
from hetsched_core.choose.offers import Offers
from hetsched_core.choose.prices import Priced, idle_worth
from hetsched_core.choose.problem import NodeClasses
from hetsched_core.kernels.exchange import exchange

Ints = NDArray[np.int64]

STEPS, CHAINS = 30, 60
"""How often a few nodes are shared out anew, alone and in chains, of which one a node is enough."""


def exchanged(
    classes: NodeClasses,
    offers: Offers,
    priced: Priced,
    option: Ints,
    tried: NDArray[np.bool_],
    enough: float,
) -> Ints:
    """Return a choice that is worth as much or more.

    Args:
        classes: the node classes.
        offers: what jobs could take.
        priced: prices, which say what is worth a try.
        option: (J,) what was chosen so far; what finds no room is left out.
        tried: (Q,) the options that may be taken.
        enough: what is good enough.
    """
    of_class = np.repeat(np.arange(len(classes)), classes.count)
    cost = offers.cost(priced.slot)
    choice, free = option.copy(), classes.capacity[of_class]
    order = np.lexsort((-priced.best, -widths(offers, option)))
    held = serve(offers, order, of_class, free, choice, cost, 0)
    opened = np.flatnonzero(tried)
    open_starts = np.searchsorted(opened, offers.starts)
    exchange(
        of_class,
        offers.starts,
        offers.value,
        offers.bundle,
        offers.bundle_starts,
        offers.slots.of_class[offers.bundle_slots],
        offers.slots.gpus[offers.bundle_slots],
        cost,
        priced.best,
        idle_worth(classes, offers.slots, priced.slot),
        np.flatnonzero((np.diff(open_starts) > 0) | (choice >= 0)),
        open_starts,
        opened,
        enough,
        STEPS,
        min(CHAINS, len(of_class)),
        choice,
        free,
        held,
    )
    return choice
