"""What systemd is told, over a real socket."""

import socket
from pathlib import Path

import pytest

from slurm_plugin.daemon.notify import notify


def test_states_arrive_as_one_datagram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify("READY=1", "WATCHDOG=1")
        assert manager.recv(100) == b"READY=1\nWATCHDOG=1"


def test_an_abstract_socket_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")  # Linux chooses a name.
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + manager.getsockname()[1:].decode())
        notify("STOPPING=1")
        assert manager.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all"])
def test_nobody_listening_is_no_reason_to_stop(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
    assert not Path(address or "/nowhere").exists()
