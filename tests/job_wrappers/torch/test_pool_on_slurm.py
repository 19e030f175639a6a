"""A pool on a real Slurm: two nodes of unlike types, resized by the daemon, and killed in parts."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from hetsched_core.store import IN_MEMORY, Mode, Store
from job_wrappers.executor import TaskJob
from slurm_plugin.backend import SlurmBackend
from slurm_plugin.pool.folder import Pool
from slurm_plugin.pool.status import status
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import run
from tests.job_wrappers.torch.pools import STANDBY, LivePool, training
from tests.job_wrappers.torch.test_on_slurm import InShape, daemon_of
from tests.job_wrappers.torch.test_pool import exact, submitted
from tests.job_wrappers.worlds import ROOT
from tests.slurm_plugin.jobs import Submitter
from tests.slurm_plugin.live import drive

pytestmark = pytest.mark.slurm

GROUPS = {"hlas": {"groups": "2"}, "hlas-p": {"groups": "2"}, "hare": {}}


def two_searches() -> list[TaskJob]:
    """Twelve trainings: six widths of a network, and six numbers of channels of another."""
    wide = [training("classifier", f"wide-{n}", 40, width=8 + 4 * n) for n in range(6)]
    deep = [training("convolution", f"deep-{n}", 20, 2, channels=2 + n) for n in range(6)]
    return [each for pair in zip(wide, deep, strict=True) for each in pair]


def start(cluster: Testbed, pool: Path, folder: Path) -> str:
    """Submit the template, with a Python that has torch, and fewer of it that stand by."""
    script = (ROOT / "sbatch_templates" / "pool.sbatch").read_text()
    assert script.endswith("--task-timeout 600\n")
    (folder / "pool.sbatch").write_text(f"{script.rstrip()} {STANDBY}\n")
    (folder / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python3").chmod(0o755)
    found = f"{folder}:{Path(sys.executable).parent}:{cluster.environment()['PATH']}"
    environment = cluster.environment() | {"PATH": found, "OMP_NUM_THREADS": "1"}
    sbatch = cluster.installed.program("sbatch")
    words: list[str | Path] = [sbatch, "--parsable", f"--chdir={folder}", "pool.sbatch"]
    assert pool == folder / "pool"
    return run(words, env=environment, cwd=folder).strip()


def types(pool: Path) -> list[str]:
    """Return the GPU types of the members that are there."""
    return sorted(member.gpu_type for member in status(Pool(pool)).members)


def _passed(due_s: float) -> bool:
    return time.monotonic() >= due_s


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("policy", sorted(GROUPS))
def test_twelve_trainings_take_turns_on_two_nodes_of_unlike_types_whatever_is_killed(
    policy: str, backend: SlurmBackend, testbed: Testbed, submitter: Submitter, tmp_path: Path
) -> None:
    one, other, third = "n0", "n2", "n3"  # a100, t4, a100
    shape = InShape({one: 1, other: 1})
    path = tmp_path / "pool"
    jobs = two_searches()
    groups = GROUPS[policy]
    with Store.open(IN_MEMORY, Mode.WRITE) as store, LivePool(path, policy, **groups) as pool:
        # It holds the nodes before Slurm can start the job on others.
        daemon = daemon_of(backend, shape, tmp_path, store, grace_s=10.0, round_s=2.0)
        start(testbed, path, tmp_path)
        drive(daemon, lambda: types(path) == ["a100", "t4"], timeout_s=120)
        # They come over a minute, each pair of them together.
        begun = time.monotonic()
        for at in range(0, len(jobs), 2):
            drive(daemon, partial(_passed, begun + 5 * at), timeout_s=120)
            for job in jobs[at : at + 2]:
                submitted(pool, job, group=job.name.partition("-")[0])
            if at == 4:
                # What one member runs is lost, and no more.
                kill(json.loads(pool.members()[0].read_text())["pid"])
            if at == 6:
                kill(int((path / "scheduler.lock").read_text()))
            if at == 8:
                shape.pieces = {one: 1, other: 1, third: 1}
        drive(daemon, lambda: types(path) == ["a100", "a100", "t4"], timeout_s=120)
        pool_ends = Pool(path)
        pool_ends.stop(when_done=True)
        drive(daemon, lambda: not testbed.command("squeue", "-h").strip(), timeout_s=240)
        assert exact(pool, jobs, killed=1)
        trained = [line for line in pool.trained() if line["loss"] is not None]
        assert pool.turns() > len(jobs)
        ran = [(line["job"], line["round"], line["number"]) for line in trained]
        wanted = {(job.name, t.round, t.number) for job in jobs for t in job.tasks()}
        # The member that was killed may have left what it had in hand, and not told of it.
        assert set(ran) <= wanted
        assert len(wanted - set(ran)) <= 1
        # A member's task and those of a resize; nothing else ran twice.
        assert len(ran) - len(wanted) <= 8
        assert len({line["member"] for line in trained}) >= 5
