"""Clusters, speeds and jobs for tests of Hops, and what its plans say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hetsched_core.policies.hops.configurations import Generator, Neighbours
from hetsched_core.policies.hops.demand import demand_of
from hetsched_core.policies.hops.room import Room, layout_of
from hetsched_core.types import (
    ALL_SHAPES,
    Cluster,
    Configuration,
    JobView,
    Layer,
    Node,
    Snapshot,
    Speeds,
    SpeedTable,
)
from tests.hetsched_core.policies.hops import naive
from tests.hetsched_core.policies.worlds import ROUND, shown, with_job
from tests.hetsched_core.worlds import view


def table_of(
    types: Sequence[str],
    *,
    per_gpu: Sequence[Sequence[float]] | None = None,
    sensitivity: float = 1.0,
    counts: Sequence[int] = (1,),
    layers: Sequence[Layer] | None = None,
    node_factor: Mapping[str, float] | None = None,
    batch_size: float = 1.0,
) -> SpeedTable:
    """Build a table of 1 sample/s per GPU, or of rows by type and columns by count."""
    one = np.ones((len(types), len(counts))) if per_gpu is None else np.array(per_gpu, float)
    of_type = [Layer.TRUTH] * len(types) if layers is None else layers
    return SpeedTable(
        tuple(types),
        np.array(counts, np.int64),
        one,
        one / sensitivity,
        np.repeat(np.array(of_type, np.int8)[:, None], len(counts), axis=1),
        node_factor=node_factor or {},
        batch_size=batch_size,
    )


def nodes_of(*gpus: int, groups: Sequence[str] = (), gpu_type: str = "t") -> Cluster:
    """Build a cluster of nodes n0, n1, ... with so many GPUs."""
    names = groups or [""] * len(gpus)
    return Cluster(tuple(Node(f"n{at}", gpu_type, g, group=names[at]) for at, g in enumerate(gpus)))


def at_round(cluster: Cluster, *views: JobView, **more: Any) -> Snapshot:
    """What a policy sees at the start of a round."""
    return shown(cluster, *views, **({"triggers": ROUND} | more))


@dataclass(frozen=True)
class World:
    """An idle cluster, and jobs."""

    cluster: Cluster
    speeds: Speeds
    views: list[JobView]

    @classmethod
    def of(cls, cluster: Cluster, table: SpeedTable, *views: JobView) -> World:
        """Build a world whose jobs are all of profile `m`."""
        return cls(cluster, Speeds(cluster, {"m": table}), list(views))

    @property
    def idle(self) -> list[int]:
        """GPUs of each node."""
        return [node.gpus for node in self.cluster]

    def room(self) -> Room:
        """The whole cluster."""
        return Room.healthy(layout_of(self.cluster, True))

    def generator(self, neighbours: Neighbours) -> Generator:
        """What generates the jobs' configurations; nodes that differ in speed are told apart."""
        layout = layout_of(self.cluster, True)
        demand = demand_of(self.views, self.speeds, layout, ALL_SHAPES, only_profiled=True)
        return Generator(demand, layout, neighbours, most_sensitive=1.4, speed_step=0.0)

    def configurations(self, neighbours: Neighbours) -> list[dict[naive.Config, float]]:
        """Of each job, every configuration on the idle nodes with its speed, as the paper says."""
        found = []
        spread = naive.on_any_nodes if neighbours is Neighbours.ANY else naive.on_neighbours
        for each in self.views:
            job, speed_of = each.job, {}
            for gpu_type in self.cluster.gpu_types:
                pool = [at for at, n in enumerate(self.cluster) if n.gpu_type == gpu_type]
                idle = [
                    n.gpus if n.gpu_type == gpu_type and job.may_start_on(n.name) else 0
                    for n in self.cluster
                ]
                near = self.speeds.per_gpu(job.profile, gpu_type, 1)
                far = self.speeds.per_gpu(job.profile, gpu_type, 2, nodes=2)
                easily = far > 0 and near / far <= 1.4
                for count in job.requirements:
                    configs = naive.on_one_node(idle, count)
                    if (easily or job.requirements.smallest > max(idle)) and job.max_nodes != 1:
                        configs |= spread(idle, [pool], count)
                    for pieces in configs:
                        named = {self.cluster.nodes[n].name: gpus for n, gpus in pieces}
                        speed = self.speeds.speed(job.profile, Configuration.of(named))
                        if speed > 0:
                            speed_of[pieces] = speed
            found.append(speed_of)
        return found

    def gains(self, neighbours: Neighbours) -> list[dict[naive.Config, float]]:
        """The same with the speed over the least of the job."""
        return [
            {pieces: speed / min(of_job.values()) for pieces, speed in of_job.items()}
            for of_job in self.configurations(neighbours)
        ]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Up to 4 nodes of 2 types; up to 4 jobs of 2 profiles, some on some nodes only."""
    types = st.sampled_from(["a", "b"][: draw(st.integers(1, 2))])
    nodes = draw(st.lists(st.tuples(types, st.integers(1, 4)), min_size=1, max_size=4))
    cluster = Cluster(tuple(Node(f"n{k}", t, gpus) for k, (t, gpus) in enumerate(nodes)))
    # The same for both: nodes that differ by profile, and not on the mean, are not told apart.
    factor = {n.name: draw(st.sampled_from([0.5, 0.8, 1.0])) for n in cluster}
    tables = {
        name: table_of(
            cluster.gpu_types,
            counts=(1, 2, 4),
            per_gpu=[
                [speed, 0.9 * speed, 0.75 * speed]
                for speed in [
                    draw(st.sampled_from([0.0, 1.0, 1.7, 2.6])) for _ in cluster.gpu_types
                ]
            ],
            sensitivity=draw(st.sampled_from([2.0, 1 / 0.9])),
            node_factor=factor if draw(st.booleans()) else {},
        )
        for name in "mn"
    }
    sets = [draw(st.frozensets(st.sampled_from(cluster.names), min_size=1)) for _ in range(2)]
    views = []
    for at in range(draw(st.integers(1, 4))):
        wants = tuple(sorted(draw(st.sets(st.sampled_from([1, 2, 3, 4, 6]), min_size=1))))
        limited = with_job(
            view(f"j{at}", counts=wants),
            profile=draw(st.sampled_from("mn")),
            nodes=draw(st.sampled_from([None, *sets])),
            closed=draw(st.sampled_from([frozenset(), frozenset({"n0"})])),
            max_nodes=draw(st.sampled_from([None, None, 1])),
        )
        views.append(limited)
    return World(cluster, Speeds(cluster, tables), views)
