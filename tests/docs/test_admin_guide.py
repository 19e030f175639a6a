"""The guide for admins: what it types does what it says."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import slurm_plugin
from slurm_plugin.cli.manual import pages
from slurm_plugin.daemon.process.configuration import read_configuration, settings
from slurm_plugin.daemon.settings import DaemonMode

PROJECT = Path(__file__).parents[2]
GUIDE = (PROJECT / "docs/live/admin-guide.md").read_text()
BLOCKS = re.findall(r"```console\n(.*?)```", GUIDE, re.DOTALL)
PACKAGE = Path(slurm_plugin.__path__[0])


def lines(beginning: str) -> list[str]:
    """The lines of the guide's commands that begin so."""
    found = [line for block in BLOCKS for line in block.splitlines() if line.startswith(beginning)]
    assert found, beginning
    return found


def run(line: str, folder: Path) -> str:
    """Run a line whose absolute paths lie in a folder instead."""
    moved = re.sub(r"(?<=[\s\">])/(?=(etc|usr|var)/)", f"{folder}/", line)
    command = ["bash", "-euc", moved]
    return subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True, check=True).stdout


def installed(folder: Path) -> Path:
    """Install what the guide installs as files."""
    for name in ("etc/sysusers.d", "etc/systemd/system", "etc/slurm"):
        (folder / name).mkdir(parents=True)
    for line in [*lines("install "), *lines("for page")]:
        run(line.partition(" && ")[0], folder)
    return folder


def test_what_is_installed_is_there_and_the_configuration_is_one(tmp_path: Path) -> None:
    etc = installed(tmp_path) / "etc"
    units = sorted(path.name for path in (etc / "systemd/system").iterdir())
    assert units == ["hetsched-page.service", "hetschedd.service"]
    assert (etc / "sysusers.d/hetsched.conf").is_file()
    man = tmp_path / "usr/local/share/man"
    assert {path.name for path in man.glob("man*/*")} == set(pages())
    for name in pages():
        assert (man / f"man{name[-1]}" / name).is_file()
    assert read_configuration(etc / "hetsched/hetschedd.toml").mode is DaemonMode.SHADOW


def test_the_lines_that_hand_over_and_take_back_set_the_mode(tmp_path: Path) -> None:
    installed(tmp_path)
    file = tmp_path / "etc/hetsched/hetschedd.toml"
    on, off, wide, back = lines("sed ")
    run(on, tmp_path)
    assert read_configuration(file).mode is DaemonMode.ENFORCE
    run(off, tmp_path)
    assert read_configuration(file).mode is DaemonMode.SHADOW
    # Around an upgrade of Slurm.
    before = read_configuration(file).slack_s
    run(wide, tmp_path)
    assert read_configuration(file).slack_s == 3600
    run(back, tmp_path)
    assert read_configuration(file).slack_s == before


def test_what_the_unit_makes_is_the_daemon_s_alone_and_users_reach_the_socket() -> None:
    unit = (PACKAGE / "packaging/hetschedd.service").read_text()
    set_ = dict(re.findall(r"^(\w+)=(\S+)$", unit, re.MULTILINE))
    known = {setting.name: setting.default for setting in settings()}
    for kind, setting in (("State", "database"), ("Runtime", "socket")):
        folder = Path(known[setting] or "").parent.name
        assert set_[f"{kind}Directory"] == folder
    assert set_["UMask"] == "0077"
    modes = {kind: set_[f"{kind}DirectoryMode"] for kind in ("State", "Cache", "Runtime")}
    assert modes == {"State": "0700", "Cache": "0700", "Runtime": "0755"}


def test_the_units_run_commands_that_exist() -> None:
    for unit in PACKAGE.glob("packaging/*.service"):
        for command in re.findall(r"^Exec\w+=(/opt/\S+ .*)$", unit.read_text(), re.MULTILINE):
            words = command.split()
            if words[0].endswith("/hetsched"):
                assert words[1] in ("config", "page"), command
    assert "page --serve 127.0.0.1:" in (PACKAGE / "packaging/hetsched-page.service").read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in PACKAGE.glob("packaging/*.service"):
        text = re.sub(
            r"/opt/hetsched/bin/\w+", shutil.which("true") or "/bin/true", unit.read_text()
        )
        copy = tmp_path / unit.name
        copy.write_text(text)
        command = ["systemd-analyze", "verify", "--man=no", str(copy)]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
        assert unit.name not in done.stderr, done.stderr
