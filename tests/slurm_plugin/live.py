"""The daemon on a real Slurm, as live tests drive it."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from hetsched_core.policy import Policy, make_policy
from hetsched_core.store import Store
from slurm_plugin.backend import JobState, SlurmBackend
from slurm_plugin.daemon import CycleReport, Daemon, DaemonMode, DaemonSettings
from tests.slurm_plugin.daemon.fake_slurm import WAITING, Site, node
from tests.slurm_plugin.jobs import Submitter, deadline

SETTINGS = DaemonSettings(partitions=frozenset({"gpu"}), restart_cost_s=0.0, grace_s=5.0)


def daemon_of(
    backend: SlurmBackend,
    policy: str | Policy = "fifo",
    mode: DaemonMode = DaemonMode.ENFORCE,
    store: Store | None = None,
    settings: DaemonSettings = SETTINGS,
) -> Daemon:
    """A daemon on the wall clock, which holds the nodes from now on unless it only looks on."""
    if isinstance(policy, str):
        compile_kernels(policy)
    daemon = Daemon(
        backend,
        make_policy(policy) if isinstance(policy, str) else policy,
        settings,
        mode=mode,
        clock=time.time,
        sleep=time.sleep,
        store=store,
        stopwatch=time.perf_counter,
    )
    daemon.cycle()
    return daemon


@cache
def compile_kernels(policy: str) -> None:
    """Plan once for made-up jobs: kernels are compiled when they are used first, and jobs wait."""
    marks = [WAITING.mark.replace("1,2", counts).replace("a1", counts) for counts in ("1-4", "1-8")]
    jobs = [replace(WAITING, id=str(at), mark=mark) for at, mark in enumerate(marks)]
    kinds = enumerate(("a100", "v100", "t4"))
    nodes = tuple(replace(node(f"n{at}"), gpus=((kind, 4),)) for at, kind in kinds)
    Site(*jobs, nodes=nodes, policy=policy).cycle()


def drive(
    daemon: Daemon, until: Callable[[], bool], timeout_s: float = 120.0, every_s: float = 0.2
) -> list[CycleReport]:
    """Run cycles until something holds; no cycle may find anything wrong.

    `timeout_s` is given where it is a promise; else it only ends a test that fails.
    """
    reports = []
    latest = deadline(timeout_s)
    while not until():
        assert time.monotonic() < latest, "it has not come about in time"
        report = daemon.cycle()
        assert report.violations == ()
        assert report.away == ""
        reports.append(report)
        time.sleep(every_s)
    return reports


def ended(backend: SlurmBackend, jobs: list[str]) -> Callable[[], bool]:
    """Whether all of these jobs have ended."""
    return lambda: all(backend.read().jobs[job].state is JobState.ENDED for job in jobs)


def started(submitter: Submitter, jobs: list[str]) -> Callable[[], bool]:
    """Whether all of these jobs have begun to work."""
    return lambda: all(submitter.told(job) for job in jobs)
