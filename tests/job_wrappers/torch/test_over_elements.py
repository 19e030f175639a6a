"""Real training over the elements of a gang: uneven counts, then two GPU types, on a real Slurm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from hetsched_core.policy import PolicyInfo
from hetsched_core.store import IN_MEMORY, Mode, Store
from hetsched_core.types import Configuration, Placed, Placement, Plan, Replan, Snapshot, Trigger
from slurm_plugin.backend import SlurmBackend
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import wait_until
from tests.hetsched_core.worlds import plan_of
from tests.job_wrappers.torch.test_on_slurm import daemon_of, submit
from tests.job_wrappers.worlds import assert_same_training, launch, losses, weights
from tests.slurm_plugin.daemon.test_daemon_live import drive
from tests.slurm_plugin.jobs import Submitter

pytestmark = pytest.mark.slurm


@dataclass
class InShape:
    """A policy that gives every job the same nodes, other ones from one round to the next."""

    pieces: Mapping[str, int]
    info: ClassVar[PolicyInfo] = PolicyInfo(name="in-shape", summary="as told", paper="")

    def plan(self, snapshot: Snapshot) -> Plan:
        """Place all jobs on the pieces of the day."""
        placed = Placed((Placement(Configuration.of(self.pieces)),))
        made = plan_of(dict.fromkeys(snapshot.jobs, placed))
        return Plan(made.entries, replan=Replan(on=frozenset(Trigger)))


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
    ended = ["COMPLETED", "0:0"]
    wait_until(lambda: testbed.command(*told).split() == ended, "its end in the accounting", 120)
