"""The manual pages, from the commands and settings as they are declared: `make man`.

It also writes the page of what policies see.
"""

from __future__ import annotations

import inspect
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

from hetsched_core import __version__
from hetsched_core.cli import reference
from hetsched_core.cli.group import GROUP, hetsched
from hetsched_core.values.settings import Setting
from slurm_plugin.cli.hetschedd import hetschedd
from slurm_plugin.cli.roff import Manual
from slurm_plugin.daemon.process.configuration import PARAMETERS, settings

PROJECT = Path(__file__).parents[2]

FOLDER = PROJECT / "slurm_plugin/packaging/man"

_DATE = "2026-11-22"
"""When the prose below was written; what is declared elsewhere has no date."""

_EXIT = (
    ("0", "Done."),
    ("1", "It failed; one line on standard error says why and what to do."),
    ("2", "The command line was wrong."),
    ("130", "It was interrupted."),
)

_MINIMAL = """\
partitions = ["gpu"]
policy = "hops"
mode = "shadow"
socket = "/run/hetsched/hetschedd.sock"

[parameters]
restart_weight = 3"""


def pages() -> dict[str, str]:
    """Return file name -> manual page."""
    return {
        "hetsched.1": str(_hetsched()),
        "hetschedd.8": str(_hetschedd()),
        "hetsched.toml.5": str(_toml()),
    }


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield the project's own commands, sorted: those that pyproject.toml names, and no others."""
    with (PROJECT / "pyproject.toml").open("rb") as file:
        named = tomllib.load(file)["project"]["entry-points"][GROUP]
    for name in sorted(named):
        module, _, attribute = named[name].partition(":")
        yield name, getattr(import_module(module), attribute)


def main() -> None:
    """Write the pages where they are packaged."""
    FOLDER.mkdir(exist_ok=True)
    written = {FOLDER / name: text for name, text in pages().items()}
    for path, text in {**written, reference.PAGE: reference.page()}.items():
        path.write_text(text)
        sys.stdout.write(f"{path}\n")


def _hetsched() -> Manual:
    manual = _begun("hetsched", 1)
    manual.section("Name")
    manual.text("hetsched - schedule deep-learning jobs on GPUs of several types")
    manual.section("Synopsis")
    manual.text("`hetsched` COMMAND [OPTIONS] ...")
    manual.section("Description")
    manual.text(
        "Replays a Slurm accounting log under several policies, and asks and shows the daemon "
        "that schedules a live Slurm (`hetschedd`(8)).",
    )
    manual.section("Commands")
    root = click.Context(hetsched, info_name="hetsched")
    for name, command in commands():
        _command(manual, click.Context(command, info_name=name, parent=root))
    manual.section("Exit status")
    manual.items(_EXIT)
    manual.section("Environment")
    manual.items(
        [
            ("HETSCHED_SOCKET", "Where the daemon answers, in the place of --socket."),
            ("SLURM_CONF", "Which Slurm `hetsched testbed` and the daemon speak to."),
            ("XDG_CACHE_HOME, XDG_STATE_HOME", "Where a testbed keeps its packages and files."),
            ("HETSCHED_SLURM_DEBS", "A folder of Slurm packages for the testbed to use."),
        ]
    )
    manual.section("Examples")
    manual.example(
        "hetsched replay october.txt --cluster cluster.toml --policy slurm,las --report october\n"
        "hetsched why 4711\n"
        "hetsched page --serve 127.0.0.1:9755"
    )
    manual.section("See also")
    manual.text("`hetschedd`(8), `hetsched.toml`(5), `sbatch`(1), `squeue`(1), `sacct`(1)")
    return manual


def _hetschedd() -> Manual:
    manual = _begun("hetschedd", 8)
    manual.section("Name")
    manual.text("hetschedd - schedule the jobs on the GPU nodes of a Slurm cluster")
    manual.section("Synopsis")
    manual.text("`hetschedd` [`--config` FILE] [OPTIONS]")
    manual.section("Description")
    context = click.Context(hetschedd, info_name="hetschedd")
    manual.text(
        *_paragraphs(hetschedd),
        "In shadow mode, the default, it plans and records and changes nothing; in enforce mode "
        "it holds the managed nodes, and places and moves jobs. If it ends, for whatever reason, "
        "Slurm starts the waiting jobs by itself.",
    )
    manual.section("Options")
    manual.text("An option wins over the setting of the same name in the file.")
    manual.items(_options(context))
    manual.section("Signals")
    manual.items(
        [
            ("SIGTERM, SIGINT", "End. Jobs run on, and those that wait are left to Slurm."),
            ("SIGHUP", "Read the file again; one that is wrong is refused in the log."),
        ]
    )
    manual.section("Exit status")
    manual.items(_EXIT)
    manual.section("Files")
    manual.items(
        [
            ("/etc/hetsched/hetschedd.toml", "The configuration, under the packaged unit."),
            *((_default(name), _meaning(name)) for name in ("database", "socket")),
        ]
    )
    manual.section("See also")
    manual.text("`hetsched`(1), `hetsched.toml`(5), `slurmctld`(8), `systemctl`(1)")
    return manual


def _toml() -> Manual:
    manual = _begun("hetsched.toml", 5)
    manual.section("Name")
    manual.text("hetsched.toml - configuration of hetschedd")
    manual.section("Description")
    manual.text(
        "A TOML file that `hetschedd`(8) reads with `--config`; under the packaged unit it is "
        "/etc/hetsched/hetschedd.toml. `hetsched config show` prints an example with every "
        "setting, `hetsched config check FILE` says whether the daemon would take a file. Names "
        "that end in _s are seconds. An unknown setting is an error.",
    )
    manual.section("Settings")
    manual.items((_signature(known), _whole_meaning(known)) for known in settings())
    manual.section("Parameters of the policy")
    manual.text(
        f"The table [{PARAMETERS}] sets the policy's own parameters; `hetsched policies NAME` "
        "lists them."
    )
    manual.section("Example")
    manual.example(_MINIMAL)
    manual.section("See also")
    manual.text("`hetsched`(1), `hetschedd`(8)")
    return manual


def _begun(name: str, section: int) -> Manual:
    return Manual(name, section, f"hetsched {__version__}", _DATE)


def _command(manual: Manual, context: click.Context) -> None:
    """Describe a command and those under it."""
    command = context.command
    if not isinstance(command, click.Group):
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        manual.subsection(usage)
        manual.text(*_paragraphs(command))
        manual.items(_options(context))
        return
    for name in command.list_commands(context):
        if found := command.get_command(context, name):
            _command(manual, click.Context(found, info_name=name, parent=context))


def _paragraphs(command: click.Command) -> list[str]:
    # \b keeps the lines of a paragraph apart on a terminal; \f ends what is shown.
    text = inspect.cleandoc(command.help or "").partition("\f")[0].replace("\b\n", "")
    return [paragraph for paragraph in text.split("\n\n") if paragraph.strip()]


def _options(context: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in context.command.params:
        record = parameter.get_help_record(context)
        if record is not None:
            yield record


def _signature(known: Setting) -> str:
    return f"{known.name} = {known.default or '(empty)'}"


def _whole_meaning(known: Setting) -> str:
    allowed = known.bounds or " or ".join(known.choices)
    return f"{known.doc}{allowed and f' ({allowed})'}."


def _default(name: str) -> str:
    return next(known.default for known in settings() if known.name == name)


def _meaning(name: str) -> str:
    return next(f"{known.doc} (setting {name})." for known in settings() if known.name == name)


if __name__ == "__main__":
    main()
