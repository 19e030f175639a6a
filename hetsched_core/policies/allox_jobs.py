"""AlloX for gangs: whole jobs of any number of GPUs, matched to places in the GPUs' queues.

Source: AlloX (Le et al., EuroSys '20, section 4.1), as in `allox`: at every arrival and end the
jobs that have not begun are matched to (GPU, k-th from the end) so that the sum of completion times
is least, and what comes first on idle GPUs begins. It is not stopped again. With jobs of one GPU
each it is the paper's matching.

It plans with sizes as `sjf` and `srtf` have them: samples where a job tells them, else the mean of
past runs or the time limit.

Deviations. A job of several GPUs stands in the queue of one, where it holds up those behind it for
its GPU seconds; it gets GPUs of that one's type, and what fits no more keeps those of its type from
those behind. Of many jobs the shortest are matched first, then the next. AlloX's fairness knob is
left at full efficiency: the site says whose turn it is, and that job is matched to what is idle.
Trace: docs/policies/allox.md.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hetsched_core.errors import InputError
from hetsched_core.placement.entries import NO_ROOM, behind, plan_placing
from hetsched_core.placement.free import FreeGpus, PerGpu, idle_cluster, on_one_node
from hetsched_core.placement.keep import staying
from hetsched_core.placement.one_type import Line, one_type_way
from hetsched_core.placement.pack import fastest_fit, nodes_down, open_nodes_hold
from hetsched_core.placement.ways import Way
from hetsched_core.policies.allox import match
from hetsched_core.policies.job_size import LONGEST_S, expected_left_s, samples_left
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.site import portions
from hetsched_core.types import (
    Cluster,
    JobView,
    Knowledge,
    Placed,
    Plan,
    Reason,
    ReasonCode,
    Replan,
    Snapshot,
    Speeds,
    SpeedTable,
    Waiting,
    submission_order,
)

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SOONER = Waiting(
    Reason(ReasonCode.AHEAD, detail="behind others it ends sooner than on what is idle")
)


@dataclass(frozen=True)
class AlloxJobs:
    """Match whole jobs to GPUs so that the sum of completion times is least."""

    together: int = parameter(
        200, "waiting jobs that are matched together, the shortest first; then the next"
    )

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="allox-jobs",
        summary="allox with gangs in the place of tasks: runs live",
        paper="AlloX (Le et al., EuroSys '20, section 4.1)",
        knows=frozenset({Knowledge.TOTAL_SAMPLES, Knowledge.TIME_LIMIT}),
    )

    def __post_init__(self) -> None:
        """Refuse to match no job."""
        if self.together < 1:
            raise InputError(f"allox-jobs.together={self.together}: jobs count from 1, such as 200")

    def plan(self, snapshot: Snapshot) -> Plan:
        """Let go on what runs, and begin what the matching puts first on idle GPUs."""
        placed = staying(snapshot)
        ways = dict(_able(snapshot, placed))
        order = sorted(
            (snapshot.jobs[job] for job in ways),
            key=lambda view: (expected_left_s(view, snapshot), submission_order(view)),
        )
        line = Line(snapshot, placed)
        gpus = _Gpus(snapshot, placed)
        parts = portions(snapshot, order)
        for part in parts:
            for at in range(0, len(part), self.together):
                if line.none_is_left:
                    break
                some = part[at : at + self.together]
                # Were one whose turn it is to wait for faster GPUs, others would have its turn.
                which = gpus.idle() if len(parts) > 1 else gpus.holding(some, ways, line.free)
                for equals, gpu_type in gpus.match(some, ways, which):
                    _serve(snapshot, line, equals, ways, gpu_type)

        def waits(snapshot: Snapshot, view: JobView) -> Waiting:
            return line.waits.get(view.id) or behind(snapshot, view)

        return plan_placing(snapshot, line.placed, waits, Replan())


def _serve(
    snapshot: Snapshot, line: Line, equals: deque[JobView], ways: Mapping[str, Way], gpu_type: str
) -> None:
    """Let the first of equal jobs begin on GPUs of the type that one is matched to, or wait."""
    view = equals[0]
    way = ways[view.id]
    line.serve(view, Way(way.count, (gpu_type,), mixed=False), fastest_fit)
    if view.id in line.placed:
        equals.popleft()
        return
    elsewhere = fastest_fit(snapshot, line.free, view.job, way, way.types) is not None
    if elsewhere and line.waits[view.id] is NO_ROOM:
        line.waits[view.id] = _SOONER


def _able(snapshot: Snapshot, placed: Mapping[str, Placed]) -> Iterator[tuple[str, Way]]:
    """Yield the jobs without a place, and how they could run if no other job were there.

    The types of the way are those whose open nodes would hold the job.
    """
    down = nodes_down(snapshot)
    for view in snapshot.by_submission():
        job, way = view.job, one_type_way(view, snapshot)
        if view.id in placed or view.blocked is not None or way is None:
            continue
        types = tuple(
            gpu_type
            for gpu_type in way.types
            if open_nodes_hold(snapshot, down, replace(job, gpu_types=frozenset((gpu_type,))), way)
        )
        if types:
            yield view.id, Way(way.count, types, mixed=False)


class _Gpus:
    """The GPUs of the nodes that take jobs, each with when it will be free."""

    def __init__(self, snapshot: Snapshot, placed: Mapping[str, Placed]) -> None:
        self._snapshot = snapshot
        held = _held_for_s(snapshot, placed)
        # (V,) nodes that take jobs, and (G,) their GPUs.
        self._nodes = [v.node for v in snapshot.node_views() if v.open and v.capacity > 0]
        self._places = [snapshot.cluster.index(node.name) for node in self._nodes]
        on_node, free_in_s = [], []
        for at, node in enumerate(self._nodes):
            left_s = held.get(node.name, [])[: (many := snapshot.nodes[node.name].capacity)]
            free_in_s += left_s + [0.0] * (many - len(left_s))
            on_node += [at] * many
        self._on_node: Ints = np.array(on_node, np.int64)
        self._types = np.array([self._nodes[at].gpu_type for at in on_node])
        self._free_in_s: Floats = np.array(free_in_s, np.float64)
        self._free_for: dict[int, Floats] = {}

    def idle(self) -> Bools:
        """Return (G,) which are idle."""
        found: Bools = self._free_in_s == 0.0
        return found

    def holding(self, views: Sequence[JobView], ways: Mapping[str, Way], free: FreeGpus) -> Bools:
        """Return (N, G) which GPUs are a place for each job.

        Those are not that are idle, as many as it needs, and do not hold it: they are too far
        apart, say, or the CPUs beside them are in use.
        """
        held = np.ones((len(views), len(self._on_node)), np.bool_)
        for at, view in enumerate(views):
            way, job = ways[view.id], view.job
            if way.count == 1 and not (job.cpus_per_gpu or job.memory_mb_per_gpu):
                continue  # Any idle GPU holds it.
            idle = self._free_for_s(way.count) == 0.0
            for gpu_type in way.types:
                mine = idle & (self._types == gpu_type)
                if mine.any() and not self._fits(free, view, way, gpu_type):
                    held[at, mine] = False
        return held

    def _fits(self, free: FreeGpus, view: JobView, way: Way, gpu_type: str) -> bool:
        return fastest_fit(self._snapshot, free, view.job, way, (gpu_type,)) is not None

    def match(
        self, views: Sequence[JobView], ways: Mapping[str, Way], which: Bools
    ) -> list[tuple[deque[JobView], str]]:
        """Match jobs to the GPUs; return GPU types, those first on which one is to begin first.

        With each type are the jobs that are equal to the one that is matched to it, in order: it
        makes no difference to the sum which of them begins. The GPUs are free later from then on,
        by what is matched to them.

        Args:
            views: N jobs.
            ways: how each could run.
            which: (G,) or (N, G), the GPUs that are a place for them.
        """
        gpus = np.array([ways[view.id].count for view in views], np.float64)
        run_s = np.array([self._run_s(view, ways[view.id]) for view in views])
        run_s = run_s.reshape(len(views), len(self._nodes))[:, self._on_node]
        run_s = np.where(which, run_s, math.inf)
        delay_s = run_s * gpus[:, None]
        free_in_s = np.array([self._free_for_s(ways[view.id].count) for view in views])
        free_in_s = free_in_s.reshape(run_s.shape)
        lined_up = []
        for gpu, queue in enumerate(match(run_s, free_in_s, delay_s)):
            for place, job in enumerate(queue):
                lined_up.append((place, float(delay_s[job, gpu]), job, gpu))
                self._free_in_s[gpu] += delay_s[job, gpu]
                self._free_for.clear()
        equals: dict[tuple[object, ...], deque[JobView]] = {}
        kinds = [
            (view.job.profile, ways[view.id].count, PerGpu.of(view.job), run_s[at].tobytes())
            for at, view in enumerate(views)
        ]
        for kind, view in zip(kinds, views, strict=True):
            equals.setdefault(kind, deque()).append(view)
        # On which of a type's GPUs a job is first makes no difference to the sum either.
        return [(equals[kinds[job]], str(self._types[gpu])) for *_, job, gpu in sorted(lined_up)]

    def _free_for_s(self, count: int) -> Floats:
        """Return (G,) seconds until each GPU is free for a job of so many, with the others of it.

        They are of the GPU's node where that has as many, else of its type.
        """
        if count in self._free_for:
            return self._free_for[count]
        whole = np.array([node.gpus for node in self._nodes], np.int64) >= count
        many = np.bincount(self._on_node, minlength=len(self._nodes))
        last_s = np.zeros(len(self._nodes))
        # On each node by itself, the GPUs that are free first in front.
        in_order = self._free_in_s[np.lexsort((self._free_in_s, self._on_node))]
        alone = whole & (many >= count)
        last_s[alone] = in_order[(np.cumsum(many) - many)[alone] + count - 1]
        of_type = np.array([node.gpu_type for node in self._nodes])
        for gpu_type in np.unique(of_type):
            among = self._free_in_s[self._types == gpu_type]
            if len(among) >= count:
                last_s[~whole & (of_type == gpu_type)] = np.partition(among, count - 1)[count - 1]
        self._free_for[count] = np.maximum(self._free_in_s, last_s[self._on_node])
        return self._free_for[count]

    def _run_s(self, view: JobView, way: Way) -> Floats:
        """Return the seconds that a job takes from each node's GPUs on; infinite where not."""
        job, snapshot = view.job, self._snapshot
        table = snapshot.speeds.table(job.profile)
        speeds = _speeds(snapshot.cluster, table, job.profile, way, PerGpu.of(job))[self._places]
        with np.errstate(divide="ignore"):
            return np.where(speeds > 0, samples_left(view, snapshot) / speeds, math.inf)


@lru_cache(maxsize=1 << 10)
def _speeds(cluster: Cluster, table: SpeedTable, profile: str, way: Way, needs: PerGpu) -> Floats:
    """Return samples/s with a GPU of each node; 0 where the job cannot be. Kept: not to change."""
    speeds, idle = Speeds(cluster, {profile: table}), idle_cluster(cluster)
    spread = {t: way.count * speeds.per_gpu(profile, t, way.count, nodes=2) for t in way.types}
    found = np.zeros(len(cluster))
    for at, node in enumerate(cluster):
        one = on_one_node(node.name, 1)
        if (
            node.gpu_type not in spread
            or not _allowed(needs, node.name)
            or not idle.fits(needs, one)
        ):
            continue
        alone = way.count <= node.gpus and needs.min_nodes < 2
        whole = on_one_node(node.name, way.count)
        found[at] = speeds.speed(profile, whole) if alone else spread[node.gpu_type]
    return found


def _allowed(needs: PerGpu, node: str) -> bool:
    return (needs.nodes is None or node in needs.nodes) and node not in needs.closed


def _held_for_s(snapshot: Snapshot, placed: Mapping[str, Placed]) -> dict[str, list[float]]:
    """Return, for each GPU of a node that a job has, the seconds for which it goes on."""
    held: dict[str, list[float]] = {}
    for job_id, entry in placed.items():
        view, place = snapshot.jobs[job_id], entry.placements[0].configuration
        speed = snapshot.speeds.speed(view.job.profile, place)
        left_s = samples_left(view, snapshot) / speed if speed > 0 else LONGEST_S
        for name, gpus in place:
            held.setdefault(name, []).extend([left_s] * gpus)
    return held
