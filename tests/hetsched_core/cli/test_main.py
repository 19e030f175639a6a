"""The command line as a process: discovery of commands, errors, exit codes, speed."""

import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import hetsched_core
from hetsched_core.cli.table import print_table

SCRIPT = Path(sysconfig.get_path("scripts")) / "hetsched"

COMMANDS = """
import sys
import time

import click

from hetsched_core.errors import InputError

FAILURES = {
    "refuse": InputError("GPU type 'h200' is not known:\\n  valid: a100, v100"),
    "truncated": EOFError("end-of-stream marker not reached"),
    "crash": ZeroDivisionError(),
}


@click.command()
@click.argument("what", type=click.Choice(list(FAILURES)))
def fail(what: str) -> None:
    \"\"\"Fail in one of several ways.\"\"\"
    raise FAILURES[what]


@click.command()
@click.argument("path")
def read(path: str) -> None:
    open(path).close()


@click.command()
@click.option("--code", type=int)
@click.pass_context
def leave(ctx: click.Context, code: int) -> None:
    ctx.exit(code)


@click.command()
def sleep() -> None:
    click.echo("asleep")
    time.sleep(60)


@click.command()
@click.argument("lines", type=int)
def write(lines: int) -> None:
    for line in range(lines):
        sys.stdout.write(f"line {line}\\n")


not_a_command = 42
"""

ENTRY_POINTS = """
[hetsched.commands]
fail = third_party:fail
read = third_party:read
leave = third_party:leave
sleep = third_party:sleep
write = third_party:write
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


def run(
    *args: str, env: dict[str, str] | None = None, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *args],
        env=env,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=interruptible,
    )


def interruptible() -> None:
    """Take interrupts; what runs in the background of a shell ignores them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_version_is_the_installed_one() -> None:
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
    assert "fail Fail in one of several ways." in text


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("fail refuse", "GPU type 'h200' is not known: valid: a100, v100"),
        ("fail truncated", "input ended too early: end-of-stream"),
        ("read no/such/file", "no/such/file: No such file or directory"),
        (
            "raises --some-option file",
            (
                "command 'raises' of package third-party cannot be loaded (RuntimeError: no "
                "licence); reinstall or remove the package, or see the whole traceback with: "
                f"{sys.executable} -c 'import third_party_raising'"
            ),
        ),
    ],
)
def test_an_error_is_one_line_and_exit_1(third_party: dict[str, str], args: str, says: str) -> None:
    result = run(*args.split(), env=third_party)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith(f"hetsched: error: {says}")


def test_a_bug_keeps_its_traceback(third_party: dict[str, str]) -> None:
    result = run("fail", "crash", env=third_party)
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "ZeroDivisionError" in result.stderr


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ("leave --code 0", 0, ""),
        ("leave --code 3", 3, ""),
        ("leave --no-such-option", 2, "Error: "),
        ("repaly", 2, "No such command 'repaly'. (Did you mean one of: 'read', 'replay'?)"),
    ],
)
def test_a_command_chooses_its_exit_code_and_a_wrong_command_line_exits_with_2(
    third_party: dict[str, str], args: str, code: int, says: str
) -> None:
    result = run(*args.split(), env=third_party)
    assert result.returncode == code
    assert says in result.stderr
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
        result = run("write", str(lines), env=third_party, stdout=write_end)
    finally:
        os.close(write_end)
    assert (result.returncode, result.stderr) == (141, "")


def test_a_full_disk_behind_standard_output_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = run("policies", stdout=full.fileno())
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["hetsched: error: standard output: No space left on device"]


def test_names_that_others_chose_cannot_steer_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(["job", "name"], [("1", "a\x1b]0;title\x07\nb")])
    assert capsys.readouterr().out == "JOB  NAME\n1    a?]0;title??b\n"
