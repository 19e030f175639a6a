"""What the page of the running system costs: readings, answers, drawing.

Usage: python benchmarks/live_page.py [--nodes 64] [--jobs 2000]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from functools import partial

import cattrs

from hetsched_core.policies.fifo import Fifo
from hetsched_core.report.live_page import to_html
from hetsched_core.report.live_state import LiveState
from hetsched_core.types import JobView, Snapshot
from slurm_plugin.api.answers import Peer
from slurm_plugin.api.publisher import Publisher
from slurm_plugin.api.readings import KEPT, STEP_S, Readings
from slurm_plugin.daemon.process.configuration import DaemonConfiguration
from tests.hetsched_core.worlds import cluster_of, held, on, snapshot_of, view

_TYPES = (("a100", 4), ("v100", 8), ("t4", 4))
_BEGIN_S = 1_790_000_000.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=2000)
    chosen = parser.parse_args()
    snapshot = busy(chosen.nodes, chosen.jobs)
    plan = Fifo().plan(snapshot)
    day = [replace(snapshot, now=_BEGIN_S + STEP_S * (at - KEPT)) for at in range(1, KEPT + 1)]

    tracemalloc.start()
    readings = Readings()
    for each in day:
        readings.note(each, None)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    readings = Readings()
    takes = [seconds(partial(readings.note, each, 0.02)) for each in day]

    publisher = Publisher(DaemonConfiguration(partitions=frozenset({"gpu"})), _BEGIN_S)
    for each in day:
        publisher.publish(each, plan, 1, plan_took_s=0.02)
    said = publisher.answer({"ask": "page"}, Peer("root"))
    answers = [
        seconds(lambda: json.dumps(publisher.answer({"ask": "page"}, Peer("root"))))
        for _ in range(20)
    ]
    state = cattrs.Converter().structure(json.loads(json.dumps(said))["page"], LiveState)
    draw = partial(to_html, state, "", UTC, 60)
    draws = [seconds(draw) for _ in range(5)]

    lines = (
        f"{chosen.nodes} nodes, {chosen.jobs} jobs, load {os.getloadavg()[0]:.1f}",
        f"a reading: median {_ms(takes)}, at most {1e3 * max(takes):.1f} ms",
        f"the readings of a day: {kept / 2**20:.1f} MiB",
        f"an answer: median {_ms(answers)}, {len(json.dumps(said)) / 1024:.0f} KiB",
        f"drawing: first {draws[0]:.2f} s, then {statistics.median(draws[1:]):.2f} s",
        f"the page: {len(draw()) / 1024:.0f} KiB",
    )
    sys.stdout.write("\n".join(lines) + "\n")


def _ms(times_s: list[float]) -> str:
    return f"{1e3 * statistics.median(times_s):.2f} ms"


def busy(nodes: int, jobs: int) -> Snapshot:
    """A cluster on which a job takes half of each node, and the other jobs wait."""
    cluster = cluster_of(**{f"n{at}": _TYPES[at % len(_TYPES)] for at in range(nodes)})
    views = []
    for at in range(jobs):
        node = cluster.nodes[at] if at < nodes else None
        runs = () if node is None else (held(on(**{node.name: node.gpus // 2})),)
        counts = (2, 4, 8) if node is None else (node.gpus // 2,)
        views.append(named(view(str(at), *runs, counts=counts, submit_s=_BEGIN_S + at - jobs)))
    return snapshot_of(cluster, views, now=_BEGIN_S)


def named(job: JobView) -> JobView:
    return replace(job, job=replace(job.job, user="user", name="train.sh", partition="gpu"))


def seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
