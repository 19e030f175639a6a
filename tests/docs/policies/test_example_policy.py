"""The example policy does what its page says, installed as a third party would install it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
PAGE = PROJECT / "docs/policies"
BUNDLED = PROJECT / "hetsched_core/traces/bundled"
REPLAY = ["replay", f"{BUNDLED}/sacct.txt", f"--cluster={BUNDLED}/cluster.toml"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["policies", "widest-first"],
            ["most=64", "GPUs beyond which a job counts as no wider"],
        ),
        (["policies", "--check", "widest-first"], ["widest-first keeps all"]),
        (
            [*REPLAY, "--policy=fifo,widest-first", "--set=widest-first.most=2"],
            ["fifo", "widest-first"],
        ),
    ],
    ids=["listed with its parameters", "held to the contracts", "replayed beside ours"],
)
def test_a_third_partys_policy_is(tmp_path: Path, words: list[str], says: list[str]) -> None:
    (tmp_path / "widest.py").write_text((PAGE / "example_policy.py").read_text())
    metadata = tmp_path / "widest-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: widest\nVersion: 1.0\n")
    entry = "[hetsched.policies]\nwidest-first = widest:WidestFirst\n"
    (metadata / "entry_points.txt").write_text(entry)
    done = subprocess.run(
        [sys.executable, "-c", "from hetsched_core.cli import main; exit(main())", *words],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(each in done.stdout for each in says)


def test_the_example_is_some_thirty_lines_long() -> None:
    assert len((PAGE / "example_policy.py").read_text().splitlines()) <= 36
