"""The configuration file: read, refused, written, and the example that is shipped."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from hetsched_core.cli import main
from hetsched_core.errors import InputError
from hetsched_core.kernels import iteration, lookup, payoff
from slurm_plugin.backend import AwayError, BackendError, SlurmBackend, SlurmSite
from slurm_plugin.cli.config import config
from slurm_plugin.daemon import DaemonMode
from slurm_plugin.daemon.process.configuration import (
    BackendName,
    DaemonConfiguration,
    LogForm,
    read_configuration,
    settings,
    to_toml,
)
from slurm_plugin.daemon.settings import JobSelection
from tests.slurm_plugin.backend.fake import FakeBackend

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs/live/configuration.md"
GPU = 'partitions = ["gpu"]\n'

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of some text."""

    def written(text: str) -> Path:
        path = tmp_path / "hetschedd.toml"
        path.write_text(text)
        return path

    return written


def test_what_the_file_does_not_say_has_its_default(write: Write) -> None:
    read = read_configuration(
        write('partitions = ["gpu", "old"]\nround_s = 90\nmode = "enforce"\n')
    )
    assert read.partitions == {"gpu", "old"}
    assert (read.round_s, read.mode) == (90.0, DaemonMode.ENFORCE)
    assert (read.policy, read.cycle_s, read.log) == ("fifo", 1.0, LogForm.LOGFMT)
    assert not read.parameters
    # A pilot names nodes alone.
    read = read_configuration(write('nodes = "n[0-1],n7"\njobs = "marked"\n'))
    assert read.node_names == {"n0", "n1", "n7"}
    assert (read.partitions, read.jobs) == (frozenset(), JobSelection.MARKED)


def test_a_pipe_in_the_place_of_the_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for odd in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match="is no regular file"):
            read_configuration(odd, {}, {})


def test_the_command_line_wins_over_the_file_and_says_it_all_without_one(write: Write) -> None:
    path = write(f'{GPU}cycle_s = 2\npolicy = "hops"\n[parameters]\nwindow = 3\nlam = 0.5\n')
    read = read_configuration(path, {"cycle_s": "0.5", "backend": "commands"}, {"window": "4"})
    assert (read.cycle_s, read.backend) == (0.5, BackendName.COMMANDS)
    assert dict(read.parameters) == {"window": "4", "lam": "0.5"}
    read = read_configuration(None, {"partitions": "gpu, old", "database": "here.duckdb"})
    assert read.partitions == {"gpu", "old"}
    assert read.database == Path("here.duckdb")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'nothing to manage; name partitions, or nodes: partitions = ["gpu"]'),
        ('partitions = "gpu"', """partitions = 'gpu': expected a list of names"""),
        ("partitions = []", "nothing to manage; name partitions, or nodes"),
        ('nodes = "n[0-999999999]"', "nodes = 'n[0-999999999]' is no list of nodes"),
        ('nodes = "n[0-"', "nodes = 'n[0-' is no list of nodes, such as n[0-3],n7"),
        ('nodes = ","', "nothing to manage"),
        ('partitions = ["gpu", ""]', "a partition's name is empty"),
        ('metrics = "9754"', "metrics = '9754': expected HOST:PORT, such as 127.0.0.1:9754"),
        ('metrics = "127.0.0.1:99999"', "expected HOST:PORT"),
        ('database = ""', "database = '.' names no file or folder"),
        ('spool = ""', 'spool = "" is no directory'),
        ('hold_denies = "nosuchuser"', "hold_denies = 'nosuchuser' is no user of this machine"),
        (f'socket = "/{"a" * 107}"', "a socket's path has at most 107 bytes"),
        ("round = 3", "unknown setting 'round': did you mean 'round_s'?"),
        ('round_s = "3"', "round_s = '3': expected a number"),
        ("round_s = true", "round_s = True: expected a number"),
        ("round_s = 0.5", "round_s = 0.5 is not within 1 and 86400"),
        ("round_s = nan", "round_s='nan' is not a number"),
        ("standby = true\ncycle_s = 8", "cycle_s = 8 is too much beside standby"),
        ("slack_s = 30.5", "slack_s = 30.5: expected a whole number"),
        ('mode = "shadwo"', "did you mean 'shadow'? valid: enforce, shadow"),
        ("policy = 3", "policy = 3: expected text in quotes"),
        ("parameters = 3", "parameters is 3; expected a table [parameters]"),
        ("[parameters]\nwindow = [1]", "parameters.window = [1]: expected one value"),
        ("\ufeffpartitions = []", "begins with a byte order mark"),
        ("partitions = [", "is not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_the_value_and_what_would_do(
    write: Write, text: str, words: str
) -> None:
    if text and not text.startswith(("partitions", "nodes", "\ufeff")):
        text = GPU + text
    path = write(text)
    with pytest.raises(InputError) as refused:
        read_configuration(path)
    assert words in str(refused.value)
    assert str(path) in str(refused.value)


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(
    before=st.builds(
        DaemonConfiguration,
        partitions=st.frozensets(NAMES, min_size=1, max_size=3),
        round_s=st.floats(1, 86_400),
        slack_s=st.integers(20, 86_400),
        mode=st.sampled_from(DaemonMode),
        database=NAMES.filter(lambda name: bool(Path(name).name)).map(Path),
        parameters=st.dictionaries(
            st.from_regex(r"[a-z_]{1,8}", fullmatch=True), NAMES, max_size=3
        ).map(Map),
    )
)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, before: DaemonConfiguration
) -> None:
    path = tmp_path_factory.mktemp("config") / "hetschedd.toml"
    path.write_text(to_toml(before))
    assert read_configuration(path) == before


def test_the_shipped_example_is_what_the_settings_are() -> None:
    shipped = ROOT / "slurm_plugin/packaging/hetschedd.toml"
    assert shipped.read_text() == to_toml(None)
    assert read_configuration(shipped) == DaemonConfiguration(partitions=frozenset({"gpu"}))


def test_the_page_lists_every_setting_as_declared() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [
        (
            known.name,
            f"`{known.default}`" if known.default else "empty",
            known.bounds or " or ".join(known.choices),
            known.doc,
        )
        for known in settings()
    ]


def test_config_show_prints_a_file_with_what_differs_uncommented(write: Write) -> None:
    path = write(f"{GPU}grace_s = 5\n[parameters]\nwindow = 2\n")
    shown = CliRunner().invoke(config, ["show", str(path)]).output
    said = [line for line in shown.splitlines() if line and not line.startswith("#")]
    assert said == ['partitions = ["gpu"]', "grace_s = 5.0", "[parameters]", 'window = "2"']


def no_slurm(_: str) -> SlurmBackend:
    raise BackendError("there is no command scontrol in PATH")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('policy = "tiresia"', "did you mean 'tiresias'"),
        ('policy = "hare"', "for replays only"),
        ('database = "/nowhere/d.duckdb"', "there is no folder /nowhere; make it"),
        ('socket = "/nowhere/asked"', "socket = '/nowhere/asked': there is no folder"),
        ('spool = "/nowhere/at/all"', "No such file or directory; make it"),
        (
            'policy = "las"\n[parameters]\nwidth = 1',
            "policy 'las' has no parameters; leave 'width' out",
        ),
    ],
)
def test_config_check_looks_at_the_policy_and_folders_too(
    write: Write, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.setattr("slurm_plugin.backend.open_backend", no_slurm)
    result = CliRunner().invoke(config, ["check", str(write(GPU + text))])
    assert result.exit_code != 0
    assert words in str(result.exception)
    good = write(GPU + 'policy = "las"\n')
    said = CliRunner().invoke(config, ["check", str(good)]).output
    assert "policy las, shadow mode, partitions gpu" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give folders away")
def test_config_check_by_root_takes_the_folders_of_the_daemon_s_user_and_no_other_s(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("slurm_plugin.backend.open_backend", no_slurm)
    state, spool = tmp_path / "state", tmp_path / "spool"
    for folder in (state, spool):
        folder.mkdir()
        os.chown(folder, 65_532, -1)
    file = write(f'{GPU}policy = "las"\ndatabase = "{state}/d.duckdb"\nspool = "{spool}"\n')
    assert main(["config", "check", str(file)]) == 0
    os.chown(spool, 65_533, -1)
    assert main(["config", "check", str(file)]) == 1


def test_the_check_leaves_no_kernel_of_policy_or_estimates_to_be_compiled_by_the_daemon(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_plugin.backend.open_backend", no_slurm)
    kernels = (payoff.serve, lookup.fill_from_above, iteration.samples_per_s_per_gpu)
    for each in kernels:
        monkeypatch.setattr(each, "_compiled", None)
    result = CliRunner().invoke(config, ["check", str(write(f'{GPU}policy = "hadar"\n'))])
    assert (result.exit_code, [each._compiled for each in kernels].count(None)) == (0, 0)


def test_config_check_refuses_a_partition_that_slurm_does_not_have_as_the_daemon_does(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(write('partitions = ["gpu", "nope"]\nbackend = "commands"\n'))
    opened = []

    class Slurm(FakeBackend):
        answers = True

        def site(self) -> SlurmSite:
            if not self.answers:
                raise AwayError("nobody answers")
            return SlurmSite(30.0, {"gpu": None, "old": None})

    slurm = Slurm()

    def found(name: str) -> SlurmBackend:
        opened.append(name)
        return slurm

    monkeypatch.setattr("slurm_plugin.backend.open_backend", found)
    result = CliRunner().invoke(config, ["check", path])
    assert str(result.exception) == "Slurm has no partition nope; it has gpu, old"
    assert opened == ["commands"]
    # The line that the command `hetsched` makes of it, and its exit code.
    assert main(["config", "check", path]) == 1
    slurm.answers = False
    assert main(["config", "check", path]) == 0
    monkeypatch.setattr("slurm_plugin.backend.open_backend", no_slurm)
    assert main(["config", "check", path]) == 0
