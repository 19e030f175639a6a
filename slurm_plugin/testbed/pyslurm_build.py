"""Building pyslurm against the testbed's Slurm.

pyslurm X.Y belongs to Slurm X.Y. Debian has skipped 25.11, and 26.05 keeps its interface, with the
older names behind a switch: so pyslurm 25.11 is built unmodified against headers that call
themselves 25.11.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.testbed.processes import run

_BUILD_S = 900.0


@dataclass(frozen=True, slots=True)
class _Match:
    """Which pyslurm goes with a release of Slurm, and what the compiler must be told."""

    pyslurm: str
    header_version: str = ""
    flags: str = ""


_MATCHES: dict[tuple[int, ...], _Match] = {
    (25, 11): _Match("25.11.2"),
    (26, 5): _Match(
        "25.11.2",
        "0x190b02",
        "-DSLURM_BACKWARD_COMPAT -Dslurm_free_ctl_conf=slurm_free_conf "
        "-DESLURM_ERROR_ON_DESC_TO_RECORD_COPY=ESLURM_DISABLED",
    ),
}


def why_no_pyslurm(version: tuple[int, ...]) -> str:
    """Return why there is no pyslurm for this version of Slurm, "" if there is one."""
    if version[:2] in _MATCHES:
        return ""
    known = ", ".join(f"{release[0]}.{release[1]:02d}" for release in sorted(_MATCHES))
    this = ".".join(map(str, version))
    return f"no pyslurm is known to fit Slurm {this} (known: {known}); use the commands backend"


def build_pyslurm(prefix: Path, plugins: Path, version: tuple[int, ...], python: str) -> None:
    """Build pyslurm into `prefix`/pyslurm-`python`, for this interpreter.

    Raises:
        TestbedError: the build failed.
    """
    match = _MATCHES[version[:2]]
    with tempfile.TemporaryDirectory(prefix="hetsched-pyslurm-") as name:
        include = Path(name) / "include"
        shutil.copytree(prefix / "usr/include/slurm", include / "slurm")
        if match.header_version:
            header = include / "slurm/slurm_version.h"
            text = header.read_text()
            define = f"#define SLURM_VERSION_NUMBER {match.header_version}"
            header.write_text(re.sub(r"#define SLURM_VERSION_NUMBER .*", define, text))
        target = Path(name) / "site"
        run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--disable-pip-version-check",
                # A wheel built for another prefix would look for its libraries there.
                "--no-cache-dir",
                f"--target={target}",
                f"pyslurm=={match.pyslurm}",
            ],
            env={
                "SLURM_LIB_DIR": str(plugins),
                "SLURM_INCLUDE_DIR": str(include),
                "PYSLURM_BUILD_JOBS": str(os.cpu_count() or 1),
                "CFLAGS": f"-O0 -g0 -w {match.flags}",
                "LDFLAGS": f"-Wl,-rpath,{plugins}",
            },
            timeout_s=_BUILD_S,
        )
        shutil.copytree(target, prefix / f"pyslurm-{python}")
