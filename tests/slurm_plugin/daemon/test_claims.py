"""Claims: two daemons of one partition see each other, whatever databases they have."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from slurm_plugin.daemon.claims import Claims

HOLD = """
import os, sys
from pathlib import Path
from slurm_plugin.daemon.claims import Claims
os.setuid(int(sys.argv[2]))
with Claims(Path(sys.argv[1])) as claims:
    claims.hold(["gpu"])
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def conf() -> Iterator[Path]:
    """A file that all users see."""
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        path = Path(name) / "slurm.conf"
        path.touch()
        yield path


def holding(conf: Path, uid: int) -> "subprocess.Popen[str]":
    """A process of a user that claims a partition."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(conf), str(uid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_second_daemon_of_a_partition_is_told_of_the_first(conf: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.conf"
    other.touch()
    with holding(conf, os.geteuid()) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with Claims(conf) as claims:
            with pytest.raises(InputError, match=f"partition gpu: process {first.pid} of "):
                claims.hold(["gpu"])
            claims.hold(["cpu"])
        with Claims(other) as claims:
            claims.hold(["gpu"])
        first.kill()
    # The kernel takes it from the dead.
    with Claims(conf) as claims:
        claims.hold(["gpu"])
        claims.hold(["gpu", "cpu"])


@pytest.mark.skipif(os.geteuid() != 0, reason="takes other users' rights")
def test_a_claim_of_any_user_keeps_no_daemon_away(conf: Path) -> None:
    with holding(conf, 65_534) as hostile:
        assert hostile.stdout is not None
        assert hostile.stdout.readline() == "held\n"
        # Another user's daemon goes on.
        with holding(conf, 1) as daemon:
            assert daemon.stdout is not None
            assert daemon.stdout.readline() == "held\n"
            daemon.kill()
        # Root is told who it is.
        with Claims(conf) as claims, pytest.raises(InputError, match=" of nobody"):
            claims.hold(["gpu"])
        hostile.kill()


def test_however_many_have_looked_the_next_is_told_as_well(conf: Path) -> None:
    with Claims(conf) as first, Claims(conf) as second:
        first.hold(["gpu"])
        for at in range(300):
            with pytest.raises(InputError, match=f"partition gpu: process {os.getpid()} of "):
                second.hold(["gpu"])
            if at % 100 == 99:
                first.answer()
