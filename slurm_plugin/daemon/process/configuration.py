"""The daemon's configuration: one TOML file, each key of which the command line can override.

The keys are the settings that `DaemonConfiguration` declares, and nothing is declared anywhere
else: reading, `hetsched config`, the options of `hetschedd` and the example file are made from it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from immutables import Map

from hetsched_core.errors import InputError, unknown
from hetsched_core.values.settings import Setting, setting, settings_declared
from hetsched_core.values.text import from_text, kind_of, to_text
from slurm_plugin.api.address import host_and_port
from slurm_plugin.daemon.process.lease import RENEW
from slurm_plugin.daemon.settings import DaemonMode, DaemonSettings

PARAMETERS = "parameters"
"""The table of the file that holds the policy's own parameters."""

_WIDTH = 98

_LONGEST_SOCKET = 107


class BackendName(StrEnum):
    """How to speak to Slurm."""

    AUTO = "auto"
    PYSLURM = "pyslurm"
    COMMANDS = "commands"


class LogForm(StrEnum):
    """How the lines of the log are written."""

    LOGFMT = "logfmt"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonConfiguration(DaemonSettings):
    """Everything that the daemon's process is told.

    `parameters` are those of the policy, as text.
    """

    policy: str = setting(
        "fifo",
        "which policy schedules; `hetsched policies` lists them, and steady is advised where most "
        "jobs can be stopped",
    )
    mode: DaemonMode = setting(
        DaemonMode.SHADOW, "shadow plans and records and changes nothing in Slurm; enforce acts"
    )
    backend: BackendName = setting(
        BackendName.AUTO,
        "by which way to speak to Slurm: pyslurm, its own commands, or auto: pyslurm if it fits",
    )
    database: Path = setting(
        Path("/var/lib/hetsched/daemon.duckdb"),
        "where decisions and measurements are kept; one daemon at a time holds it",
    )
    standby: bool = setting(
        False,
        "whether daemons on several hosts take turns, all with this: one plans, the others wait, "
        "and one takes over within `slack_s`",
    )
    cycle_s: float = setting(1.0, "time from one look at Slurm to the next", least=0.05, most=60.0)
    socket: Path = setting(
        Path("/run/hetsched/hetschedd.sock"),
        "where `hetsched status`, `queue`, `nodes`, `why`, `when` and the others are answered",
    )
    listen: str = setting(
        "",
        "HOST:PORT where questions from other hosts are answered, too, such as 0.0.0.0:9753; who "
        "asks is known by munge; empty for none",
    )
    metrics: str = setting(
        "", "HOST:PORT where Prometheus may scrape, such as 127.0.0.1:9754; empty for none"
    )
    private_jobs: bool = setting(
        False,
        "whether users are told of their own jobs only; where Slurm has PrivateData=jobs they are "
        "in any case",
    )
    log: LogForm = setting(LogForm.LOGFMT, "form of the log lines on stderr")
    parameters: Map[str, str] = dataclasses.field(default=Map())

    def __post_init__(self) -> None:
        """Refuse what no daemon can work with."""
        # Two-argument super: a dataclass with slots is another class than the one written here.
        super(DaemonConfiguration, self).__post_init__()
        for name, port in (("listen", 9753), ("metrics", 9754)):
            address = getattr(self, name)
            if address and host_and_port(address) is None:
                raise InputError(
                    f"{name} = {address!r}: expected HOST:PORT, such as 127.0.0.1:{port}"
                )
        for name in ("database", "socket", "spool"):
            path = getattr(self, name)
            if path is not None and not path.name:
                raise InputError(f"{name} = {str(path)!r} names no file or folder")
        if self.standby and self.cycle_s > RENEW * self.slack_s:
            raise InputError(
                f"cycle_s = {self.cycle_s:g} is too much beside standby: the lease is renewed by a "
                f"cycle, at least once in {RENEW * self.slack_s:g} s (an eighth of slack_s)"
            )
        if len(os.fsencode(self.socket)) > _LONGEST_SOCKET:
            raise InputError(
                f"socket = {str(self.socket)!r}: a socket's path has at most {_LONGEST_SOCKET} "
                "bytes; choose a shorter one"
            )


def settings() -> tuple[Setting, ...]:
    """Return all settings, in the order in which they are declared."""
    return settings_declared(DaemonConfiguration)


def read_configuration(
    path: Path | None,
    overrides: Mapping[str, str] | None = None,
    parameters: Mapping[str, str] | None = None,
) -> DaemonConfiguration:
    """Read a configuration file, and put what the command line says in place of what it says.

    Args:
        path: the file; None for the defaults.
        overrides: setting -> its value as text.
        parameters: parameter of the policy -> its value as text.

    Raises:
        InputError: it is not of this format; the message names the file, the key and its value.
        OSError: the file cannot be opened.
    """
    values = {} if path is None else _read(path)
    own = values.pop(PARAMETERS, {})
    hints = {known.name: known.hint for known in settings()}
    for name, text in (overrides or {}).items():
        values[name] = from_text(name, text, hints[name])
    try:
        return DaemonConfiguration(**values, parameters=Map({**own, **(parameters or {})}))
    except InputError as error:
        if path is None:
            raise
        raise InputError(f"{path}: {error}") from None


def to_toml(configuration: DaemonConfiguration | None) -> str:
    """Return a configuration as a file with all settings and their meanings.

    What has its default is commented out. None gives the example file.
    """
    lines: list[str] = []
    for known in settings():
        about = f"{known.doc}{known.bounds and f' ({known.bounds})'}"
        if known.choices:
            about += f" ({' or '.join(known.choices)})"
        lines += textwrap.wrap(
            about, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
        )
        value = getattr(configuration, known.name) if configuration else _example(known)
        unsaid = "#" if to_text(value) == known.default else ""
        lines += [f"{unsaid}{known.name} = {_toml(value)}", ""]
    lines += [
        "# The policy's own parameters; `hetsched policies NAME` lists them.",
        f"[{PARAMETERS}]",
    ]
    given = configuration.parameters if configuration else Map[str, str]()
    lines += [f"{name} = {_toml(given[name])}" for name in sorted(given)]
    return "\n".join(lines) + "\n"


def _read(path: Path) -> dict[str, Any]:
    """Return setting -> value of a file, and its table of parameters as text."""
    kind = path.stat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        # A pipe would have the daemon wait for what is written into it.
        raise InputError(f"{path} is no regular file; write the settings into one")
    try:
        text = path.read_text(encoding="utf-8")
        if text.startswith("\ufeff"):
            raise InputError(f"{path} begins with a byte order mark; save it as UTF-8 without one")
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    hints = {known.name: known.hint for known in settings()}
    values: dict[str, Any] = {}
    for name, value in document.items():
        if name == PARAMETERS:
            values[name] = _parameters(path, value)
        elif name in hints:
            values[name] = _value(f"{path}: {name}", value, hints[name])
        else:
            raise InputError(f"{path}: {unknown('setting', name, [*hints, PARAMETERS])}")
    return values


def _parameters(path: Path, table: object) -> dict[str, str]:
    if not isinstance(table, dict):
        raise InputError(f"{path}: {PARAMETERS} is {table!r}; expected a table [{PARAMETERS}]")
    for name, value in table.items():
        if not isinstance(value, str | bool | int | float):
            raise InputError(f"{path}: {PARAMETERS}.{name} = {value!r}: expected one value")
    return {name: to_text(value) for name, value in table.items()}


def _value(key: str, value: object, hint: Any) -> Any:
    """Read a value of TOML, which says its own type, as one of type `hint`."""
    kind, _ = kind_of(hint)
    if kind == frozenset[str]:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return frozenset(value)
        raise InputError(f'{key} = {value!r}: expected a list of names, such as ["gpu"]')
    if kind is bool and not isinstance(value, bool):
        raise InputError(f"{key} = {value!r}: expected true or false")
    if kind is int and (isinstance(value, bool) or not isinstance(value, int)):
        raise InputError(f"{key} = {value!r}: expected a whole number")
    if kind is float and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InputError(f"{key} = {value!r}: expected a number")
    if kind not in (bool, int, float) and not isinstance(value, str):
        raise InputError(f"{key} = {value!r}: expected text in quotes")
    return from_text(key, to_text(value), hint)


def _example(known: Setting) -> Any:
    if known.name == "partitions":
        return frozenset({"gpu"})
    return from_text(known.name, known.default, known.hint)


def _toml(value: Any) -> str:
    if isinstance(value, bool | int | float):
        return to_text(value)
    # A string of JSON is one of TOML, but for the one control character that JSON lets stand.
    texts = sorted(value) if isinstance(value, frozenset) else to_text(value)
    return json.dumps(texts, ensure_ascii=False).replace("\x7f", "\\u007f")
