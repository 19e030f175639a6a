"""`hetsched-run` as a process, where Slurm is only its environment."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import zipapp
from collections.abc import Callable
from pathlib import Path

import pytest

from job_wrappers.launch import workers
from job_wrappers.launch.options import read_options
from job_wrappers.launch.part import RunPart
from job_wrappers.launch.workers import Step, torchrun_command
from tests.job_wrappers.worlds import (
    ROOT,
    ended,
    environment,
    launched,
    run,
    shown,
    tool,
    wait_for,
)

OLD_PYTHONS = sorted(Path.home().glob(".pyenv/versions/3.9.*/bin/python3"))
"""The oldest Python that jobs may have, where somebody has put one."""


def begin(
    folder: Path, script: str, *words: str, gpus: int = 2, ready: str = ""
) -> subprocess.Popen[str]:
    """Start workers that run `ready`, leave their process id in `folder/up.RANK`, run `script`."""
    up = f"{ready} echo $$ >{folder}/part.$RANK; mv {folder}/part.$RANK {folder}/up.$RANK;"
    process = launched("--no-requeue", *words, "--", "bash", "-c", f"{up} {script}", gpus=gpus)
    for rank in range(gpus):
        wait_for(folder / f"up.{rank}")
    return process


def test_each_worker_is_told_its_place_and_what_the_run_holds() -> None:
    found = shown("--spool=spool", gpus=3, more={"SLURM_CPUS_ON_NODE": "12"})
    assert [one["RANK"] for one in found] == [one["LOCAL_RANK"] for one in found] == ["0", "1", "2"]
    told = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "OMP_NUM_THREADS": "4"}
    told |= {"MASTER_ADDR": "127.0.0.1", "HETSCHED_GPUS": "3", "HETSCHED_NODES": "1"}
    told["HETSCHED_SPOOL"] = str(Path("spool").absolute())
    assert found[0].items() >= told.items()
    assert len({one["MASTER_PORT"] for one in found}) == 1
    assert "HETSCHED_LEARNING_RATE" not in found[0]


def test_slurm_is_asked_again_to_pass_a_signal_on_until_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It does not answer twice, as a slurmctld that is busy.
    log = tmp_path / "asked"
    tool(tmp_path, "scancel", f'echo "$@" >>{log}\n[ $(wc -l <{log}) -ge 3 ]')
    monkeypatch.setattr(workers, "_AGAIN_S", 0.1)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with subprocess.Popen(["sleep", "60"]) as srun:
        step = Step("srun", srun, job="7")
        step.send(signal.SIGUSR2)
        began_s = time.monotonic()
        while (step._asked or step._again) and time.monotonic() < began_s + 60.0:
            step.follow()
            time.sleep(0.01)
        srun.kill()
    # Twice it was given time to recover.
    assert time.monotonic() >= began_s + 0.2
    assert log.read_text().splitlines() == ["--signal=SIGUSR2 7"] * 3


def test_the_second_node_has_the_later_ranks() -> None:
    more = {"SLURM_JOB_NUM_NODES": "2", "SLURM_NODEID": "1"}
    found = shown("--meet=10.0.0.7:29500", gpus=4, more=more)
    assert [one["RANK"] for one in found] == ["4", "5", "6", "7"]
    told = {"LOCAL_RANK": "2", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1"}
    told |= {"GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "29500"}
    assert found[2].items() >= told.items()


@pytest.mark.parametrize(
    ("words", "told", "rate"),
    [
        ((), {"GIVEN": "0.1", "SCALING": "linear", "GPUS": "4"}, 0.05),
        ((), {"GIVEN": "0.1", "SCALING": "sqrt", "GPUS": "8"}, 0.05),
        ((), {"GIVEN": "0.1", "SCALING": "none", "GPUS": "4"}, 0.1),
        (("--learning-rate=0.3",), {"GIVEN": "0.1", "SCALING": "linear", "GPUS": "1"}, 0.6),
        (("--learning-rate=0.3", "--lr-scaling=none"), {}, 0.3),
        (("--learning-rate=0.3", "--lr-scaling=linear", "--lr-gpus=2"), {}, 0.3),
    ],
)
def test_the_learning_rate_of_the_submission_is_handed_on_for_the_gpus_that_there_are(
    words: tuple[str, ...], told: dict[str, str], rate: float
) -> None:
    more = {f"HETSCHED_LR_{name}": value for name, value in told.items()}
    assert float(shown(*words, more=more)[0]["HETSCHED_LEARNING_RATE"]) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--learning-rate=-1", "argument --learning-rate: -1: expected a number above 0"),
        ("--learning-rate=nan", "argument --learning-rate: nan: expected a number above 0"),
        ("--lr-gpus=0", "argument --lr-gpus: 0: expected a number of GPUs, 1 or more"),
        ("--learning-rate=1 --lr-scaling=sqrt", "--lr-scaling=sqrt needs --lr-gpus=COUNT"),
        ("--kill-after=-1", "argument --kill-after: -1: expected seconds, 0 or more"),
        ("--kill-after=inf", "argument --kill-after: inf: expected seconds, 0 or more"),
        ("--spool=", "argument --spool: expected the name of a folder"),
        ("--logs=", "argument --logs: expected the name of a folder"),
        ("--logs=/etc/passwd", "--logs /etc/passwd is a file; give a folder"),
    ],
)
def test_an_option_that_makes_no_sense_is_named_with_what_was_expected(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        read_options([*words.split(), "--", "true"], {})
    assert end.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "restarts", "code", "said"),
    [
        ("exit 0", 0, 0, ""),
        ("exit 3", 0, 3, " ended with 3"),
        ("exit 99", 4, 99, "stopped; Slurm"),
        ("kill -SEGV $$", 0, 139, "was ended by SIGSEGV"),
        ("[ $RANK = 1 ] && exit 7; exec sleep 60", 0, 7, "rank 1 ended with 7; the other 1 have"),
        ("echo stopped >$HETSCHED_OUTCOME", 0, 99, "stopped; Slurm"),
        ("echo stopped >$HETSCHED_OUTCOME; kill -SEGV $$", 0, 99, "this run counts as stopped"),
        # It only ever asks to be started again.
        ("exit 99", 5, 1, "no signal has stopped it"),
        ("echo stopped >$HETSCHED_OUTCOME", 5, 1, "no signal has stopped it"),
        ("kill -USR2 $PPID; sleep 0.5; exit 99", 5, 99, "stopped; Slurm"),
        ("touch $HETSCHED_OUTCOME.heard; exit 99", 5, 99, "stopped; Slurm"),
    ],
)
def test_it_ends_as_its_workers_have_ended(
    script: str, restarts: int, code: int, said: str
) -> None:
    more = {"SLURM_RESTART_COUNT": str(restarts)}
    ended_with, told = run("--kill-after=1", "--", "bash", "-c", script, more=more)
    assert (ended_with, said in told) == (code, True), told
    assert ("Slurm shows the job as gone" in told) == (code == 99)


ABROAD = {"SLURM_JOB_NUM_NODES": "2"}
NO_FILE = "No such file or directory"


@pytest.mark.parametrize(
    ("words", "more", "code", "said"),
    [
        (("--", "no-such-program"), {}, 127, f"hetsched-run: no-such-program: {NO_FILE}\n"),
        (("--", "/etc/passwd"), {}, 126, "Permission denied"),
        (("--", "true"), {**ABROAD, "PATH": "/nowhere"}, 127, f"srun: {NO_FILE}; it starts the"),
        ((), {}, 2, "nothing to run"),
        (("--learning-rate=0.3", "--", "true"), {}, 0, "--learning-rate=0.3 stays as it is on any"),
        (("--", "true"), {"HETSCHED_LR_SCALING": "cubic"}, 2, "cubic"),
        (("--", "true"), {"SLURM_JOB_ID": ""}, 2, "by sbatch; to try it on a machine without Sl"),
        (
            ("--meet=127.0.0.1:29500", "--", "true"),
            {**ABROAD, "SLURM_NODEID": "two"},
            *(2, "SLURM_NODEID=two: expected a number from 0 to 1"),
        ),
    ],
)
def test_it_says_what_is_missing_or_makes_no_sense(
    words: tuple[str, ...], more: dict[str, str], code: int, said: str
) -> None:
    ended_with, told = run(*words, more=more)
    assert (ended_with, said in told) == (code, True), told


def test_torchrun_without_torch_is_told_which_python_lacks_it(tmp_path: Path) -> None:
    bare = tool(tmp_path, "python-without", f'exec {sys.executable} -S -E "$@"')
    code, said = run("--torchrun", "--", str(bare), "train.py")
    assert code == 2
    assert f"--torchrun needs torch, which {bare} does not have" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_reach_every_worker(tmp_path: Path, number: signal.Signals) -> None:
    ready = f"trap 'echo {number.name} >{tmp_path}/got.$RANK; exit 0' {number.name[3:]};"
    process = begin(tmp_path, "while :; do sleep 0.05; done", gpus=3, ready=ready)
    process.send_signal(number)
    assert ended(process)[0] == 0
    assert [(tmp_path / f"got.{rank}").read_text() for rank in range(3)] == [f"{number.name}\n"] * 3


def test_asked_to_save_before_there_is_anything_to_save_it_saves_as_soon_as_there_is(
    tmp_path: Path,
) -> None:
    # Python needs a while until it listens; bash does not take the signal before it is told to.
    script = (
        f"until [ -e {tmp_path}/go ]; do sleep 0.05; done;"
        f"trap 'touch {tmp_path}/saved.$RANK' USR1;"
        f"until [ -e {tmp_path}/saved.$RANK ]; do sleep 0.05; done"
    )
    process = begin(tmp_path, script)
    process.send_signal(signal.SIGUSR1)
    (tmp_path / "go").touch()
    assert ended(process)[0] == 0


def test_a_worker_that_does_not_stop_when_told_to_is_named(tmp_path: Path) -> None:
    script = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    process = begin(tmp_path, script, "--kill-after=0.5", ready="[ $RANK = 1 ] && trap '' TERM;")
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    said = process.stderr.readline()
    (tmp_path / "go").touch()
    process.communicate(timeout=60)
    assert said.startswith("hetsched-run: rank 1: told to stop 0.5 s ago, and still there")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_told_to_stop_before_there_is_anything_to_save_it_counts_as_stopped(
    tmp_path: Path, number: signal.Signals
) -> None:
    # Rank 1 could take the signal, and fails for want of rank 0.
    ready = f"[ $RANK = 1 ] && trap 'sleep 0.5; exit 1' {number.name[3:]};"
    process = begin(tmp_path, "for i in $(seq 600); do sleep 0.1; done", ready=ready)
    process.send_signal(number)
    assert ended(process)[0] == 99


def test_told_to_stop_before_there_are_workers_it_counts_as_stopped(tmp_path: Path) -> None:
    tool(tmp_path, "scontrol", f"touch {tmp_path}/asked\nsleep 1")
    more = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    process = launched("--no-requeue", "--", "sleep", "60", more=more)
    wait_for(tmp_path / "asked")
    process.send_signal(signal.SIGUSR2)
    assert ended(process)[0] == 99


@pytest.mark.parametrize("worker", ["exec sleep 600", "trap '' TERM; sleep 600; true"])
def test_workers_do_not_outlive_a_launcher_that_was_killed(tmp_path: Path, worker: str) -> None:
    # What workers have started goes with them, even if they would not end for SIGTERM.
    process = begin(tmp_path, worker, "--kill-after=0.5", gpus=3)
    groups = [int((tmp_path / f"up.{rank}").read_text()) for rank in range(3)]
    process.kill()
    assert process.wait(30) == -signal.SIGKILL
    # Of the last one the guardian may not have been told yet.
    last = groups.pop()
    try:
        await_end_of(groups)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(last, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("dead", ["torchrun", "launcher", "both"])
def test_workers_do_not_outlive_a_torchrun_or_its_launcher_that_was_killed(
    tmp_path: Path, dead: str
) -> None:
    # What torchrun does: workers in sessions of their own, which know nothing of each other.
    python = tool(
        tmp_path,
        "python",
        f'[ "$1" = -c ] && exit 0\n'
        f'for rank in 0 1; do setsid sh -c \'trap "" TERM; echo $$ >{tmp_path}/part;'
        f"mv {tmp_path}/part {tmp_path}/up.$1; sleep 600; true' sh $rank & sleep 0.3; done\n"
        f"echo $$ >{tmp_path}/torchrun\nwait\nexec sleep 600",
    )
    process = launched("--torchrun", "--kill-after=0.5", "--", str(python), "train.py")
    wait_for(tmp_path / "torchrun", "\n")
    groups = [int((tmp_path / f"up.{rank}").read_text()) for rank in range(2)]
    looked = _naps(process.pid)
    while _naps(process.pid) < looked + 3:  # the launcher has looked for children since
        time.sleep(0.02)
    if dead != "torchrun":
        process.kill()
    groups.append(int((tmp_path / "torchrun").read_text()))
    if dead != "launcher":
        os.kill(groups[-1], signal.SIGKILL)
    code, said = ended(process)
    if dead == "torchrun":
        assert code == 128 + signal.SIGKILL
        assert "was ended by SIGKILL; its workers have 0.5 s to end" in said
        assert not any(map(_in_group, groups))
    await_end_of(groups)


def _naps(pid: int) -> int:
    """How often a process has gone to sleep."""
    said = Path(f"/proc/{pid}/status").read_text()
    return int(said.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def await_end_of(groups: list[int]) -> None:
    """Wait until no process of these groups is left."""
    deadline = time.monotonic() + 30
    while any(map(_in_group, groups)):
        assert time.monotonic() < deadline, "workers outlive their launcher"
        time.sleep(0.1)


def _in_group(group: int) -> bool:
    """Whether a process of a group is there that has not ended."""
    said = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True)
    rows = (line.split() for line in said.stdout.splitlines())
    return any(int(row[0]) == group and not row[1].startswith("Z") for row in rows)


def test_the_output_of_each_rank_is_appended_run_by_run(tmp_path: Path) -> None:
    words = (f"--logs={tmp_path}/logs", "--", "bash", "-c", "echo $RANK $HETSCHED_RESTARTS")
    for number in range(2):
        process = launched(*words, more={"SLURM_RESTART_COUNT": str(number)})
        assert process.communicate(timeout=60)[0] == ""
    lines = (tmp_path / "logs" / "77.rank1.log").read_text().splitlines()
    assert [lines[1], lines[3]] == ["1 0", "1 1"]
    assert [line[:17] for line in lines[::2]] == ["=== job 77 run 0,", "=== job 77 run 1,"]


def test_a_full_disk_for_logs_loses_neither_the_training_nor_why_it_ended(
    tmp_path: Path, small_disk: Callable[[str], Path]
) -> None:
    disk = small_disk("64k")
    words = (f"--logs={disk}", "--kill-after=1", "--", "bash", "-c")
    fill = f"head -c 200k /dev/zero >{disk}/filler 2>/dev/null"
    code, said = run(*words, f"{fill}; echo why; exit 3", gpus=1)
    assert code == 3
    assert f"its output is in {disk}/77.rank0.log, on a disk that is full" in said
    (disk / "77.rank0.log").unlink()
    with contextlib.suppress(OSError):
        (disk / "more").write_bytes(bytes(1 << 20))
    process = launched(*words, "echo why; exit 3", gpus=1)
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (3, "why\n")
    assert "No space left on device; its output goes to that of the job instead" in said


def test_as_one_file_it_runs_under_an_old_python_and_brings_the_session_along(
    tmp_path: Path,
) -> None:
    if not OLD_PYTHONS:
        pytest.skip("no Python 3.9 here")
    shutil.copytree(ROOT / "job_wrappers", tmp_path / "content" / "job_wrappers")
    pyz = tmp_path / "hetsched-run.pyz"
    zipapp.create_archive(tmp_path / "content", pyz, main="job_wrappers.launch.command:run")
    script = "import sys, job_wrappers.session as s; print(sys.version_info[:2], s.__file__)"
    command = [str(OLD_PYTHONS[0]), str(pyz), "--", str(OLD_PYTHONS[0]), "-c", script]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(gpus=1) | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"(3, 9) {pyz}/job_wrappers/session/__init__.py\n", done.stderr


# -- parts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "python", "tail"),
    [
        (("python", "train.py", "-v"), "python", ["train.py", "-v"]),
        (("/env/bin/python3", "-m", "mine"), "/env/bin/python3", ["--module", "mine"]),
        (("python", "-u", "train.py"), "python3", ["--no-python", "python", "-u", "train.py"]),
        (("./train",), "python3", ["--no-python", "./train"]),
    ],
)
def test_torchrun_gets_scripts_modules_and_programs(
    command: tuple[str, ...], python: str, tail: list[str]
) -> None:
    words = torchrun_command(RunPart(0, 0, 2, 1, "127.0.0.1:29500"), 2, command)
    assert words[0] == python
    assert words[-len(tail) :] == tail
    assert "--max-restarts=0" in words


def test_asked_to_save_while_the_launchers_of_several_nodes_begin_none_of_them_ends(
    tmp_path: Path,
) -> None:
    # As Slurm does it: the signal goes to what is there by now, here a Python that has just begun.
    tool(
        tmp_path,
        "srun",
        'while [ "${1#--}" != "$1" ]; do shift; done\n"$@" &\n'
        "until tr '\\0' ' ' </proc/$!/cmdline | grep -q '^[^ ]*python'; do sleep 0.005; done\n"
        "kill -USR1 $!\nwait $!",
    )
    told = {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[0-1]", "SLURM_NODEID": "0"}
    told["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    assert run("--", "touch", str(tmp_path / "ran"), gpus=1, more=told) == (0, "")
    assert (tmp_path / "ran").exists()
