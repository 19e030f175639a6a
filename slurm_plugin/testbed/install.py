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

from hetsched_core.errors import unknown
from slurm_plugin.testbed import glibc, packages
from slurm_plugin.testbed.errors import TestbedError, TestbedUnavailableError
from slurm_plugin.testbed.processes import run
from slurm_plugin.testbed.pyslurm_build import build_pyslurm, why_no_pyslurm

RECIPE = 2
"""Part of the prefix's name: raised when a prefix made by older code will not do."""

_COMPLETE = ".complete"
_DEBIAN_NAME = "-wlm"
"""What Debian appends to the names of Slurm's daemons."""

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
    def release(self) -> str:
        """Which of the releases of `packages.SUITES` it is."""
        return packages.choice_of(self.version)

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
            path = self.prefix / folder / name
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


def find_installed(cache: Path, release: str = packages.NEWEST) -> Installation | None:
    """Return the newest whole installation of a release in a cache, None if there is none."""
    found = [read_installed(path.parent) for path in cache.glob(f"*-r{RECIPE}/{_COMPLETE}")]
    fitting = [each for each in found if each.release == release]
    return max(fitting, key=lambda each: each.version, default=None)


def read_installed(prefix: Path) -> Installation:
    """Return the installation of which the prefix is known.

    Raises:
        TestbedError: there is none.
    """
    try:
        version = tuple(map(int, (prefix / _COMPLETE).read_text().strip().split(".")))
    except OSError:
        raise TestbedError(f"there is no Slurm in {prefix}, or only a part of one") from None
    reason = why_no_pyslurm(version)
    built = prefix / f"pyslurm-{_python()}"
    return Installation(prefix, version, built if built.is_dir() else None, reason)


def install(
    cache: Path, progress: Progress = lambda _: None, release: str = packages.NEWEST
) -> Installation:
    """Return the installation of a release in `cache`, making it if there is none.

    What is there is used without asking the network; remove the folder to have a newer one.
    Releases lie side by side.

    Raises:
        UnknownNameError: `release` is none of `packages.SUITES`.
        TestbedUnavailableError: this machine cannot have it; the message says why.
        TestbedError: it should have worked and did not.
    """
    if release not in packages.SUITES:
        raise unknown("release of Slurm", release, packages.SUITES)
    if reason := why_unavailable():
        raise TestbedUnavailableError(f"no testbed on this machine: {reason}")
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "lock"):
        installed = find_installed(cache, release)
        if installed is None:
            installed = _make(cache, progress, release)
        if installed.pyslurm is None and not installed.why_no_pyslurm:
            progress(f"building pyslurm for Python {_python()} (about a minute)")
            _need_compiler()
            build_pyslurm(installed.prefix, installed.plugins, installed.version, _python())
            installed = read_installed(installed.prefix)
        return installed


def _make(cache: Path, progress: Progress, release: str) -> Installation:
    debs = cache / "packages"
    # Another release's, of which the making has failed, must not be unpacked with this one's.
    shutil.rmtree(debs, ignore_errors=True)
    debs.mkdir()
    progress(f"fetching Slurm's packages from Debian {packages.SUITES[release]}")
    _fetch(debs, release)
    part = cache / "part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    progress(f"unpacking {len(list(debs.glob('*.deb')))} packages")
    for package in sorted(debs.glob("*.deb")):
        packages.unpack(package, part)
    # Some packages of Debian 12 say /lib, which is /usr/lib there.
    if (folder := part / "lib").is_dir():
        shutil.copytree(folder, part / "usr/lib", symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(folder)
    _adapt(Installation(part, (), None))
    version = _slurm_version(Installation(part, (), None))
    shown = ".".join(map(str, version))
    if packages.choice_of(version) != release:
        raise TestbedUnavailableError(
            f"Debian {packages.SUITES[release]} has Slurm {shown}, and {release} was asked for"
        )
    (part / _COMPLETE).write_text(f"{shown}\n")
    prefix = cache / f"{shown}-r{RECIPE}"
    shutil.rmtree(prefix, ignore_errors=True)
    part.rename(prefix)
    shutil.rmtree(debs)
    return read_installed(prefix)


def _fetch(debs: Path, release: str) -> None:
    """Fetch all packages, or use those of the release that HETSCHED_SLURM_DEBS holds."""
    given = os.environ.get("HETSCHED_SLURM_DEBS")
    own = packages.packages_of(release, Path(given)) if given else []
    for package in own:
        shutil.copy(package, debs)
    if not own:
        packages.fetch_slurm(debs, packages.SUITES[release])
    packages.fetch_companions(debs)


def _adapt(installed: Installation) -> None:
    """Make the unpacked programs find their libraries here, and run on the host's glibc."""
    prefix, plugins = installed.prefix, installed.plugins
    for path in prefix.glob(f"usr/*bin/*{_DEBIAN_NAME}"):
        # By its name slurmctld knows what it is: 24.11 ends under that of Debian.
        path.with_name(path.name.removesuffix(_DEBIAN_NAME)).symlink_to(path.name)
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
