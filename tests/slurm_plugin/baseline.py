"""The same rigid jobs under a real slurmctld and under the replay's `slurm` policy.

    python -m tests.slurm_plugin.baseline

brings a Slurm of the testbed up, lets a thousand jobs sleep on it, replays them, and prints how far
the starts are apart; then how far those of the replay are from its own where jobs end a second
sooner or later. `--jobs` and `--nodes` make it smaller; `--record FILE` keeps what slurmctld did,
and `--replay FILE` replays that once more.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from hetsched_core.measures.logged import Closeness, closeness, rank_correlation
from hetsched_core.policy import make_policy
from hetsched_core.replay.replay import replay
from hetsched_core.simulate import SimulationSettings
from hetsched_core.traces.cluster_file import ClusterFile, parse_cluster
from hetsched_core.traces.load import ReplayInputs
from hetsched_core.traces.site_jobs import under_site
from hetsched_core.traces.workload import Workload
from hetsched_core.types import Job, LoggedRun, RequirementSet, Submission
from slurm_plugin.testbed import (
    FakeSite,
    Installation,
    Partition,
    Testbed,
    default_cache,
    fake_nodes,
    install,
    usual_site,
)
from tests.hetsched_core.worlds import linear_speeds
from tests.slurm_plugin.accounts import UNTOLD
from tests.slurm_plugin.clusters import restart_controller, up
from tests.slurm_plugin.jobs import deadline

SHARES = {"physics": 5, "language": 3, "vision": 2}
LIMITED = "vision"
"""The account whose jobs may hold no more than `Setting.most_gpus` together."""

HIGH = 1000
"""The priority of QOS `high`."""

MEAN_GPUS = 2.2

WEIGHTS = {"t4": 1, "v100": 2, "a100": 3}
"""Of the nodes by their GPU type: those of the slowest are taken first."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What runs on which cluster.

    Attributes:
        jobs: how many, elements of arrays counted.
        nodes: how many, from 16.
        mean_s: how long a job sleeps in the mean, seconds.
        waiting: how many jobs are to wait, about.
        interval_s: `bf_interval`, seconds.
        seed: of what is drawn.
    """

    jobs: int = 1000
    nodes: int = 64
    mean_s: float = 150.0
    waiting: int = 100
    interval_s: int = 30
    seed: int = 1

    @property
    def gpus(self) -> int:
        """How many GPUs the cluster has."""
        return sum(node.gpus for node in fake_nodes(self.nodes))

    @property
    def most_gpus(self) -> int:
        """How many GPUs the limited account may hold: fewer than it would."""
        return 3 * self.gpus // 16

    @property
    def closed(self) -> str:
        """The nodes that are maintained for a while."""
        return f"n[{self.nodes // 8}-{self.nodes // 8 + 3}]"

    @property
    def partitions(self) -> dict[str, str]:
        """The nodes of two partitions that share a quarter of all, neither of which has all."""

        def names(first: int, beyond: int) -> str:
            listed = [f"n{at}" for at in range(first, beyond)]
            return str(NodeSet.fromlist(listed, resolver=RESOLVER_NOGROUP))

        return {"gpu": names(0, self.nodes * 3 // 4), "short": names(self.nodes // 2, self.nodes)}

    def site(self) -> FakeSite:
        """Return the cluster: three GPU types, fair share by account, and a strict QOS."""
        partitions = tuple(
            Partition(name, nodes, default=name == "gpu", max_time="01:00:00")
            for name, nodes in self.partitions.items()
        )
        usual = usual_site(fake_nodes(self.nodes), partitions)
        settings = (
            "PriorityType=priority/multifactor",
            "PriorityWeightFairshare=100000",
            "PriorityWeightQOS=1000000",
            "PriorityDecayHalfLife=01:00:00",
            "PriorityCalcPeriod=00:01:00",
            "AccountingStorageEnforce=limits,qos",
            f"SchedulerParameters=bf_interval={self.interval_s}",
        )
        nodes = (replace(node, weight=WEIGHTS[node.gpu_type]) for node in usual.nodes)
        return FakeSite(tuple(nodes), usual.partitions, settings)


@dataclass(frozen=True, slots=True)
class Sleeper:
    """A job that sleeps.

    Attributes:
        at_s: when it is submitted, seconds after the first.
        seconds: how long it sleeps.
        limit_min: its time limit, minutes.
        gpus: how many GPUs it asks for on each node.
        nodes: on how many nodes.
        gpu_type: their type, "" for any.
        constraint: a feature of its nodes, "" for none.
        partition, account, qos: as Slurm has them.
        elements: how many elements it has as an array, 0 where it is none.
    """

    at_s: float
    seconds: int
    limit_min: int
    gpus: int
    nodes: int
    gpu_type: str
    constraint: str
    partition: str
    account: str
    qos: str
    elements: int

    @property
    def words(self) -> tuple[str, ...]:
        """What sbatch is told."""
        return (
            f"--gres=gpu:{self.gpu_type}:{self.gpus}".replace("::", ":"),
            f"--nodes={self.nodes}",
            f"--time={self.limit_min}",
            f"--partition={self.partition}",
            f"--account={self.account}",
            f"--qos={self.qos}",
            *([f"--constraint={self.constraint}"] if self.constraint else []),
            *([f"--array=0-{self.elements - 1}"] if self.elements else []),
            "--output=/dev/null",
            f"--wrap=sleep {self.seconds}",
        )


def drawn(setting: Setting) -> Iterator[Sleeper]:
    """Yield jobs that keep some waiting: a burst, and then as many as end."""
    rng = random.Random(setting.seed)
    at_s, submitted = 0.0, 0
    burst = setting.gpus / MEAN_GPUS + setting.waiting
    while submitted < setting.jobs:
        wide = rng.random() < 0.05
        seconds = max(5, round(rng.uniform(0.2, 1.8) * setting.mean_s))
        elements = 5 if rng.random() < 0.02 else 0
        yield Sleeper(
            at_s=at_s,
            seconds=seconds,
            limit_min=seconds // 60 + rng.randint(1, 5),
            gpus=4 if wide else rng.choices((1, 2, 4), (0.5, 0.3, 0.2))[0],
            nodes=2 if wide else 1,
            gpu_type=rng.choice(("a100", "v100", "t4")) if rng.random() < 0.4 else "",
            constraint="ib" if rng.random() < 0.05 else "",
            partition=rng.choices(("gpu", "short"), (0.7, 0.3))[0],
            account=rng.choice(tuple(SHARES)),
            qos="high" if rng.random() < 0.1 else "normal",
            elements=elements,
        )
        submitted += elements or 1
        rate = 2.5 if submitted < burst else setting.gpus / (MEAN_GPUS * setting.mean_s)
        at_s += rng.expovariate(rate / (elements or 1))


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a job, or of an element of one, in Slurm's records.

    `job` is its place in the order of submission, times are seconds UTC, and `flags` say which of
    Slurm's schedulers has started it.
    """

    job: int
    element: int
    submit_s: float
    start_s: float
    end_s: float
    nodes: tuple[str, ...]
    flags: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What slurmctld did; `window_s` is when the maintenance began and ended, seconds UTC."""

    setting: Setting
    window_s: tuple[float, float]
    ran: tuple[Ran, ...]

    def written(self) -> str:
        """Return it as JSON, a line for each job."""
        head = {"setting": asdict(self.setting), "window_s": self.window_s}
        return "\n".join(json.dumps(each) for each in (head, *map(asdict, self.ran))) + "\n"

    @classmethod
    def read(cls, text: str) -> Recorded:
        """Return what was written."""
        head, *lines = map(json.loads, text.splitlines())
        rows = (Ran(**line | {"nodes": tuple(line["nodes"])}) for line in lines)
        return cls(Setting(**head["setting"]), tuple(head["window_s"]), tuple(rows))


def run_slurm(installed: Installation, setting: Setting) -> Recorded:
    """Let the jobs run on a real Slurm."""
    jobs = tuple(drawn(setting))
    with up(installed, setting.site()) as cluster:
        for words in (
            f"add qos high priority={HIGH}",
            *(f"add account {name} fairshare={share}" for name, share in SHARES.items()),
            *(f"add user root account={name}" for name in SHARES),
            f"modify account {LIMITED} set GrpTRES=gres/gpu={setting.most_gpus}",
            *(f"modify user root where account={name} set qos+=high" for name in SHARES),
        ):
            cluster.command("sacctmgr", "--immediate", *words.split())
        restart_controller(cluster)
        begun_s = time.time()
        opens_s = float(round(begun_s + jobs[-1].at_s / 3))
        window = opens_s, opens_s + 2.0 * setting.mean_s
        opens, closes = map(_local, window)
        cluster.command(
            *("scontrol", "create", "reservation", "reservationname=cooling", "users=root"),
            *("flags=maint", f"nodes={setting.closed}", f"starttime={opens}", f"endtime={closes}"),
        )
        ids = {}
        for at, job in enumerate(jobs):
            time.sleep(max(0.0, begun_s + job.at_s - time.time()))
            ids[cluster.command("sbatch", "--parsable", *job.words).strip()] = at
        while cluster.command("squeue", "--noheader").strip():
            time.sleep(5.0)
        rows = sorted(_records(cluster, ids), key=lambda one: (one.job, one.element))
        assert len(rows) == sum(job.elements or 1 for job in jobs), "sacct lacks jobs"
        return Recorded(setting, window, tuple(rows))


def _local(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at_s))


def _at_s(told: str) -> float:
    return datetime.fromisoformat(told).timestamp()


def _records(cluster: Testbed, ids: dict[str, int]) -> Iterator[Ran]:
    """Yield what sacct says of all jobs, once it knows the end of each."""
    options = ("--allocations", "--noheader", "--parsable2", "--starttime=now-1days")
    columns = "--format=JobID,Submit,Start,End,NodeList,Flags"
    latest = deadline(30)
    while UNTOLD in (text := cluster.command("sacct", *options, columns)):
        assert time.monotonic() < latest, f"sacct does not know the end of all jobs: {text}"
        time.sleep(1.0)
    for line in text.splitlines():
        job, submit, start, end, nodes, flags = line.split("|")
        array, _, element = job.partition("_")
        if array in ids:
            yield Ran(
                ids[array],
                int(element or 0),
                _at_s(submit),
                _at_s(start),
                _at_s(end),
                tuple(NodeSet(nodes)),
                flags,
            )


def cluster_file(recorded: Recorded) -> ClusterFile:
    """Return the cluster as a replay is told of it: its nodes in the order of their weights."""
    setting = recorded.setting
    opens, closes = recorded.window_s
    lines = ['schema = "hetsched-cluster/1"']
    for node in sorted(setting.site().nodes, key=lambda node: node.weight):
        lines += ["[[nodes]]", f'nodes = "{node.name}"']
        lines += [f'gpu_type = "{node.gpu_type}"', f"gpus = {node.gpus}"]
    for name, names in setting.partitions.items():
        lines += ["[[partitions]]", f'name = "{name}"', f'nodes = "{names}"']
    lines += ["[[windows]]", 'name = "cooling"', f'nodes = "{setting.closed}"', "strict = true"]
    lines += [f"from = {opens:.0f}", f"until = {closes:.0f}"]
    lines += ["[shares]", 'half_life = "01:00:00"', "period = 60"]
    for account, share in SHARES.items():
        lines += ["[[accounts]]", f'name = "{account}"', f"shares = {share}"]
        lines += [f"max_gpus = {setting.most_gpus}"] if account == LIMITED else []
    lines += ["[[qos]]", 'name = "high"', f"priority = {HIGH}"]
    return parse_cluster("\n".join((*lines, "")))


def submissions_of(recorded: Recorded, file: ClusterFile) -> tuple[Submission, ...]:
    """Return the jobs for a replay: each runs for as long as it really did, on GPUs of any type."""
    jobs = tuple(drawn(recorded.setting))
    featured = {node.name: node.features for node in recorded.setting.site().nodes}
    found = []
    for at, ran in enumerate(recorded.ran):
        job = jobs[ran.job]
        gpus = job.gpus * job.nodes
        samples = gpus * (ran.end_s - ran.start_s)
        allowed = file.partitions[job.partition]
        wanted = Job(
            f"{at:05}",
            # Those of one second stay in their order.
            ran.submit_s + at / 1e5,
            RequirementSet((gpus,)),
            "sleep",
            total_samples=samples,
            time_limit_s=60.0 * job.limit_min,
            gpu_types=frozenset({job.gpu_type}) if job.gpu_type else None,
            user="root",
            account=job.account,
            partition=job.partition,
            qos=job.qos,
            preemptible=False,
            nodes=frozenset(n for n in allowed if job.constraint in ("", *featured[n])),
            min_nodes=job.nodes,
            max_nodes=job.nodes,
        )
        logged = (LoggedRun(ran.start_s, ran.end_s, gpus),)
        found.append(Submission(wanted, samples, logged=logged))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Compared:
    """How far the starts of a replay are from those of slurmctld.

    Attributes:
        close_share: share of the starts that are at most two intervals of backfill away.
        same_type_share: share of the jobs that name no GPU type which got the same one.
        waits: of the same jobs; see `Closeness`.
        later_s: by how much each job starts later in the replay, seconds, in order of submission.
    """

    close_share: float
    same_type_share: float
    waits: Closeness
    later_s: tuple[float, ...]

    def __str__(self) -> str:
        waits = self.waits
        return (
            f"{waits.jobs} starts, {100 * self.close_share:.1f} % within two intervals, median "
            f"{waits.p50_error_s:.0f} s apart, 90 % within {waits.p90_error_s:.0f} s; mean wait "
            f"{waits.avg_logged_wait_s:.0f} s, in the replay {waits.avg_wait_s:.0f} s; rank "
            f"correlation of waits {waits.wait_rank_correlation or 0.0:.4f}; of the jobs without a "
            f"GPU type {100 * self.same_type_share:.1f} % got the same"
        )


def compare(recorded: Recorded, **other: str) -> Compared:
    """Replay the jobs under the policy `slurm`, with other parameters where they are given."""
    setting, file = recorded.setting, cluster_file(recorded)
    workload, site = under_site(Workload(submissions_of(recorded, file)), file)
    cluster = file.cluster
    options = {
        "bf_interval_s": str(setting.interval_s),
        "weight_fairshare": "100000",
        "decay_half_life_s": "3600",
        "calc_period_s": "60",
        **other,
    }
    inputs = ReplayInputs(
        workload=workload,
        speeds=linear_speeds(cluster, {"sleep": dict.fromkeys(cluster.gpu_types, 1.0)}),
        cluster=cluster,
        windows=file.windows,
        site=site,
    )
    policies = {"slurm": make_policy("slurm", options)}
    (replayed,) = replay(inputs, policies, SimulationSettings(round_s=1.0))
    waits = closeness(workload.submissions, replayed.log.jobs)
    assert waits is not None
    assert waits.jobs == len(recorded.ran)
    here_s = {record.job.id: record.first_start_s or 0.0 for record in replayed.log.jobs}
    later_s = [here_s[one.job.id] - one.logged[0].start_s for one in workload.submissions]
    types = {node.name: node.gpu_type for node in cluster}
    got = {run.job: types[run.configuration.pieces[0][0]] for run in replayed.log.runs}
    same = [
        got[one.job.id] == types[ran.nodes[0]]
        for one, ran in zip(workload.submissions, recorded.ran, strict=True)
        if one.job.gpu_types is None
    ]
    close = np.abs(later_s) <= 2 * setting.interval_s
    return Compared(float(close.mean()), float(np.mean(same)), waits, tuple(later_s))


@dataclass(frozen=True, slots=True)
class Divergence:
    """How far a replay is from one in which each job ends up to a second sooner or later.

    A full cluster makes much of a second, and slurmctld tells whole ones: about so far apart are
    two that do the same.

    Attributes:
        close_share: share of the starts that are at most two intervals of backfill away.
        rank_correlation: of the waits.
    """

    close_share: float
    rank_correlation: float

    def __str__(self) -> str:
        return (
            f"where ends are a second off: {100 * self.close_share:.1f} % within two intervals, "
            f"rank correlation {self.rank_correlation:.4f}"
        )


def ends_moved(recorded: Recorded, seeds: int) -> Iterator[Recorded]:
    """Yield what slurmctld did so many times, each with all ends up to a second off."""
    for seed in range(seeds):
        off_s = np.random.default_rng(seed).integers(-1, 2, len(recorded.ran)).tolist()
        rows = zip(recorded.ran, off_s, strict=True)
        moved = (replace(ran, end_s=max(ran.start_s, ran.end_s + off)) for ran, off in rows)
        yield replace(recorded, ran=tuple(moved))


def diverge(recorded: Recorded, seeds: int = 3) -> Divergence:
    """Replay the jobs with other ends, and return the mean of so many times."""
    submitted_s = np.array([ran.submit_s for ran in recorded.ran])
    told_s = np.array([ran.start_s for ran in recorded.ran])
    as_told_s = told_s + compare(recorded).later_s
    close, correlations = [], []
    for moved in ends_moved(recorded, seeds):
        start_s = told_s + compare(moved).later_s
        near = np.abs(start_s - as_told_s) <= 2 * recorded.setting.interval_s
        close.append(float(near.mean()))
        waits_s = (start_s - submitted_s, as_told_s - submitted_s)
        correlations.append(rank_correlation(*waits_s) or 0.0)
    return Divergence(float(np.mean(close)), float(np.mean(correlations)))


def typical_error_s(recorded: Recorded, **options: str) -> float:
    """Return how far starts of a replay are from slurmctld's in the mean, seconds.

    That is over eight replays with other ends: on a full cluster one of them says little.
    """
    found = (compare(moved, **options) for moved in ends_moved(recorded, 8))
    return float(np.mean(np.abs([each.later_s for each in found])))


def main() -> None:
    """Run, replay and compare."""
    parser = argparse.ArgumentParser(
        prog="baseline", description=(__doc__ or "").partition("\n")[0]
    )
    usual = Setting()
    parser.add_argument("--jobs", type=int, default=usual.jobs)
    parser.add_argument("--nodes", type=int, default=usual.nodes)
    parser.add_argument("--mean-s", type=float, default=usual.mean_s)
    parser.add_argument("--waiting", type=int, default=usual.waiting)
    parser.add_argument("--interval-s", type=int, default=usual.interval_s)
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--replay", type=Path)
    given = vars(parser.parse_args())
    kept, again = given.pop("record"), given.pop("replay")
    if again is None:
        recorded = run_slurm(install(default_cache()), Setting(**given))
    else:
        recorded = Recorded.read(again.read_text())
    if kept is not None:
        kept.write_text(recorded.written())
    sys.stdout.write(f"{compare(recorded)}\n{diverge(recorded)}\n")


if __name__ == "__main__":
    main()
