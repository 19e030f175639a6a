"""A testbed as a site has it, and what places jobs into a reservation on it."""

from __future__ import annotations

import os
import pickle
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from slurm_plugin.backend import (
    BackendError,
    Change,
    Drop,
    Enter,
    Hold,
    JobState,
    Leave,
    Resources,
    SlurmBackend,
    SlurmJob,
    SlurmSite,
    SlurmState,
)
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.jobs import await_job, running
from tests.slurm_plugin.submit.asking import sbatch_as

NAME = "hetsched"
NODES = ("n0", "n1", "n2", "n3", "n4", "n5")
OPERATOR, USER = "lp", "games"
PATIENCE_S = 60.0

SAVING = """\
SuspendProgram={base}/off.sh
ResumeProgram={base}/on.sh
SuspendTime=36000
SuspendTimeout=5
ResumeTimeout=60
"""
POWER_UP = """\
#!/bin/bash
for node in $({scontrol} show hostnames $1); do {slurmd} -b -N $node; done
"""
POWER_DOWN = """\
#!/bin/bash
for node in $({scontrol} show hostnames $1); do kill $(cat {run}/slurmd-$node.pid); done
"""


@contextmanager
def power_saved(testbed: Testbed) -> Iterator[None]:
    """Let Slurm turn nodes of a testbed off and on for a while."""
    layout, conf = testbed.layout, testbed.layout.slurm_conf
    slurmd, slurmstepd = map(testbed.installed.program, ("slurmd", "slurmstepd"))
    words = {
        "scontrol": testbed.installed.program("scontrol"),
        "slurmd": f"{slurmd} -f {conf} -d {slurmstepd}",
        "run": layout.runtime,
    }
    environment = "".join(
        f"export {name}='{value}'\n" for name, value in testbed.environment().items()
    )
    for name, script in (("on.sh", POWER_UP), ("off.sh", POWER_DOWN)):
        first, rest = script.format(**words).split("\n", 1)
        (layout.base / name).write_text(f"{first}\n{environment}{rest}")
        (layout.base / name).chmod(0o755)
    text = conf.read_text()
    _restart(testbed, f"{text}{SAVING.format(base=layout.base)}")
    try:
        yield
    finally:
        _restart(testbed, text)


def _restart(testbed: Testbed, text: str) -> None:
    testbed.stop_controller()
    testbed.layout.slurm_conf.write_text(text)
    testbed.start_controller()
    testbed.command("scontrol", "reconfigure")
    testbed.await_idle()


@dataclass(frozen=True, slots=True)
class As:
    """A backend whose changes an ordinary user makes."""

    backend: SlurmBackend
    user: str

    def read(self) -> SlurmState:
        return self.backend.read()

    def site(self) -> SlurmSite:
        return self.backend.site()

    def script(self, job: str) -> str:
        return self.backend.script(job)

    def apply(self, change: Change) -> None:
        """Make a change in a process of that user's."""
        read, write = os.pipe()
        child = os.fork()
        if not child:
            error: BackendError | None = None
            try:
                account = pwd.getpwnam(self.user)
                os.setgroups([])
                os.setgid(account.pw_gid)
                os.setuid(account.pw_uid)
                self.backend.apply(change)
            except BackendError as raised:
                error = raised
            finally:
                os.write(write, pickle.dumps(error))
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        if (error := pickle.loads(said)) is not None:
            raise error


@dataclass(frozen=True, slots=True)
class Site:
    """A held site: the operator's backend, and an ordinary user who submits."""

    testbed: Testbed
    operator: As

    def submit(self, *options: str, seconds: float = 600) -> str:
        wrap = f"--wrap=sleep {seconds} & trap 'kill %1; exit 0' TERM; wait"
        return sbatch_as(self.testbed, USER, *options, wrap)

    def hold(self, seconds: int = 600, nodes: tuple[str, ...] = NODES) -> None:
        self.operator.apply(Hold(NAME, nodes, seconds))

    def drop(self) -> None:
        self.operator.apply(Drop(NAME))

    def enter(self, job: str, *nodes: str, resources: Resources | None = None) -> None:
        self.operator.apply(Enter(job, NAME, nodes, Leave(job), resources))

    def jobs(self) -> dict[str, SlurmJob]:
        return dict(self.operator.read().jobs)

    def await_job(self, job: str, wanted: Callable[[SlurmJob], bool]) -> SlurmJob:
        return await_job(self.operator, job, wanted, PATIENCE_S)

    def await_running(self, job: str) -> SlurmJob:
        return self.await_job(job, running)

    def await_waiting(self, job: str) -> SlurmJob:
        """Return a job once Slurm has looked at it and keeps it for the reservation's sake."""
        return self.await_job(job, waits)

    def run_on(self, node: str, *options: str) -> str:
        """Submit a job, place it, and return its id once it runs."""
        job = self.submit(*options)
        self.await_waiting(job)
        self.enter(job, node)
        assert self.await_running(job).nodes == (node,)
        return job


def waits(job: SlurmJob) -> bool:
    """Whether Slurm says that a job waits because of a reservation."""
    return job.state is JobState.PENDING and "eserved" in job.reason
