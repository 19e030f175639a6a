"""The command line as a process: discovery of commands, errors, exit codes, speed."""

import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

SCRIPT = Path(sysconfig.get_path("scripts")) / "hetsched"

COMMANDS = """
import sys
import time

import click

from hetsched_core.errors import InputError


@click.command()
def refuse() -> None:
    \"\"\"Refuse with an error of two lines.\"\"\"
    raise InputError("GPU type 'h200' is not known:\\n  valid: a100, v100")


@click.command()
@click.argument("path")
def read(path: str) -> None:
    \"\"\"Read a file.\"\"\"
    open(path).close()


@click.command()
def truncated() -> None:
    \"\"\"Read past the end of a compressed file.\"\"\"
    raise EOFError("end-of-stream marker not reached")


@click.command()
@click.option("--code", type=int)
@click.pass_context
def leave(ctx: click.Context, code: int) -> None:
    \"\"\"Leave with an exit code.\"\"\"
    ctx.exit(code)


@click.command()
def sleep() -> None:
    \"\"\"Sleep until interrupted.\"\"\"
    click.echo("asleep")
    time.sleep(60)


@click.command()
@click.argument("lines", type=int)
def write(lines: int) -> None:
    \"\"\"Write many lines.\"\"\"
    for line in range(lines):
        sys.stdout.write(f"line {line}\\n")


@click.command()
def crash() -> None:
    \"\"\"Crash.\"\"\"
    raise ZeroDivisionError


not_a_command = 42
"""

ENTRY_POINTS = """
[hetsched.commands]
refuse = third_party:refuse
read = third_party:read
truncated = third_party:truncated
leave = third_party:leave
sleep = third_party:sleep
write = third_party:write
crash = third_party:crash
no-module = third_party_missing:command
no-name = third_party:missing
no-command = third_party:not_a_command
raises = third_party_raising:command
"""


@pytest.fixture(scope="module")
def third_party(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which a package with good and broken commands is installed."""
    site = tmp_path_factory.mktemp("site")
    (site / "third_party.py").write_text(COMMANDS)
    (site / "third_party_raising.py").write_text("raise RuntimeError('no\\nlicence')")
    info = site / "third_party-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    }
    env.pop("PYTHONUNBUFFERED", None)  # would hide what happens at the last flush
    return env


def run(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *args],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=interruptible,
    )


def interruptible() -> None:
    """Take interrupts; what runs in the background of a shell ignores them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_version_is_the_installed_one() -> None:
    import hetsched_core

    result = run("--version")
    assert (result.returncode, result.stdout) == (0, f"hetsched {hetsched_core.__version__}\n")


def test_help_lists_every_command_of_the_project_with_a_line_of_help() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert "unavailable" not in result.stdout
    listed = [line.split() for line in result.stdout.partition("Commands:\n")[2].splitlines()]
    assert {"cluster", "policies", "replay", "workload"} <= {words[0] for words in listed}
    assert all(len(words) > 1 for words in listed)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, hetsched_core.cli; hetsched_core.cli.main(['--help']);"
        "print(*sys.modules, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    heavy = {"ClusterShell", "cattrs", "duckdb", "highspy", "numba", "numpy", "rich", "scipy"}
    assert heavy.isdisjoint(result.stderr.split())


def test_help_answers_within_half_a_second() -> None:
    def seconds() -> float:
        start = time.perf_counter()
        run("--help")
        return time.perf_counter() - start

    # The best of several: a busy machine says nothing about the program.
    assert min(seconds() for _ in range(4)) < 0.5


def test_a_broken_command_is_shown_as_unavailable_and_leaves_the_others_alone(
    third_party: dict[str, str],
) -> None:
    result = run("--help", env=third_party)
    assert result.returncode == 0
    text = " ".join(result.stdout.split())
    assert "no-module (unavailable: ModuleNotFoundError: No module named" in text
    assert "no-name (unavailable: AttributeError:" in text
    assert "no-command (unavailable: third_party:not_a_command is a int, not a click" in text
    assert "raises (unavailable: RuntimeError: no licence)" in text
    assert "refuse Refuse with an error of two lines." in text


def test_running_a_broken_command_names_its_package_and_the_next_step(
    third_party: dict[str, str],
) -> None:
    result = run("raises", "--some-option", "file", env=third_party)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith(
        "hetsched: error: command 'raises' of package third-party cannot be loaded "
        "(RuntimeError: no licence); reinstall or remove the package"
    )
    assert "import third_party_raising" in result.stderr


def test_an_error_of_hetsched_is_one_line_and_exit_1(third_party: dict[str, str]) -> None:
    result = run("refuse", env=third_party)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == ("hetsched: error: GPU type 'h200' is not known: valid: a100, v100\n")


def test_a_file_that_cannot_be_opened_is_one_line_and_exit_1(third_party: dict[str, str]) -> None:
    result = run("read", "no/such/file", env=third_party)
    assert (result.returncode, result.stderr) == (
        1,
        "hetsched: error: no/such/file: No such file or directory\n",
    )


def test_an_input_that_ends_too_early_is_no_interrupt(third_party: dict[str, str]) -> None:
    result = run("truncated", env=third_party)
    assert result.returncode == 1
    assert "hetsched: error: input ended too early: end-of-stream" in result.stderr


def test_a_bug_keeps_its_traceback(third_party: dict[str, str]) -> None:
    result = run("crash", env=third_party)
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "ZeroDivisionError" in result.stderr


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_chooses_its_exit_code(third_party: dict[str, str], code: int) -> None:
    assert run("leave", "--code", str(code), env=third_party).returncode == code


def test_an_unknown_command_is_a_usage_error_with_a_suggestion() -> None:
    result = run("repaly")
    assert result.returncode == 2
    assert "No such command 'repaly'" in result.stderr
    assert "Did you mean 'replay'?" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(["--no-such-option"], id="unknown option of the group"),
        pytest.param(["leave", "--no-such-option"], id="unknown option of a command"),
        pytest.param(["leave", "--code", "three"], id="value of the wrong type"),
        pytest.param(["read"], id="missing argument"),
    ],
)
def test_a_wrong_command_line_exits_with_2(third_party: dict[str, str], args: list[str]) -> None:
    result = run(*args, env=third_party)
    assert result.returncode == 2
    assert "Error: " in result.stderr
    assert "Traceback" not in result.stderr


def test_an_interrupt_exits_with_130_and_no_traceback(third_party: dict[str, str]) -> None:
    with subprocess.Popen(
        [SCRIPT, "sleep"],
        env=third_party,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asleep\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert stderr.split("\n") == ["", "hetsched: interrupted", ""]  # the first ends the line of ^C


def test_an_interrupt_while_importing_exits_with_130_and_no_traceback(tmp_path: Path) -> None:
    # Stands for click, and for whatever takes long to import.
    (tmp_path / "click.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise SystemExit(7)\n"
    )
    result = run("--help", env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert (result.returncode, result.stdout) == (130, "")
    assert result.stderr == "hetsched: interrupted\n"


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(100_000, id="more than a pipe holds"),
        pytest.param(10, id="what is written only at the last flush"),
    ],
)
def test_a_reader_that_goes_away_ends_the_command_quietly(
    third_party: dict[str, str], lines: int
) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        result = subprocess.run(
            [SCRIPT, "write", str(lines)],
            env=third_party,
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        os.close(write_end)
    assert (result.returncode, result.stderr) == (141, "")
