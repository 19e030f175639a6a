"""Which package may import what: the contracts of ``[tool.importlinter]`` in pyproject.toml."""

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

LINT_IMPORTS = Path(sysconfig.get_path("scripts")) / "lint-imports"
PROJECT = Path(__file__).parents[1]
ONE_PLACE = "numba, highspy, duckdb and pyslurm are each imported in one place"


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Hold the packages that lie in a folder to the project's contracts."""
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache", "--config", PROJECT / "pyproject.toml"],
        cwd=folder,
        # The folder's packages, not the installed ones; wide enough that no name is folded.
        env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def write_packages(folder: Path, imports: dict[str, str]) -> None:
    """Write the three packages with the given modules, each of one import."""
    for name in ("hetsched_core", "slurm_plugin", "job_wrappers"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").touch()
    for module, line in imports.items():
        path = folder.joinpath(*module.split(".")).with_suffix(".py")
        for parent in reversed(path.relative_to(folder).parents[:-1]):
            (folder / parent).mkdir(exist_ok=True)
            (folder / parent / "__init__.py").touch()
        path.write_text(line + "\n")


def test_the_project_keeps_its_import_rules() -> None:
    result = lint_imports(PROJECT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 broken" in result.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("hetsched_core.policy", "import slurm_plugin", "hetsched_core knows neither"),
        ("hetsched_core.policy", "import job_wrappers", "hetsched_core knows neither"),
        ("hetsched_core.policy", "import torch", "hetsched_core knows neither"),
        ("job_wrappers.session", "import hetsched_core", "job_wrappers stand alone"),
        ("job_wrappers.session", "import slurm_plugin", "job_wrappers stand alone"),
        ("slurm_plugin.daemon", "import job_wrappers", "slurm_plugin does not run inside"),
        ("slurm_plugin.pool.folder", "import job_wrappers", "slurm_plugin does not run inside"),
        ("hetsched_core.simulate", "import socket", "hetsched_core has no sockets"),
        ("hetsched_core.simulate", "import subprocess", "hetsched_core has no sockets"),
        ("hetsched_core.simulate", "from time import time", "a clock is passed in"),
        ("hetsched_core.policies.las", "from numba import njit", ONE_PLACE),
        ("hetsched_core.policies.hadar.hadar", "import highspy", ONE_PLACE),
        ("hetsched_core.report.table", "import duckdb", ONE_PLACE),
        ("slurm_plugin.daemon", "import pyslurm", ONE_PLACE),
        ("hetsched_core.policies.las", "def f():\n    import numba.typed", ONE_PLACE),
    ],
)
def test_a_forbidden_import_breaks_its_rule(
    tmp_path: Path, module: str, line: str, contract: str
) -> None:
    write_packages(tmp_path, {module: line})
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    broken = [text for text in result.stdout.splitlines() if text.endswith(" BROKEN")]
    assert any(text.startswith(contract) for text in broken), result.stdout


def test_what_each_package_is_for_is_allowed(tmp_path: Path) -> None:
    write_packages(
        tmp_path,
        {
            "hetsched_core.kernels.fill": "import numba",
            "hetsched_core.policies.las": "from hetsched_core.kernels import fill",
            "hetsched_core.optimize.problem": "import highspy",
            "hetsched_core.store.layers": "import duckdb",
            "hetsched_core.cli.replay": "import time",
            "slurm_plugin.backend.pyslurm": "import pyslurm",
            "slurm_plugin.daemon": "import hetsched_core.policies.las, socket, time",
            "slurm_plugin.pool.records": "import job_wrappers.pool.asked",
            "job_wrappers.pool.asked": "import json",
            "job_wrappers.session": "import socket, time, torch",
        },
    )
    result = lint_imports(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
