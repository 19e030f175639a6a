"""What systemd is told, over a real socket."""

import socket
from pathlib import Path

import pytest

from slurm_plugin.daemon.process.notify import notify


@pytest.mark.parametrize("abstract", [False, True])
def test_states_arrive_as_one_datagram(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        # Without a name Linux chooses one.
        manager.bind("" if abstract else str(tmp_path / "notify"))
        name = manager.getsockname()
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name[1:].decode() if abstract else name)
        notify("READY=1", "WATCHDOG=1")
        assert manager.recv(100) == b"READY=1\nWATCHDOG=1"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all"])
def test_nobody_listening_is_no_reason_to_stop(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
    assert not Path(address or "/nowhere").exists()
