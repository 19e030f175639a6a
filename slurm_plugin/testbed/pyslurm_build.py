"""Building pyslurm against the testbed's Slurm."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from slurm_plugin.backend.releases import RELEASES, known, named
from slurm_plugin.testbed.processes import run

_BUILD_S = 900.0


def why_no_pyslurm(version: tuple[int, ...]) -> str:
    """Return why there is no pyslurm for this version of Slurm, "" if there is one."""
    if known(version[:2]).pyslurm:
        return ""
    fitted = ", ".join(named(release) for release, its in sorted(RELEASES.items()) if its.pyslurm)
    this = ".".join(map(str, version))
    return f"no pyslurm is known to fit Slurm {this} (known: {fitted}); use the commands backend"


def build_pyslurm(prefix: Path, plugins: Path, version: tuple[int, ...], python: str) -> None:
    """Build pyslurm into `prefix`/pyslurm-`python`, for this interpreter.

    Raises:
        TestbedError: the build failed.
    """
    release = RELEASES[version[:2]]
    with tempfile.TemporaryDirectory(prefix="hetsched-pyslurm-") as name:
        include = Path(name) / "include"
        shutil.copytree(prefix / "usr/include/slurm", include / "slurm")
        if release.header_version:
            header = include / "slurm/slurm_version.h"
            text = header.read_text()
            define = f"#define SLURM_VERSION_NUMBER {release.header_version}"
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
                f"pyslurm=={release.pyslurm}",
            ],
            env={
                "SLURM_LIB_DIR": str(plugins),
                "SLURM_INCLUDE_DIR": str(include),
                "PYSLURM_BUILD_JOBS": str(os.cpu_count() or 1),
                "CFLAGS": f"-O0 -g0 -w {release.flags}",
                "LDFLAGS": f"-Wl,-rpath,{plugins}",
            },
            timeout_s=_BUILD_S,
        )
        shutil.copytree(target, prefix / f"pyslurm-{python}")
