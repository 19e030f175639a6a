"""The examination of a real Slurm."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched_core.cli import main
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.submit.asking import known_to_slurm

pytestmark = pytest.mark.slurm

DAEMON = "daemon"

Examined = Callable[..., tuple[int, dict[str, tuple[str, str]]]]


@pytest.fixture
def examined(
    testbed: Testbed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Examined:
    """Return what examines a configuration: its exit code, and about -> verdict and words."""
    pyslurm = testbed.installed.pyslurm
    # The backend reads in a process of its own.
    if pyslurm:
        monkeypatch.setenv("PYTHONPATH", str(pyslurm))
    (tmp_path / "spool").mkdir(mode=0o755)
    for folder in (tmp_path, tmp_path / "spool"):
        folder.chmod(0o755)
        os.chown(folder, pwd.getpwnam(DAEMON).pw_uid, -1)

    def examine(**changed: str) -> tuple[int, dict[str, tuple[str, str]]]:
        settings = {
            "partitions": '["gpu"]',
            "mode": '"enforce"',
            "grace_s": "10",
            "database": f'"{tmp_path}/daemon.duckdb"',
            "socket": f'"{tmp_path}/sock"',
            "spool": f'"{tmp_path}/spool"',
        } | changed
        file = tmp_path / "hetschedd.toml"
        file.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
        code = main(["doctor", str(file)])
        lines = [line.split(None, 2) for line in capsys.readouterr().out.splitlines()]
        return code, {about: (verdict, words) for verdict, about, words in lines}

    return examine


def test_a_cluster_as_the_guide_has_it_is_good_in_all_but_an_open_folder(
    testbed: Testbed, examined: Examined
) -> None:
    with known_to_slurm(testbed, DAEMON, operator=True):
        code, found = examined()
    assert code == 0
    assert {about for about, (verdict, _) in found.items() if verdict != "ok"} == {"database"}
    name = "commands" if testbed.installed.why_no_pyslurm else "pyslurm"
    assert found["backend"][1].startswith(f"{name} reads 6 nodes, 32 GPUs, ")
    assert found["rights"][1] == "daemon is Operator"
    assert "is of this version" in found["hetsched.lua"][1]


def test_what_would_fail_is_found_with_what_to_do(examined: Examined) -> None:
    code, found = examined(partitions='["gpu", "nope"]', grace_s="30", backend='"commands"')
    assert code == 1
    assert found["partitions"] == ("wrong", "Slurm has no partition nope; it has gpu, short")
    assert found["rights"][0] == "wrong"
    assert found["rights"][1].endswith("sacctmgr add user daemon account=root adminlevel=Operator")
    assert found["KillWait"][0] == "beware"


def test_a_slurm_that_is_not_there_is_told_in_one_line(
    examined: Examined, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "no/slurm.conf"))
    code, found = examined()
    assert code == 1
    assert found["Slurm"][0] == "wrong"
    assert "backend" not in found
