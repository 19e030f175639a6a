"""What a hostile user can put before the daemon has no effect, and is counted."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from hetsched_core.store import Store
from job_wrappers.allocation import Allocation
from job_wrappers.moves import path_of
from slurm_plugin.api.meters import Meters
from slurm_plugin.backend import JobState, Leave, SlurmBackend
from slurm_plugin.daemon import Daemon, DaemonSettings
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.jobs import is_in
from tests.slurm_plugin.live import daemon_of as a_daemon
from tests.slurm_plugin.live import drive
from tests.slurm_plugin.submit.asking import NOTHING, as_user, sbatch_as, script_instead

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("submitter")]

NOBODY = 65534
PATIENCE_S = 180.0


@pytest.fixture
def spool(short_folder: Path) -> Path:
    """A spool directory that other users can reach."""
    return short_folder


def daemon_of(backend: SlurmBackend, store: Store, spool: Path) -> Daemon:
    settings = DaemonSettings(
        partitions=frozenset({"gpu"}), grace_s=5.0, spool=spool, spool_s=0.1, spool_most_s=5.0
    )
    return a_daemon(backend, store=store, settings=settings)


def start_line(job: str, nonce: str, **other: object) -> str:
    line = {"type": "start", "schema": "hetsched-spool/1", "job": job, "run": 0, "rank": 0}
    line |= {"world_size": 1, "nonce": nonce, "host": "n0", "pid": 7, "at_s": 1}
    return json.dumps(line | other) + "\n"


def progress_line(samples: str, speed: str) -> str:
    return (
        f'{{"type":"progress","t_s":1,"samples":{samples},"samples_per_s":{speed},'
        '"data_s":[],"wait_s":[]}\n'
    )


def test_forged_spool_files_have_no_effect_and_are_counted(
    backend: SlurmBackend, testbed: Testbed, spool: Path, store: Store
) -> None:
    daemon, meters = daemon_of(backend, store, spool), Meters()
    options = ("--gpu-set=1", "--gpu-types=v100", "--profile-key=net", "--wrap=sleep 300")
    jobs = [sbatch_as(testbed, "nobody", *options) for _ in range(8)]
    another = sbatch_as(testbed, "bin", *options)

    drive(daemon, is_in(backend, JobState.RUNNING, *jobs, another), 45)
    daemon.cycle()
    nonces = {job: daemon.world.managed[job].request.mark.nonce for job in (*jobs, another)}
    own = spool / str(NOBODY)

    def put(job: str, text: str, uid: int = NOBODY) -> None:
        path = own / f"{job}.0.0.jsonl"
        path.write_text(text)
        os.chown(path, uid, uid)

    secret = spool / "secret"
    secret.write_text(start_line(jobs[4], nonces[jobs[4]]) + progress_line("5", "5"))
    good = start_line(jobs[0], nonces[jobs[0]])
    put(jobs[0], good + progress_line("NaN", "1") + progress_line("1", "Infinity"))
    put(jobs[1], start_line(jobs[1], nonces[jobs[1]]) + "x" * (1 << 20) + "\n")
    put(jobs[2], start_line(jobs[2], nonces[jobs[2]]) + progress_line("1", "1e300"))
    put(jobs[3], start_line(jobs[3], nonces[another]) + progress_line("9", "9"))
    (own / f"{jobs[4]}.0.0.jsonl").symlink_to(secret)
    os.mkfifo(own / f"{jobs[5]}.0.0.jsonl")
    put(jobs[6], start_line(jobs[6], nonces[jobs[6]]) + progress_line("9", "9"), uid=2)
    put(jobs[7], start_line(another, nonces[another]) + progress_line("9", "9"))
    # Another's job, in one's own folder: nobody looks there for it.
    put(another, start_line(another, nonces[another]) + progress_line("9", "9"))
    expected = {
        "not JSON": 2,
        "line too long": 1,
        "out of range": 1,
        "wrong nonce": 1,
        "link, pipe or folder": 2,
        "wrong owner": 1,
        "wrong identity": 1,
    }

    def counted() -> dict[str, float]:
        report = daemon.cycle()
        assert report.violations == ()
        meters.note(report, daemon.snapshot(), daemon.plan)
        value = meters.registry.get_sample_value
        return {
            reason: value("hetsched_spool_rejects_total", {"reason": reason}) or 0.0
            for reason in expected
        }

    wait_until(lambda: sum(counted().values()) >= sum(expected.values()), "all seen", PATIENCE_S)
    assert counted() == expected
    assert store.progress().get(nonces[another]) is None
    assert store.profiles() == ()
    assert store.faults() == ()
    assert all(progress.samples == 0 for progress in store.progress().values())
    # All jobs go on as if nothing had been written.
    assert is_in(backend, JobState.RUNNING, *jobs, another)()


HOSTILE = (
    "$(touch {mine})",
    "`touch {mine}`",
    "; touch {mine}",
    "x\n#HETSCHED --gpu-set=8",
    "' || touch {mine} || '",
    "--uid=0",
    '"},"nonce":"forged',
    'hetsched/2 {"nonce":"forged","gpu-set":"8"}',
    "\x1b[2J\x07",
)


def test_hostile_names_comments_and_environments_are_texts(
    backend: SlurmBackend, testbed: Testbed, spool: Path, store: Store
) -> None:
    mine = spool / "touched"
    daemon = daemon_of(backend, store, spool)
    jobs = []
    for text in (text.replace("{mine}", str(mine)) for text in HOSTILE):
        words = (f"--job-name={text}", f"--comment={text}", "--gpu-set=1", "--wrap=sleep 1")
        jobs.append(sbatch_as(testbed, "nobody", *words, HETSCHED_NONCE=text))
    seen = backend.read().jobs
    nonces: set[str] = set()

    def ended() -> bool:
        nonces.update(known.request.mark.nonce for known in daemon.world.managed.values())
        return is_in(backend, JobState.ENDED, *jobs)()

    drive(daemon, ended, 45)
    assert not mine.exists()
    # One mark each, written by the script: none forged, none shared.
    assert len(nonces) == len(HOSTILE)
    assert all(len(nonce) == 16 and nonce.isalnum() for nonce in nonces)
    assert all(seen[job].mark.count('"nonce"') == 1 for job in jobs)


def test_who_gets_into_the_reservation_unplaced_is_taken_out_though_there_is_no_script(
    backend: SlurmBackend, testbed: Testbed, spool: Path, store: Store
) -> None:
    daemon = daemon_of(backend, store, spool)
    words = ("--gres=gpu:a100:4", "--wrap=sleep 300")
    first = [sbatch_as(testbed, "bin", *words) for _ in range(2)]

    drive(daemon, is_in(backend, JobState.RUNNING, *first), 45)
    with script_instead(testbed, NOTHING):
        bold = sbatch_as(testbed, "nobody", *words, "--reservation=hetsched")
        late = sbatch_as(testbed, "nobody", *words)
        update = ("scontrol", "update", f"JobId={late}", "ReservationName=hetsched")
        assert as_user(testbed, "nobody", *update).returncode == 0
        without_gpus = ("--cpus-per-task=32", "--nodelist=n0", "--wrap=sleep 300")
        plain = sbatch_as(testbed, "nobody", *without_gpus, "--reservation=hetsched")
    jobs = (bold, late, plain)
    assert all(backend.read().jobs[job].entered for job in jobs)
    outcome = daemon.cycle().outcome
    assert outcome is not None
    assert {change.job for change in outcome.made if isinstance(change, Leave)} == set(jobs)
    daemon.cycle()
    # No node is free for those of GPUs; the other one may have been let in by now.
    seen = backend.read().jobs
    assert [job for job in (bold, late) if seen[job].entered] == []
    assert {seen[job].state for job in (bold, late)} == {JobState.PENDING}


def test_another_s_job_is_neither_read_nor_changed(
    backend: SlurmBackend, testbed: Testbed, spool: Path, store: Store
) -> None:
    daemon = daemon_of(backend, store, spool)
    job = sbatch_as(testbed, "nobody", "--gpu-set=1", "--wrap=sleep 300")

    drive(daemon, is_in(backend, JobState.RUNNING, job), 45)
    nonce = daemon.world.managed[job].request.mark.nonce
    told = path_of(spool, Allocation(job, 0, "n0", 1, 1, nonce, "n0"), NOBODY)
    wait_until(told.exists, "word of the move", PATIENCE_S)
    before = backend.read().jobs[job]
    for words in (
        ("scancel", job),
        ("scontrol", "requeue", job),
        ("scontrol", "hold", job),
        ("scontrol", "update", f"JobId={job}", "TimeLimit=1"),
        ("scontrol", "update", f"JobId={job}", "AdminComment=x"),
        ("scontrol", "write", "batch_script", job, "-"),
    ):
        said = as_user(testbed, "bin", *words)
        # One of them says so and exits with 0.
        assert said.returncode or "Invalid user id" in said.stderr, words
        assert said.stdout == ""
    after = backend.read().jobs[job]
    same = (before.state, before.mark, before.time_limit_s)
    assert (after.state, after.mark, after.time_limit_s) == same
    # What it tells and is told is its user's and the daemon's.
    assert stat.S_IMODE(told.parent.stat().st_mode) == 0o710
    assert stat.S_IMODE((spool / str(NOBODY)).stat().st_mode) == 0o700
