"""Where the elements of a run meet, and what each has of it, by what Slurm says of them."""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from job_wrappers.launch import meeting
from job_wrappers.launch.meeting import FIRST_PORT, LAST_PORT, free_port, own_part
from job_wrappers.launch.part import RunPart
from tests.job_wrappers.worlds import (
    NONCE,
    allocation,
    ended,
    launched,
    run,
    shown,
    tool,
    wait_for,
)


def test_a_port_that_somebody_listens_on_is_passed_over() -> None:
    port = free_port(random.Random(7))
    assert FIRST_PORT <= port < LAST_PORT
    assert free_port(random.Random(8)) != port
    with socket.socket() as taken:
        taken.bind(("", port))
        taken.listen()
        assert free_port(random.Random(7)) != port


ROWS = "0|1|gpu:2|n0|2026-11-22T07:00:00\\n1|1|gpu:a100:3|n1|2026-11-22T07:00:01\\n"


@pytest.fixture
def element(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """Element 0 of two, of a Slurm that answers; the commands of Slurm lie in `tmp_path`."""
    tool(tmp_path, "squeue", f"case $* in *%T) echo RUNNING;; *) printf '{ROWS}';; esac")
    tool(
        tmp_path,
        "scontrol",
        'case "$1 $2" in "requeue 77") touch "$(dirname "$0")/requeued";;'
        ' "show hostnames") echo n0;; *) echo NodeName=n0 NodeAddr=127.0.0.1;; esac',
    )
    path = f"{tmp_path}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    own = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "0", "HETSCHED_ELEMENTS": "2"}
    return {**own, "PATH": path, "HETSCHED_NONCE": NONCE}


def part_of(element: Mapping[str, str]) -> RunPart:
    return own_part(allocation(**element), element, "", lambda: False)


def test_slurm_is_asked_again_while_it_does_not_answer(
    element: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(meeting, "_AGAIN_S", 0.01)
    down = (
        'asked="$(dirname "$0")/asked"; echo >>"$asked"; [ "$(wc -l <"$asked")" -gt 3 ] ||'
        f" {{ echo 'Unable to contact slurm controller' >&2; exit 1; }}; printf '{ROWS}'"
    )
    tool(tmp_path, "squeue", down)
    part = part_of(element)
    assert (part.first_rank, part.gpus, part.nodes) == (0, 5, 2)
    said = capsys.readouterr().err
    assert said.count("Unable to contact slurm controller; asked again") == 1


def test_slurm_is_not_asked_for_ever(
    element: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "_AGAIN_S", 0.01)
    monkeypatch.setattr(meeting, "PATIENCE_S", 0.1)
    tool(tmp_path, "squeue", "exit 3")
    with pytest.raises(ValueError, match="squeue: it ended with 3"):
        part_of(element)
    (tmp_path / "squeue").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(meeting, "PATIENCE_S", 600.0)
    with pytest.raises(ValueError, match="No such file"):
        part_of(element)


def test_told_to_stop_while_slurm_does_not_answer_it_is_queued_again_and_asks_no_more(
    element: Mapping[str, str], tmp_path: Path
) -> None:
    asked = '>"$(dirname "$0")/asked"; exit 1'
    tool(tmp_path, "squeue", f"case $* in *%T) echo RUNNING;; *) {asked};; esac")
    process = launched("--", "touch", str(tmp_path / "ran"), more=element)
    wait_for(tmp_path / "asked")
    process.send_signal(signal.SIGUSR2)
    code, said = ended(process)
    assert code == 99, said
    assert "stopped before Slurm had said which elements run" in said
    assert [name for name in ("ran", "requeued") if (tmp_path / name).exists()] == ["requeued"]


def test_the_leader_whose_port_is_taken_has_itself_queued_again(
    element: Mapping[str, str], tmp_path: Path
) -> None:
    port = part_of(element).meet.rpartition(":")[2]
    with socket.socket() as other:
        other.bind(("", int(port)))
        other.listen()
        for words, again in ((("--no-requeue",), False), ((), True)):
            code, said = run(*words, "--", "touch", str(tmp_path / "ran"), more=element)
            assert (code, (tmp_path / "requeued").exists()) == (99, again), said
            assert f":{port}, where the workers" in said
        # The others meet on that node, not on their own.
        member = {**element, "SLURM_ARRAY_TASK_ID": "1"}
        assert shown(gpus=3, more=member)[0]["RANK"] == "2"
    assert not (tmp_path / "ran").exists()
    found = shown(more=element)
    assert [one["WORLD_SIZE"] for one in found] == ["5", "5"]
    assert {one["MASTER_PORT"] for one in found} == {port}
