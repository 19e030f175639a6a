"""Building the SPANK plug-in that gives sbatch the options of hetsched."""

from __future__ import annotations

import shutil
from pathlib import Path

from slurm_plugin.submit import SPANK_SOURCE
from slurm_plugin.testbed.install import Installation
from slurm_plugin.testbed.processes import run

_COMPILER = "cc"


def why_no_spank(installed: Installation) -> str:
    """Return what is missing for the plug-in, "" if nothing is."""
    if shutil.which(_COMPILER) is None:
        return "there is no C compiler; install gcc and libc6-dev"
    header = installed.headers / "slurm/spank.h"
    if not header.is_file():
        return f"there is no {header}, which Debian's package libslurm-dev holds"
    return ""


def build_spank(installed: Installation, plugin: Path) -> None:
    """Compile the plug-in to a file.

    Raises:
        TestbedError: the compiler does not take it.
    """
    plugin.parent.mkdir(parents=True, exist_ok=True)
    run(
        [
            *(_COMPILER, "-O2", "-fPIC", "-shared", f"-I{installed.headers}"),
            *("-o", plugin, SPANK_SOURCE),
        ]
    )
