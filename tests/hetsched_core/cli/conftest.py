"""The command line as a function."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hetsched_core.cli import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]

V100S = '[[nodes]]\nnodes = "n[1-2]"\ngpu_type = "v100"\ngpus = 4\n'
"""Two nodes of a cluster file."""

JOB = (
    '{"schema": "hetsched-workload/1"}\n{"job": "1", "submit_s": 0, "requirements": [1], '
    '"profile": "resnet50-imagenet", "samples": 1000}\n'
)
"""A workload of one job."""


@pytest.fixture
def hetsched(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs `hetsched` with some words."""

    def run(*words: object) -> Result:
        code = main([str(word) for word in words])
        return Result(code, *capfd.readouterr())

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
