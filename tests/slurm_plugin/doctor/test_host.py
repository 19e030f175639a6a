"""What is found of the daemon's folders and of its unit."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from slurm_plugin.daemon.process.configuration import DaemonConfiguration
from slurm_plugin.daemon.process.folders import folder_findings
from slurm_plugin.doctor.unit import daemon_uid, unit_finding

NOBODY = pwd.getpwnam("nobody").pw_uid
ME = os.geteuid()
needs_root = pytest.mark.skipif(ME != 0, reason="needs root, to give folders away")


@pytest.fixture
def configured(tmp_path: Path) -> DaemonConfiguration:
    """Folders of the caller's own, closed as the unit closes them."""
    for name, mode in (("state", 0o700), ("run", 0o755), ("spool", 0o755)):
        (tmp_path / name).mkdir(mode=mode)
    return DaemonConfiguration(
        partitions=frozenset({"gpu"}),
        database=tmp_path / "state/daemon.duckdb",
        socket=tmp_path / "run/sock",
        spool=tmp_path / "spool",
    )


def found(configured: DaemonConfiguration, uid: int = ME) -> dict[str, str]:
    """How each folder stands."""
    return {each.about: each.verdict.value for each in folder_findings(configured, uid)}


def test_folders_as_the_unit_makes_them_are_good(configured: DaemonConfiguration) -> None:
    assert found(configured) == {"database": "ok", "socket": "ok", "spool": "ok"}


@pytest.mark.parametrize(
    ("folder", "mode", "about", "verdict"),
    [
        ("state", 0o755, "database", "beware"),
        ("state", 0o777, "database", "wrong"),
        ("run", 0o700, "socket", "beware"),
        ("spool", 0o777, "spool", "wrong"),
    ],
)
def test_a_folder_open_to_the_wrong_people_is_told(
    configured: DaemonConfiguration,
    tmp_path: Path,
    folder: str,
    mode: int,
    about: str,
    verdict: str,
) -> None:
    (tmp_path / folder).chmod(mode)
    assert found(configured)[about] == verdict


def test_a_folder_that_is_not_there_is_wrong_unless_the_service_makes_it(
    configured: DaemonConfiguration, tmp_path: Path
) -> None:
    for name in ("state", "run", "spool"):
        (tmp_path / name).rmdir()
    assert set(found(configured).values()) == {"wrong"}
    usual = DaemonConfiguration(partitions=frozenset({"gpu"}))
    if not Path("/var/lib/hetsched").exists():
        assert found(usual)["database"] == "ok"


@needs_root
def test_folders_of_somebody_else_are_no_use_to_the_daemon(
    configured: DaemonConfiguration,
) -> None:
    assert set(found(configured, NOBODY).values()) == {"wrong"}


@needs_root
def test_the_daemon_s_user_is_the_unit_s_else_the_owner_of_its_database(
    configured: DaemonConfiguration, tmp_path: Path
) -> None:
    os.chown(tmp_path / "state", NOBODY, -1)
    assert daemon_uid({}, configured) == NOBODY
    assert daemon_uid({"User": "daemon"}, configured) == pwd.getpwnam("daemon").pw_uid
    assert daemon_uid({"User": "no-such-user"}, configured) is None


@pytest.mark.parametrize(
    ("changed", "verdict", "words"),
    [
        ({}, "ok", "of user hetsched"),
        ({"ReadWritePaths": ""}, "wrong", "spool; systemctl edit hetschedd"),
        ({"ReadWritePaths": "", "ProtectSystem": "no"}, "ok", "of user hetsched"),
        ({"LoadState": "not-found"}, "beware", "systemd has no hetschedd.service"),
    ],
)
def test_a_unit_leaves_open_what_the_daemon_writes_in(
    tmp_path: Path, changed: dict[str, str], verdict: str, words: str
) -> None:
    unit = {
        "LoadState": "loaded",
        "User": "hetsched",
        "ProtectSystem": "strict",
        "ReadWritePaths": f"/elsewhere -{tmp_path}/spool",
        "StateDirectory": "hetsched",
        "RuntimeDirectory": "hetsched",
    }
    configured = DaemonConfiguration(partitions=frozenset({"gpu"}), spool=tmp_path / "spool")
    seen = unit_finding(unit | changed, configured)
    assert seen.verdict.value == verdict
    assert words in str(seen)


def test_without_systemd_there_is_no_unit_to_look_at(configured: DaemonConfiguration) -> None:
    assert unit_finding({}, configured).verdict.value == "ok"
