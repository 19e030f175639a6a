"""Files that are either whole or not there."""

import os
import stat
import threading
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.records.files import replacing


def test_a_file_takes_the_place_of_the_old_one_only_when_it_is_complete(tmp_path: Path) -> None:
    """Through a link, which stays."""
    path, link = tmp_path / "result.json", tmp_path / "link.json"
    path.write_text("old")
    link.symlink_to(path)
    for name, before, after in ((path, "old", "new"), (link, "new", "newer")):
        with replacing(name) as file:
            file.write(after)
            file.flush()
            assert path.read_text() == before
        assert path.read_text() == after
    assert link.is_symlink()
    assert set(tmp_path.iterdir()) == {path, link}


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")

    def fail_half_way() -> None:
        with replacing(path) as file:
            file.write("half of the new")
            raise RuntimeError("the rest is missing")

    with pytest.raises(RuntimeError, match="the rest is missing"):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    with replacing(pipe) as file:
        file.write("new")
    reader.join(timeout=60)
    assert read == ["new"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "result.json"
    with (
        pytest.raises(InputError, match=r"cannot write .*absent/result\.json: No such file"),
        replacing(path),
    ):
        pass
