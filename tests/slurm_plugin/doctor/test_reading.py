"""What is told where there is no configuration, no Slurm, or a pyslurm that does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hetsched_core.cli import main
from slurm_plugin.doctor.reading import backend_finding


def test_without_a_configuration_that_is_the_one_thing_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hetschedd.toml"
    assert main(["doctor", str(file)]) == 1
    line = capsys.readouterr().out
    assert line.startswith(f"wrong   configuration          {file}: No such file or directory; ")
    file.write_text("cycle_s = 0")
    assert main(["doctor", "--json", str(file)]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["about"], found["verdict"]) == ("configuration", "wrong")
    assert "nothing to manage; name partitions" in found["seen"]


def test_a_pyslurm_that_ends_its_process_is_told_and_ends_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyslurm.py").write_text("import os; os.abort()")
    (tmp_path / "slurm.conf").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    found = backend_finding("pyslurm")
    assert found.verdict.value == "wrong"
    assert "ends its process with signal 6" in found.seen
    assert "install the pyslurm of Slurm's release" in found.remedy


def test_a_backend_without_its_commands_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = backend_finding("commands")
    assert found.verdict.value == "wrong"
    assert found.seen.endswith("no command squeue in PATH; install Slurm's client commands")
