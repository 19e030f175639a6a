"""Small random clusters and workloads in which everything goes wrong that can.

A scenario is a function of its seed: GPU types of different speed, jobs that no cluster could hold,
cancellations, crashes, lost nodes, costs of restarts and of thinking. Every node that goes comes
back, so a job that fits the healthy cluster can end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from hetsched_core.simulate import (
    Estimates,
    Incident,
    JobCrashed,
    KnownSpeeds,
    NodeBack,
    NodeDrained,
    NodeLost,
    RunMeasurement,
    SimulationSettings,
)
from hetsched_core.types import (
    ALL_SHAPES,
    Cluster,
    EndState,
    ExecutionModel,
    Job,
    Layer,
    Node,
    RequirementSet,
    Shape,
    Speeds,
    SpeedTable,
    Submission,
    TaskShape,
    TaskTimes,
    Window,
)

ORIGIN_S = 1_700_000_000.25
"""When the first job comes: a time of today, which leaves few digits for fractions of a second."""

_GPU_TYPES = ("a100", "h100", "k80", "t4", "v100")
_NOWHERE = "nowhere"
_COUNTS = np.array([1, 2, 4, 8, 16, 32], dtype=np.int64)
# Each backend that can realise one of these shapes can realise those before it.
_SHAPES = (
    frozenset({Shape.SINGLE_NODE}),
    frozenset({Shape.SINGLE_NODE, Shape.EVEN}),
    ALL_SHAPES - {Shape.MIXED_TYPES},
    ALL_SHAPES,
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that `simulate` is told, and the seed that it came from."""

    seed: int
    model: ExecutionModel
    cluster: Cluster
    submissions: tuple[Submission, ...]
    truth: Speeds
    estimates: Estimates
    settings: SimulationSettings
    incidents: tuple[Incident, ...]


@dataclass(frozen=True, slots=True)
class ImprovingSpeeds:
    """Estimates that are wrong at first and true from `from_s` on."""

    first: Speeds
    truth: Speeds
    from_s: float

    def speeds(self, now: float) -> Speeds:
        """Return what is believed at `now`."""
        return self.first if now < self.from_s else self.truth

    def observe(self, measured: RunMeasurement) -> None:
        """Learn nothing: what is believed depends on the time alone."""
        del measured


def random_scenario(
    seed: int, model: ExecutionModel = ExecutionModel.GANG, prefix: str = ""
) -> Scenario:
    """Return the scenario of this seed, for policies of one execution model.

    Args:
        seed: equal seeds give equal scenarios.
        model: jobs for `tasks` come with training rounds.
        prefix: put before the name of every job, node, GPU type and profile. It changes no order,
            but the hash of every name, and with it the order of every set.
    """
    rng = Random(seed)
    whole = model is not ExecutionModel.TASKS
    types = [prefix + t for t in rng.sample(_GPU_TYPES, rng.randint(1, 3))]
    cluster = _cluster(rng, types, prefix)
    truth = _speeds(rng, cluster, prefix, gaps=whole)
    submissions = tuple(
        _submission(rng, f"{prefix}j{number:02d}", cluster, truth, prefix, whole)
        for number in range(rng.randint(10, 40))
    )
    # Of an own source, so that what a seed stood for before there were node sets it still does.
    site = Random(f"site {seed}")
    return Scenario(
        seed=seed,
        model=model,
        cluster=cluster,
        submissions=_limited(site, cluster, _spread(rng, submissions)),
        truth=truth,
        estimates=rng.choice(
            (KnownSpeeds(truth), ImprovingSpeeds(_misjudged(rng, cluster, truth), truth, 300.0))
        ),
        settings=replace(_settings(rng), windows=_windows(site, cluster)),
        incidents=_incidents(rng, cluster, submissions),
    )


def calm(
    model: ExecutionModel,
    nodes: Iterable[Node],
    per_gpu: Mapping[str, float],
    submissions: Iterable[Submission],
    settings: SimulationSettings,
    *,
    seed: int = 0,
    several_nodes: float = 1.0,
) -> Scenario:
    """Return a scenario in which nothing happens to nodes and jobs, and speeds are known.

    Args:
        model: how jobs run.
        nodes: the cluster.
        per_gpu: GPU type -> samples/s of each GPU, for jobs of profile `m`.
        submissions: the jobs.
        settings: of the simulation.
        seed: what it is told by.
        several_nodes: how fast GPUs on several nodes are, relative to those on one.
    """
    cluster = Cluster(tuple(nodes))
    speed = np.array([[each] for each in per_gpu.values()])
    table = SpeedTable(
        gpu_types=tuple(per_gpu),
        counts=np.ones(1, np.int64),
        one_node=speed,
        several_nodes=several_nodes * speed,
        layers=np.full(speed.shape, Layer.TRUTH, dtype=np.int8),
    )
    truth = Speeds(cluster, {"m": table})
    return Scenario(
        seed, model, cluster, tuple(submissions), truth, KnownSpeeds(truth), settings, ()
    )


def side_by_side(model: ExecutionModel) -> Scenario:
    """Return two partitions of one node each, with a window ahead in a third, for whole jobs.

    Jobs crowd the first; `alone` may use the second; of those that may use the third `long` reaches
    into the window, and `short`, which comes behind it, does not.
    """
    crowd = [(f"crowd{k}", "n0", 300.0) for k in range(6)]
    others = [("alone", "n1", 300.0), ("long", "n2", 600.0), ("short", "n2", 60.0)]
    window = Window(frozenset({"n2"}), ORIGIN_S + 400.0, ORIGIN_S + 500.0, "maintenance")
    submissions = [
        Submission(
            Job(
                id=name,
                submit_s=ORIGIN_S + k / 1000,
                requirements=RequirementSet((4,)),
                profile="m",
                total_samples=4 * seconds,
                time_limit_s=seconds,
                nodes=frozenset({node}),
                preemptible=False,
            ),
            4 * seconds,
        )
        for k, (name, node, seconds) in enumerate([*crowd, *others])
    ]
    settings = SimulationSettings(round_s=60.0, windows=(window,))
    nodes = (Node(name, "v100", 4) for name in ("n0", "n1", "n2"))
    return calm(model, nodes, {"v100": 1.0}, submissions, settings)


def _cluster(rng: Random, types: list[str], prefix: str) -> Cluster:
    nodes: list[Node] = []
    for number in range(rng.randint(3, 8)):
        name, gpu_type = f"{prefix}n{number}", rng.choice(types)
        gpus = rng.choice((1, 2, 4, 4, 8)) if number else 4
        cpus, memory_mb, host = rng.choice((0, 4, 8)) * gpus, rng.choice((0, 16)) * 1024 * gpus, ""
        last = nodes[-1] if nodes else None
        pair = last and last.host == last.name and last.gpu_type != gpu_type
        if last and pair and rng.random() < 0.4:
            # A server with two types of GPU: its CPUs and memory serve both.
            cpus, memory_mb, host = last.cpus, last.memory_mb, last.host
        elif number and rng.random() < 0.1:
            gpus = 0
        nodes.append(Node(name, gpu_type, gpus, cpus, memory_mb, host, f"{prefix}r{number // 4}"))
    return Cluster(tuple(nodes))


def _speeds(rng: Random, cluster: Cluster, prefix: str, *, gaps: bool) -> Speeds:
    """Draw speeds; with `gaps` some profiles do not run on some types, and one on none."""
    types = cluster.gpu_types
    tables = {}
    for name in ("bert", "lstm", "resnet", _NOWHERE):
        each = np.array([rng.uniform(1.0, 10.0) for _ in types])
        if gaps:
            each *= [name != _NOWHERE and rng.random() > 0.15 for _ in types]
        one_node = each[:, None] * rng.uniform(0.85, 1.0) ** np.log2(_COUNTS)
        # Processors differ in the last bit of a power, and what is drawn is to be the same.
        one_node = one_node.round(9)
        tables[prefix + name] = SpeedTable(
            gpu_types=types,
            counts=_COUNTS,
            one_node=one_node,
            several_nodes=one_node * rng.uniform(0.5, 1.0),
            layers=np.full(one_node.shape, Layer.TRUTH, dtype=np.int8),
            node_factor={node.name: 0.8 for node in cluster if rng.random() < 0.2},
            tasks={t: TaskTimes(rng.uniform(1.0, 5.0), rng.uniform(0.0, 2.0)) for t in types},
        )
    return Speeds(cluster, tables)


def _misjudged(rng: Random, cluster: Cluster, truth: Speeds) -> Speeds:
    tables = {}
    for profile in truth.profiles:
        table, factor = truth.table(profile), rng.uniform(0.5, 2.0)
        tables[profile] = SpeedTable(
            gpu_types=table.gpu_types,
            counts=table.counts,
            one_node=table.one_node * factor,
            several_nodes=table.several_nodes * factor,
            layers=np.full(table.one_node.shape, Layer.THEORY, dtype=np.int8),
            tasks=table.tasks,
        )
    return Speeds(cluster, tables)


def _submission(
    rng: Random, job_id: str, cluster: Cluster, truth: Speeds, prefix: str, whole: bool
) -> Submission:
    profile = prefix + rng.choice(("bert", "lstm", "resnet") * 8 + (_NOWHERE,))
    counts = RequirementSet(
        rng.choice(
            (
                *((1,), (1,), (2,), (4,), (1, 2, 4), (2, 4, 8), (1, 3, 5, 7)),
                *((8,), (12,), (cluster.gpus,), (1, 1000), (1000,)),
            )
        )
    )
    gpu_types = rng.choice(
        (None,) * 8 + (_some(rng, cluster.gpu_types),) * 3 + (frozenset({prefix + "tpu"}),)
    )
    speed = max(truth.per_gpu(profile, t, 1) for t in cluster.gpu_types) or 1.0
    run_s = rng.uniform(20.0, 400.0)
    tasks = TaskShape(rng.randint(1, 3), rng.randint(1, 12), rng.choice(("", "search")))
    job = Job(
        id=job_id,
        submit_s=ORIGIN_S,
        requirements=counts,
        profile=profile,
        time_limit_s=run_s * rng.uniform(1.0, 3.0),
        gpu_types=gpu_types,
        cpus_per_gpu=rng.choice((0.0, 0.0, 1.0, 2.5, 4.0, 6.0)),
        memory_mb_per_gpu=rng.choice((0.0, 0.0, 1000.0, 16384.0, 20000.0)),
        user=rng.choice(("ann", "bob")),
        weight=rng.choice((1.0, 2.0)),
        preemptible=rng.random() < 0.85,
        tasks=None if whole else tasks,
    )
    samples = run_s * speed * min(counts.lower_median, 8)
    return Submission(
        job,
        samples=samples if whole else 32.0 * tasks.scale * (tasks.rounds or 1),
        ends_as=rng.choice((EndState.COMPLETED,) * 9 + (EndState.FAILED,)),
    )


def _some(rng: Random, names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(rng.sample(names, rng.randint(1, len(names))))


def _spread(rng: Random, submissions: tuple[Submission, ...]) -> tuple[Submission, ...]:
    """Let the jobs come one after another and in bursts, some eligible late, some withdrawn."""
    spread = []
    now = ORIGIN_S
    for submission in submissions:
        eligible_s = now + rng.uniform(1.0, 200.0) if rng.random() < 0.1 else None
        job = replace(submission.job, submit_s=now, eligible_s=eligible_s)
        cancel_s = now + rng.uniform(0.0, 500.0) if rng.random() < 0.12 else None
        spread.append(replace(submission, job=job, cancel_s=cancel_s))
        now += rng.choice((0.0, 0.0, 3.0, 20.0, 60.5))
    return tuple(spread)


def _limited(
    rng: Random, cluster: Cluster, submissions: tuple[Submission, ...]
) -> tuple[Submission, ...]:
    """Let some jobs run on the nodes of one of two partitions only, or on so many nodes only."""
    partitions = [_some(rng, cluster.names), _some(rng, cluster.names)]
    limited = []
    for submission in submissions:
        job = submission.job
        if rng.random() < 0.4:
            job = replace(job, nodes=rng.choice(partitions))
        if rng.random() < 0.2:
            least, most = rng.choice(((1, 1), (1, 1), (1, 2), (2, 2), (2, None)))
            job = replace(job, min_nodes=least, max_nodes=most)
        limited.append(replace(submission, job=job))
    return tuple(limited)


def _windows(rng: Random, cluster: Cluster) -> tuple[Window, ...]:
    windows = []
    for name in ("maintenance", "course"):
        if rng.random() < 0.5:
            from_s = ORIGIN_S + rng.uniform(50.0, 600.0)
            until_s = from_s + rng.uniform(30.0, 300.0)
            windows.append(Window(_some(rng, cluster.names), from_s, until_s, name))
    return tuple(windows)


def _settings(rng: Random) -> SimulationSettings:
    return SimulationSettings(
        round_s=60.0,
        restart_cost_s=rng.choice((0.0, 5.0, 10.0)),
        grace_s=rng.choice((0.0, 7.5, 30.0)),
        checkpoint_s=rng.choice((45.0, 300.0)),
        decision_s=rng.choice((0.0, 0.0, 2.0)),
        seed=rng.randrange(1000),
        shapes=rng.choice(_SHAPES),
    )


def _incidents(
    rng: Random, cluster: Cluster, submissions: tuple[Submission, ...]
) -> tuple[Incident, ...]:
    incidents: list[Incident] = []
    for node in cluster:
        if rng.random() < 0.4:
            at_s = ORIGIN_S + rng.uniform(0.0, 900.0)
            incidents.append(rng.choice((NodeLost, NodeDrained))(at_s, node.name))
            incidents.append(NodeBack(at_s + rng.uniform(1.0, 400.0), node.name))
    incidents += [
        JobCrashed(ORIGIN_S + rng.uniform(0.0, 900.0), submission.job.id)
        for submission in rng.sample(submissions, 4)
    ]
    return tuple(incidents)
