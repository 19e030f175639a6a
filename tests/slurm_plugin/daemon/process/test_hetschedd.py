"""The daemon as a process takes what is written for it while it runs."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_plugin.api.client import ask
from slurm_plugin.cli.hetschedd import main
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.jobs import Submitter, deadline

PATIENCE_S = 90.0


def hetschedd(
    cluster: Testbed, folder: Path, *options: str, **environment: str
) -> subprocess.Popen[str]:
    """Start a daemon for this cluster; it logs to `folder`."""
    with (folder / "daemon.log").open("a") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "slurm_plugin.cli.hetschedd", "--partitions=gpu"),
                *(f"--database={folder}/daemon.duckdb", *options),
            ],
            env=os.environ | cluster.environment() | environment,
            stderr=log,
            text=True,
        )


@pytest.mark.slurm
def test_a_running_daemon_takes_a_new_configuration_and_refuses_a_wrong_one(
    testbed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, log = tmp_path / "hetschedd.toml", tmp_path / "daemon.log"
    gpu = 'partitions = ["gpu"]\n'
    config.write_text(f'{gpu}policy = "fifo"\ncycle_s = 0.1\n')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        daemon = hetschedd(testbed, tmp_path, f"--config={config}", f"--socket={tmp_path}/asked")
        try:
            assert b"READY=1" in manager.recv(100)
            said = ask(tmp_path / "asked", "status")
            assert (said["policy"], said["mode"]) == ("fifo", "shadow")
            assert len(ask(tmp_path / "asked", "nodes")["nodes"]) == 6
            for text, event in (
                ('policy = "fif"\n', "event=reload_refused"),
                ('backend = "x"\n', "event=reload_refused"),
                ('policy = "las"\n', "event=reloaded policy=las"),
            ):
                config.write_text(gpu + text)
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


QUEUE = """
import os, sys
from hetsched_core.cli import main
command = ["queue", f"--socket={sys.argv[1]}"]
main(command)
os.setuid(65534)
print("as nobody")
main(command)
"""
"""Prints the queue to root, which imports all it needs, for Python may be root's alone; then to
nobody."""


@pytest.mark.slurm
def test_from_another_host_each_user_sees_its_own_jobs_alone(
    testbed: Testbed,
    submitter: Submitter,
    free: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HETSCHED_MUNGE_SOCKET", f"{testbed.layout.runtime}/munge.sock")
    monkeypatch.setenv("PATH", testbed.environment()["PATH"])
    options = (f"--socket={tmp_path}/asked", f"--listen={free}", "--private-jobs=true")
    daemon = hetschedd(testbed, tmp_path, *options)
    try:
        wait_until((tmp_path / "asked").exists, "the daemon's socket", PATIENCE_S)
        job = submitter.submit("--gpu-set=1", seconds=600)

        def seen() -> tuple[list[str], list[str]] | None:
            """The jobs that root and nobody are shown, once the daemon has read Slurm."""
            words = [sys.executable, "-c", QUEUE, free]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            tables = [table.splitlines() for table in done.stdout.split("as nobody\n")]
            if not all(tables):
                return None
            to_root, to_nobody = ([line.split()[0] for line in table[1:]] for table in tables)
            return to_root, to_nobody

        wait_until(lambda: seen() == ([job], []), f"job {job} in root's queue alone", PATIENCE_S)
    finally:
        daemon.terminate()
        assert daemon.wait(PATIENCE_S) == 0


def test_a_parameter_without_a_value_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--set=groups"]) == 2
    assert "--set groups: expected NAME=VALUE" in capsys.readouterr().err
