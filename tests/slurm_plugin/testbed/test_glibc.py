"""Programs linked with a newer glibc, made to start on this one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.testbed.glibc import host_glibc, is_elf, relabel


def needs(program: Path) -> set[str]:
    """The versions of glibc that a program asks its loader for."""
    said = subprocess.run(
        ["readelf", "--version-info", "--wide", program], capture_output=True, text=True, check=True
    ).stdout
    return {word for word in said.split() if word.startswith("GLIBC_2.")}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that needs several versions of glibc: a copy of some ELF that is there anyhow."""
    if not shutil.which("readelf"):
        pytest.skip("readelf is not here (apt-get install binutils)")
    copy = tmp_path / "program"
    shutil.copy("/bin/ls", copy)
    return copy


def test_needs_beyond_the_newest_are_pointed_at_an_old_version(program: Path) -> None:
    before = {tuple(map(int, need.removeprefix("GLIBC_").split("."))) for need in needs(program)}
    old = sorted(before, key=lambda version: version[:2])[len(before) // 2][:2]
    changed = relabel(program, (old[0], old[1]))
    after = {tuple(map(int, need.removeprefix("GLIBC_").split("."))) for need in needs(program)}
    assert changed == len({version for version in before if version[:2] > old})
    assert changed > 0
    assert max(version[:2] for version in after) <= old


def test_a_program_that_this_machine_can_run_is_left_as_it_is(program: Path) -> None:
    before = program.read_bytes()
    assert relabel(program, host_glibc()) == 0
    assert program.read_bytes() == before


def test_an_elf_file_is_told_from_others(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert is_elf(Path(sys.executable).resolve())
    assert not is_elf(script)
