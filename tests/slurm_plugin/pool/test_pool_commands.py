"""`hetsched pool`, from a folder that is none to results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hetsched_core.cli.group import hetsched
from slurm_plugin.pool.folder import Pool
from slurm_plugin.pool.lock import only_one
from slurm_plugin.pool.notes import Notes
from slurm_plugin.pool.scheduler import pool_policies
from slurm_plugin.pool.status import NO_GPU, status
from tests.slurm_plugin.pool.members import Hand, room_for, scheduler, worked_off


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(hetsched, ["pool", *map(str, words)])


def made(path: Path, *words: str) -> Path:
    (path / "jobs.py").write_text("def make(rate, width=1, depth=1): ...\n")
    assert call("create", path / "pool", *words).exit_code == 0
    return path / "pool"


def test_a_search_has_a_training_for_each_choice_and_status_tells_how_far_it_is(
    tmp_path: Path,
) -> None:
    path = made(tmp_path, "--policy=hlas", "--set=groups=1")
    words = ("--rounds=2", "--name=s", "--each=rate=0.1,0.2", "--each=width=1,2,3", "--set=depth=4")
    done = call("submit", path, tmp_path / "jobs.py:make", *words)
    assert done.output.split() == [f"s-{at:03}" for at in range(6)]
    last = Pool(path).training("s-005")
    assert last.arguments == {"depth": 4, "rate": 0.2, "width": 3}
    assert (last.group, last.key, last.rounds) == ("s", "make", 2)
    hand = Hand(Pool(path), "a0")
    made_by = scheduler(Pool(path), "hlas")
    made_by.step()
    hand.run()
    hand.tell(what="failed", job="s-005", why="no data")
    made_by.step()
    said = status(Pool(path))
    assert (said.policy, said.scheduled, said.stopped) == ("hlas", False, False)
    assert [t.state for t in said.trainings].count("failed") == 1
    assert sum(t.rounds for t in said.trainings) == 1
    assert [(m.id, m.tasks, m.gpu_type) for m in said.members] == [("a0", 1, "v100")]
    assert said.members[0].next == ("{} {} {}".format(*hand.order()[0]),)
    text = call("status", path).output
    assert "policy hlas; the pool is not scheduled now" in text
    assert "no data" in text
    assert json.loads(call("status", path, "--json").output)["trainings"][0]["of"] == 2
    assert call("cancel", path, "s-001").exit_code == 0
    worked_off(made_by, [hand])
    ends = {t.name: (t.state, t.why) for t in status(Pool(path)).trainings}
    assert ends["s-001"] == ("failed", "cancelled")
    assert ends["s-000"] == ("done", "")
    assert call("stop", path).exit_code == 0
    assert "the pool ends\n" in call("status", path).output
    hand.file.unlink()
    assert f"the pool has ended; `hetsched pool create {path}`" in call("status", path).output


def test_a_pool_that_runs_is_not_made_again_and_one_that_has_ended_goes_on(tmp_path: Path) -> None:
    path = made(tmp_path)
    with only_one(path, lambda: True):
        done = call("create", path, "--policy=hare")
        assert "is a pool that runs; `hetsched pool stop" in str(done.exception)
        assert call("stop", path).exit_code == 0
        assert "the pool ends\n" in call("status", path).output
        done = call("create", path, "--policy=hare")
        assert "is ending: its GPUs finish their tasks; create it again once" in str(done.exception)
        assert (Pool(path).record().policy, Pool(path).stopped) == ("hlas-p", True)
    done = call("create", path, "--policy=hare")
    assert done.output == f"{path}: the pool goes on under hare\n"
    assert (Pool(path).record().policy, Pool(path).stopped) == ("hare", False)


def test_a_pool_whose_gpus_are_there_is_not_made_again_though_its_scheduler_is_gone(
    tmp_path: Path,
) -> None:
    path = made(tmp_path)
    hand = Hand(Pool(path), "a0")
    assert "is a pool that runs; `hetsched pool stop" in str(call("create", path).exception)
    call("stop", path)
    assert "is ending: its GPUs finish their tasks" in str(call("create", path).exception)
    assert Pool(path).stopped
    hand.file.unlink()
    assert call("create", path).exit_code == 0


def test_a_pool_goes_on_under_its_own_policy_unless_another_is_named(tmp_path: Path) -> None:
    path = made(tmp_path, "--policy=hlas-l", "--set=groups=3")
    done = call("create", path)
    assert done.output == f"{path}: the pool goes on under hlas-l, groups=3\n"
    call("create", path, "--set=groups=4")
    assert Pool(path).record().policy == "hlas-l"
    assert Pool(path).record().parameters == {"groups": "4"}
    call("create", path, "--policy=hare")
    assert Pool(path).record().parameters == {}


def test_a_damaged_record_is_made_anew_as_the_error_says(tmp_path: Path) -> None:
    path = made(tmp_path)
    (path / "pool.json").write_text("")
    said = str(call("status", path).exception)
    assert f"{path}/pool.json: Expecting value" in said
    assert f"`hetsched pool create {path}` makes it anew" in said
    assert call("create", path).exit_code == 0
    assert call("status", path).exit_code == 0


def test_a_folder_with_other_files_is_no_place_for_a_pool(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    for path, why in ((tmp_path, "holds other files, such as 'thesis.tex'"), ("", "names no fold")):
        done = call("create", path)
        assert done.exit_code != 0
        assert why in done.output + str(done.exception)
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_of_results_is_no_pool_and_one_that_was_a_pool_is_made_one_again(
    tmp_path: Path,
) -> None:
    results = tmp_path / "mine" / "results"
    results.mkdir(parents=True)
    (results / "table.csv").touch()
    assert "such as 'results'" in str(call("create", tmp_path / "mine").exception)
    path = made(tmp_path)
    call("submit", path, tmp_path / "jobs.py:make", "--rounds=2", "--set=rate=1", "--name=x")
    (path / "pool.json").unlink()
    assert call("create", path).exit_code == 0
    assert Pool(path).names("trainings") == {"x"}


def test_an_empty_or_a_new_folder_becomes_its_user_s_alone_as_a_pool(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir(mode=0o755)
    for name in ("empty", "new"):
        assert call("create", tmp_path / name).exit_code == 0
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700


def test_a_search_that_was_interrupted_is_gone_on_with_by_the_same_command(tmp_path: Path) -> None:
    path = made(tmp_path)
    words = ("submit", path, tmp_path / "jobs.py:make", "--rounds=2", "--each=rate=1,2,3")
    assert call(*words, "--name=s").exit_code == 0
    before = (path / "trainings" / "s-001.json").read_text()
    (path / "trainings" / "s-002.json").unlink()
    done = call(*words, "--name=s")
    assert done.stdout.split() == ["s-000", "s-001", "s-002"]
    assert "2 of 3 were there already and stay as they are: s-000, s-001" in done.stderr
    assert Pool(path).names("trainings") == {"s-000", "s-001", "s-002"}
    assert (path / "trainings" / "s-001.json").read_text() == before


def test_what_was_added_before_something_broke_is_told(tmp_path: Path) -> None:
    path = made(tmp_path)
    words = ("submit", path, tmp_path / "jobs.py:make", "--rounds=2", "--name=s")
    choices = f"--each=rate=1,2,{'x' * 5000}"
    with room_for(2000):
        said = str(call(*words, choices).exception)
    assert said.endswith(
        f"{path}/trainings/s-002.json: File too large; 2 were added before, s-000 to s-001: the "
        "same command adds the others"
    )
    assert call(*words, choices).exit_code == 0
    assert Pool(path).names("trainings") == {"s-000", "s-001", "s-002"}


def test_a_pool_that_is_scheduled_and_has_no_gpu_says_so(tmp_path: Path) -> None:
    path = made(tmp_path)
    assert not status(Pool(path)).problems
    with only_one(path, lambda: True):
        assert status(Pool(path)).problems == (NO_GPU,)
        Hand(Pool(path), "a0")
        assert not status(Pool(path)).problems


def test_what_is_submitted_to_a_pool_that_has_ended_is_said_to_wait(tmp_path: Path) -> None:
    path = made(tmp_path)
    words = ("submit", path, tmp_path / "jobs.py:make", "--rounds=2", "--set=rate=1")
    assert not call(*words).stderr
    call("stop", path)
    assert f"what is submitted waits; once it has ended, `hetsched pool create {path}`" in (
        call(*words).stderr
    )


def test_a_damaged_result_is_named_by_status(tmp_path: Path) -> None:
    path = made(tmp_path)
    call("submit", path, tmp_path / "jobs.py:make", "--rounds=2", "--set=rate=1", "--name=x")
    (path / "results" / "x.json").write_text("{")
    (found,) = status(Pool(path)).trainings
    assert (found.name, found.state) == ("x", "unreadable")
    assert f"{path}/results/x.json: Expecting property name" in found.why


def test_one_that_has_ended_is_not_cancelled_and_no_other_one_is_proposed(tmp_path: Path) -> None:
    path = made(tmp_path)
    words = ("submit", path, tmp_path / "jobs.py:make", "--rounds=2", "--name=rates")
    call(*words, f"--each=rate={','.join(map(str, range(20)))}")
    assert call("cancel", path, "rates-000").exit_code == 0
    said = str(call("cancel", path, "rates-000").exception)
    assert (
        said == "training 'rates-000' has ended as failed (cancelled): there is nothing to cancel"
    )
    endless = "9" * 5000
    for wrong, near in (
        (endless, None),
        ("rates-9", "rates-009"),
        ("raets-009", "rates-009"),
        ("rates-020", None),
    ):
        said = str(call("cancel", path, "rates-001", wrong).exception)
        assert f"unknown training {wrong!r}: " in said
        assert ("did you mean" in said) == (near is not None)
        assert near is None or f"did you mean {near!r}?" in said
        assert said.endswith("and 9 more")
    assert Pool(path).names("results") == {"rates-000"}


def test_status_shows_in_what_the_trainings_of_a_search_differ(tmp_path: Path) -> None:
    path = made(tmp_path)
    words = ("submit", path, tmp_path / "jobs.py:make", "--rounds=2")
    call(*words, "--set=width=3", "--each=rate=0.1,0.6309573444801932", "--name=s")
    call(*words, "--set=rate=5", "--name=alone")
    lines = {
        line.split()[0]: line.split()[2] for line in call("status", path).output.splitlines()[3:6]
    }
    assert lines == {"s-000": "rate=0.1", "s-001": "rate=0.630957", "alone": "rate=5"}
    first = json.loads(call("status", path, "--json").output)["trainings"][0]
    assert first["arguments"] == {"width": 3, "rate": 0.1}


def test_a_long_message_widens_no_table_and_is_whole_in_json(tmp_path: Path) -> None:
    path = made(tmp_path)
    call("submit", path, tmp_path / "jobs.py:make", "--rounds=2", "--set=rate=1", "--name=x")
    hand = Hand(Pool(path), "a0")
    hand.tell(what="failed", job="x", why="y" * 60_000)
    scheduler(Pool(path), "hlas").step()
    assert max(map(len, call("status", path).output.splitlines())) < 300
    assert "y" * 60_000 in call("status", path, "--json").output


def test_status_tells_what_the_scheduler_said_last(tmp_path: Path) -> None:
    path = made(tmp_path)
    said: list[str] = []
    say = Notes(path, said.append)
    for number in range(9):
        say(f"problem {number}")
    assert said == [f"problem {number}" for number in range(9)]
    found = status(Pool(path)).problems
    assert [each.partition("Z ")[2] for each in found] == [
        f"scheduler: problem {number}" for number in range(4, 9)
    ]
    assert "scheduler: problem 8" in call("status", path).output
    Notes(path, said.append)
    assert not status(Pool(path)).problems


def test_that_another_scheduler_runs_is_a_note_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("time.sleep", lambda _: Pool(path).stop())
    with only_one(path, lambda: True):
        said = call("schedule", path).stderr
    assert said == (
        f"hetsched: note: another scheduler runs the pool {path}; this one waits for its lock\n"
    )


def test_notes_that_cannot_be_kept_are_said_all_the_same(tmp_path: Path) -> None:
    said: list[str] = []
    Notes(tmp_path / "nowhere", said.append)("the disk is full")
    assert said == ["the disk is full"]


def test_a_folder_of_the_pool_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path)
    # Root may write everywhere.
    monkeypatch.setattr("os.access", lambda folder, _: folder.name != "results")
    (problem,) = status(Pool(path)).problems
    assert problem.startswith(f"{path}/results cannot be written")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "pool"
    done = call("create", path)
    assert f"cannot make a pool of {path}: Not a directory" in str(done.exception)


@pytest.mark.parametrize("policy", pool_policies())
def test_no_gpu_of_a_pool_idles_while_there_are_as_many_trainings_of_one_task_a_round(
    policy: str, tmp_path: Path
) -> None:
    path = made(tmp_path, f"--policy={policy}")
    call("submit", path, tmp_path / "jobs.py:make", "--rounds=9", "--each=rate=1,2,3,4,5")
    record = Pool(path).record()
    hands = [Hand(Pool(path), f"a{at}") for at in range(4)]
    scheduler(Pool(path), record.policy, **record.parameters).step()
    assert all(hand.order() for hand in hands)
    for hand in hands:
        hand.file.unlink()
    # What the user says goes before.
    if "groups" in record.parameters:
        call("create", path, f"--policy={policy}", "--set=groups=2")
        assert Pool(path).record().parameters == {"groups": "2"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("create", "P", "--policy=las"), "places whole jobs, and a pool runs tasks; valid: allox"),
        (("create", "P", "--policy=hlass"), "unknown policy 'hlass'"),
        (("create", "P", "--set=groups"), "--set groups: expected NAME=VALUE"),
        (("status", "nowhere"), "is no pool; `hetsched pool create nowhere` makes it one"),
        (("submit", "P", "nowhere.py:f", "--rounds=1"), "there is no file"),
        (("submit", "P", "f", "--rounds=1"), "expected path/file.py:function"),
        (("submit", "P", "m:f", "--rounds=1", "--set=x"), "'x': expected NAME=VALUE"),
        (("submit", "P", "m:f", "--rounds=1", "--each=x"), "'x': expected NAME=VALUE,VALUE"),
        (("submit", "P", "m:f", "--rounds=1", "--name=a/b"), "name is 'a/b'; expected letters"),
        (("submit", "P", "m:f", "--rounds=1", "--name="), "--name '': expected a name"),
        (("submit", "P", "m:f", "--rounds=1", "--each=x=1,,2"), "'x=1,,2': a value is empty"),
        (("submit", "P", "m:f", "--rounds=1", "--each=x=0.1,0.10"), "0.1 stands there several"),
        (
            ("submit", "P", "m:f", "--rounds=1", "--each=x=1", "--set=x=2"),
            "argument 'x' is given several times by --set and --each",
        ),
        (("submit", "P", "m:f", "--rounds=1", "--each=x=1", "--each=x=2"), "'x' is given several"),
        (("submit", "P", "m:f", "--rounds=1", "--set=x=NaN"), "without NaN and infinity"),
        (("submit", "P", "m:f", "--rounds=0"), "--rounds"),
        (("cancel", "P", "x"), "unknown training 'x'"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(
    words: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    path = made(tmp_path)
    done = call(*(path if word == "P" else word for word in words))
    assert done.exit_code != 0
    assert why in " ".join((done.output + str(done.exception)).split())
    assert not list((path / "trainings").iterdir())


def test_what_reads_the_form_of_a_training_from_the_jobs_side_imports_no_torch_with_it() -> None:
    code = "import sys; sys.modules['torch'] = None; import slurm_plugin.pool.submission"
    subprocess.run([sys.executable, "-c", code], check=True)
