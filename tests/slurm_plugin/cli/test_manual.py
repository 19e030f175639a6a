"""The manual pages: what is packaged is what the commands and settings say, as roff can read it."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hetsched_core.cli.group import hetsched
from slurm_plugin.cli.hetschedd import hetschedd
from slurm_plugin.cli.manual import _MINIMAL, FOLDER, commands, pages
from slurm_plugin.cli.roff import Manual
from slurm_plugin.daemon.process.configuration import read_configuration, settings

PAGES = pages()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_packaged_page_is_what_the_declarations_say(name: str) -> None:
    file = FOLDER / name
    same = file.exists() and file.read_text() == PAGES[name]
    assert same, f"{name} is older than the commands or settings; write it anew with: make man"


def test_no_other_page_is_packaged() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(PAGES)


@pytest.mark.parametrize("name", sorted(PAGES))
@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_nothing_to_warn_of(name: str) -> None:
    command = ["groff", "-ww", "-man", "-Tascii"]
    done = subprocess.run(command, input=PAGES[name], text=True, capture_output=True, check=True)
    assert done.stderr == ""
    assert "hetsched 0." in done.stdout


def test_every_command_and_each_of_its_options_is_in_the_manual() -> None:
    text = PAGES["hetsched.1"].replace("\\-", "-")

    def check(command: click.Command, path: str) -> None:
        if isinstance(command, click.Group):
            for name, below in command.commands.items():
                check(below, f"{path} {name}")
            return
        _, _, about = text.partition(f'.SS "{path} [OPTIONS]')
        about = about.partition(".SS ")[0]
        assert about, path
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.opts[0] in about, f"{path} {option.opts[0]}"

    names = dict(commands())
    assert {"replay", "why", "page", "config"} <= set(names)
    for name, command in names.items():
        check(command, f"hetsched {name}")
        assert CliRunner().invoke(hetsched, [name, "--help"]).exit_code == 0


def test_every_setting_is_in_both_pages_of_the_daemon() -> None:
    for known in settings():
        assert f"\\fB{known.name}" in PAGES["hetsched.toml.5"]
        option = f"\\fB--{known.name.replace('_', '-')} ".replace("-", "\\-")
        assert option in PAGES["hetschedd.8"], known.name
    assert {option.opts[0] for option in hetschedd.params} >= {"--config", "--set"}


def test_the_example_is_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "hetschedd.toml"
    file.write_text(_MINIMAL)
    assert read_configuration(file).policy == "hops"
    assert tomllib.loads(_MINIMAL)["parameters"] == {"restart_weight": 3}


def test_nothing_in_a_text_is_taken_for_a_request() -> None:
    manual = Manual("x", 1, "x 1", "2026-01-01")
    manual.section("A")
    manual.text(".so /etc/passwd", "'br \\fBx\\fR - naïve `--a`")
    manual.items([(".TH", "\\n[.g] " + "word " * 40)])
    manual.example(".de evil\n\nlast")
    lines = str(manual).splitlines()
    requests = {line.split()[0] for line in lines if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".PP", ".TP", ".in", ".nf", ".fi", ".sp"}
    assert "\\&.so /etc/passwd" in lines
    assert "\\&'br \\efBx\\efR \\- na\\[u00EF]ve \\fB\\-\\-a\\fR" in lines
    assert "\\&.de evil" in lines
    assert max(map(len, lines)) <= 80
    assert str(manual).isascii()
