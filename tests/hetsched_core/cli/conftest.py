"""The command line as a function, the files it reads and those it writes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hetsched_core.cli import main
from hetsched_core.traces.bundled import log_path


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


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files, by name."""
    for name, text in texts.items():
        (folder / name).write_text(text)


def short_log() -> str:
    """Return as much of the bundled log as a quick run takes: 60 lines."""
    return "".join(log_path().read_text().splitlines(keepends=True)[:60])


def result_file(name: str = "result.json") -> dict[str, Any]:
    """Read what a replay has written in the working folder."""
    written: dict[str, Any] = json.loads(Path(name).read_text())
    return written
