"""Times how long GPUs take to average gradients, within a node and between two.

Source: Hops (SoCC '24), section 3.3: the bandwidths of formula (2), measured with models of
different size before any job needs them.

    exec hetsched-run -- python3 -m job_wrappers.bandwidths

All GPUs of each node average by an all-reduce, and so do the first GPUs of each node and the next
one. One group after another does it, so that none is in another's way. Rank 0 tells the scheduler
by its spool file, of which only a job of the site's own counts (docs/live/learning.md).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

if not __package__:  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from job_wrappers.allocation import Allocation
from job_wrappers.session.peers import Peers
from job_wrappers.spool import SpoolWriter

PARAMETERS = (1_000_000, 5_000_000, 25_000_000, 100_000_000)
"""Of models from a small network for pictures to a small one for language."""

WARM_UP = 3
"""All-reduces that are not timed: the first ones connect the GPUs."""

ITERATIONS = 10


@dataclass(frozen=True)
class Timing:
    """What a spool file's `all_reduce` line says (docs/formats/spool.md)."""

    backend: str
    gpus: int
    nodes: int
    parameters: int
    iterations: int
    seconds: float


def groups_of(nodes: Sequence[int]) -> list[list[int]]:
    """Return the ranks of each group that is timed, given the node of each rank.

    All ranks of a node that has several, and the first ones of each node and the next one.
    """
    ranks = {node: [rank for rank, at in enumerate(nodes) if at == node] for node in sorted(nodes)}
    first = [own[0] for own in ranks.values()]
    between = [sorted(pair) for pair in zip(first, first[1:])]
    return [own for own in ranks.values() if len(own) > 1] + between


def measured(torch: Any, peers: Peers, node: int, sizes: Sequence[int]) -> list[Timing]:
    """Return the timings of all groups; every rank of the run takes part.

    Args:
        torch: the module, its process group initialised.
        peers: all ranks.
        node: the number of this rank's node.
        sizes: numbers of parameters.
    """
    dist = torch.distributed
    nodes = peers.from_all(node)
    found = []
    for ranks in groups_of(nodes):
        group = dist.new_group(ranks)
        for parameters in sizes:
            mine = _seconds(torch, group, parameters) if peers.rank in ranks else 0.0
            # It lasts as long as it does for the slowest.
            seconds = max(peers.from_all(mine))
            over = len({nodes[rank] for rank in ranks})
            timed = (dist.get_backend(), len(ranks), over, parameters, ITERATIONS, seconds)
            found.append(Timing(*timed))
    return found


def _seconds(torch: Any, group: Any, parameters: int) -> float:
    """Return the median seconds of an all-reduce among the ranks of a group."""
    gpu = torch.cuda.is_available()
    values = torch.zeros(parameters, device="cuda" if gpu else "cpu")
    took = []
    for _ in range(WARM_UP + ITERATIONS):
        begun = time.perf_counter()
        torch.distributed.all_reduce(values, group=group)
        if gpu:
            torch.cuda.synchronize()
        took.append(time.perf_counter() - begun)
    return median(took[WARM_UP:])


def tell(spool: Path, allocation: Allocation, ranks: int, timings: Sequence[Timing]) -> str:
    """Write timings into the spool file of this run; return why not, "" if they are there."""
    writer = SpoolWriter(spool, allocation, world_size=ranks)
    for timing in timings:
        writer.tell("all_reduce", **asdict(timing))
    writer.tell("end", samples=0, how="completed")
    writer.close()
    return writer.why_not


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="job_wrappers.bandwidths", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--parameters",
        type=int,
        nargs="+",
        default=PARAMETERS,
        help="how many are averaged, any number of sizes (default 1, 5, 25 and 100 million)",
    )
    parser.add_argument(
        "--spool",
        type=Path,
        default=os.environ.get("HETSCHED_SPOOL"),
        help="the spool directory (default HETSCHED_SPOOL)",
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and tell; 0 when it is done, 2 where there is nothing to average."""
    given = _arguments(words)
    told = os.environ
    if int(told.get("WORLD_SIZE", "1")) < 2:
        _say("one GPU has no other to average with; run this by hetsched-run on two or more")
        return 2
    try:
        allocation = Allocation.of(told)
        import torch
    except (ValueError, ImportError) as error:
        _say(str(error))
        return 2
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(told.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group("nccl" if gpu else "gloo")
    peers = Peers(torch)
    timings = measured(torch, peers, int(told.get("GROUP_RANK", "0")), given.parameters)
    if peers.rank == 0:
        for t in timings:
            those = f"{t.gpus} {'GPUs' if gpu else 'processes without a GPU'}"
            on = f"{t.nodes} node{'s' * (t.nodes > 1)}"
            took = f"{t.parameters:,} parameters in {t.seconds:.3g} s ({t.backend})"
            _say(f"{those} on {on} average {took}")
        if given.spool and (problem := tell(given.spool, allocation, peers.size, timings)):
            _say(f"the scheduler is told nothing: {problem}")
    peers.leave()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"bandwidths: {line}\n")


if __name__ == "__main__":
    sys.exit(main())
