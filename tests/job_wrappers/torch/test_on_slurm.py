"""Real training on a real Slurm: placed, measured, moved and resumed by the daemon."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from hetsched_core.policy import Policy, PolicyInfo
from hetsched_core.store import IN_MEMORY, Mode, Store
from hetsched_core.types import (
    Configuration,
    Entry,
    Placed,
    Placement,
    Plan,
    Reason,
    ReasonCode,
    Replan,
    Snapshot,
    Trigger,
    Waiting,
    shape_of,
)
from job_wrappers.bandwidths import PARAMETERS
from slurm_plugin.backend import SlurmBackend
from slurm_plugin.daemon import Daemon
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import run, wait_until
from tests.hetsched_core.worlds import plan_of
from tests.job_wrappers.worlds import (
    ROOT,
    SCRIPT,
    assert_same_training,
    launch,
    losses,
    weights,
)
from tests.slurm_plugin import live
from tests.slurm_plugin.jobs import Submitter
from tests.slurm_plugin.live import SETTINGS, drive, ended

pytestmark = pytest.mark.slurm

TEMPLATES = ROOT / "sbatch_templates"

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
    policy: str | Policy,
    out: Path,
    store: Store,
    *,
    grace_s: float = 5.0,
    round_s: float = 4.0,
) -> Daemon:
    """A daemon that listens to the jobs that leave what they do in `out`."""
    (out / "spool").mkdir(parents=True, exist_ok=True)
    own = replace(SETTINGS, grace_s=grace_s, round_s=round_s, spool=out / "spool", spool_s=0.5)
    return live.daemon_of(backend, policy, store=store, settings=own)


def test_measured_on_each_type_and_run_on_another_count_and_node_it_is_the_same_training(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, tmp_path: Path
) -> None:
    words = ("--epochs=9", "--samples=320", "--global-batch=16")
    out = tmp_path / "moved"
    options = "#HETSCHED --gpu-set=2 --profile-key=tiny --can-checkpoint"
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = daemon_of(backend, "hops", out, store)
        job = submit(testbed, out, " ".join((*words, "--nap=0.1")), options=options)
        drive(daemon, ended(backend, [job]), timeout_s=240, every_s=0.3)
        measured = store.profiles()
    said = (out / "job.out").read_text()
    assert (out / "weights.pt").exists(), said
    # Each type is measured with one GPU, and then it gets the two that it asked for.
    assert {each.gpu_type for each in measured if each.profiled} == {"a100", "v100", "t4"}
    held = runs(out)
    assert len({nodes for nodes, _ in held}) >= 3, said
    assert {gpus for _, gpus in held} == {1, 2}
    # 20 steps an epoch.
    begun = [int(steps) for steps in re.findall(r"resumed after (\d+) steps", said)]
    assert any(steps % 20 for steps in begun), said
    assert "on 2 GPUs (1 before)" in said
    launch(tmp_path / "whole", *words, gpus=2)
    assert_same_training(out, tmp_path / "whole", rel=1e-6)


def run_template(
    backend: SlurmBackend, testbed: Testbed, folder: Path, name: str, changes: dict[str, str]
) -> tuple[str, str]:
    """Let a daemon run a template, some words of it changed, to its end; return id and output."""
    script = (TEMPLATES / f"{name}.sbatch").read_text()
    for old, new in changes.items():
        assert old in script
        script = script.replace(old, new)
    (folder / f"{name}.sbatch").write_text(script)
    (folder / "spool").mkdir()
    environment = testbed.environment() | {
        "PATH": f"{Path(sys.executable).parent}:{testbed.environment()['PATH']}",
        "HETSCHED_SPOOL": str(folder / "spool"),
    }
    sbatch = testbed.installed.program("sbatch")
    words: list[str | Path] = [sbatch, "--parsable", f"--chdir={folder}", f"{name}.sbatch"]
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = daemon_of(backend, "fifo", folder, store)
        job = run(words, env=environment, cwd=folder).strip()
        drive(daemon, ended(backend, [job]), timeout_s=120)
    assert "ExitCode=0:0" in testbed.command("scontrol", "show", "job", job)
    return job, (folder / f"{name}-{job}.out").read_text()


def test_the_template_of_bandwidths_tells_how_long_averaging_took(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, tmp_path: Path
) -> None:
    # On fewer GPUs than a site would have it, for the sake of the machine.
    changes = {
        "--nodes=2": "--nodes=1",
        "--gpus-per-node=8": "--gpus-per-node=2",
        "--gpu-set=16 --gpu-types=a100": "--gpu-set=2",
    }
    job, said = run_template(backend, testbed, tmp_path, "bandwidths", changes)
    assert said.count("2 processes without a GPU on 1 node average") == len(PARAMETERS), said
    (file,) = (tmp_path / "spool").glob(f"*/{job}.0.0.jsonl")
    kinds = [json.loads(line)["type"] for line in file.read_text().splitlines()]
    assert kinds == ["start", *["all_reduce"] * len(PARAMETERS), "end"]


def test_the_template_trains_on_what_it_is_given_to_its_end(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text((TEMPLATES / "train.py").read_text())
    # Quicker than a user would have it; all else is as it stands there.
    changes = {"--epochs 20": "--epochs 2 --images 512"}
    job, said = run_template(backend, testbed, tmp_path, "training", changes)
    assert re.findall(r"^epoch (\d): loss", said, re.MULTILINE) == ["0", "1"], said
    (checkpoint,) = (tmp_path / f"checkpoints-{job}").glob("step-*")
    progress = json.loads((checkpoint / "checkpoint.json").read_text())["progress"]
    assert (progress["epoch"], progress["samples"]) == (2, 1024)
    assert progress["ranks"] in (1, 2, 4, 8)


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


@dataclass
class InShape:
    """A policy that gives every job the same nodes, other ones from one round to the next.

    While they are closed, or the job is being moved and cannot have the shape, it stays as it is.
    """

    pieces: Mapping[str, int]
    info: ClassVar[PolicyInfo] = PolicyInfo(name="in-shape", summary="as told", paper="")

    def plan(self, snapshot: Snapshot) -> Plan:
        """Place all jobs on the pieces of the day."""
        wanted, entries = Configuration.of(self.pieces), dict[str, Entry]()
        for name, view in snapshot.jobs.items():
            opened = all(snapshot.nodes[node].open for node, _ in wanted)
            may = opened and shape_of(wanted, snapshot.cluster) in snapshot.shapes_for(view.job)
            where = wanted if may and view.blocked is None else view.configuration
            waits = Waiting(view.blocked or Reason(ReasonCode.NO_ROOM))
            entries[name] = waits if where is None else Placed((Placement(where),))
        return Plan(plan_of(entries).entries, replan=Replan(on=frozenset(Trigger)))


def test_a_training_moved_from_uneven_counts_to_mixed_types_in_mid_epoch_is_the_same_training(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, tmp_path: Path
) -> None:
    words = ("--epochs=3", "--samples=240", "--global-batch=12")
    out = tmp_path / "moved"
    options = "#HETSCHED --gpu-set=2,3 --gpu-shapes=any --can-checkpoint"
    # An a100 node, another one, and a t4 node.
    one, other, third = "n0", "n3", "n2"
    policy = InShape({one: 2, other: 1})
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = daemon_of(backend, policy, out, store, grace_s=10.0, round_s=2.0)
        job = submit(testbed, out, " ".join((*words, "--nap=0.3")), options=options)
        begun = out / "losses.txt"
        drive(daemon, lambda: begun.exists() and len(losses(out)) > 4, timeout_s=120)
        policy.pieces = {other: 1, third: 1}
        drive(daemon, lambda: (out / "weights.pt").exists(), timeout_s=120)
        drive(daemon, lambda: not testbed.command("squeue", "-h").strip(), timeout_s=60)
    said = (out / "job.out").read_text()
    resumed = re.findall(r"resumed after (\d+) steps", said)
    assert len(resumed) == 1, said
    assert 4 < int(resumed[0]) < 60, said
    assert "on 2 GPUs (3 before)" in said
    held = sorted(line.split()[2:] for line in (out / "runs.txt").read_text().splitlines())
    # An element for each count: two at first, then one for both types.
    assert held == sorted([[one, "2"], [other, "1"], ["n[2-3]", "1"]])
    launch(tmp_path / "whole", *words, gpus=3)
    assert_same_training(out, tmp_path / "whole", rel=1e-6)
    a, b = weights(out), weights(tmp_path / "whole")
    assert (a["steps"], a["samples"]) == (b["steps"], b["samples"])
    told = ("sacct", "-Xn", "-j", f"{job}_0", "-o", "State,ExitCode")
    well = ["COMPLETED", "0:0"]
    wait_until(lambda: testbed.command(*told).split() == well, "its end in the accounting", 120)
