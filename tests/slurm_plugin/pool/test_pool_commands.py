"""`hetsched pool`, from a folder that is none to results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hetsched_core.cli.group import hetsched
from slurm_plugin.pool.folder import Pool
from slurm_plugin.pool.lock import only_one
from slurm_plugin.pool.scheduler import pool_policies
from slurm_plugin.pool.status import status
from tests.slurm_plugin.pool.members import Hand
from tests.slurm_plugin.pool.test_pool_scheduler import scheduler, worked_off


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(hetsched, ["pool", *map(str, words)])


def made(path: Path, *words: str) -> Path:
    (path / "jobs.py").write_text("def make(rate, width=1): ...\n")
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
    assert "the pool ends" in call("status", path).output


def test_a_pool_that_runs_is_not_made_again_and_one_that_has_ended_goes_on(tmp_path: Path) -> None:
    path = made(tmp_path)
    assert call("stop", path).exit_code == 0
    with only_one(path, lambda: True):
        done = call("create", path, "--policy=hare")
        assert "is a pool that runs; `hetsched pool stop" in str(done.exception)
        assert (Pool(path).record().policy, Pool(path).stopped) == ("hlas-p", True)
    done = call("create", path, "--policy=hare")
    assert done.output == f"{path}: the pool goes on under hare\n"
    assert (Pool(path).record().policy, Pool(path).stopped) == ("hare", False)


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
        (("submit", "P", "m:f", "--rounds=1", "--weight=0"), "weight is 0.0; expected a number"),
        (("submit", "P", "m:f", "--rounds=1", "--weight=nan"), "weight is nan; expected a number"),
        (("submit", "P", "m:f", "--rounds=1", "--set=x=NaN"), "without NaN and infinity"),
        (("submit", "P", "m:f", "--rounds=1", "--each=x=1,1e999"), "without NaN and infinity"),
        (("submit", "P", "m:f", "--rounds=1", f"--set=x={'y' * (1 << 20)}"), "are the most: leave"),
        (("submit", "P", "m:f", "--rounds=0"), "--rounds"),
        (("submit", "P", "m:f", "--rounds=1", "--scale=2000"), "from 1 to 1000"),
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
