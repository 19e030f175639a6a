"""What a session is made of, as far as it needs no torch."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from hetsched_core.records.spool import MAX_FILE_BYTES, MAX_LINE_BYTES, End, Loss, SpoolStart
from hetsched_core.throughput.iteration import IterationTimes, Pattern, iteration_s
from job_wrappers.files import write_whole
from job_wrappers.session import SessionError
from job_wrappers.session.batches import BatchOrder
from job_wrappers.session.errors import torch_here
from job_wrappers.session.folder import CheckpointFolder, FolderLock
from job_wrappers.session.phases import StepTimes
from job_wrappers.session.profile import StepProfile, profile_of
from job_wrappers.session.raw import checksum
from job_wrappers.spool import MOST_BYTES, MOST_WAITING, SpoolWriter, Telling
from tests.conftest import fill
from tests.job_wrappers.worlds import accepted, allocation, environment


def test_without_torch_it_says_which_python_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SessionError, match="install it into the environment") as no:
        torch_here()
    assert sys.executable in str(no.value)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("__version__ = '1.13.1'", r"needs torch 2\.1 or later.*1\.13\.1"),
        ("__version__ = '2.0.1+cu118'", r"needs torch 2\.1 or later.*2\.0\.1\+cu118"),
        ("__version__ = 'main'", r"needs torch 2\.1 or later.*main"),
        ("__version__ = '2.10.0a0+git'", ""),
        ("raise OSError('libcudart.so.12: no')", "OSError: libcudart.so.12: no.*anew"),
    ],
)
def test_a_torch_that_is_too_old_or_broken_is_told_and_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, why: str
) -> None:
    (tmp_path / "torch.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(SessionError, match=why) if why else nullcontext():
        torch_here()
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def test_what_is_wrong_is_shown_as_a_sentence_and_other_errors_as_ever() -> None:
    script = (
        "import sys; from job_wrappers.session.errors import *; told_plainly(); told_plainly()\n"
        "raise (SessionError('it is so') if sys.argv[1] == 'ours' else ValueError('else'))"
    )

    def said(which: str) -> tuple[int, str]:
        words = [sys.executable, "-c", script, which]
        environment = {**os.environ, "RANK": "3"}
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
        return done.returncode, done.stderr

    assert said("ours") == (1, "hetsched: rank 3: it is so\n")
    code, text = said("other")
    assert (code, text.count("Traceback"), text.count("ValueError: else")) == (1, 1, 1)


def test_a_file_is_on_disk_before_it_gets_its_name_and_the_name_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    flush, rename = os.fsync, Path.replace

    def on_flush(file: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file")
        flush(file)

    def on_rename(path: Path, name: Path) -> Path:
        assert path.read_bytes() == b"all of it"
        done.append("name")
        return rename(path, name)

    monkeypatch.setattr("os.fsync", on_flush)
    monkeypatch.setattr(Path, "replace", on_rename)
    write_whole(tmp_path / "state", [b"all of it"])
    assert done == ["file", "name", "folder"]


# -- checkpoints -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    """A directory for checkpoints, of which two are kept."""
    folder = CheckpointFolder(tmp_path / "c", keep=2)
    folder.prepare()
    return folder


def put(folder: CheckpointFolder, step: int, content: bytes = b"x" * 100) -> Path:
    """Write a checkpoint as a saver would; return its tensors."""
    part = folder.part_of(step)
    part.mkdir()
    write_whole(part / "rank-0.tensors", [content])
    files = {"rank-0.tensors": checksum(part / "rank-0.tensors")}
    folder.finish(step, 1, {"steps": step}, files)
    return folder.path_of(step) / "rank-0.tensors"


def names(folder: CheckpointFolder) -> list[str]:
    return sorted(path.name for path in folder.path.iterdir())


def found_step(folder: CheckpointFolder) -> int | None:
    found = folder.newest()
    return None if found is None else int(found.progress["steps"])


def test_the_last_few_checkpoints_are_kept(folder: CheckpointFolder) -> None:
    assert found_step(folder) is None
    for step in (5, 9, 12, 1000):
        put(folder, step)
    assert names(folder) == ["step-000000000012", "step-000000001000"]
    assert found_step(folder) == 1000
    with pytest.raises(SessionError, match="keep=0: expected 1 or more"):
        CheckpointFolder(folder.path, keep=0)


@pytest.mark.parametrize(
    ("harmed", "content"),
    [
        ("rank-0.tensors", b"x" * 50 + b"y" + b"x" * 49),
        ("rank-0.tensors", b"x" * 99),
        ("rank-0.tensors", None),
        ("checkpoint.json", b"{"),
        ("checkpoint.json", None),
    ],
)
def test_one_that_is_not_whole_gives_way_to_the_one_before_and_is_kept(
    folder: CheckpointFolder,
    harmed: str,
    content: bytes | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(folder, 5)
    file = put(folder, 9).with_name(harmed)
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    assert found_step(folder) == 5
    assert f"{file.parent} is damaged" in capsys.readouterr().err
    assert names(folder) == ["step-000000000005", "step-000000000009.damaged"]
    put(folder, 9)
    assert found_step(folder) == 9


def test_where_none_is_whole_nothing_begins_anew_unasked(folder: CheckpointFolder) -> None:
    put(folder, 5).unlink()
    with pytest.raises(SessionError, match=r"no checkpoint in .* is whole: .* is missing"):
        folder.newest()
    # Nor does the next run, which Slurm may start before anybody has looked.
    with pytest.raises(SessionError, match=r"step-000000000005\.damaged.*move them away to begin"):
        folder.newest()
    (folder.path / "step-000000000005.damaged").rename(folder.path / "away")
    assert folder.newest() is None


def test_a_kill_while_a_step_is_saved_again_leaves_the_earlier_one_and_nothing_half_done(
    folder: CheckpointFolder,
) -> None:
    put(folder, 5)
    saved = put(folder, 5, b"y" * 100)
    assert saved.read_bytes() == b"y" * 100
    path = saved.parent
    assert names(folder) == [path.name]
    path.rename(folder.path / f".{path.name}.old")  # as far as it came
    folder.part_of(5).mkdir()
    (folder.path / "mine").write_text("keep")
    folder.prepare()
    assert (found_step(folder), names(folder)) == (5, ["mine", path.name])


def test_the_lock_of_a_killed_process_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job_wrappers.session.folder.WAIT_S", 0.3)
    hold = (
        "import sys, time; from pathlib import Path\n"
        "from job_wrappers.session.folder import FolderLock\n"
        "lock = FolderLock(Path(sys.argv[1]))\n"
        "print('held', flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", hold, str(tmp_path)]
    process = subprocess.Popen(words, env=environment(run=2), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(SessionError, match=rf"by job 77 run 2 \(process {process.pid} on n0\)"):
        FolderLock(tmp_path)
    process.kill()
    process.communicate()
    FolderLock(tmp_path).release()


def test_a_lock_that_was_let_go_is_free_though_a_forked_process_lives_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job_wrappers.session.folder.WAIT_S", 0.3)
    lock = FolderLock(tmp_path)
    # As a process that loads has it, inherited.
    inherited = os.dup(lock._file.fileno())
    lock.release()
    FolderLock(tmp_path).release()
    os.close(inherited)


# -- batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("start", [0, 24])
@pytest.mark.parametrize("length", range(45, 55))
def test_all_ranks_have_as_many_steps_whatever_is_left_at_the_end(
    length: int, start: int, size: int
) -> None:
    given = []
    for rank in range(size):
        order = BatchOrder(
            None, length, 4, shuffle=False, drop_last=False, seed=0, rank=rank, size=size
        )
        order.start = start
        given.append(list(order))
        assert len(given[-1]) == len(order)
    # In each step all have as many samples, and some.
    for step in zip(*given, strict=True):
        assert min(map(len, step)) == max(map(len, step)) > 0
    seen = sorted(index for rank in given for batch in rank for index in batch)
    left_out = (length - start) % (4 * size) % size
    assert seen == list(range(start, length - left_out))


# -- the profile -----------------------------------------------------------------------------------


def step_s(profile: StepProfile, wait_s: float = 0.0) -> float:
    """What the estimator makes of a profile's first step."""
    phases = (profile.forward_s, profile.backward_s, profile.update_s)
    times = IterationTimes(profile.data_s[0], *phases, wait_s)
    return iteration_s(times, 0.0, Pattern(profile.pattern))


def test_from_a_profile_the_estimator_gets_back_the_measured_step() -> None:
    step = StepTimes(0.004, 0.010, 0.020, 0.001, 0.003)
    alone = profile_of([step] * 20, [], ranks=1)
    assert step_s(alone, alone.wait_s[0]) == pytest.approx(step.whole_s)


@pytest.mark.parametrize("load_s", [0.005, 0.020, 0.032, 0.100])
def test_loading_beside_training_counts_as_far_as_it_outlasts_the_step(load_s: float) -> None:
    taking_s, work_s = 0.0005, 0.033
    step = StepTimes(taking_s + max(0.0, load_s - work_s), 0.010, 0.020, 0.0, 0.003)
    profile = profile_of([step] * 20, [load_s] * 20, ranks=1)
    assert profile.pattern == Pattern.OVERLAPPED_DATA
    assert step_s(profile) == pytest.approx(max(load_s, work_s), rel=0.03)


def test_waiting_is_what_goes_beyond_the_least_of_it() -> None:
    steps = [StepTimes(0.0, 0.01, 0.02, wait_s, 0.003) for wait_s in (0.004, 0.002, 0.009)]
    profile = profile_of(steps, [], ranks=2)
    assert profile.wait_s == pytest.approx((0.002, 0.0, 0.007))
    assert profile.update_s == pytest.approx(0.003)


# -- the spool -------------------------------------------------------------------------------------


def tell(spool: SpoolWriter, training_round: int) -> str:
    spool.tell("loss", training_round=training_round, loss=0.5)
    return spool.why_not


def told(spool: SpoolWriter) -> list[int]:
    """The rounds that a closed file tells of."""
    spool.close()
    start, *losses = accepted(spool.path)
    assert isinstance(start, SpoolStart)
    return [line.training_round for line in losses if isinstance(line, Loss)]


def test_a_full_disk_leaves_whole_lines_and_once_there_is_room_it_goes_on(
    small_disk: Callable[[str], Path],
) -> None:
    disk = small_disk("64k")
    (disk / str(os.getuid())).mkdir()
    filler = fill(disk)
    spool = SpoolWriter(disk, allocation())
    assert "No space" in spool.why_not
    assert "No space" in tell(spool, 0)
    filler.unlink()
    # The first line comes first.
    assert tell(spool, 1) == ""
    # What is left is the rest of the file's own last page.
    fill(disk)
    at = 1
    while not spool.why_not:
        at += 1
        assert at < 1000
        tell(spool, at)
    assert "No space" in spool.why_not
    filler.unlink()
    assert tell(spool, at + 1) == ""
    assert told(spool) == [*range(1, at), at + 1]


def test_a_file_ends_before_the_scheduler_would_stop_reading_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = MAX_LINE_BYTES
    assert MOST_BYTES + 2 * longest < MAX_FILE_BYTES
    monkeypatch.setattr("job_wrappers.spool.MOST_BYTES", 100_000)
    spool = SpoolWriter(tmp_path, allocation())
    values = [0.123456789] * 64
    for _ in range(100):
        spool.tell("progress", samples=1, samples_per_s=1.0, data_s=values, wait_s=values)
    spool.tell("end", samples=1, how="completed")
    spool.close()
    assert 100_000 <= spool.path.stat().st_size < 100_000 + longest
    assert isinstance(accepted(spool.path)[-1], End)


def test_a_file_that_was_removed_is_put_back_as_it_was_and_goes_on(tmp_path: Path) -> None:
    spool = SpoolWriter(tmp_path, allocation())
    tell(spool, 1)
    before = spool.path.read_bytes()
    spool.path.unlink()
    assert tell(spool, 2) == ""
    assert spool.path.read_bytes().startswith(before)
    shutil.rmtree(spool.path.parent)
    spool.path.parent.touch()  # nothing can be put there
    assert "cannot be put back" in tell(spool, 3)
    spool.path.parent.unlink()
    assert tell(spool, 4) == ""
    assert told(spool) == [1, 2, 4]
    assert [each.name for each in spool.path.parent.iterdir()] == [spool.path.name]


def test_a_file_that_another_process_has_put_in_place_is_left_alone(tmp_path: Path) -> None:
    spool = SpoolWriter(tmp_path, allocation())
    spool.path.unlink()
    spool.path.write_text("other")
    assert "by another process by now" in tell(spool, 1)
    spool.close()
    assert spool.path.read_text() == "other"


def test_a_spool_that_hangs_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Opening a pipe that nobody reads hangs as a dead file server does.
    monkeypatch.setattr("job_wrappers.spool.CLOSE_S", 0.1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def hang(*_: object, **__: object) -> SpoolWriter:
        pipe.open("wb").close()
        raise OSError("gone")

    monkeypatch.setattr("job_wrappers.spool.SpoolWriter", hang)
    monkeypatch.setattr("threading.excepthook", lambda _: None)
    telling = Telling(tmp_path, allocation(), 0, 1)
    for at in range(MOST_WAITING + 5):
        telling.tell("loss", training_round=at, loss=0.5)
    assert telling.dropped == 5
    telling.close()
    pipe.open("rb").close()  # lets the thread go
    telling._thread.join(10)
    assert not telling._thread.is_alive()
