"""A problem as the price loop wants it: what options take, each different thing once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose.problem import ChooseProblem
from hetsched_core.kernels.prices import number_bundles

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """The K kinds of pieces that options take: (class, GPUs), ascending.

    Attributes:
        of_class: (K,) class.
        gpus: (K,) GPUs.
        starts: (C + 1,) where the kinds of each class begin.
    """

    of_class: Ints
    gpus: Ints
    starts: Ints

    def __len__(self) -> int:
        """Number of kinds."""
        return len(self.gpus)


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """The options of a problem, by job, as values and numbered bundles of pieces.

    Attributes:
        starts: (J + 1,) where the options of each job begin.
        value: (Q,).
        bundle: (Q,) what the option takes, 0 to B - 1.
        bundle_starts: (B + 1,) where the pieces of each bundle begin.
        bundle_slots: (E,) kind of each piece, the widest of a bundle first.
        slots: the kinds.
    """

    starts: Ints
    value: Floats
    bundle: Ints
    bundle_starts: Ints
    bundle_slots: Ints
    slots: Slots

    def cost(self, slot_prices: Floats) -> Floats:
        """Return (B,) what each bundle costs at (K,) prices of pieces."""
        return np.add.reduceat(slot_prices[self.bundle_slots], self.bundle_starts[:-1])


def offers_of(problem: ChooseProblem) -> Offers:
    """Return the offers of a problem with at least one option."""
    options, classes = problem.options, problem.classes
    width = int(classes.capacity.max()) + 1
    key = options.piece_class * width + options.piece_gpus
    used = np.zeros(len(classes) * width, np.bool_)
    used[key] = True
    kinds = np.flatnonzero(used)
    of_class, gpus = kinds // width, kinds % width
    slot = (np.cumsum(used) - 1)[key]
    bundle, first = np.empty(len(options), np.int64), np.empty(len(options), np.int64)
    found = np.empty(1, np.int64)
    number_bundles(options.starts, slot, len(kinds), bundle, first, found)
    first = first[: found[0]]
    begins, sizes = options.starts[first], np.diff(options.starts)[first]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    owner = np.repeat(np.arange(len(first)), sizes)
    slots = slot[begins[owner] + np.arange(starts[-1]) - starts[owner]]
    return Offers(
        starts=np.searchsorted(options.job, np.arange(problem.jobs + 1)),
        value=options.value,
        bundle=bundle,
        bundle_starts=starts,
        bundle_slots=slots[np.lexsort((-gpus[slots], owner))],
        slots=Slots(of_class, gpus, np.searchsorted(of_class, np.arange(len(classes) + 1))),
    )
