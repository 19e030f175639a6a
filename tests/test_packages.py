"""What `pip install` gives somebody who has no clone: the wheel, and the wheel of the sdist."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
SMOKE = PROJECT / "slurm_plugin/packaging/smoke.sh"
NOTICES = PROJECT / "slurm_plugin/packaging/notices.py"


def built(source: Path, target: str, into: Path) -> Path:
    """Build a distribution of the sources in a folder."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "-d", str(into)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (found,) = into.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return found


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    subprocess.run(["tar", "-xf", built(PROJECT, "sdist", folder)], cwd=folder, check=True)
    (unpacked,) = (each for each in folder.iterdir() if each.is_dir())
    return unpacked


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the sdist."""
    return built(sdist, "wheel", tmp_path_factory.mktemp("wheel"))


def test_a_wheel_is_the_same_from_a_clone_and_from_the_sdist(wheel: Path, tmp_path: Path) -> None:
    names = [
        sorted(zipfile.ZipFile(path).namelist())
        for path in (wheel, built(PROJECT, "wheel", tmp_path))
    ]
    assert names[0] == names[1]


def test_the_pages_and_the_scripts_to_begin_with_are_in_the_wheel(wheel: Path) -> None:
    names = {name.partition(".data/data/")[2] for name in zipfile.ZipFile(wheel).namelist()}
    shared = "share/doc/hetsched"
    for folder in ("docs", "sbatch_templates"):
        files = {
            f"{shared}/{path.relative_to(PROJECT)}"
            for path in (PROJECT / folder).rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        }
        assert files <= names, sorted(files - names)
    assert {f"{shared}/README.md", "share/man/man1/hetsched.1"} <= names


def test_what_is_installed_works_outside_of_the_clone(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    install = ("install", "--quiet", "--no-deps", "--no-index", str(wheel))
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True)
    # What it needs is taken from here; the clone is not, for a .pth file of a folder that a .pth
    # file names is not read.
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    (Path(packages) / "needed.pth").write_text(sysconfig.get_path("purelib"))
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        ["sh", str(SMOKE), str(folder / "bin")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"it works: {folder}/bin" in done.stdout


def test_the_licences_of_what_comes_along_are_told() -> None:
    told = subprocess.run([sys.executable, NOTICES], capture_output=True, text=True, check=True)
    assert (PROJECT / "THIRD-PARTY.md").read_text() == told.stdout, "make notices"
    assert "| numpy | " in told.stdout
    assert "pyslurm is not among them. It is GPL-2.0-only" in told.stdout
