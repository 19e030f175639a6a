"""What is told of nodes that Slurm shows as up and on which the daemon starts nothing."""

from dataclasses import replace

import pytest

from slurm_plugin.backend import JobState, SlurmJob
from tests.slurm_plugin.daemon.test_journal import FIRST, Bench, bench, job
from tests.slurm_plugin.daemon.test_requeued import launch_failed

__all__ = ["bench"]

FAILED = tuple(launch_failed(job(number, user), "n0") for number, user in ((8, "ann"), (9, "bob")))
ENDS = replace(FIRST, id="8", mark="", gpus=1, state=JobState.COMPLETING, over=True)


@pytest.mark.parametrize(
    ("shown", "words", "closed"),
    [
        (FAILED, "jobs could not be launched there", 4),
        ((ENDS,), "a job has been ending there since 1970-01-01T00:16:41Z", 3),
    ],
    ids=["launches", "ending"],
)
def test_a_node_that_is_left_out_is_not_told_to_be_drained(
    bench: Bench, shown: tuple[SlurmJob, ...], words: str, closed: int
) -> None:
    waits = job(1, "carol")
    for _ in range(5):
        bench.cycle(*shown, waits)
    (row,) = bench.ask("nodes")["nodes"]
    assert (row["condition"], row["why"], row["closed"]) == ("left out", words, closed)
    (row,) = (row for row in bench.ask("queue")["jobs"] if row["job"] == "1")
    assert row["reason"] == "closed"
    sentences = [reason["sentence"] for reason in bench.ask("why", "1")["reasons"]]
    assert sentences == [f"not yet: its nodes are closed to it: n0 is left out: {words}"]
