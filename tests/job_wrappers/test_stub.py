"""The stub as a process: what it tells, saves and resumes, whatever is done to it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from hetsched_core.records.spool import Checkpoint, End, Profile, Progress, SpoolStart
from job_wrappers.moves import path_of, read_moves
from job_wrappers.spool import SpoolWriter
from job_wrappers.stub import load, save, speeds_of
from tests.job_wrappers.worlds import (
    JOB_PYTHON,
    NONCE,
    ROOT,
    allocation,
    environment,
    spool_of,
    spooled,
    wait_for,
)

BY_MODULE = ("-m", "job_wrappers.stub")
BY_PATH = (str(ROOT / "job_wrappers" / "stub.py"),)


def begin(
    folder: Path,
    *words: str,
    run: int = 0,
    gpus: int = 2,
    more: Mapping[str, str] | None = None,
    how: tuple[str, ...] = BY_MODULE,
) -> subprocess.Popen[str]:
    """Start a run in `folder`, where it keeps its checkpoint."""
    (folder / "spool").mkdir(exist_ok=True)
    usual = ("--gpu-type=a100", "--speed=a100=400", "--spool=spool", "--report-every=0.1")
    return subprocess.Popen(
        [JOB_PYTHON, *how, *usual, *words],
        cwd=folder,
        env=environment(run, gpus, more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> list[str]:
    """Return what a run printed, once it has ended well."""
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


@pytest.mark.parametrize("how", [BY_MODULE, BY_PATH], ids=["module", "path"])
def test_it_runs_to_its_end_and_tells_its_speed(tmp_path: Path, how: tuple[str, ...]) -> None:
    out = finish(begin(tmp_path, "--samples=800", "--batch=8", how=how))
    assert out[0] == ("job 77 run 0: 2 GPUs (a100) on n0, 800 samples/s, 0 of 800 samples done")
    assert out[-1] == "done at 800 samples"
    lines = spooled(tmp_path)
    assert isinstance(lines[0], SpoolStart)
    assert lines[-1] == End(lines[-1].t_s, 800.0, "completed")  # type: ignore[union-attr]
    progress = [line for line in lines if isinstance(line, Progress)]
    assert len(progress) >= 4
    # The last one ends with the samples, a moment before it is told.
    assert all(line.samples_per_s == pytest.approx(800.0, rel=0.01) for line in progress[:-1])
    (profile,) = [line for line in lines if isinstance(line, Profile)]
    assert (profile.gpus, profile.nodes, profile.batch_size) == (2, 1, 8)
    iteration_s = profile.forward_s + profile.backward_s + profile.update_s
    assert iteration_s == pytest.approx(8 / 400)


def test_told_to_stop_it_saves_and_goes_on_from_there_on_other_gpus(tmp_path: Path) -> None:
    first = begin(tmp_path, "--samples=1200")
    wait_for(spool_of(tmp_path), "progress")
    first.send_signal(signal.SIGTERM)
    stopped = finish(first)[-1]
    ended = spooled(tmp_path)[-1]
    assert isinstance(ended, End)
    assert stopped == f"stopped at {ended.samples:.0f} samples"
    assert (ended.how, 0 < ended.samples < 1200) == ("stopped", True)
    second = finish(begin(tmp_path, "--samples=1200", run=1, gpus=4))
    assert second[0].endswith(f"1600 samples/s, {ended.samples:.0f} of 1200 samples done")
    assert second[-1] == "done at 1200 samples"
    told = [line.samples for line in spooled(tmp_path, 1) if isinstance(line, Progress)]
    assert told[0] > ended.samples


def test_a_signal_to_save_does_not_stop_it(tmp_path: Path) -> None:
    process = begin(tmp_path, "--samples=1600")
    wait_for(spool_of(tmp_path), "progress")
    process.send_signal(signal.SIGUSR1)
    saved = json.loads(wait_for(tmp_path / "stub.77.json"))
    assert finish(process)[-1] == "done at 1600 samples"
    assert 0 < saved["samples"] < 1600
    checkpoints = [line for line in spooled(tmp_path) if isinstance(line, Checkpoint)]
    assert [line.samples for line in checkpoints] == [pytest.approx(saved["samples"]), 1600.0]


def test_killed_at_any_moment_it_has_a_whole_checkpoint_and_loses_little(tmp_path: Path) -> None:
    done = 0.0
    for run in range(4):
        process = begin(tmp_path, "--samples=1e9", "--save-every=0.05", run=run)
        wait_for(spool_of(tmp_path, run), "checkpoint")
        time.sleep(0.03 * run)
        process.kill()
        process.communicate()
        saved = load(tmp_path / "stub.77.json", NONCE)
        told = [line for line in spooled(tmp_path, run) if isinstance(line, Checkpoint)]
        assert saved >= told[-1].samples > done
        done = saved
    # A kill may leave a half-written file beside the checkpoint, never in its place.
    assert {path.name[:13] for path in tmp_path.glob(".*.part")} <= {".stub.77.json"}


def test_the_checkpoint_of_another_job_of_the_same_id_is_not_taken(tmp_path: Path) -> None:
    save(tmp_path / "stub.77.json", "another", 500.0)
    out = finish(begin(tmp_path, "--samples=80"))
    assert out[0].endswith("0 of 80 samples done")


def test_what_is_no_checkpoint_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "stub.77.json").write_text("my diary")
    process = begin(tmp_path, "--samples=80")
    assert "is no checkpoint" in process.communicate(timeout=30)[1]
    assert process.returncode == 2
    assert (tmp_path / "stub.77.json").read_text() == "my diary"


def test_a_spool_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    out = finish(begin(tmp_path, "--samples=80", "--spool=file"))
    assert out[1].startswith("no spool file: ")
    assert out[-1] == "done at 80 samples"


# -- parts -----------------------------------------------------------------------------------------


def test_what_slurm_kept_from_the_submission_is_not_looked_at() -> None:
    found = allocation(SLURM_GPUS="16", SLURM_NTASKS="9", SLURM_JOB_NUM_NODES="3")
    assert (found.gpus, found.gpus_per_node, found.run) == (6, 2, 0)


@pytest.mark.parametrize(
    ("more", "element", "job"),
    [
        ({}, "0", "70_0"),
        ({"HETSCHED_COPIES": "4"}, "0", "70"),
        ({"HETSCHED_COPIES": "4"}, "3", "70_3"),
        ({"HETSCHED_ELEMENTS": "2"}, "0", "70"),
    ],
)
def test_a_job_is_named_as_the_daemon_names_it_whatever_number_slurm_gave_to_the_element(
    more: dict[str, str], element: str, job: str
) -> None:
    found = allocation(SLURM_ARRAY_JOB_ID="70", SLURM_ARRAY_TASK_ID=element, **more)
    assert (found.job, found.element) == (job, "77")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_JOB_ID", "../../77"),
        ("SLURM_GPUS_ON_NODE", "two"),
        ("SLURM_GPUS_ON_NODE", "1000000"),
        ("SLURM_GPUS_ON_NODE", "1e6"),
        ("SLURM_GPUS_ON_NODE", "0"),
        ("SLURM_RESTART_COUNT", "-1"),
        ("SLURM_RESTART_COUNT", "9" * 5000),
    ],
)
def test_what_slurm_would_not_say_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{name} is {value[:40]!r}: expected")):
        allocation(**{name: value})


def test_speeds_are_read_by_type_and_for_all_others() -> None:
    assert speeds_of(["a100=200", "v100=9e1", "50"]) == {"a100": 200.0, "v100": 90.0, "": 50.0}
    with pytest.raises(ValueError, match="more than 0"):
        speeds_of(["a100=0"])


def test_a_second_process_of_a_run_leaves_the_file_of_the_first_alone_but_not_an_older_jobs(
    tmp_path: Path,
) -> None:
    # A job that had the same id once.
    SpoolWriter(tmp_path, allocation(HETSCHED_NONCE="0123456789ab")).close()
    first = SpoolWriter(tmp_path, allocation())
    second = SpoolWriter(tmp_path, allocation())
    assert first.why_not == ""
    assert "another process" in second.why_not
    second.tell("end", samples=1.0, how="completed")
    first.tell("end", samples=2.0, how="completed")
    first.close()
    told = [json.loads(line) for line in first.path.read_text().splitlines()]
    assert [line["type"] for line in told] == ["start", "end"]
    assert told[0]["nonce"] == NONCE


def test_moves_that_are_not_for_this_job_or_make_no_sense_are_not_told(tmp_path: Path) -> None:
    path = path_of(tmp_path, allocation(), os.getuid())
    path.parent.mkdir(parents=True)
    good = {"at_s": 1.0, "run": 0, "from": "", "to": "n0:2", "purpose": "run", "reason": "why not"}
    whole = {"schema": "hetsched-moves/2", "job": "77", "moves": [good]}
    for key, value in (("schema", "x"), ("moves", [{}]), ("moves", 3)):
        path.write_text(json.dumps(whole | {key: value}))
        assert read_moves(tmp_path, allocation()) == []
    path.write_text(json.dumps(whole))
    assert read_moves(tmp_path, allocation(HETSCHED_NONCE="0123456789ab")) == []
    (move,) = read_moves(tmp_path, allocation())
    assert str(move) == "1970-01-01T00:00:01Z waiting -> n0:2: why not"
