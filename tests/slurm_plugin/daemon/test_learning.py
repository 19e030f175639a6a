"""Jobs on a real Slurm tell how fast they are, and the next decisions know it."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import stat
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hetsched_core.records.decision_record import differences, read_decision
from hetsched_core.store import IN_MEMORY, Mode, ProfileKey, Store
from slurm_plugin.backend import SlurmBackend
from slurm_plugin.daemon import Daemon
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.daemon.process.test_hetschedd import hetschedd
from tests.slurm_plugin.jobs import SLACK, Submitter, await_hold, deadline
from tests.slurm_plugin.live import SETTINGS, daemon_of, drive, ended
from tests.slurm_plugin.submit.asking import as_nobody

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).resolve().parents[3]
SPEEDS = {"a100": 200.0, "v100": 90.0, "t4": 40.0}
NOISE = 0.02
KEY = ProfileKey("stubnet", "root")
NAME = "stubnet of root"
OFTEN = "--report-every 0.5"

SCRIPT = """\
#!/bin/bash
#HETSCHED {options} --can-checkpoint
#SBATCH --open-mode=append
cd {folder}
export PYTHONPATH={root}
exec {python} -m job_wrappers.stub --spool {spool} --noise {noise} --batch 8 \\
    {speeds} {stub}
"""


@dataclass(frozen=True, slots=True)
class Stubs:
    """Submits stub jobs; the spool directory is `spool`."""

    submitter: Submitter
    folder: Path
    spool: Path

    def submit(self, options: str, stub: str) -> str:
        """Submit one and return its id."""
        script = self.folder / "stub.sh"
        script.write_text(
            SCRIPT.format(
                options=options,
                folder=self.folder,
                root=ROOT,
                python=sys.executable,
                spool=self.spool,
                noise=NOISE,
                speeds=" ".join(f"--speed {name}={speed}" for name, speed in SPEEDS.items()),
                stub=stub,
            )
        )
        out = f"--output={self.folder}/%j.out"
        words: list[str | Path] = ["--parsable", out, f"--error={self.folder}/%j.err", script]
        return self.submitter.cluster.command("sbatch", *words).strip()

    def said(self, job: str) -> list[str]:
        """Return the lines that a job printed."""
        path = self.folder / f"{job}.out"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def stubs(submitter: Submitter, tmp_path: Path) -> Stubs:
    spool = tmp_path / "spool"
    spool.mkdir()
    return Stubs(submitter, tmp_path, spool)


def learning(
    backend: SlurmBackend, store: Store, spool: Path, policy: str = "fifo", round_s: float = 360.0
) -> Daemon:
    """A daemon that listens to jobs."""
    settings = replace(SETTINGS, round_s=round_s, spool=spool, spool_s=0.5)
    return daemon_of(backend, policy, store=store, settings=settings)


def settle(daemon: Daemon, cycles: int = 8) -> None:
    """Let the last lines of jobs that have ended be heard."""
    for _ in range(cycles):
        daemon.cycle()
        time.sleep(0.2)


def runs_of(lines: list[str]) -> list[tuple[int, str, float]]:
    """Return the number, the GPUs and the samples done before of each run that a stub tells of."""
    found = []
    for line in lines:
        match = re.fullmatch(
            r"job \d+ run (\d+): (\d+ GPUs \(\w+\)) on .* samples/s, (\d+) of .*", line
        )
        if match:
            found.append((int(match[1]), match[2], float(match[3])))
    return found


def test_hops_measures_a_job_on_one_type_after_another_and_then_runs_it_where_it_is_fastest(
    backend: SlurmBackend, stubs: Stubs, testbed: Testbed
) -> None:
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = learning(backend, store, stubs.spool, "hops", round_s=4.0)
        job = stubs.submit("--gpu-set=1 --profile-key=stubnet", f"--samples 1e6 {OFTEN}")

        def measured() -> bool:
            speeds = daemon.world.speeds
            table = None if speeds is None or NAME not in speeds.profiles else speeds.table(NAME)
            return table is not None and all(table.profiled(name) for name in SPEEDS)

        drive(daemon, measured, timeout_s=150)
        drive(daemon, lambda: runs_of(stubs.said(job))[-1][1] == "1 GPUs (a100)", timeout_s=30)
        documents = [decision.document for _, decision in store.decisions()]
        known = store.layers([KEY], list(SPEEDS))
        per_gpu = {
            known.gpu_types[t]: 8 / (f + b + u)
            for t, f, b, u in zip(
                known.theory.gpu_type,
                known.theory.forward_s,
                known.theory.backward_s,
                known.theory.update_s,
                strict=True,
            )
        }
    assert per_gpu == {name: pytest.approx(speed) for name, speed in SPEEDS.items()}
    runs = runs_of(stubs.said(job))
    assert [number for number, _, _ in runs] == list(range(len(runs)))
    assert {gpus for _, gpus, _ in runs} == {f"1 GPUs ({name})" for name in SPEEDS}
    # Nothing that it did while it was measured is lost.
    done = [samples for _, _, samples in runs]
    assert done == sorted(done)
    assert all(samples > 0 for samples in done[1:])
    assert json.loads(documents[0])["waiting"] == {job: "profiling"}
    # Each decision can be made again, from its record alone.
    for document in documents:
        recorded = read_decision(document)
        assert differences(recorded.again(), recorded.plan) == ()
    assert read_decision(documents[0]).plan.profiles != ()
    told = [line for line in stubs.said(job) if line.startswith("moved ")]
    for name in SPEEDS:
        assert any(line.endswith(f"its speed on {name} is to be measured") for line in told)
    # What is measured where it goes on to run is not stopped.
    measured_on = [line.rsplit(" on ", 1)[1] for line in told if line.endswith("was measured")]
    assert len(measured_on) == len(set(measured_on)) >= 2
    assert len(told) == 2 * len(runs) - 1


def test_a_job_that_is_moved_is_told_why_and_policies_know_what_it_has_done(
    backend: SlurmBackend, stubs: Stubs, testbed: Testbed
) -> None:
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = learning(backend, store, stubs.spool, "las", round_s=2.0)
        long = [
            stubs.submit("--gpu-set=4,8 --profile-key=stubnet", f"--samples 1e6 {OFTEN}")
            for _ in range(8)
        ]
        drive(daemon, lambda: sum(map(bool, map(stubs.said, long))) >= 6, timeout_s=40)

        def was_moved(job: str) -> bool:
            """Whether a job has done something, and then gone on elsewhere."""
            match runs_of(stubs.said(job)):
                case [(0, _, _), (_, _, done), *_]:
                    return done > 0
            return False

        def moved() -> list[str]:
            return [job for job in long if was_moved(job)]

        short = [stubs.submit("--gpu-set=4", f"--samples 200 {OFTEN}") for _ in range(6)]
        drive(daemon, lambda: ended(backend, short)() and bool(moved()), timeout_s=90)
        settle(daemon)
        (job, *_) = moved()
        told = store.progress()[daemon.world.managed[job].key]
        view = daemon.world.jobs[job]
        _, (_, _, done) = runs_of(stubs.said(job))[:2]
        # What policies are told is what the job told, carried on; it prints whole samples.
        assert told.samples + 0.5 >= done
        assert told.checkpoint_samples + 0.5 >= done
        assert view.samples_at(time.time()) >= told.samples
        again = learning(backend, store, stubs.spool, "las")
        assert again.world.jobs[job].samples_at(time.time()) >= told.samples
    reasons = [line for line in stubs.said(job) if line.startswith("moved ")]
    assert any(re.search(r"Z n\d.* -> .*: ", line) for line in reasons), reasons
    (path,) = (stubs.spool / "moves" / "0").glob(f"{job}.*.json")
    moves = json.loads(path.read_text())["moves"]
    stops = [move for move in moves if move["from"] != ""]
    assert stops
    assert all(move["at_s"] <= time.time() for move in moves)


def test_an_ordinary_user_tells_and_is_told(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed, short_folder: Path
) -> None:
    spool = short_folder / "spool"
    spool.mkdir()
    own = short_folder / "own"
    own.mkdir()
    os.chown(own, 65534, 65534)
    shutil.copytree(ROOT / "job_wrappers", short_folder / "job_wrappers")
    script = short_folder / "stub.sh"
    speeds = " ".join(f"--speed {kind}={speed}" for kind, speed in SPEEDS.items())
    script.write_text(
        "#!/bin/bash\n#HETSCHED --gpu-set=1 --profile-key=stubnet --can-checkpoint\n"
        f"cd {own}\nexec /usr/bin/python3 {short_folder}/job_wrappers/stub.py --spool {spool} "
        f"--samples 300 --batch 8 {OFTEN} {speeds}\n"
    )
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = learning(backend, store, spool)
        done = as_nobody(testbed, "sbatch", "--parsable", f"--output={own}/out", script)
        assert done.returncode == 0, done.stderr
        drive(daemon, ended(backend, [done.stdout.strip()]), timeout_s=40)
        settle(daemon)
        (profile,) = store.profiles()
        known = store.layers([profile.profile], list(SPEEDS))
        ((at, speed),) = zip(known.by_type.gpu_type, known.by_type.mean, strict=True)
        rejected = store.summary().rejected
    said = (own / "out").read_text().splitlines()
    owners = [
        (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode))
        for path in (spool / "65534", spool / "moves" / "65534")
    ]
    assert owners == [(65534, 0o700), (0, 0o710)]
    assert profile.profile == ProfileKey("stubnet", "nobody")
    assert profile.measurements >= 2
    # Where the machine is busy the stub oversleeps, and is truly slower for it.
    assert 0.5 < speed / SPEEDS[known.gpu_types[at]] < 1 + 3 * NOISE
    assert rejected == ()
    assert next(line for line in said if line.startswith("moved ")).endswith("samples/s expected")
    assert said[-1] == "done at 300 samples"


def queued(testbed: Testbed) -> bool:
    """Whether there are jobs left."""
    return bool(testbed.command("squeue", "--noheader", "--format=%i").strip())


def kill_after(testbed: Testbed, folder: Path, life_s: float, *options: str) -> None:
    """Start a daemon, and kill it after so many seconds, or once no job is left."""
    log = folder / "daemon.log"
    said = len(log.read_text()) if log.exists() else 0
    daemon = hetschedd(testbed, folder, *options)
    wait_until(lambda: "event=up" in log.read_text()[said:], "a daemon", 120)
    until = time.monotonic() + life_s
    while (left_s := until - time.monotonic()) > 0 and queued(testbed):
        time.sleep(min(0.5, left_s))
    assert daemon.poll() is None, (folder / "daemon.log").read_text()[-3000:]
    daemon.kill()
    daemon.wait()


def test_a_daemon_that_is_killed_again_and_again_takes_each_line_in_once(
    stubs: Stubs, testbed: Testbed, tmp_path: Path
) -> None:
    rng = random.Random(5)
    options = ("--mode=enforce", "--cycle-s=0.1", "--spool-s=0.1", f"--spool={stubs.spool}")
    first = hetschedd(testbed, tmp_path, *options)
    await_hold(testbed)
    first.kill()
    first.wait()
    log, often = tmp_path / "daemon.log", "--samples 3000 --report-every 0.02"
    jobs = []
    for _ in range(3):
        jobs += [stubs.submit("--gpu-set=1 --profile-key=stubnet", often) for _ in range(2)]
        kill_after(testbed, tmp_path, rng.uniform(2.0, 5.0), *options)
    # The last one lives for as long as there is a job.
    kill_after(testbed, tmp_path, SLACK * 150, *options)
    assert not queued(testbed)
    lines = [
        json.loads(line)
        for path in (stubs.spool / "0").iterdir()
        for line in path.read_text().splitlines()
    ]
    written = [line["samples_per_s"] for line in lines if line["type"] == "progress"]

    def taken_in() -> int:
        """Let a daemon take in some of what is left, and return how much there is."""
        said = len(log.read_text())
        daemon = hetschedd(testbed, tmp_path, *options)
        wait_until(lambda: "event=up" in log.read_text()[said:], "a daemon", 120)
        time.sleep(1.0)
        daemon.terminate()
        assert daemon.wait(120) == 0
        with Store.open(tmp_path / "daemon.duckdb") as store:
            return sum(each.measurements for each in store.profiles())

    latest = deadline(150)
    while (taken := taken_in()) < len(written):
        assert time.monotonic() < latest, (taken, len(written))
    with Store.open(tmp_path / "daemon.duckdb") as store:
        assert store.faults() == ()
        assert store.summary().rejected == ()
        told = store.progress()
    assert taken == len(written) > 500
    assert all(stubs.said(job)[-1].startswith("done at 3000") for job in jobs)
    assert {progress.samples for progress in told.values()} == {3000.0}
