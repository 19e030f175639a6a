"""Real training on a real Slurm: placed, measured, moved and resumed by the daemon."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest

from hetsched_core.policy import Policy, make_policy
from hetsched_core.store import IN_MEMORY, Mode, Store
from slurm_plugin.backend import SlurmBackend
from slurm_plugin.daemon import Daemon, DaemonMode, DaemonSettings
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import run
from tests.job_wrappers.worlds import (
    ROOT,
    SCRIPT,
    assert_same_training,
    launch,
    losses,
    same,
    weights,
)
from tests.slurm_plugin.daemon.test_daemon_live import drive, ended
from tests.slurm_plugin.jobs import Submitter

pytestmark = pytest.mark.slurm

JOB = """\
#!/bin/bash
#SBATCH --open-mode=append --output={out}/job.out {sbatch}
{options}
export PYTHONPATH={root} OMP_NUM_THREADS=1
echo "run ${{SLURM_RESTART_COUNT:-0}} $SLURM_JOB_NODELIST $SLURM_GPUS_ON_NODE" >>{out}/runs.txt
exec {python} -m job_wrappers.launch --spool={out}/spool -- \\
    {python} {script} {out} {words}
"""


def submit(cluster: Testbed, out: Path, words: str, *, options: str = "", sbatch: str = "") -> str:
    """Submit the training script as a job that leaves all it does in `out`."""
    (out / "spool").mkdir(parents=True, exist_ok=True)
    script = out / "job.sh"
    script.write_text(
        JOB.format(
            out=out,
            sbatch=sbatch,
            options=options,
            root=ROOT,
            python=sys.executable,
            script=SCRIPT,
            words=words,
        )
    )
    return cluster.command("sbatch", "--parsable", script).strip()


def runs(out: Path) -> list[tuple[str, int]]:
    """Nodes and GPUs per node of each run of the job, in order."""
    lines = [line.split() for line in (out / "runs.txt").read_text().splitlines()]
    assert [int(number) for _, number, _, _ in lines] == list(range(len(lines)))
    return [(nodes, int(gpus)) for _, _, nodes, gpus in lines]


def daemon_of(
    backend: SlurmBackend,
    policy: Policy,
    out: Path,
    store: Store,
    *,
    grace_s: float = 5.0,
    round_s: float = 4.0,
) -> Daemon:
    """A daemon that holds the nodes, and listens to the jobs that leave what they do in `out`."""
    settings = DaemonSettings(
        partitions=frozenset({"gpu"}),
        restart_cost_s=0.0,
        grace_s=grace_s,
        round_s=round_s,
        spool=out / "spool",
        spool_s=0.5,
    )
    (out / "spool").mkdir(parents=True, exist_ok=True)
    daemon = Daemon(
        backend,
        policy,
        settings,
        mode=DaemonMode.ENFORCE,
        clock=time.time,
        sleep=time.sleep,
        store=store,
        stopwatch=time.perf_counter,
    )
    daemon.cycle()
    return daemon


def test_measured_on_each_type_and_run_on_another_count_and_node_it_is_the_same_training(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, tmp_path: Path
) -> None:
    words = ("--epochs=6", "--samples=320", "--global-batch=16")
    out = tmp_path / "moved"
    options = "#HETSCHED --gpu-set=2 --profile-key=tiny --can-checkpoint"
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = daemon_of(backend, make_policy("hops"), out, store)
        job = submit(testbed, out, " ".join((*words, "--nap=0.1")), options=options)
        drive(daemon, ended(backend, [job]), timeout_s=240, every_s=0.3)
        measured = store.profiles()
    said = (out / "job.out").read_text()
    assert (out / "weights.pt").exists(), said
    # Each type is measured with one GPU, and then it gets the two that it asked for.
    assert {each.gpu_type for each in measured if each.profiled} == {"a100", "v100", "t4"}
    held = runs(out)
    assert len({nodes for nodes, _ in held}) == 3, said
    assert {gpus for _, gpus in held} == {1, 2}
    # 20 steps an epoch.
    begun = [int(steps) for steps in re.findall(r"resumed after (\d+) steps", said)]
    assert any(steps % 20 for steps in begun), said
    assert "on 2 GPUs (1 before)" in said
    launch(tmp_path / "whole", *words, gpus=2)
    assert_same_training(out, tmp_path / "whole", rel=1e-6)


def test_two_processes_moved_to_another_node_in_mid_epoch_end_bit_for_bit_as_if_left_alone(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, tmp_path: Path
) -> None:
    words = ("--epochs=3", "--samples=203", "--dropout=0.2")
    out = tmp_path / "moved"
    options = "#HETSCHED --gpu-set=2 --can-checkpoint --learning-rate=0.04 --lr-scaling=sqrt"
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = daemon_of(backend, make_policy("fifo"), out, store)
        job = submit(testbed, out, " ".join((*words, "--nap=0.1")), options=options)
        begun = out / "losses.txt"
        drive(daemon, lambda: begun.exists() and len(losses(out)) > 4, timeout_s=90)
        ((node, _),) = runs(out)
        testbed.command("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
        try:
            testbed.command("scontrol", "requeue", job)
            drive(daemon, ended(backend, [job]), timeout_s=120)
        finally:
            testbed.command("scontrol", "update", f"NodeName={node}", "State=RESUME")
    said = (out / "job.out").read_text()
    assert (out / "weights.pt").exists(), said
    (first, two), (second, again) = runs(out)
    assert first != second
    assert (two, again) == (2, 2)
    (steps,) = re.findall(r"resumed after (\d+) steps", said)
    assert int(steps) % 13
    launch(tmp_path / "whole", *words, gpus=2)
    assert losses(out) == losses(tmp_path / "whole")
    assert same(weights(out), weights(tmp_path / "whole"))


def test_the_template_trains_on_what_it_is_given_to_its_end(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, tmp_path: Path
) -> None:
    templates = ROOT / "sbatch_templates"
    script = (templates / "training.sbatch").read_text()
    (tmp_path / "train.py").write_text((templates / "train.py").read_text())
    # Quicker than a user would have it; all else is as it stands there.
    (tmp_path / "training.sbatch").write_text(
        script.replace("--epochs 20", "--epochs 2 --images 512")
    )
    (tmp_path / "spool").mkdir()
    environment = testbed.environment() | {
        "PATH": f"{Path(sys.executable).parent}:{testbed.environment()['PATH']}",
        "HETSCHED_SPOOL": str(tmp_path / "spool"),
    }
    sbatch = testbed.installed.program("sbatch")
    words: list[str | Path] = [sbatch, "--parsable", f"--chdir={tmp_path}", "training.sbatch"]
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = daemon_of(backend, make_policy("fifo"), tmp_path, store)
        job = run(words, env=environment, cwd=tmp_path).strip()
        drive(daemon, ended(backend, [job]), timeout_s=120)
    said = (tmp_path / f"training-{job}.out").read_text()
    assert re.findall(r"^epoch (\d): loss", said, re.MULTILINE) == ["0", "1"], said
    (checkpoint,) = (tmp_path / f"checkpoints-{job}").glob("step-*")
    progress = json.loads((checkpoint / "checkpoint.json").read_text())["progress"]
    assert (progress["epoch"], progress["samples"]) == (2, 1024)
    assert progress["ranks"] in (1, 2, 4, 8)
    assert "ExitCode=0:0" in testbed.command("scontrol", "show", "job", job)


def test_on_two_nodes_it_stops_by_a_signal_and_is_queued_again_by_its_launcher(
    testbed: Testbed, submitter: Submitter, tmp_path: Path
) -> None:
    out = tmp_path / "moved"
    sbatch = "--nodes=2 --ntasks=2 --ntasks-per-node=1 --gpus-per-node=1 --requeue"
    job = submit(testbed, out, "--epochs=2 --nap=0.1", sbatch=sbatch)
    deadline = time.monotonic() + 120

    def wait_for(text: str) -> None:
        while text not in (out / "job.out").read_text():
            assert time.monotonic() < deadline, (out / "job.out").read_text()
            time.sleep(0.2)

    while not (out / "losses.txt").exists() or len(losses(out)) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    testbed.command("scancel", "--signal=USR2", "--batch", job)
    wait_for("stopped; queued again")
    assert "all of it is saved" in (out / "job.out").read_text()
    done = losses(out)
    assert 4 <= len(done) < 26
    testbed.command("scontrol", "update", f"JobId={job}", "StartTime=now")
    while not (out / "weights.pt").exists():
        assert time.monotonic() < deadline, (out / "job.out").read_text()
        time.sleep(0.2)
    assert [gpus for _, gpus in runs(out)] == [1, 1]
    launch(tmp_path / "whole", "--epochs=2", gpus=2)
    assert losses(out) == losses(tmp_path / "whole")
