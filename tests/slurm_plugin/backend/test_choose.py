"""Choosing a backend: by what is here, and where something is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from hetsched_core.errors import UnknownNameError
from slurm_plugin.backend import BackendError, open_backend, settled
from slurm_plugin.testbed import Testbed

OPEN = """
from slurm_plugin.backend import BackendError, open_backend
try:
    open_backend("pyslurm")
except BackendError as error:
    raise SystemExit(f"said: {error}")
"""


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="valid: auto, commands, pyslurm"):
        open_backend("rest")


@pytest.mark.parametrize(
    ("before", "conf", "says"),
    [
        ("", "/nowhere/slurm.conf", "/nowhere/slurm.conf cannot be read; set SLURM_CONF"),
        # Any readable file will do for a start.
        ("import sys\nsys.modules['pyslurm'] = None", "/etc/passwd", "pip install 'pyslurm=="),
    ],
)
def test_the_pyslurm_backend_says_what_it_lacks(before: str, conf: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", before + OPEN],
        env={"SLURM_CONF": conf},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.startswith("said: ")
    assert says in done.stderr


def test_without_slurm_s_commands_their_backend_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BackendError, match="no command squeue in PATH"):
        open_backend("commands")


@pytest.mark.parametrize(
    ("slurm", "pyslurm", "why"),
    [
        ("25.11.1", "25.11.2", ""),
        ("25.11.0-0rc1", "25.11.2", ""),
        # Seen to fit, although it is of another release.
        ("26.05.5", "25.11.2", ""),
        ("24.11.5", "25.11.2", "pyslurm 25.11.2 belongs to another release of Slurm than 24.11.5"),
        ("26.11.0", "25.11.2", "pyslurm 25.11.2 belongs to another release of Slurm than 26.11.0"),
        ("24.11.5", "", "no pyslurm is installed; `pip install 'pyslurm==24.11.*'`"),
    ],
)
def test_auto_is_pyslurm_where_it_fits_the_slurm_that_is_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slurm: str, pyslurm: str, why: str
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho slurm {slurm}\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    if pyslurm:
        about = tmp_path / f"pyslurm-{pyslurm}.dist-info" / "METADATA"
        about.parent.mkdir()
        about.write_text(f"Metadata-Version: 2.1\nName: pyslurm\nVersion: {pyslurm}\n")
    name, said = settled("auto")
    assert (name, said[: len(why)]) == ("commands" if why else "pyslurm", why)
    assert settled("pyslurm") == ("pyslurm", "")


@pytest.mark.slurm
def test_auto_reads_a_slurm_by_what_there_is_for_it(testbed: Testbed) -> None:
    why = testbed.installed.why_no_pyslurm
    assert settled("auto")[0] == ("commands" if why else "pyslurm")
    assert len(open_backend("auto").read().nodes) == 6
