"""The daemon as a user of its own, with no more rights in Slurm than it needs."""

from __future__ import annotations

import json
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_plugin.backend import JobState, SlurmBackend
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.jobs import await_hold, end_all
from tests.slurm_plugin.submit.asking import as_user, known_to_slurm, sbatch_as

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).resolve().parents[3]
DAEMON = "daemon"
PATIENCE_S = 180.0

JOB = """\
#!/bin/bash
#HETSCHED --gpu-set={counts} --can-checkpoint
trap 'exit 0' TERM
for at in $(seq {tenths}); do sleep 0.1; done
"""


def interpreter(cluster: Testbed) -> tuple[Path, dict[str, str]]:
    """Return a Python that any user may run, and the variables with which it finds the packages."""
    packages = [path for path in sys.path if path.endswith("site-packages")]
    pyslurm = [str(cluster.installed.pyslurm)] if cluster.installed.pyslurm else []
    found = {"PYTHONPATH": ":".join([str(ROOT), *packages, *pyslurm])}
    version = f"python3.{sys.version_info.minor}"
    account = pwd.getpwnam(DAEMON)
    for python in (Path(sys.executable), Path("/usr/bin") / version):
        try:
            done = subprocess.run(
                [python, "-c", "import slurm_plugin.daemon.process.run"],
                user=account.pw_uid,
                group=account.pw_gid,
                extra_groups=[],
                env=os.environ | cluster.environment() | found,
                capture_output=True,
                check=False,
                cwd="/tmp",
            )
        except OSError:
            continue
        if done.returncode == 0:
            return python, found
    pytest.skip(f"no {version} here that the user {DAEMON} may run")


@pytest.fixture
def folder(short_folder: Path) -> Path:
    """The daemon's own folder."""
    account = pwd.getpwnam(DAEMON)
    (short_folder / "spool").mkdir(mode=0o755)
    for each in (short_folder, short_folder / "spool"):
        os.chown(each, account.pw_uid, account.pw_gid)
    return short_folder


@pytest.fixture
def hetschedd(testbed: Testbed, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A daemon that is nobody in particular to the operating system."""
    python, found = interpreter(testbed)
    account = pwd.getpwnam(DAEMON)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                *(python, "-m", "slurm_plugin.cli.hetschedd", "--partitions=gpu", "--mode=enforce"),
                *("--policy=las", "--round-s=2", "--cycle-s=0.2", "--grace-s=5", "--slack-s=20"),
                *(f"--database={folder}/daemon.duckdb", f"--spool={folder}/spool"),
                f"--socket={folder}/sock",
            ],
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            env=os.environ | testbed.environment() | found | {"HOME": str(folder)},
            stderr=log,
            text=True,
            cwd=folder,
            # What it makes is closed to others whatever it is started with.
            umask=0,
        )
    yield process
    process.terminate()
    process.wait(120)
    end_all(testbed)


@pytest.fixture
def operator(testbed: Testbed) -> Iterator[None]:
    """Slurm knows the daemon's user as an operator, and as nothing more."""
    with known_to_slurm(testbed, DAEMON, operator=True):
        yield


def submitted(testbed: Testbed, folder: Path, counts: str, tenths: int) -> str:
    """Submit a job of an ordinary user's, who is neither root nor the daemon."""
    script = folder / "job.sh"
    script.write_text(JOB.format(counts=counts, tenths=tenths))
    script.chmod(0o644)
    return sbatch_as(testbed, "nobody", script)


def hold(testbed: Testbed) -> str:
    """What Slurm says of the reservation that is in force, "" for none."""
    said = testbed.command("scontrol", "show", "reservation", "--oneliner")
    return next((line for line in said.splitlines() if "State=ACTIVE" in line), "")


def test_an_operator_holds_nodes_places_and_moves_jobs_of_ordinary_users_and_lets_go(
    operator: None,
    hetschedd: subprocess.Popen[str],
    backend: SlurmBackend,
    testbed: Testbed,
    folder: Path,
) -> None:
    await_hold(testbed)
    first = hold(testbed)
    long = [submitted(testbed, folder, "4,8", 100) for _ in range(8)]
    log = folder / "log"
    wait_until(lambda: "event=place" in log.read_text(), "a placement", PATIENCE_S, every_s=0.2)
    jobs = [*long, *(submitted(testbed, folder, "4", 5) for _ in range(6))]

    def ended() -> bool:
        assert hetschedd.poll() is None, log.read_text()[-2000:]
        seen = backend.read().jobs
        # Slurm forgets some minutes later.
        return all(job not in seen or seen[job].state is JobState.ENDED for job in jobs)

    wait_until(ended, "the end of all jobs", 2 * PATIENCE_S, every_s=0.5)
    wait_until(lambda: hold(testbed) != first, "the hold being renewed", PATIENCE_S)
    waits = submitted(testbed, folder, "4", 5)
    hetschedd.terminate()
    assert hetschedd.wait(120) == 0
    # If a job still runs in it, it ends a moment later.
    wait_until(lambda: hold(testbed) == "", "the end of the hold", PATIENCE_S)
    jobs.append(waits)
    wait_until(
        lambda: backend.read().jobs[waits].state is JobState.ENDED, "Slurm runs it", PATIENCE_S
    )
    said = log.read_text()
    assert "event=requeue" in said
    assert "event=refused" not in said
    assert {backend.read().jobs[job].user for job in jobs} == {"nobody"}


TOLD = """\
#!/bin/bash
#HETSCHED --gpu-set=1
cd {folder}/out
name=$SLURM_JOB_ID.$(printf 'hetsched-moves/2 %s' "$HETSCHED_NONCE" | sha256sum | cut -c1-32).json
until cp {folder}/spool/moves/$(id -u)/$name $SLURM_JOB_ID.told; do sleep 0.1; done
sleep 600
"""
"""A job that waits until it is told why it was placed."""


@contextmanager
def private_jobs(testbed: Testbed) -> Iterator[None]:
    """Have Slurm show users their own jobs alone, for a while."""
    conf = testbed.layout.slurm_conf
    before = conf.read_text()
    conf.write_text(f"{before}PrivateData=jobs\n")
    try:
        testbed.command("scontrol", "reconfigure")
        yield
    finally:
        conf.write_text(before)
        testbed.command("scontrol", "reconfigure")


def test_a_job_reads_why_it_was_placed_and_no_other_user_reads_anything(
    operator: None,
    hetschedd: subprocess.Popen[str],
    testbed: Testbed,
    folder: Path,
) -> None:
    # Those who submit: one whose job it is, and one who pries.
    out, ann, eve = folder / "out", "nobody", "bin"
    out.mkdir(mode=0o700)
    os.chown(out, pwd.getpwnam(ann).pw_uid, -1)
    script = folder / "told.sh"
    script.write_text(TOLD.format(folder=folder))
    with private_jobs(testbed):
        await_hold(testbed)
        job = sbatch_as(testbed, ann, f"--output={out}/%j.err", script)
        told = out / f"{job}.told"
        log = folder / "log"
        wait_until(told.exists, f"word of its placement: {log.read_text()}", PATIENCE_S)
        moves = json.loads(told.read_text())["moves"]
        assert moves[0]["to"].startswith("n")
        assert moves[0]["reason"].endswith("expected")
        for words in (("scontrol", "show", "job", job), ("squeue", "--all", "-O", "admincomment")):
            assert "nonce" not in as_user(testbed, eve, *words).stdout
    database = [each.name for each in folder.glob("daemon.duckdb*")]
    assert {"daemon.duckdb", "daemon.duckdb.wal", "daemon.duckdb.lock"} <= set(database)
    mine = {script, log}
    for user in (ann, eve):
        found = subprocess.run(
            ["find", folder, "-type", "f", "-readable"],
            user=pwd.getpwnam(user).pw_uid,
            group=pwd.getpwnam(user).pw_gid,
            extra_groups=[],
            stdout=-1,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
            cwd="/tmp",
        ).stdout.splitlines()
        # The test's own files, and who has them their own.
        assert {Path(line) for line in found if not line.startswith(f"{out}/")} == mine
        assert user == ann or not any(line.startswith(f"{out}/") for line in found)
    # Everybody may ask.
    assert stat.S_IMODE((folder / "sock").stat().st_mode) == 0o666


def test_without_that_right_nothing_is_changed_and_every_job_still_runs(
    hetschedd: subprocess.Popen[str], backend: SlurmBackend, testbed: Testbed, folder: Path
) -> None:
    job = submitted(testbed, folder, "1,2", 5)
    log = folder / "log"
    wait_until(lambda: "event=refused" in log.read_text(), "a refusal", PATIENCE_S, every_s=0.2)
    assert "event=place" not in log.read_text()
    assert not backend.read().jobs[job].entered
    assert hold(testbed) == ""
    # Without a hold Slurm starts it by itself.
    wait_until(
        lambda: backend.read().jobs[job].state is JobState.ENDED, "its end", PATIENCE_S, every_s=0.5
    )
    assert hetschedd.poll() is None
