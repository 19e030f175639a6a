"""A running testbed: munged, MariaDB, slurmdbd, slurmctld and one slurmd for each node."""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import cattrs

from hetsched_core.errors import InputError
from slurm_plugin.testbed.errors import TestbedError
from slurm_plugin.testbed.fake_site import DEVICES_PER_NODE, FakeNode, FakeSite, usual_site
from slurm_plugin.testbed.install import Installation, read_installed
from slurm_plugin.testbed.layout import Layout
from slurm_plugin.testbed.processes import run, wait_until
from slurm_plugin.testbed.spank import build_spank, why_no_spank

_RECORD = "testbed.json"
_NVIDIA_MAJOR = 195
_LONGEST_BASE = 60
"""A socket's path may have 108 bytes."""

_IDLE = frozenset({"idle", "reserved"})

_START_S = 120.0
_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class Status:
    """How a testbed stands: which daemons run, and the state of each node ("" if unknown)."""

    daemons: tuple[tuple[str, bool], ...]
    nodes: tuple[tuple[FakeNode, str], ...]

    @property
    def up(self) -> bool:
        """Whether everything runs."""
        return all(runs for _, runs in self.daemons)


@dataclass(frozen=True, slots=True)
class _Record:
    """What a testbed's directory says of it, for those who find it later."""

    prefix: str
    port: int
    host: str
    site: FakeSite


def default_directory() -> Path:
    """Return where a testbed lives that nobody gave a directory."""
    return Path(os.environ.get("XDG_STATE_HOME") or "/var/lib") / "hetsched" / "testbed"


@dataclass(frozen=True, slots=True)
class Testbed:
    """A cluster in a directory, whether it runs or not."""

    __test__ = False  # no test class, whatever its name begins with

    installed: Installation
    layout: Layout

    @classmethod
    def create(
        cls,
        installed: Installation,
        base: Path,
        site: FakeSite | tuple[FakeNode, ...],
        port: int = 0,
    ) -> Testbed:
        """Lay out a new cluster.

        Args:
            installed: the Slurm that it runs.
            base: the directory of its files.
            site: what it is made of; nodes alone make a `usual_site`.
            port: the first of its ports; 0 means any that are free.

        Raises:
            InputError: the directory's path is too long, or holds a testbed or other files.
        """
        base = base.resolve()
        if len(str(base)) > _LONGEST_BASE:
            raise InputError(
                f"the directory {base} has a path of {len(str(base))} characters; sockets need "
                f"one of at most {_LONGEST_BASE}"
            )
        if base.exists() and (not base.is_dir() or any(base.iterdir())):
            raise InputError(
                f"{base} is not empty; take the testbed there down first "
                f"(hetsched testbed down --directory {base}), or give another directory"
            )
        host = socket.gethostname()
        whole = site if isinstance(site, FakeSite) else usual_site(site)
        draft = Layout(base, installed.plugins, port, host, whole)
        return cls(installed, replace(draft, port=port or _free_ports(draft.ports)))

    @classmethod
    def find(cls, base: Path) -> Testbed:
        """Return the testbed that was brought up in a directory.

        Raises:
            TestbedError: there is none, another version made it, or its Slurm has gone.
        """
        base = base.resolve()
        try:
            found = json.loads((base / _RECORD).read_text())
        except (OSError, ValueError):
            raise TestbedError(
                f"there is no testbed in {base}; bring one up with: hetsched testbed up"
            ) from None
        try:
            record = cattrs.structure(found, _Record)
        except cattrs.BaseValidationError:
            raise TestbedError(
                f"the testbed in {base} was made by another version of hetsched; take it down "
                "with that one"
            ) from None
        installed = read_installed(Path(record.prefix))
        return cls(
            installed, Layout(base, installed.plugins, record.port, record.host, record.site)
        )

    @property
    def why_no_options(self) -> str:
        """Why sbatch lacks the options of hetsched, so that only `#HETSCHED` lines do; or ""."""
        return why_no_spank(self.installed)

    def environment(self) -> dict[str, str]:
        """Return the variables that make Slurm's commands and pyslurm speak to this cluster."""
        return self.installed.environment() | {"SLURM_CONF": str(self.layout.slurm_conf)}

    def up(self) -> None:
        """Start everything and wait until all nodes are idle.

        Raises:
            TestbedError: something did not start; the message names its log.
        """
        self._write_files()
        if not self.why_no_options:
            build_spank(self.installed, self.layout.spank)
        self.start_munge()
        self._start_database()
        self.start_database_daemon()
        self.start_controller()
        self.start_nodes()
        self.await_idle()

    def down(self) -> None:
        """Stop everything and remove the directory; whatever does not run is passed over."""
        self._stop("slurmctld", *self._slurmds)
        for process in self._job_processes():
            _kill(process, signal.SIGKILL)
        self._stop("slurmdbd")
        # What it has not written yet is about to be removed.
        self._kill_now("mariadbd")
        self._stop("munged")
        shutil.rmtree(self.layout.base, ignore_errors=True)

    def status(self) -> Status:
        """Return what runs."""
        names = ["munged", "mariadbd", "slurmdbd", "slurmctld"]
        daemons = [(name, self._runs(name)) for name in names]
        seen: dict[str, str] = {}
        if all(runs for _, runs in daemons):
            listing = self.command("sinfo", "--noheader", "--Node", "--format=%N %T")
            seen = dict(line.split(maxsplit=1) for line in listing.splitlines())
        nodes = tuple((node, seen.get(node.name, "")) for node in self.layout.nodes)
        daemons += [
            (f"slurmd {node.name}", self._runs(f"slurmd-{node.name}")) for node in self.layout.nodes
        ]
        return Status(tuple(daemons), nodes)

    def command(self, name: str, *arguments: str | Path, timeout_s: float = 30.0) -> str:
        """Run one of Slurm's commands against this cluster and return what it printed.

        Raises:
            TestbedError: it failed.
        """
        program = self.installed.program(name)
        return run([program, *arguments], env=self.environment(), timeout_s=timeout_s)

    # -- single daemons, which tests take away and give back ---------------------------------------

    def start_munge(self) -> None:
        """Start the authentication daemon."""
        layout = self.layout
        run(
            [
                self.installed.program("munged"),
                "--force",
                f"--socket={layout.runtime}/munge.sock",
                f"--key-file={layout.configuration}/munge.key",
                f"--pid-file={layout.runtime}/munged.pid",
                f"--log-file={layout.logs}/munged.log",
                f"--seed-file={layout.runtime}/munged.seed",
            ]
        )

    def stop_munge(self) -> None:
        """Stop the authentication daemon."""
        self._stop("munged")

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        layout = self.layout
        run([self.installed.program("slurmctld"), "-f", layout.slurm_conf], env=self.environment())
        wait_until(
            lambda: self._succeeds("scontrol", "ping"),
            f"an answer of slurmctld (see {layout.logs}/slurmctld.log)",
            _START_S,
        )

    def stop_controller(self) -> None:
        """Stop slurmctld as an orderly shutdown does."""
        self._stop("slurmctld")

    def kill_controller(self) -> None:
        """End slurmctld as nobody can prepare for, and wait until it is gone."""
        self._kill_now("slurmctld")

    def stop_database_daemon(self) -> None:
        """Stop slurmdbd as an orderly shutdown does."""
        self._stop("slurmdbd")

    def start_database_daemon(self) -> None:
        """Start slurmdbd, which carries an older release's database forward, and wait for it."""
        run([self.installed.program("slurmdbd")], env=self.environment())
        wait_until(
            lambda: _listens(self.layout.database_daemon_port),
            f"an answer of slurmdbd (see {self.layout.logs}/slurmdbd.log)",
            _START_S,
        )

    def stop_nodes(self) -> None:
        """Stop every slurmd as an orderly shutdown does; jobs run on."""
        self._stop(*self._slurmds)

    def start_nodes(self) -> None:
        """Start a slurmd for each node; slurmctld hears of them a little later."""
        slurmd, slurmstepd = map(self.installed.program, ("slurmd", "slurmstepd"))
        for node in self.layout.nodes:
            words: list[str | Path] = [slurmd, "-f", self.layout.slurm_conf, "-d", slurmstepd]
            run([*words, "-N", node.name], env=self.environment())

    @property
    def _slurmds(self) -> tuple[str, ...]:
        return tuple(f"slurmd-{node.name}" for node in self.layout.nodes)

    def freeze_node(self, name: str) -> None:
        """Let a node's slurmd answer nobody, while its jobs run on."""
        self._send(f"slurmd-{name}", signal.SIGSTOP)

    def thaw_node(self, name: str) -> None:
        """Let it answer again."""
        self._send(f"slurmd-{name}", signal.SIGCONT)

    def register_nodes(self) -> None:
        """Let all nodes tell the controller what runs on them, as they do every few minutes.

        It then learns of the end of jobs that it has forgotten: not before 15 s after its own start
        (`BatchStartTimeout`, `MessageTimeout`).
        """
        for name in self._slurmds:
            self._send(name, signal.SIGHUP)

    def _send(self, name: str, number: signal.Signals) -> None:
        process = self._process(name)
        if process is None:
            raise TestbedError(f"there is no {name} in {self.layout.base}")
        os.kill(process, number)

    # -- the rest ----------------------------------------------------------------------------------

    def _write_files(self) -> None:
        layout = self.layout
        for folder in ("etc", "log", "run", "state", "spool", "dev", "mysql"):
            (layout.base / folder).mkdir(parents=True, exist_ok=True)
        layout.base.chmod(0o755)
        for number in range(DEVICES_PER_NODE):
            device = layout.devices / f"nvidia{number}"
            if not device.exists():
                os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(_NVIDIA_MAJOR, number))
        key = layout.configuration / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        for name, text in layout.files().items():
            path = layout.configuration / name
            path.write_text(text)
            path.chmod(0o600 if name == "slurmdbd.conf" else 0o644)
        record = _Record(str(self.installed.prefix), layout.port, layout.host, layout.site)
        (layout.base / _RECORD).write_text(json.dumps(asdict(record), indent=2) + "\n")

    def _start_database(self) -> None:
        layout, installed = self.layout, self.installed
        socket_path = layout.runtime / "mysql.sock"
        common = [
            "--no-defaults",
            "--user=root",
            f"--datadir={layout.base}/mysql",
            # Names of its temporary files are its own only where it is alone.
            f"--tmpdir={layout.runtime}",
            f"--basedir={installed.prefix}/usr",
            f"--lc-messages-dir={installed.prefix}/usr/share/mysql",
        ]
        make = installed.program("mariadb-install-db")
        # Nothing is looked up by name: a bare machine may not even know its own.
        options = ("--auth-root-authentication-method=normal", "--skip-test-db", "--force")
        run([make, *common, *options])
        with (layout.logs / "mariadb.log").open("ab") as log:
            # In a session of its own: an interrupt from the terminal is not meant for it.
            subprocess.run(
                [
                    "setsid",
                    "--fork",
                    installed.program("mariadbd"),
                    *common,
                    f"--plugin-dir={installed.libraries}/mariadb19/plugin",
                    f"--socket={socket_path}",
                    f"--port={layout.database_port}",
                    "--bind-address=127.0.0.1",
                    f"--pid-file={layout.runtime}/mariadbd.pid",
                    "--innodb-buffer-pool-size=64M",
                    "--innodb-log-file-size=64M",
                    "--innodb-lock-wait-timeout=900",
                    "--innodb-flush-log-at-trx-commit=0",
                    "--skip-name-resolve",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )
        grant = (
            "create user if not exists slurm@'127.0.0.1' identified by 'slurm'; "
            "grant all on *.* to slurm@'127.0.0.1'; "
            # slurmdbd would make it, and then fail: MariaDB's client library 3.4.10 can be asked
            # nothing by a handle whose first connection was refused.
            "create database if not exists slurm_acct_db"
        )
        client = [str(installed.program("mariadb")), "--no-defaults", "-uroot", "-e", grant]
        wait_until(
            lambda: not _fails(lambda: run([*client, f"--socket={socket_path}"])),
            f"an answer of MariaDB (see {layout.logs}/mariadb.log)",
            _START_S,
        )

    def await_idle(self) -> None:
        """Wait until all nodes are idle and answer, held by a reservation or not.

        Raises:
            TestbedError: they are not in time; the message tells each that is not, and why.
        """
        what = f"all {len(self.layout.nodes)} nodes idle (see {self.layout.logs})"
        try:
            wait_until(
                lambda: all(state in _IDLE for _, state in self.status().nodes),
                what,
                _START_S,
                every_s=0.2,
            )
        except TestbedError as error:
            listing = self.command("sinfo", "--noheader", "--Node", "--format=%N %T (%E)")
            others = (line for line in listing.splitlines() if line.split()[1] not in _IDLE)
            raise TestbedError(f"{error}: {', '.join(dict.fromkeys(others))}") from None

    def _succeeds(self, name: str, *arguments: str) -> bool:
        return not _fails(lambda: self.command(name, *arguments))

    def _runs(self, name: str) -> bool:
        return self._process(name) is not None

    def _process(self, name: str) -> int | None:
        """Return the process of a daemon, if it is alive and one of this testbed's."""
        try:
            process = int(Path(f"{self.layout.runtime}/{name}.pid").read_text())
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, ValueError):
            return None
        ours = str(self.layout.base).encode() in command
        ours = ours or str(self.installed.prefix).encode() in command
        return process if ours and state != "Z" else None

    def _stop(self, *names: str) -> None:
        """Stop daemons, all at once, and kill those that take too long."""
        for name in names:
            self._signal(name, signal.SIGTERM)
        for name in names:
            try:
                self._await_end(name, _STOP_S)
            except TestbedError:
                self._kill_now(name)

    def _kill_now(self, name: str) -> None:
        """End a daemon as nobody can prepare for, and wait until it is gone."""
        self._signal(name, signal.SIGKILL)
        self._await_end(name, _STOP_S)

    def _await_end(self, name: str, timeout_s: float) -> None:
        wait_until(lambda: not self._runs(name), f"the end of {name}", timeout_s)

    def _signal(self, name: str, number: signal.Signals) -> None:
        process = self._process(name)
        if process is not None:
            _kill(process, number)

    def _job_processes(self) -> Iterator[int]:
        """Yield what jobs have left behind: processes told of this cluster, and their keepers."""
        mine = f"SLURM_CONF={self.layout.slurm_conf}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
                program, place = (folder / "exe").readlink(), (folder / "cwd").readlink()
            except OSError:
                continue
            in_a_job = any(each.startswith(b"SLURMD_NODENAME=") for each in variables)
            # slurmstepd overwrites its environment with its title.
            keeper = program.name.startswith("slurmstepd") and place == self.layout.logs
            if keeper or (in_a_job and mine in variables):
                yield int(folder.name)


def _kill(process: int, number: signal.Signals) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return
    try:
        os.waitpid(process, os.WNOHANG)
    except ChildProcessError:
        return


def _fails(act: Callable[[], object]) -> bool:
    try:
        act()
    except TestbedError:
        return True
    return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports below those that Linux hands out."""
    firsts = list(range(16_817, 32_000, count))
    # Two clusters that are brought up at the same time should not meet.
    random.SystemRandom().shuffle(firsts)
    for first in firsts:
        if all(_free(port) for port in range(first, first + count)):
            return first
    raise TestbedError(f"there are no {count} consecutive free ports between 16817 and 32000")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
