"""The lock by which a pool has one scheduler at a time."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from slurm_plugin.pool.lock import only_one, scheduled
from tests.slurm_plugin.pool.members import pool, room_for, scheduler


def test_a_pool_has_one_scheduler_at_a_time_and_the_next_waits_for_its_lock(tmp_path: Path) -> None:
    made, said, looks = pool(tmp_path), list[str](), list[int]()
    assert not scheduled(made.path)

    def other_ends() -> bool:
        looks.append(1)
        if len(looks) == 2:
            first.close()
        return False

    first = ExitStack()
    assert first.enter_context(only_one(made.path, lambda: True))
    assert scheduled(made.path)
    with only_one(made.path, lambda: True) as held:
        assert not held
    with only_one(made.path, other_ends, said.append) as held:
        assert held
    assert len(said) == 1
    assert "another scheduler runs the pool" in said[0]
    assert not scheduled(made.path)


def test_a_scheduler_has_its_lock_where_the_disk_is_full(tmp_path: Path) -> None:
    made = pool(tmp_path)
    with room_for(0), only_one(made.path, lambda: True) as held:
        assert held
        assert scheduled(made.path)
    with only_one(made.path, lambda: True):
        assert (made.path / "scheduler.lock").read_text() == f"{os.getpid()}\n"


def test_a_scheduler_whose_lock_file_is_removed_ends_and_says_so(tmp_path: Path) -> None:
    made, looks = pool(tmp_path), [0]

    def removed() -> bool:
        looks[0] += 1
        if looks[0] == 1:
            (made.path / "scheduler.lock").unlink()
        return looks[0] > 1000

    with (
        only_one(made.path, lambda: True),
        pytest.raises(InputError, match="is not the file that this scheduler has locked"),
    ):
        scheduler(made).run(removed)


def test_who_waited_for_a_lock_whose_file_was_removed_takes_that_of_the_file_that_is_there(
    tmp_path: Path,
) -> None:
    made, first = pool(tmp_path), ExitStack()
    first.enter_context(only_one(made.path, lambda: True))

    def removed() -> bool:
        (made.path / "scheduler.lock").unlink()
        first.close()
        return False

    with only_one(made.path, removed) as held:
        assert held
        with only_one(made.path, lambda: True) as other:
            assert not other
