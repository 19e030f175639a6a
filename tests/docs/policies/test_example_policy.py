"""The example policy does what its page says, installed as a third party would install it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
PAGE = PROJECT / "docs/policies"


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Install the example as a package of its own; return the environment that sees it."""
    (tmp_path / "widest.py").write_text((PAGE / "example_policy.py").read_text())
    metadata = tmp_path / "widest-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: widest\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[hetsched.policies]\nwidest-first = widest:WidestFirst\n"
    )
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def hetsched(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from hetsched_core.cli import main; raise SystemExit(main())",
            *words,
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_third_partys_policy_is_listed_with_its_parameters(installed: dict[str, str]) -> None:
    listed = hetsched(installed, "policies", "widest-first")
    assert listed.returncode == 0, listed.stderr
    assert "most=64" in listed.stdout
    assert "GPUs beyond which a job counts as no wider" in listed.stdout


def test_a_third_partys_policy_is_held_to_the_contracts(installed: dict[str, str]) -> None:
    checked = hetsched(installed, "policies", "--check", "widest-first")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "widest-first keeps all" in checked.stdout


def test_a_third_partys_policy_replays_beside_ours(installed: dict[str, str]) -> None:
    bundled = PROJECT / "hetsched_core/traces/bundled"
    replayed = hetsched(
        installed,
        "replay",
        str(bundled / "sacct.txt"),
        "--cluster",
        str(bundled / "cluster.toml"),
        "--policy",
        "fifo,widest-first",
        "--set",
        "widest-first.most=2",
    )
    assert replayed.returncode == 0, replayed.stderr
    assert "widest-first" in replayed.stdout


def test_the_example_is_some_thirty_lines_long() -> None:
    assert len((PAGE / "example_policy.py").read_text().splitlines()) <= 36
