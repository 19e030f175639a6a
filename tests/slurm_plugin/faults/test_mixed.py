"""Jobs of all kinds at once, and what their users do to them."""

from dataclasses import replace

import pytest

from slurm_plugin.testbed import FakeNode, Installation, Partition
from tests.slurm_plugin.accounts import Accounted
from tests.slurm_plugin.faults.mixed import WISHES, misplaced, run_policy

PARTITIONS = (Partition("gpu"), Partition("short", "n[0-1]"))
NODES = {
    "n0": FakeNode("n0", "v100", 8, features=("ib", "nvme")),
    "n1": FakeNode("n1", "v100", 8, features=("ib",)),
    "n2": FakeNode("n2", "v100", 8, features=("ib", "nvme")),
}
WISH = next(wish for wish in WISHES if "--constraint=ib&nvme" in wish.kind.asks)
ROW = Accounted("COMPLETED", frozenset({"n0"}), 2, "", "", 0, "7", "short")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (ROW, []),
        (replace(ROW, partition="gpu"), ["in partition gpu"]),
        (replace(ROW, nodes=frozenset({"n2"})), ["on ['n2'], outside its partition"]),
        (replace(ROW, nodes=frozenset({"n1"})), ["on ['n1'], which it does not want"]),
        (replace(ROW, gpus=3), ["on 3 GPUs"]),
    ],
)
def test_a_run_where_its_job_may_not_be_is_seen(row: Accounted, why: list[str]) -> None:
    assert list(misplaced(WISH, row, PARTITIONS, NODES)) == why


def test_a_run_on_more_nodes_than_its_job_takes_is_seen() -> None:
    row = replace(ROW, partition="gpu", nodes=frozenset(NODES), gpus=4)
    wish = next(wish for wish in WISHES if "--gpus=4 --nodes=1" in wish.kind.asks)
    assert list(misplaced(wish, row, PARTITIONS, NODES)) == ["on 3 nodes"]


@pytest.mark.slurm
@pytest.mark.slow
def test_jobs_of_all_kinds_end_where_they_may_run_whatever_is_done_to_them(
    installation: Installation,
) -> None:
    run = run_policy(installation, "las", jobs=40, nodes=8, seed=1, samples=(50.0, 200.0))
    assert run.wrong == ()
    assert all(run.acts[act] for act in ("waiting", "running", "requeue", "hold"))
