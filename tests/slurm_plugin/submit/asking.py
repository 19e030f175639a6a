"""Submitting as users do, and what Slurm shows of it."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_plugin.backend import SlurmBackend
from slurm_plugin.daemon.jobs.request import Mark, is_mark, read_mark
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import wait_until

NOTHING = """\
function slurm_job_submit() return slurm.SUCCESS end
function slurm_job_modify() return slurm.SUCCESS end
return slurm.SUCCESS
"""
"""A job_submit.lua that does nothing."""


REFUSED = [
    ("--gpu-set=0", "--gpu-set=0: "),
    ("--gpu-set=1,,2", "'' in "),
    ("--gpu-set=$(id)", "--gpu-set=$(id): expected GPU counts, for example 1,2,4-8"),
    (
        "--gpu-set=2 --gpu-types=a100,",
        "--gpu-types=a100,: expected GPU types, for example a100,v100",
    ),
    ("--gpu-set=2 --gpu-types=`id`", "--gpu-types=`id`: expected GPU types"),
    ("--gpu-set=2 --gpu-mem=0G", "--gpu-mem=0G: expected the memory of one GPU"),
    ("--gpu-set=2 --gpu-mem=40G;id", "--gpu-mem=40G;id: expected the memory of one GPU"),
    ("--gpu-set=2 --gpu-shapes=odd", "--gpu-shapes=odd: expected even"),
    ("--gpu-set=2 --learning-rate=-1", "--learning-rate=-1: expected a number above 0"),
    ("--gpu-set=2 --learning-rate=1_0", "--learning-rate=1_0: expected a number above 0"),
    ("--gpu-set=2 --learning-rate=1e999", "--learning-rate=1e999: expected a number above 0"),
    ("--gpu-set=2 --learning-rate=$(id)", "--learning-rate=$(id): expected a number above 0"),
    (
        "--gpu-set=2 --learning-rate=.1 --lr-scaling=cubic",
        "--lr-scaling=cubic: expected linear, sqrt or none",
    ),
    ("--gpu-set=2 --total-samples=nan", "--total-samples=nan: expected a number above 0"),
    ("--gpu-set=2 --total-samples=1e308", "--total-samples=1e308: expected at most 1e15 samples"),
    ("--gpu-set=2 --profile-key=a'b", "--profile-key=a'b: expected letters, digits"),
    ('--gpu-set=2 --profile-key=a","nonce":"x', "expected letters, digits"),
    ("--gpu-set=2 --no-move=yes", "--no-move takes no value, and got 'yes'"),
    ("--gpu-set=2 --nonce=forged", "unknown option '"),
    ("--gpu-sets=2", "unknown option '"),
    ("gpu-set=2", "'gpu-set=2' on a #HETSCHED line is no option"),
    ("--gpu-set=2 # two", "'#' on a #HETSCHED line is no option"),
    ("--gpu-set=2 --gpu-set=4", "--gpu-set stands twice on #HETSCHED lines"),
    (
        "--gpu-set=" + 2100 * "1," + "2",
        "a #HETSCHED line has 4211 characters; at most 4096 are allowed",
    ),
    ("--gpu-set=4 --can-checkpoint --copies=1", "--copies=1: expected how many copies"),
    ("--gpu-set=4 --can-checkpoint --copies=17", "2 to 16, or nothing for 16"),
    ("--gpu-set=4 --can-checkpoint --copies=002", "--copies=002: expected how many copies"),
    ("--gpu-set=4 --can-checkpoint --copies --no-move", "does not go with --no-move"),
    ("--gpu-set=4 --can-checkpoint --copies --gpu-shapes=any", "not go with --gpu-shapes=any"),
]
"""Lines that job_submit.lua and the daemon refuse, beside those of the page on submitting, and
words of both answers."""


def refused_on_the_page() -> list[tuple[str, str]]:
    """The rows of the page on submitting that say what is refused, and how."""
    page = (Path(__file__).parents[3] / "docs/live/submitting.md").read_text()
    rows = re.findall(r"^\| `(--.*)` \| `(.*)` \|$", page, re.MULTILINE)
    assert len(rows) >= 12
    return rows


def mark_of(backend: SlurmBackend, job: str) -> Mark:
    jobs = backend.read().jobs
    text = jobs[job if job in jobs else f"{job}_0"].mark
    assert is_mark(text), text
    return read_mark(text)


def sbatch(testbed: Testbed, *words: str | Path) -> str:
    """Submit a job whose output nobody needs, and return its id."""
    return testbed.command("sbatch", "--parsable", "--output=/dev/null", *words).strip()


def sbatch_as(testbed: Testbed, user: str, *words: str | Path, **environment: str) -> str:
    """Submit a job as somebody else does, and return its id."""
    always = ("sbatch", "--parsable", "--output=/dev/null")
    said = as_user(testbed, user, *always, *words, **environment)
    assert said.returncode == 0, said.stderr
    return said.stdout.strip()


def as_nobody(testbed: Testbed, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return as_user(testbed, "nobody", *words)


def as_user(
    testbed: Testbed, user: str, *words: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands as somebody, and return what it said."""
    account = pwd.getpwnam(user)
    return subprocess.run(
        [testbed.installed.program(str(words[0])), *words[1:]],
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
        cwd="/tmp",
        env=testbed.environment() | {"HOME": "/tmp"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@contextmanager
def known_to_slurm(testbed: Testbed, user: str, *, operator: bool = False) -> Iterator[None]:
    """Give a user an association for a while, as sites do, or the rights of a daemon, too."""
    tell = ("sacctmgr", "--immediate")
    testbed.command(*tell, "add", "user", user, "account=root")
    try:
        if operator:
            testbed.command(*tell, "modify", "user", user, "set", "adminlevel=Operator")
        # slurmctld is told by slurmdbd, when that sees fit.
        known = ("scontrol", "show", "assoc_mgr", f"users={user}")
        flags, level = ("users", "AdminLevel=Operator") if operator else ("assoc", "")

        def knows() -> bool:
            said = testbed.command(*known, f"flags={flags}")
            return f"UserName={user}(" in said and level in said

        wait_until(knows, f"slurmctld knows {user}", 120)
        yield
    finally:
        testbed.command(*tell, "delete", "user", user)


@contextmanager
def script_instead(testbed: Testbed, text: str) -> Iterator[None]:
    """Run another job_submit.lua for a while."""
    path = testbed.layout.configuration / "job_submit.lua"
    ours = path.read_text()
    _write_script(path, text)
    try:
        yield
    finally:
        _write_script(path, ours)


def _write_script(path: Path, text: str) -> None:
    # slurmctld reads a file again that is younger, in whole seconds, than what it has read.
    younger = int(path.stat().st_mtime) + 1
    path.write_text(text)
    os.utime(path, (younger, younger))


def shown(testbed: Testbed, job: str) -> dict[str, str]:
    """What `scontrol show job` says, by its words."""
    text = testbed.command("scontrol", "show", "job", job, "--oneliner")
    return dict(re.findall(r"(?:^|\s)([\w/:]+)=(\S*)", text))
