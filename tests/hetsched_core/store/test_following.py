"""What the daemon goes on from: runs whose spool files are read, and how far jobs are."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.spool import SCHEMA
from hetsched_core.store import FollowedRun, JobProgress, Mode, ProfileKey, SpoolRun, Store
from hetsched_core.types import Node

NOW = 1.76e9
ME = os.getuid()
RUN = SpoolRun(ME, "Qm9vIQ3xk2", ProfileKey("resnet50", "alice"), ((Node("n1", "a100", 4), 4),))


def lines(run: int, *more: dict[str, object], rank: int = 0) -> bytes:
    start = {
        "type": "start",
        "schema": SCHEMA,
        "job": "7",
        "run": run,
        "rank": rank,
        "world_size": 4,
        "nonce": RUN.nonce,
        "host": "n1",
        "pid": 4711,
        "at_s": NOW,
    }
    return b"".join(json.dumps(line).encode() + b"\n" for line in (start, *more))


def progress(t_s: float, samples: float, speed: float = 50.0) -> dict[str, object]:
    line = {"type": "progress", "t_s": t_s, "samples": samples, "samples_per_s": speed}
    return line | {"data_s": [], "wait_s": []}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / str(ME)
    made.mkdir()
    return made


def test_progress_is_what_the_latest_run_said_last(store: Store, folder: Path) -> None:
    runs = {("7", number): RUN for number in (0, 1)}
    first, second = folder / "7.0.0.jsonl", folder / "7.1.0.jsonl"
    saved = {"type": "checkpoint", "t_s": 3.0, "samples": 90.0, "stopped_s": 0.1}
    ended = {"type": "end", "t_s": 4.0, "samples": 120.0, "how": "failed"}
    first.write_bytes(lines(0, progress(2.0, 100.0), saved, ended))
    (heard,) = store.ingest([first], runs, NOW).progress
    assert heard == JobProgress(RUN.nonce, "7", 0, NOW, 120.0, 50.0, 90.0, NOW)
    # The next run has said nothing of its speed yet; its checkpoint is still the one before.
    second.write_bytes(lines(1, ended | {"samples": 130.0}))
    (heard,) = store.ingest([second], runs, NOW + 5).progress
    assert heard == JobProgress(RUN.nonce, "7", 1, NOW + 5, 130.0, 0.0, 90.0, NOW)
    # What an earlier run still had to say changes nothing.
    (folder / "7.0.0.jsonl").write_bytes(first.read_bytes() + json.dumps(ended).encode() + b"\n")
    assert store.ingest([first], runs, NOW + 9).progress == ()
    assert store.progress() == {RUN.nonce: heard}


def test_a_run_that_stopped_without_saving_goes_on_from_its_last_checkpoint(
    store: Store, folder: Path
) -> None:
    path = folder / "7.0.0.jsonl"
    saved = {"type": "checkpoint", "t_s": 3.0, "samples": 90.0, "stopped_s": 0.1}
    stopped = {"type": "end", "t_s": 4.0, "samples": 120.0, "how": "stopped"}
    path.write_bytes(lines(0, progress(2.0, 100.0), saved, stopped))
    (heard,) = store.ingest([path], {("7", 0): RUN}, NOW).progress
    assert (heard.samples, heard.checkpoint_samples) == (90.0, 90.0)
    # Of one that tells of no checkpoint nothing is known.
    other = folder / "8.0.0.jsonl"
    run = replace(RUN, nonce="other-nonce")
    other.write_bytes(lines(0, stopped).replace(b'"7"', b'"8"').replace(*_nonces(RUN, run)))
    (heard,) = store.ingest([other], {("8", 0): run}, NOW).progress
    assert heard.samples == 120.0


def _nonces(one: SpoolRun, other: SpoolRun) -> tuple[bytes, bytes]:
    return one.nonce.encode(), other.nonce.encode()


def test_other_ranks_say_nothing_of_progress(store: Store, folder: Path) -> None:
    other = folder / "7.0.1.jsonl"
    other.write_bytes(lines(0, progress(2.0, 1e9), rank=1))
    taken = store.ingest([other], {("7", 0): RUN}, NOW)
    assert len(taken.lines) == 2
    assert taken.progress == ()


def test_followed_runs_and_progress_are_there_again_until_they_are_let_go(
    tmp_path: Path, folder: Path
) -> None:
    path = tmp_path / "store.duckdb"
    unmeasured = SpoolRun(ME, "another-one", None, ((Node("n2", "v100", 2, host="h"), 2),))
    runs = (FollowedRun("7", 0, RUN, NOW), FollowedRun("8", 3, unmeasured, NOW + 1))
    spool = folder / "7.0.0.jsonl"
    spool.write_bytes(lines(0, progress(2.0, 100.0)))
    with Store.open(path, Mode.WRITE) as store:
        store.follow(runs)
        store.follow(runs[:1])
        store.ingest([spool], {("7", 0): RUN}, NOW)
    with Store.open(path, Mode.WRITE) as store:
        found = store.followed()
        assert found == runs
        assert store.progress()[RUN.nonce].samples == 100.0
        assert store.faults() == ()
        # Lines that were taken in before are not taken in again under what was found.
        assert store.ingest([spool], {(f.job, f.number): f.run for f in found}, NOW).lines == ()
        assert store.summary().spool_files == 1
        store.unfollow(runs[:1], [RUN.nonce])
        assert store.followed() == runs[1:]
        assert store.progress() == {}
        assert store.summary().spool_files == 0


def test_what_a_run_without_a_profile_says_counts_for_progress_alone(
    store: Store, folder: Path
) -> None:
    spool = folder / "7.0.0.jsonl"
    spool.write_bytes(lines(0, progress(2.0, 100.0)))
    keyless = SpoolRun(ME, RUN.nonce, None, RUN.pieces)
    taken = store.ingest([spool], {("7", 0): keyless}, NOW)
    assert (taken.measurements, taken.progress[0].samples) == (0, 100.0)
    assert store.profiles() == ()


def test_files_may_be_looked_at_by_turns_and_refusals_still_count_once(
    store: Store, folder: Path
) -> None:
    runs = {("7", number): RUN for number in range(2)}
    good, linked = folder / "7.0.0.jsonl", folder / "7.1.0.jsonl"
    good.write_bytes(lines(0, progress(2.0, 100.0)))
    linked.symlink_to(good)
    rejected = 0
    for turn in range(6):
        with good.open("ab") as file:
            file.write(json.dumps(progress(3.0 + turn, 200.0)).encode() + b"\n")
        taken = store.ingest([good if turn % 2 else linked], runs, NOW)
        rejected += len(taken.rejected)
    assert rejected == 1
    assert store.progress()[RUN.nonce].samples == 200.0
    assert store.profiles()[0].measurements == 7
