"""Installing Slurm and pyslurm into a prefix of the testbed's own.

Packages are unpacked, never installed: the host's package database, its services and a Slurm of its
own are left alone. Only compilers are installed on the host, where they are missing.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.testbed import glibc, packages
from slurm_plugin.testbed.errors import TestbedError, TestbedUnavailableError
from slurm_plugin.testbed.processes import run
from slurm_plugin.testbed.pyslurm_build import build_pyslurm, why_no_pyslurm

RECIPE = 1
"""Part of the prefix's name: raised when a prefix made by older code will not do."""

_COMPLETE = ".complete"
_PROGRAMS = {"slurmctld": "slurmctld-wlm", "slurmd": "slurmd-wlm", "slurmstepd": "slurmstepd-wlm"}

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Installation:
    """Slurm in a prefix.

    Attributes:
        prefix: the root of the unpacked packages.
        version: of Slurm, for example (26, 5, 5).
        pyslurm: a folder for `sys.path`, None where pyslurm cannot be had.
        why_no_pyslurm: the reason, "" where it can.
    """

    prefix: Path
    version: tuple[int, ...]
    pyslurm: Path | None
    why_no_pyslurm: str = ""

    @property
    def libraries(self) -> Path:
        """Where shared libraries were unpacked."""
        return self.prefix / "usr/lib" / _multiarch()

    @property
    def plugins(self) -> Path:
        """Slurm's `PluginDir`."""
        return self.libraries / "slurm-wlm"

    @property
    def headers(self) -> Path:
        """Where `slurm/spank.h` was unpacked."""
        return self.prefix / "usr/include"

    def program(self, name: str) -> Path:
        """Return the path of a program in the prefix.

        Raises:
            TestbedError: there is none of this name.
        """
        for folder in ("usr/sbin", "usr/bin"):
            for candidate in (name, _PROGRAMS.get(name, name)):
                path = self.prefix / folder / candidate
                if path.is_file():
                    return path
        raise TestbedError(f"{self.prefix} has no {name}; remove it to have it made anew")

    def environment(self) -> dict[str, str]:
        """Return the variables under which the prefix's programs are found."""
        path = f"{self.prefix}/usr/bin:{self.prefix}/usr/sbin:{os.environ.get('PATH', '')}"
        return {"PATH": path} | ({"PYTHONPATH": str(self.pyslurm)} if self.pyslurm else {})


def default_cache() -> Path:
    """Return where prefixes are kept: where other users' jobs can read them too."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "/var/cache") / "hetsched" / "slurm"


def why_unavailable() -> str:
    """Return why this machine cannot have a testbed, or ""."""
    if sys.platform != "linux" or not shutil.which("apt-get"):
        return "there is no apt-get here, and the testbed's Slurm is Debian's"
    if os.geteuid() != 0:
        return "it must be root, to make device files and to run jobs of several users"
    return ""


def find_installed(cache: Path) -> Installation | None:
    """Return the newest whole installation in a cache, None if there is none."""
    found = [_read(path.parent) for path in cache.glob(f"*-r{RECIPE}/{_COMPLETE}")]
    return max(found, key=lambda each: each.version, default=None)


def install(cache: Path, progress: Progress = lambda _: None) -> Installation:
    """Return the installation in `cache`, making it if there is none.

    What is there is used without asking the network; remove the folder to have a newer one.

    Raises:
        TestbedUnavailableError: this machine cannot have it; the message says why.
        TestbedError: it should have worked and did not.
    """
    if reason := why_unavailable():
        raise TestbedUnavailableError(f"no testbed on this machine: {reason}")
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "lock"):
        installed = find_installed(cache)
        if installed is None:
            installed = _make(cache, progress)
        if installed.pyslurm is None and not installed.why_no_pyslurm:
            progress(f"building pyslurm for Python {_python()} (about a minute)")
            _need_compiler()
            build_pyslurm(installed.prefix, installed.plugins, installed.version, _python())
            installed = _read(installed.prefix)
        return installed


def _make(cache: Path, progress: Progress) -> Installation:
    debs = cache / "packages"
    debs.mkdir(exist_ok=True)
    progress(f"fetching Slurm's packages from Debian {packages.SLURM_SUITE}")
    _fetch(debs)
    part = cache / "part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    progress(f"unpacking {len(list(debs.glob('*.deb')))} packages")
    for package in sorted(debs.glob("*.deb")):
        packages.unpack(package, part)
    _adapt(Installation(part, (), None))
    version = _slurm_version(Installation(part, (), None))
    (part / _COMPLETE).write_text(".".join(map(str, version)) + "\n")
    prefix = cache / f"{'.'.join(map(str, version))}-r{RECIPE}"
    shutil.rmtree(prefix, ignore_errors=True)
    part.rename(prefix)
    shutil.rmtree(debs)
    return _read(prefix)


def _fetch(debs: Path) -> None:
    """Fetch all packages, or use those that HETSCHED_SLURM_DEBS holds where it is set."""
    if given := os.environ.get("HETSCHED_SLURM_DEBS"):
        for package in Path(given).glob("*.deb"):
            shutil.copy(package, debs)
    else:
        packages.fetch_slurm(debs)
    packages.fetch_companions(debs)


def _adapt(installed: Installation) -> None:
    """Make the unpacked programs find their libraries here, and run on the host's glibc."""
    prefix, plugins = installed.prefix, installed.plugins
    files = [path for path in prefix.rglob("*") if path.is_file() and not path.is_symlink()]
    elves = [path for path in files if glibc.is_elf(path)]
    patchelf = prefix / "usr/bin/patchelf"
    patchers = [path for path in elves if path != patchelf]
    relabelled = sum([glibc.relabel(path, glibc.host_glibc()) for path in patchers])
    for path in patchers:
        up = "../" * (len(path.relative_to(prefix).parts) - 1)
        library = f"$ORIGIN/{up}usr/lib/{_multiarch()}"
        run([patchelf, "--set-rpath", f"{library}/slurm-wlm:{library}", path])
    if relabelled:
        _need_compiler()
        shim = plugins / "libhetsched_shim.so"
        run(["cc", "-O2", "-fPIC", "-shared", "-o", shim, Path(__file__).with_name("shim.c")])
        # A call of its own: patchelf 0.14 writes a wrong search path beside another change.
        run([patchelf, "--add-needed", shim.name, plugins / "libslurmfull.so"])


def _slurm_version(installed: Installation) -> tuple[int, ...]:
    # Every function is looked up at once, so that one which the host lacks shows here.
    said = run([installed.program("slurmctld"), "-V"], env={"LD_BIND_NOW": "1"})
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
    if match is None:
        raise TestbedError(f"slurmctld gives no version: {said!r}")
    return tuple(map(int, match.groups()))


def _read(prefix: Path) -> Installation:
    version = tuple(map(int, (prefix / _COMPLETE).read_text().strip().split(".")))
    reason = why_no_pyslurm(version)
    built = prefix / f"pyslurm-{_python()}"
    return Installation(prefix, version, built if built.is_dir() else None, reason)


def _need_compiler() -> None:
    missing = [] if shutil.which("cc") else ["gcc", "libc6-dev"]
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append("python3-dev")
    if missing:
        packages.install_system_packages(missing)


def _python() -> str:
    return sysconfig.get_python_version()


def _multiarch() -> str:
    return sysconfig.get_config_var("MULTIARCH") or f"{os.uname().machine}-linux-gnu"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
