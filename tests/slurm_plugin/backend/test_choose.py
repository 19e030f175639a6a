"""Choosing a backend where something is missing."""

import subprocess
import sys

import pytest

from hetsched_core.errors import UnknownNameError
from slurm_plugin.backend import BackendError, open_backend

OPEN = """
from slurm_plugin.backend import BackendError, open_backend
try:
    open_backend("pyslurm")
except BackendError as error:
    raise SystemExit(f"said: {error}")
"""


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="valid: commands, pyslurm"):
        open_backend("rest")


def test_without_a_configuration_the_pyslurm_backend_says_what_to_set() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPEN],
        env={"SLURM_CONF": "/nowhere/slurm.conf"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.startswith("said: /nowhere/slurm.conf cannot be read; set SLURM_CONF")


def test_without_pyslurm_its_backend_says_how_to_get_it() -> None:
    # A process of its own, whose path has no pyslurm; any readable file will do for a start.
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.modules['pyslurm'] = None\n{OPEN}"],
        env={"SLURM_CONF": "/etc/passwd"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pip install 'pyslurm==" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_slurm_s_commands_their_backend_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BackendError, match="no command squeue in PATH"):
        open_backend("commands")
