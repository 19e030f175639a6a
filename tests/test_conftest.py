"""Skips that must not pass unseen: the rules of ``conftest.py``, in a pytest run of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.slurm
def test_slurm():
    pytest.skip("no slurmctld here")

@pytest.mark.torch
def test_torch():
    pytest.importorskip("no_such_torch")

def test_data(data_dir):
    if not (data_dir / "fox.txt").exists():
        pytest.skip("no fox.txt")

def test_plain():
    pytest.skip("not today")

@pytest.mark.slurm
@pytest.mark.xfail(strict=False)
def test_expected_failure():
    assert False
"""


def outcomes(folder: Path, **environment: str) -> dict[str, str]:
    """Run ``TESTS`` under the project's conftest; return the outcome of each test."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("CI", "HETSCHED_DATA")}
    (folder / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slurm:\n    torch:\n")
    (folder / "test_it.py").write_text(TESTS)
    (folder / "test_module.py").write_text("import pytest\npytest.importorskip('no_such')\n")
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider"),
            "--continue-on-collection-errors",
            folder,
        ],
        cwd=folder,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    summary = result.stdout.partition("short test summary info")[2]
    found = {}
    for line in summary.splitlines():
        for name in ("slurm", "torch", "data", "plain", "expected_failure"):
            if f"::test_{name}" in line:
                found[name] = line.split()[0]
        if "test_module.py" in line:
            found["module"] = line.split()[0]
    return found


def test_without_ci_nothing_that_skips_fails(tmp_path: Path) -> None:
    found = outcomes(tmp_path)
    assert "FAILED" not in found.values()
    assert "ERROR" not in found.values()


def test_with_ci_a_skip_of_slurm_torch_or_a_whole_module_fails(tmp_path: Path) -> None:
    found = outcomes(tmp_path, CI="true")
    assert found.pop("module") == "ERROR"
    assert found.pop("expected_failure") == "XFAIL"
    assert found == {"slurm": "FAILED", "torch": "FAILED"}


@pytest.mark.parametrize("exists", [True, False], ids=["empty directory", "missing directory"])
def test_with_ci_and_data_promised_a_skip_for_want_of_data_fails(
    tmp_path: Path, exists: bool
) -> None:
    data = tmp_path / "data"
    if exists:
        data.mkdir()
    assert outcomes(tmp_path, CI="true", HETSCHED_DATA=str(data))["data"] in ("FAILED", "ERROR")
