"""Fetching Debian packages into a folder, without installing any of them.

Slurm comes from the suite that has the wanted release, the libraries that the host lacks from the
host's own; both from the mirror that the machine's apt is set up with.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from slurm_plugin.testbed.errors import TestbedError, TestbedUnavailableError
from slurm_plugin.testbed.processes import run

NEWEST = "newest"

SUITES = {NEWEST: "testing", "24.11": "trixie"}
"""Releases of Slurm that a testbed can have -> the Debian suite that has them.

The newest is whatever `testing` has today; a stable suite keeps its release.
"""

SLURM = (
    "slurmctld",
    "slurmd",
    "slurm-client",
    "slurmdbd",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-mysql-plugin",
    "libslurm-dev",
)

COMPANIONS = (
    "munge",
    "mariadb-server-core",
    "mariadb-client-core",
    "patchelf",
    "libdbus-1-3",
    "libhttp-parser2.9",
    "libhwloc15",
    "libjson-c5",
    "liblua5.1-0",
    "liblz4-1",
    "libmariadb3",
    "libmunge2",
    "libnuma1",
    "libpam0g",
    "libreadline8",
    "libyaml-0-2",
)
"""What Slurm runs with, and the libraries of it that a small Debian may lack."""

_FETCH_S = 600.0


def choice_of(version: tuple[int, ...]) -> str:
    """Return which of `SUITES` a version such as (24, 11, 5) belongs to."""
    named = f"{version[0]}.{version[1]:02d}"
    return named if named in SUITES else NEWEST


def packages_of(release: str, folder: Path) -> list[Path]:
    """Return the packages of a release, by names such as slurmctld_24.11.5-4_amd64.deb."""
    named = [(path, re.search(r"_(\d+)\.(\d+)", path.name)) for path in folder.glob("*.deb")]
    return [
        path
        for path, match in named
        if match and choice_of((int(match[1]), int(match[2]))) == release
    ]


def fetch_slurm(into: Path, suite: str) -> None:
    """Fetch Slurm's packages of a Debian suite.

    Raises:
        TestbedUnavailableError: there is no mirror, it does not answer, or it lacks the suite.
    """
    mirror = debian_mirror(_apt_sources())
    with tempfile.TemporaryDirectory(prefix="hetsched-apt-") as name:
        private = Path(name)
        # apt's own unprivileged user fetches the packages.
        private.chmod(0o755)
        for folder in ("lists/partial", "cache/archives/partial"):
            (private / folder).mkdir(parents=True)
        (private / "status").touch()
        trusted = "/usr/share/keyrings/debian-archive-keyring.gpg"
        signed = f"[signed-by={trusted}] " if Path(trusted).exists() else ""
        source = f"deb {signed}{mirror} {suite} main\n"
        (private / "sources.list").write_text(source)
        options = [
            f"Dir::Etc::sourcelist={private}/sources.list",
            "Dir::Etc::sourceparts=/dev/null",
            f"Dir::State::lists={private}/lists",
            f"Dir::State::status={private}/status",
            f"Dir::Cache={private}/cache",
            "Acquire::Languages=none",
            "Acquire::Check-Valid-Until=false",
        ]
        _apt(["update"], options)
        _apt(["download", *SLURM], options, cwd=into)


def fetch_companions(into: Path) -> None:
    """Fetch what Slurm runs with, and what that needs and the host lacks, from the host's suite.

    Raises:
        TestbedUnavailableError: apt cannot give it.
    """
    (into / "partial").mkdir(exist_ok=True)
    options = [f"Dir::Cache::archives={into}", "APT::Sandbox::User=root"]
    _apt(["update"], [])
    # With --reinstall it fetches those too that the host has, perhaps with services of its own.
    words = ["install", "--reinstall", "--download-only", "--no-install-recommends", "-y"]
    _apt([*words, *COMPANIONS], options)
    shutil.rmtree(into / "partial", ignore_errors=True)
    (into / "lock").unlink(missing_ok=True)


def install_system_packages(names: Sequence[str]) -> None:
    """Install packages on the host itself: only for compilers, which work nowhere else."""
    _apt(["update"], [])
    _apt(["install", "--no-install-recommends", "-y", *names], [])


def unpack(package: Path, into: Path) -> None:
    """Unpack one package."""
    run(["dpkg-deb", "--extract", package, into])


def debian_mirror(sources: Sequence[str]) -> str:
    """Return the address of a Debian archive that apt's sources name.

    Args:
        sources: the texts of apt's source files, of the one-line or the deb822 form.

    Raises:
        TestbedUnavailableError: none of them names one.
    """
    for text in sources:
        for line in text.splitlines():
            words = line.split()
            if not words or words[0] not in ("deb", "URIs:"):
                continue
            for word in words[1:]:
                if word.rstrip("/").endswith("/debian"):
                    return word
    raise TestbedUnavailableError(
        "apt knows no Debian archive (no source ends in /debian), and the testbed's Slurm is "
        "Debian's; run it on Debian, in a container for example"
    )


def _apt_sources() -> list[str]:
    folder = Path("/etc/apt")
    found = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*"))]
    return [path.read_text(errors="replace") for path in found if path.is_file()]


def _apt(words: list[str], options: list[str], cwd: Path | None = None) -> None:
    chosen = [f"-o{option}" for option in (*options, "DPkg::Lock::Timeout=300")]
    try:
        run(
            ["apt-get", "-qq", *chosen, *words],
            env={"DEBIAN_FRONTEND": "noninteractive"},
            cwd=cwd,
            timeout_s=_FETCH_S,
        )
    except TestbedError as error:
        raise TestbedUnavailableError(f"apt cannot give what the testbed needs: {error}") from None
