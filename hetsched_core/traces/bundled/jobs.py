"""What users submit to the bundled cluster, drawn from a seed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

from hetsched_core.types import Cluster, Node

HOUR, DAY = 3_600, 86_400
ARRIVAL_DAYS = 4

# The cluster --------------------------------------------------------------------------------------

CPU = "cpu"
CPU_NODES, CPU_NODE_CPUS = tuple(f"c{n}" for n in range(1, 5)), 64
SPEED = {"a100": 2.1, "l40s": 1.6, "v100": 1.0, "rtx30": 0.9, CPU: 1.0}
"""How fast every job runs on each type; the log shows only the durations that come of it."""
GIVEN_FIRST = ("v100", "rtx30", "l40s", "a100")
"""As if by Slurm's node weights: who does not ask for a type gets the slower ones first."""


def make_cluster() -> Cluster:
    """Return the 14 nodes with GPUs; the nodes without are none of the scheduler's."""
    racks = (
        (range(1, 5), "a100", 4, 64, 512, "rack1"),
        (range(5, 11), "v100", 4, 40, 384, "rack2"),
        (range(11, 13), "rtx30", 8, 64, 512, "rack3"),
        (range(13, 15), "l40s", 4, 64, 768, "rack3"),
    )
    return Cluster(
        tuple(
            Node(f"gpu-{n}", gpu_type, gpus, cpus, gb * 1024, group=rack)
            for numbers, gpu_type, gpus, cpus, gb, rack in racks
            for n in numbers
        ),
        name="campus",
    )


# What users submit --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """What jobs of one name have in common: {GPUs (or CPUs): weight}, minutes on v100 (median)."""

    name: str
    weight: float
    sizes: dict[int, float]
    minutes: float
    sigma: float = 1.6


KINDS = (
    Kind("resnet18-cifar10", 13, {1: 1}, 25),
    Kind("lstm-ptb", 8, {1: 1}, 20),
    Kind("neumf-ml20m", 6, {1: 1}, 12),
    Kind("distilbert-imdb", 9, {1: 9, 2: 1}, 30),
    Kind("vit-b16-food101", 8, {1: 7, 2: 2, 4: 1}, 60),
    Kind("wav2vec2-base", 6, {1: 5, 2: 3, 4: 2}, 80),
    Kind("unet-256", 8, {1: 3, 2: 1}, 60),
    Kind("vgg11-imagenet", 4, {2: 1, 4: 1}, 150),
    Kind("cyclegan-256", 5, {1: 4, 2: 1}, 240, 1.2),
    Kind("resnet50-imagenet", 6, {2: 2, 4: 5, 8: 3}, 240, 1.2),
    Kind("bert-base-512", 5, {2: 1, 4: 6, 8: 3}, 260, 1.2),
    Kind("gpt2-medium-wikitext", 3, {8: 2, 16: 1}, 240, 1.0),
    Kind("train.sh", 9, {1: 15, 2: 3, 4: 2}, 45, 2.0),
    Kind("jupyter", 6, {1: 1}, 80, 1.0),
    Kind("språkmodell-prøve", 3, {1: 7, 2: 3}, 50),
)
CPU_KINDS = (
    Kind("preprocess", 5, {4: 5, 8: 3, 16: 2}, 12),
    Kind("tokenize", 3, {8: 6, 32: 4}, 25),
    Kind("eval-metrics", 4, {2: 7, 4: 3}, 4),
)
ACCOUNTS = ("vision", "nlp", "speech", "biostat")
USERS = 24
SESSIONS = 540
LIMITS_MIN = (30, 60, 120, 240, 480, 720, 1440, 2880)
SUBMISSIONS_BY_HOUR = (
    *(2, 2, 1, 1, 1, 2, 3, 6, 12, 19, 22, 21),
    *(16, 19, 22, 21, 19, 15, 10, 8, 7, 7, 6, 4),
)


@dataclass(slots=True)
class Run:
    """One run of a job. Without `start` it never ran, without `end` it still waits or runs."""

    submit: int
    eligible: int | None
    state: str = "PENDING"
    start: int | None = None
    end: int | None = None
    hosts: tuple[str, ...] = ()
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What sbatch was asked for."""

    kind: Kind
    user: int
    nodes: int
    per_node: int
    types: tuple[str, ...]
    cpus: int
    mem_gb: int
    limit_min: int
    array: bool

    @property
    def on_cpus(self) -> bool:
        """Whether it needs no GPU."""
        return self.types == (CPU,)

    @property
    def asked_type(self) -> str:
        """The GPU type asked for; empty where any will do."""
        return self.types[0] if len(self.types) == 1 else ""

    @property
    def account(self) -> str:
        """The account of its user."""
        return ACCOUNTS[self.user % len(ACCOUNTS)]

    @property
    def cancelled(self) -> str:
        """The state of a job that its user has cancelled."""
        return f"CANCELLED by {10_001 + self.user}"


@dataclass(slots=True)
class Job:
    """A job, what is to become of it, and its runs.

    `work` is seconds on a v100, `state` how it ends if nothing else ends it, `gives_up` when its
    user withdraws it if it has not started, `requeue_after` when its first run is requeued. A
    `held` job waits for its user.
    """

    submit: int
    request: Request
    work: float
    state: str
    gives_up: int | None
    requeue_after: int | None
    held: bool = False
    id: str = ""
    raw_id: int = 0
    runs: list[Run] = field(default_factory=list)


def draw_jobs(rng: Random) -> list[Job]:
    """Return all jobs, numbered in the order of submission, without runs."""
    habits = [_pick(rng, KINDS, 3) for _ in range(USERS)]
    sessions: list[list[Job]] = []
    for _ in range(SESSIONS):
        at = rng.randrange(ARRIVAL_DAYS) * DAY + rng.randrange(HOUR)
        at += rng.choices(range(24), SUBMISSIONS_BY_HOUR)[0] * HOUR
        user = int(USERS * rng.random() ** 1.7)
        kind = rng.choice(habits[user] + _pick(rng, KINDS, 3))
        if rng.random() < 0.16:
            kind = _pick(rng, CPU_KINDS, 1)[0]
        sweep = kind.minutes < 70 and rng.random() < 0.08
        request = _draw_request(rng, kind, user, array=sweep and rng.random() < 0.4)
        count = rng.randint(8, 16) if sweep else min(1 + int(rng.expovariate(0.8)), 6)
        session = []
        for _ in range(count):
            session.append(_draw_job(rng, at, request))
            at += 0 if request.array else rng.randint(3, 120)
        sessions += [session] if request.array else [[job] for job in session]
    sessions.sort(key=lambda session: session[0].submit)
    _number(sessions)
    jobs = [job for session in sessions for job in session]
    jobs[len(jobs) * 3 // 4].held = True
    return jobs


def _pick(rng: Random, kinds: tuple[Kind, ...], count: int) -> list[Kind]:
    return rng.choices(kinds, [kind.weight for kind in kinds], k=count)


def _draw_request(rng: Random, kind: Kind, user: int, array: bool) -> Request:
    size = rng.choices(list(kind.sizes), list(kind.sizes.values()))[0]
    limit_min = next(m for m in LIMITS_MIN if m >= min(kind.minutes * rng.uniform(4, 16), 2880))
    if kind in CPU_KINDS:
        return Request(kind, user, 1, size, (CPU,), size, 2 * size, limit_min, array)
    types: tuple[str, ...] = GIVEN_FIRST
    if rng.random() < 0.4:
        types = (rng.choice(("a100", *GIVEN_FIRST)),)
    if size == 16:
        types = tuple(name for name in types if name != "l40s") or ("a100",)
    # Eight GPUs are one node of rtx30, two of any other type.
    per_node = 8 if size >= 8 and types == ("rtx30",) else min(size, 4)
    cpus_per_gpu, gb_per_gpu = rng.choice((4, 8)), rng.choice((16, 32, 48))
    return Request(
        kind,
        user,
        size // per_node,
        per_node,
        types,
        size * cpus_per_gpu,
        size * gb_per_gpu,
        limit_min,
        array,
    )


def _draw_job(rng: Random, submit: int, request: Request) -> Job:
    work = 60 * rng.lognormvariate(math.log(request.kind.minutes), request.kind.sigma)
    fate = rng.random()
    state = "COMPLETED"
    if fate < 0.13:
        state, work = "FAILED", work * rng.random() ** 2
    elif fate < 0.20:
        state, work = request.cancelled, work * rng.random()
    elif fate < 0.215:
        state, work = "OUT_OF_MEMORY", work * rng.random() ** 3
    gives_up = submit + int(rng.expovariate(1 / 5_400)) if rng.random() < 0.09 else None
    requeue_after = rng.randint(300, 5_400) if rng.random() < 0.015 else None
    return Job(submit, request, work, state, gives_up, requeue_after)


def _number(sessions: list[list[Job]]) -> None:
    """Give ids as Slurm does: the last task of an array keeps the number of the array."""
    next_id = 482_301
    for session in sessions:
        first = next_id
        for task, job in enumerate(session):
            is_array = job.request.array
            job.id = f"{first}_{task}" if is_array else f"{first}"
            job.raw_id = first if task == len(session) - 1 else first + task + 1
        next_id += len(session)
