"""Which samples each rank gets, so that training can go on in mid-epoch on any number of ranks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from job_wrappers.session.errors import SessionError
from job_wrappers.session.peers import Peers


@dataclass(eq=False)
class BatchOrder:
    """The batches of one rank: the next `batch * size` samples of one order go to each step.

    The order of an epoch depends on the seed and the epoch alone, so that a run with another number
    of ranks goes on with the very next sample. A short step at the end is spread evenly, and what
    cannot be spread is left out.

    Attributes:
        torch: the module.
        length: samples of the data set.
        batch: of one rank and step.
        shuffle: whether the order is drawn; else it is that of the data set.
        drop_last: whether a short step at the end is left out.
        seed: of the order.
        rank, size: this rank, and how many there are.
        epoch: for which to give batches.
        start: samples of the epoch that have been taken.
    """

    torch: Any
    length: int
    batch: int
    shuffle: bool
    drop_last: bool
    seed: int
    rank: int
    size: int
    epoch: int = 0
    start: int = 0

    def taken_after(self, start: int) -> int:
        """Return how many samples of the epoch are taken after the step that begins at `start`."""
        return min(self.length, start + self.batch * self.size)

    def __len__(self) -> int:
        """Return how many batches are left of the epoch."""
        step = self.batch * self.size
        whole, rest = divmod(self.length - self.start, step)
        return whole + (rest >= self.size and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the indices of each batch."""
        order = self._order()
        at = self.start
        for _ in range(len(self)):
            each = (self.taken_after(at) - at) // self.size
            begin = at + self.rank * each
            yield order[begin : begin + each]
            at = self.taken_after(at)

    def _order(self) -> Any:
        if not self.shuffle:
            return range(self.length)
        generator = self.torch.Generator()
        generator.manual_seed(self.seed * 1_000_003 + self.epoch)
        return self.torch.randperm(self.length, generator=generator).tolist()


class TimedDataset:
    """A data set whose batches come with the seconds that a loader's worker took for them."""

    def __init__(self, dataset: Any, collate: Any) -> None:
        """Stand in for `dataset`, of which `collate` makes batches."""
        self.dataset, self._collate = dataset, collate

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, indices: Sequence[int]) -> tuple[Any, float]:
        """Return the samples, and when they were asked for."""
        begun = time.perf_counter()
        several = getattr(self.dataset, "__getitems__", None)
        items = several(indices) if several else [self.dataset[index] for index in indices]
        return items, begun

    def collate(self, fetched: tuple[Any, float]) -> tuple[Any, float]:
        """Return a batch and the seconds it took."""
        items, begun = fetched
        batch = self._collate(items)
        return batch, time.perf_counter() - begun

    def __getattr__(self, name: str) -> Any:
        # Others may look for what the data set has of its own; while unpickling there is none yet.
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)


class Batches:
    """The loader of a session: the user's own, with samples in an order that can be resumed.

    Attributes:
        order: which samples each rank gets; None where the loader has an order of its own, of which
            only the number of batches is known.
        workers: processes that load beside training; 0 if training loads by itself.
    """

    def __init__(
        self, torch: Any, loader: Any, peers: Peers, seed: int, global_batch: int | None
    ) -> None:
        """Take a loader over.

        Raises:
            SessionError: the global batch cannot be kept on so many ranks.
        """
        data = torch.utils.data
        self._loader = loader
        self._own: Any = None
        self.order: BatchOrder | None = None
        self.workers = 0
        known = (data.RandomSampler, data.SequentialSampler, data.distributed.DistributedSampler)
        sampler = getattr(loader, "sampler", None)
        if not (
            isinstance(loader, data.DataLoader)
            and loader.batch_size is not None
            and isinstance(sampler, known)
            and not getattr(sampler, "replacement", False)
        ):
            if global_batch is not None:
                raise SessionError(
                    "global_batch needs a DataLoader over a data set with a length, with a batch "
                    "size and without a sampler of its own"
                )
            return
        batch = loader.batch_size
        if global_batch is not None:
            batch, rest = divmod(global_batch, peers.size)
            if rest or not batch:
                raise SessionError(
                    f"a global batch of {global_batch} cannot be spread evenly over "
                    f"{peers.size} GPUs; leave such counts out of --gpu-set"
                )
        shuffle = getattr(sampler, "shuffle", isinstance(sampler, data.RandomSampler))
        self.order = BatchOrder(
            torch,
            len(loader.dataset),
            batch,
            shuffle=shuffle,
            drop_last=loader.drop_last,
            seed=seed,
            rank=peers.rank,
            size=peers.size,
        )
        self.workers = loader.num_workers
        dataset, collate = loader.dataset, loader.collate_fn
        if self.workers:
            dataset = TimedDataset(dataset, collate)
            collate = dataset.collate
        # Its own generator: the loader draws from one each epoch, which nothing else may notice.
        self._generator = torch.Generator()
        more = {"prefetch_factor": loader.prefetch_factor} if self.workers else {}
        self._own = data.DataLoader(
            dataset,
            batch_sampler=self.order,
            num_workers=self.workers,
            collate_fn=collate,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            generator=self._generator,
            persistent_workers=loader.persistent_workers,
            **more,
        )

    def of(self, epoch: int, start: int) -> Iterator[Any]:
        """Return the batches of an epoch from a position on.

        With `order` the position counts samples of all ranks, else batches of this one, of which
        the first ones are loaded in vain. With workers each comes with the seconds it took.
        """
        if self.order is None:
            set_epoch = getattr(getattr(self._loader, "sampler", None), "set_epoch", None)
            if set_epoch is not None:
                set_epoch(epoch)
            batches: Iterator[Any] = iter(self._loader)
            for _ in range(start):
                next(batches, None)
            return batches
        self.order.epoch, self.order.start = epoch, start
        self._generator.manual_seed(self.order.seed * 1_000_003 + epoch)
        own: Iterator[Any] = iter(self._own)
        return own


def length_of(batch: Any) -> int:
    """Return how many samples a batch holds, going by the first thing in it that has a length."""
    if isinstance(batch, Mapping):
        batch = next(iter(batch.values()), ())
    while isinstance(batch, (tuple, list)) and batch:
        batch = batch[0]
    try:
        return len(batch)
    except TypeError:
        return 1
