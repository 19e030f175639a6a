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
