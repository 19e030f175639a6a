"""The order of a pool's member, as its executor takes it: whole files, and nothing that trains."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from job_wrappers.executor import DeviceFailedError, Executor, Task
from job_wrappers.executor import executor as executor_module
from job_wrappers.executor.footprint import Footprint
from job_wrappers.outcome import STOPPED, Wishes
from job_wrappers.pool import member as member_module
from job_wrappers.pool.__main__ import main, own_type
from job_wrappers.pool.asked import Asked, add_all
from job_wrappers.pool.folder import Desk, Place, PoolFolder
from job_wrappers.pool.keeper import LASTS_S, LONGEST_PAUSE_S, UNFIT, Kept, keep
from job_wrappers.pool.member import run_member
from job_wrappers.pool.order import IDLE_S, POLL_S, PoolOrder
from slurm_plugin.pool.folder import FOLDERS, Pool
from tests.job_wrappers.worlds import tool


@pytest.fixture
def folder(tmp_path: Path) -> PoolFolder:
    for name in FOLDERS:
        (tmp_path / name).mkdir()
    made = PoolFolder(tmp_path)
    add_all(tmp_path, [Asked(name, "jobs.py:make", 3, 2, key="k") for name in ("a", "b")])
    return made


class Turns:
    """A member that stops once it has looked so often without finding anything."""

    def __init__(self, folder: PoolFolder) -> None:
        self.folder, self.looks = folder, 0
        self.desk = Desk(folder, Place("m", "n0", "", "cpu", "v100", 1, time.time()))
        self.executor = Executor(folder.rounds, [], standby=0)
        self.order = PoolOrder(folder, self.desk, self.executor, self.stopped)

    def stopped(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def next(self) -> Task | None:
        self.looks = 3
        return self.order.next()

    def ordered(self, begun: int, *tasks: tuple[str, int, int]) -> None:
        path = self.folder.path / "orders" / "m.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"begun": begun, "tasks": tasks}))
        part.replace(path)


@pytest.fixture
def member(folder: PoolFolder) -> Iterator[Turns]:
    made = Turns(folder)
    with made.executor:
        yield made
    made.desk.close()


def test_what_has_begun_since_an_order_was_written_is_left_out_of_it(
    folder: PoolFolder, member: Turns
) -> None:
    member.ordered(0, ("a", 0, 0), ("a", 0, 1), ("b", 0, 0))
    assert member.next() == Task("a", 0, 0)
    assert member.order.ahead() == (Task("a", 0, 1), Task("b", 0, 0))
    member.ordered(0, ("a", 0, 0), ("b", 0, 1), ("a", 0, 1))
    assert [member.next() for _ in range(3)] == [Task("b", 0, 1), Task("a", 0, 1), None]
    # One that is ordered again after it has been seen to begin is to run again.
    member.ordered(3, ("a", 0, 0))
    assert member.next() == Task("a", 0, 0)
    began = (folder.path / "outcomes" / "m.jsonl").read_text().splitlines()
    assert [json.loads(line)["what"] for line in began] == ["began"] * 4


def test_a_member_forgets_what_had_begun_when_its_order_was_written(
    folder: PoolFolder, member: Turns
) -> None:
    for begun in range(20):
        member.ordered(begun, ("a", 0, 0))
        assert member.next() == Task("a", 0, 0)
    member.ordered(19, ("a", 0, 0), ("b", 0, 0))
    assert member.next() == Task("b", 0, 0)
    assert member.order._begun == [Task("a", 0, 0), Task("b", 0, 0)]


def test_a_task_is_taken_once_its_round_is_open(folder: PoolFolder, member: Turns) -> None:
    member.ordered(0, ("a", 1, 0), ("b", 0, 0))
    # What stands behind it waits, too: that is the order.
    assert member.next() is None
    rounds = folder.rounds / "a"
    rounds.mkdir()
    (rounds / "round-000000.state").touch()
    (rounds / "round-000000.task-000.gradient").touch()
    assert member.next() is None
    # All gradients are there and only the step is missing, which whoever comes next makes up for.
    (rounds / "round-000000.task-001.gradient").touch()
    assert member.next() == Task("a", 1, 0)
    assert member.next() == Task("b", 0, 0)


def test_a_member_looks_less_often_while_it_has_no_tasks(
    member: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    member.looks = 50
    assert member.order.next() is None
    assert pauses == sorted(pauses)
    assert pauses[-2:] == [IDLE_S, IDLE_S]
    # A round that is about to open is waited for as closely as ever.
    pauses.clear()
    member.ordered(0, ("a", 1, 0))
    assert member.next() is None
    assert pauses == [POLL_S] * 3


def test_tasks_of_what_has_ended_or_cannot_be_read_are_passed_over(
    folder: PoolFolder, member: Turns
) -> None:
    (folder.path / "results" / "a.json").write_text("{}")
    (folder.path / "trainings" / "c.json").write_text("no JSON")
    tasks = [("a", 0, 0), ("c", 0, 0), ("b", 3, 0), ("b", 0, 2), ("b", 0, 1)]
    member.ordered(0, *tasks)
    assert member.next() == Task("b", 0, 1)
    assert member.order.over("a")
    assert not member.order.over("b")
    told = [json.loads(t) for t in (folder.path / "outcomes" / "m.jsonl").read_text().splitlines()]
    (failed,) = [line for line in told if line["what"] == "failed"]
    assert failed["job"] == "c"
    assert failed["why"].startswith(f"{folder.path}/trainings/c.json: Expecting value")


def test_a_file_that_is_damaged_while_its_training_is_under_way_waits_to_be_mended(
    folder: PoolFolder, member: Turns, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder.path / "trainings" / "a.json"
    whole = path.read_text()
    path.write_text(whole[:-9])
    (folder.rounds / "a").mkdir()
    member.ordered(0, ("a", 0, 0), ("b", 0, 0), ("a", 0, 1))
    assert [member.next(), member.next()] == [Task("b", 0, 0), None]
    assert "failed" not in (folder.path / "outcomes" / "m.jsonl").read_text()
    said = capsys.readouterr().err
    assert said.count("it is under way: mend the file") == said.count(str(path)) == 1
    path.write_text(whole)
    # The scheduler orders anew what has not begun for 10 s.
    member.ordered(1, ("a", 0, 0))
    assert member.next() == Task("a", 0, 0)


def test_a_line_of_outcomes_is_closed_once_it_is_told(folder: PoolFolder, member: Turns) -> None:
    member.desk.tell("failed", job="a", why="no data")
    outcomes = folder.path / "outcomes" / "m.jsonl"
    assert json.loads(outcomes.read_text())["job"] == "a"
    # An NFS client sends it at the latest then, and while it is open perhaps never.
    opened = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert outcomes not in opened


def test_a_line_of_outcomes_begins_where_none_has_whatever_stands_before_it(
    folder: PoolFolder, member: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes, write = folder.path / "outcomes" / "m.jsonl", os.write
    member.desk.tell("failed", job="a", why="it is torn")
    outcomes.write_bytes(outcomes.read_bytes()[:-9])
    member.desk.tell("failed", job="b", why="it is whole")
    room = [5, 0]

    def full(file: int, data: bytes) -> int:
        if not room:
            return write(file, data)
        if not (some := room.pop(0)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:some])

    monkeypatch.setattr(os, "write", full)
    member.desk.tell("failed", job="c", why="the disk was full")
    lines = outcomes.read_text().splitlines()
    assert len(lines) == 4
    assert [json.loads(line)["job"] for line in lines[1::2]] == ["b", "c"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--standby=-1", "'-1': expected a whole number from 0 to"),
        ("--standby=two", "'two': expected a whole number from 0 to"),
        ("--memory-mib=-5", "'-5': expected a whole number from 1 to"),
        ("--memory-mib=0", "'0': expected a whole number from 1 to"),
        ("--task-timeout=0", "'0': expected seconds above 0"),
        ("--task-timeout=nan", "'nan': expected seconds above 0"),
    ],
)
def test_numbers_that_cannot_be_are_refused_with_those_that_can(
    words: str, expected: str, folder: PoolFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(folder.path), words])
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


def test_a_task_of_a_training_that_another_host_cannot_see_yet_is_not_dropped(
    folder: PoolFolder, member: Turns
) -> None:
    path = folder.path / "trainings" / "a.json"
    path.rename(path.with_suffix(".late"))
    member.ordered(0, ("a", 0, 0), ("b", 0, 0))
    assert member.next() is None
    assert member.order.ahead() == (Task("b", 0, 0),)
    path.with_suffix(".late").rename(path)
    assert member.next() == Task("a", 0, 0)


def test_an_order_of_another_form_orders_nothing_and_the_pools_end_ends_it(
    folder: PoolFolder, member: Turns
) -> None:
    for text in (
        "[",
        "{}",
        '{"begun": 0, "tasks": [["a"]]}',
        '{"begun": 0, "tasks": [["a",0,"x"]]}',
    ):
        (folder.path / "orders" / "m.json").write_text(text)
        assert member.next() is None
    member.ordered(0, ("a", 0, 0))
    (folder.path / "stop").touch()
    assert member.next() is None
    assert [path.name for path in (folder.path / "members").iterdir()] == ["m.json"]


def test_a_member_that_shows_itself_asks_anew_whether_trainings_or_the_pool_have_ended(
    folder: PoolFolder, member: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, scandir = list[Path](), os.scandir

    def opens(path: Path) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        opened.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", opens)
    member.desk.beat()
    assert opened == [folder.path, folder.path / "results"]


def test_a_member_that_was_forgotten_while_it_was_silent_shows_itself_again(
    folder: PoolFolder, member: Turns
) -> None:
    pool = Pool(folder.path)
    before = pool.member("m")
    member.ordered(0, ("a", 0, 0))
    assert member.next() == Task("a", 0, 0)
    # As the scheduler does with one that was suspended for an hour.
    pool.forget("m")
    member.desk.beat()
    assert pool.member("m") == before
    member.ordered(1, ("b", 0, 0))
    assert member.next() == Task("b", 0, 0)


class Broken:
    """An executor whose device breaks under its first task."""

    most_processes = 0

    def __init__(self, *_: object, **__: object) -> None:
        self.failed: dict[str, str] = {}

    def __enter__(self) -> Broken:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def await_standby(self, stopped: Callable[[], bool]) -> None:
        assert not stopped()

    def footprint(self) -> Footprint:
        return Footprint(1 << 20)

    def run(self, _: PoolOrder) -> Iterator[object]:
        yield from ()
        raise DeviceFailedError(f"cuda:0 cannot be used here: {self.most_processes} are gone")


def test_a_member_whose_device_breaks_leaves_with_a_reason_and_blames_no_training(
    folder: PoolFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(member_module, "Executor", Broken)
    monkeypatch.setattr(member_module, "host_free", lambda: 80 << 20)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert run_member(folder, "cuda:0", "v100", stopped=lambda: False) == 1
    # As many as the host has room for, of which another member has a half.
    assert "cuda:0 cannot be used here: 20 are gone" in capsys.readouterr().err
    assert not list((folder.path / "members").iterdir())
    assert not list((folder.path / "outcomes").iterdir())


def answering(script: str, folder: PoolFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each process of Python that is started do this instead."""
    monkeypatch.setattr(sys, "executable", str(tool(folder.path, "python", script)))


def test_a_member_that_is_told_to_stop_waits_for_no_process_to_get_ready(
    folder: PoolFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering("exec sleep 3600", folder, monkeypatch)
    assert run_member(folder, "cpu", "v100", standby=1, stopped=lambda: True) == STOPPED
    assert capsys.readouterr().err == ""


def test_a_member_whose_processes_do_not_get_ready_in_time_says_so(
    folder: PoolFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering("exec sleep 3600", folder, monkeypatch)
    monkeypatch.setattr(executor_module, "START_TIMEOUT_S", 0.1)
    assert run_member(folder, "cpu", "v100", standby=2, stopped=lambda: False) == UNFIT
    assert "cpu cannot be used here: no answer in 0.1 s" in capsys.readouterr().err


def test_a_member_that_is_not_told_in_time_which_gpus_there_are_says_so(
    folder: PoolFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering("exec sleep 3600", folder, monkeypatch)
    monkeypatch.setattr(Wishes, "listen", lambda _: None)
    monkeypatch.setattr(member_module, "START_TIMEOUT_S", 0.1)
    monkeypatch.setenv("HETSCHED_GPU_TYPE", "")
    (folder.path / "pool.json").write_text("{}")
    assert main([str(folder.path), "--member"]) == UNFIT
    assert "torch does not say in 0.1 s which GPUs it sees" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpu-type=a100"], "torch sees no GPU where one of type a100 should be; it trains on"),
        (["--gpu-type=a100", "--device=cpu"], ""),
        ([], ""),
    ],
)
def test_a_member_that_trains_on_the_cpu_says_so_where_there_should_be_a_gpu(
    words: list[str],
    said: str,
    folder: PoolFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answering("echo 0", folder, monkeypatch)
    monkeypatch.setattr(Wishes, "listen", lambda _: None)
    monkeypatch.setenv("HETSCHED_GPU_TYPE", "")
    (folder.path / "pool.json").write_text("{}")
    # It has ended, so that nothing trains.
    (folder.path / "stop").touch()
    assert main([str(folder.path), "--member", "--standby=0", *words]) == 0
    told = capsys.readouterr().err
    assert (said in told, told.count("\n")) == (True, bool(said))


def test_a_process_that_ends_again_and_again_is_started_ever_later_and_in_the_end_no_more() -> None:
    kept = Kept("x", ["true"])
    pauses = [kept.pause(1, 1.0) for _ in range(10)]
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, None]
    # One that was there for a while has not failed to start.
    assert kept.pause(1, LASTS_S) == 0.0


def test_a_device_that_has_worked_is_tried_for_ever_and_one_that_never_did_once() -> None:
    assert Kept("x", ["true"]).pause(UNFIT, 1.0) is None
    kept = Kept("x", ["true"])
    assert kept.pause(1, 1.0) == 0.0
    assert [kept.pause(UNFIT, 1.0) for _ in range(20)][-1] == LONGEST_PAUSE_S


def test_a_keeper_starts_again_what_fails_and_ends_with_the_pool_though_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wishes, "listen", lambda _: None)
    log = tmp_path / "starts"
    script = f"echo x >>{log}; exit $(wc -l <{log})"
    kept = [Kept("x", ["sh", "-c", script])]
    # It ends with 1, with 2 and with 3: the fourth start would be due in two seconds.
    assert keep(kept, 1, lambda: log.exists() and log.read_text().count("x") == 3) == 0
    assert kept[0].ends == 3


def test_a_keeper_without_its_scheduler_s_program_says_so_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = tmp_path / "started"
    kept = [Kept("member", ["touch", str(started)]), Kept("scheduler", ["nosuchprog", "pool"])]
    assert keep(kept, 0, lambda: False) == UNFIT
    said = capsys.readouterr().err
    assert "'nosuchprog', the program of its scheduler, is not on PATH; activate" in said
    assert said.count("\n") == 1
    assert not started.exists()


def test_what_a_keeper_keeps_ends_with_it_though_it_ends_by_an_error(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    stays = f"trap '' TERM; sleep 3600 & echo $$ $! >{pids}.part; mv {pids}.part {pids}; wait"
    fails = f"while [ ! -e {pids} ]; do sleep 0.01; done; exit 1"

    def over() -> bool:
        raise OSError("the folder is away")

    with pytest.raises(OSError, match="is away"):
        keep([Kept("member", ["sh", "-c", stays]), Kept("other", ["sh", "-c", fails])], 1, over)
    assert not [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}/cmdline").exists()
                and Path(f"/proc/{pid}/cmdline").read_text()]  # fmt: skip


def test_a_gpu_is_of_its_own_node_s_type_where_a_job_spans_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\necho "NodeName=$5 Gres=gpu:t4:1"\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    first = {"HETSCHED_GPU_TYPE": "a100", "SLURMD_NODENAME": "n2"}
    assert own_type({**first, "HETSCHED_NODES": "2"}) == "t4"
    assert own_type({**first, "HETSCHED_NODES": "1"}) == "a100"
    assert own_type({}) == "gpu"
