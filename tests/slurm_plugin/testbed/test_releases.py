"""Releases of Slurm side by side in one cache."""

from pathlib import Path

import click
import pytest

from hetsched_core.errors import UnknownNameError
from slurm_plugin.cli.testbed import up
from slurm_plugin.testbed import TestbedError, find_installed, install
from slurm_plugin.testbed.install import RECIPE, read_installed
from slurm_plugin.testbed.packages import NEWEST, SUITES, choice_of, packages_of


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache that looks as if three versions had been installed, and a fourth half."""
    for version in ("24.11.5", "26.5.5", "26.5.12"):
        (tmp_path / f"{version}-r{RECIPE}").mkdir()
        (tmp_path / f"{version}-r{RECIPE}/.complete").write_text(f"{version}\n")
    (tmp_path / f"27.5.1-r{RECIPE}").mkdir()
    return tmp_path


def test_every_version_belongs_to_one_release() -> None:
    assert choice_of((24, 11, 5)) == "24.11"
    assert choice_of((26, 5, 5)) == NEWEST
    assert choice_of((24, 5, 0)) == NEWEST


def test_the_installation_is_the_newest_of_the_release_that_was_asked_for(cache: Path) -> None:
    newest, old = find_installed(cache), find_installed(cache, "24.11")
    assert newest is not None
    assert old is not None
    assert (newest.version, newest.release) == ((26, 5, 12), NEWEST)
    assert (old.version, old.release) == ((24, 11, 5), "24.11")


def test_an_old_release_alone_is_not_taken_for_the_newest(cache: Path) -> None:
    for version in ("26.5.5", "26.5.12"):
        (cache / f"{version}-r{RECIPE}/.complete").unlink()
    assert find_installed(cache) is None
    with pytest.raises(TestbedError, match="there is no Slurm in"):
        read_installed(cache / f"26.5.5-r{RECIPE}")


def test_given_packages_are_those_of_the_release(tmp_path: Path) -> None:
    for name in ("slurmd_24.11.5-4_amd64.deb", "slurmd_26.05.5-1_amd64.deb", "slurmd.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in packages_of("24.11", tmp_path)] == ["slurmd_24.11.5-4_amd64.deb"]
    assert [path.name for path in packages_of(NEWEST, tmp_path)] == ["slurmd_26.05.5-1_amd64.deb"]


def test_a_release_that_no_suite_has_is_refused_with_those_that_are_had(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"'25.05'.*valid: 24.11, newest"):
        install(tmp_path, release="25.05")


def test_the_command_line_offers_every_release() -> None:
    (offered,) = [each.type for each in up.params if each.name == "slurm"]
    assert isinstance(offered, click.Choice)
    assert set(offered.choices) == set(SUITES)
