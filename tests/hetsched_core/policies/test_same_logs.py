"""What every policy decides stays as it was, to the byte, unless a change of it is meant.

After such a change `python -m tests.hetsched_core.policies.test_same_logs` writes the hashes anew.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

import pytest

from hetsched_core.cli import main
from hetsched_core.contract.scenario import random_scenario
from hetsched_core.policy import make_policy, policy_names
from hetsched_core.records.runlog_file import write_run_log
from hetsched_core.simulate import simulate
from hetsched_core.traces.bundled import cluster_path
from hetsched_core.types import ExecutionModel

HASHES = Path(__file__).with_name("same_logs.json")

STEADY = ("--jobs=80", "--load=1.3", "--arrival-cv=1", "--day-night=1")
GENERATED = {
    "elastic": ("--models=hops", "--elastic-share=0.5", *STEADY),
    "rigid": ("--models=hare", "--time-scale=0.2", "--like=helios", *STEADY),
}


def log_of(policy: str, workload: str, folder: Path) -> Path:
    """The run log of a workload that is generated or drawn.

    What is drawn has crashes, closed nodes, windows and speeds that are learned.
    """
    logs = folder / "logs"
    logs.mkdir(parents=True)
    if workload in GENERATED:
        jobs, cluster = folder / "jobs", f"--cluster={cluster_path()}"
        assert main(["workload", "generate", str(jobs), cluster, *GENERATED[workload]]) == 0
        assert main(["replay", str(jobs), cluster, f"--policy={policy}", f"--run-log={logs}"]) == 0
    else:
        made = make_policy(policy)
        drawn = random_scenario(int(workload.removeprefix("scenario ")), made.info.model)
        log = simulate(
            drawn.submissions,
            drawn.cluster,
            made,
            drawn.truth,
            drawn.settings,
            estimates=drawn.estimates,
            incidents=drawn.incidents,
        )
        write_run_log(log, logs / "log")
    (found,) = logs.iterdir()
    return found


def hashed(log: Path) -> str:
    """The hash of what became of jobs and nodes, without the time that decisions took."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    kept = [line for line in lines if line.get("kind") in {"run", "job", "node"}]
    assert any(line["kind"] == "run" for line in kept)
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:16]


def hashes(policy: str, folder: Path) -> dict[str, str]:
    """The hash of each of four workloads; what is generated has no training rounds."""
    tasks = make_policy(policy).info.model is ExecutionModel.TASKS
    workloads = [*(() if tasks else GENERATED), *(f"scenario {seed}" for seed in range(4))][:4]
    return {name: hashed(log_of(policy, name, folder / name)) for name in workloads}


@pytest.mark.parametrize("policy", policy_names())
def test_what_a_policy_decides_is_what_it_was(policy: str, tmp_path: Path) -> None:
    assert hashes(policy, tmp_path) == json.loads(HASHES.read_text())[policy]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        every = {policy: hashes(policy, Path(temporary) / policy) for policy in policy_names()}
    HASHES.write_text(json.dumps(every, indent=1) + "\n")
