"""The daemon as a process, on a larger cluster: 64 nodes, 500 short jobs."""

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched_core.store import Store
from hetsched_core.types import RequirementSet
from slurm_plugin.api.client import ask
from slurm_plugin.testbed import Installation, Testbed, fake_nodes
from tests.slurm_plugin.daemon.test_daemon_live import accounted, most_at_once
from tests.slurm_plugin.jobs import await_hold, deadline

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

PATIENCE_S = 90.0

JOB = """\
#!/bin/bash
#HETSCHED --gpu-set={counts}
echo "$SLURM_JOB_NUM_NODES $SLURM_GPUS_ON_NODE"
sleep 0.2
"""


@pytest.fixture(scope="module")
def large(installation: Installation) -> Iterator[Testbed]:
    """64 idle nodes, beside the cluster of the other tests."""
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        cluster = Testbed.create(installation, Path(name) / "slurm", fake_nodes(64))
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


def hetschedd(
    cluster: Testbed, folder: Path, *options: str, **environment: str
) -> subprocess.Popen[str]:
    """Start a daemon for this cluster; it logs to `folder`."""
    backend = "commands" if cluster.installed.why_no_pyslurm else "pyslurm"
    with (folder / "daemon.log").open("a") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "slurm_plugin.cli.hetschedd", "--partitions=gpu"),
                *(f"--backend={backend}", f"--database={folder}/daemon.duckdb", *options),
            ],
            env=os.environ | cluster.environment() | environment,
            stderr=log,
            text=True,
        )


def test_five_hundred_short_jobs_run_on_sixty_four_nodes(large: Testbed, tmp_path: Path) -> None:
    daemon = hetschedd(large, tmp_path, "--mode=enforce", "--cycle-s=0.2")
    await_hold(large)
    rng = random.Random(11)
    asked: dict[str, str] = {}
    for counts in rng.choices(["1", "1,2", "2,4", "4,8", "8", "1-8"], k=500):
        script = tmp_path / f"{counts}.sh"
        script.write_text(JOB.format(counts=counts))
        said = large.command("sbatch", "--parsable", f"--output={tmp_path}/%j.out", script)
        asked[said.strip()] = counts
    try:
        latest = deadline(150)
        while large.command("squeue", "--noheader", "--format=%i"):
            log = (tmp_path / "daemon.log").read_text()
            assert daemon.poll() is None, log
            assert time.monotonic() < latest, log[-3000:]
            time.sleep(0.5)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(PATIENCE_S)
    log = (tmp_path / "daemon.log").read_text()
    assert log.splitlines()[-1].endswith("event=down")
    assert "refused" not in log
    assert "requeue" not in log
    rows = accounted(large, list(asked))
    for job, counts in asked.items():
        assert rows[job].state == "COMPLETED"
        assert rows[job].gpus in RequirementSet.parse(counts)
        nodes, gpus = map(int, (tmp_path / f"{job}.out").read_text().split())
        assert (nodes, nodes * gpus) == (len(rows[job].nodes), rows[job].gpus)
        assert f"place job={job} " in log
    held = most_at_once(list(rows.values()))
    assert held <= sum(node.gpus for node in large.layout.nodes)
    with Store.open(tmp_path / "daemon.duckdb") as store:
        assert store.summary().decisions > 0


def test_a_running_daemon_takes_a_new_configuration_and_refuses_a_wrong_one(
    large: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, log = tmp_path / "hetschedd.toml", tmp_path / "daemon.log"
    config.write_text('partitions = ["gpu"]\npolicy = "fifo"\ncycle_s = 0.1\n')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        daemon = hetschedd(large, tmp_path, f"--config={config}", f"--socket={tmp_path}/asked")
        try:
            assert b"READY=1" in manager.recv(100)
            said = ask(tmp_path / "asked", "status")
            assert (said["policy"], said["mode"]) == ("fifo", "shadow")
            assert len(ask(tmp_path / "asked", "nodes")["nodes"]) == 64
            for text, event in (
                ('partitions = ["gpu"]\npolicy = "fif"\n', "event=reload_refused"),
                ('partitions = ["gpu"]\nbackend = "x"\n', "event=reload_refused"),
                ('partitions = ["gpu"]\npolicy = "las"\n', "event=reloaded policy=las"),
            ):
                config.write_text(text)
                before = log.read_text()
                daemon.send_signal(signal.SIGHUP)
                latest = deadline(20)
                while event not in log.read_text()[len(before) :]:
                    assert daemon.poll() is None, log.read_text()
                    assert time.monotonic() < latest, log.read_text()
                    manager.recv(100)
        finally:
            daemon.terminate()
            assert daemon.wait(PATIENCE_S) == 0
    assert not (tmp_path / "asked").exists()
    assert "did you mean 'fifo'" in log.read_text()
    assert log.read_text().splitlines()[-1].endswith("event=down")
