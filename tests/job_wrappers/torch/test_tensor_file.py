"""Files of tensors: whole, or not there, and never run."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch

from job_wrappers import tensor_file
from tests.job_wrappers.worlds import ROOT, wait_for

STATE = {"w": torch.arange(5.0), 3: [torch.tensor(7), "text", None, 1.5]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.tensors"


def test_what_was_written_is_read_and_its_header_without_torch(path: Path) -> None:
    tensor_file.write(path, {"steps": 4}, STATE)
    header, found = tensor_file.read(path)
    assert header["steps"] == 4
    assert torch.equal(found["w"], STATE["w"])
    assert found[3][1:] == ["text", None, 1.5]
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from job_wrappers.tensor_file import read_header\n"
        f"print(read_header(Path({str(path)!r}))['steps'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "4\n", done.stderr


def test_a_file_cut_anywhere_or_with_a_changed_byte_is_told_from_a_whole_one(path: Path) -> None:
    tensor_file.write(path, {}, STATE)
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        for read in (tensor_file.read_header, tensor_file.read):
            with pytest.raises(ValueError, match=r"some\.tensors"):
                read(path)
    for at in range(whole.index(b"\n") + 1, len(whole), 101):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ValueError, match="damaged"):
            tensor_file.read(path)


class _Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('was run')",))


def test_code_in_a_file_is_not_run(path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(_Trap(), buffer)
    content = buffer.getvalue()
    own = {"schema": tensor_file.SCHEMA, "bytes": len(content), "crc32": zlib.crc32(content)}
    path.write_bytes(json.dumps(own).encode() + b"\n" + content)
    with pytest.raises(ValueError, match="more than tensors"):
        tensor_file.read(path)


WRITER = """
import sys, time
from pathlib import Path
from job_wrappers import tensor_file
path, number = Path(sys.argv[1]), int(sys.argv[2])
path.with_name(f"ready-{number}").touch()
while not path.with_name("go").exists():
    time.sleep(0.001)
print(int(tensor_file.write_once(path, {"by": number}, [number] * 10_000)))
"""


def test_of_several_processes_that_write_once_one_succeeds_and_its_file_stays(path: Path) -> None:
    words = [sys.executable, "-c", WRITER, str(path)]
    writers = [
        subprocess.Popen([*words, str(number)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for number in range(3)
    ]
    for number in range(3):
        wait_for(path.with_name(f"ready-{number}"))
    path.with_name("go").touch()
    won = [number for number, writer in enumerate(writers) if writer.communicate()[0] == "1\n"]
    assert len(won) == 1
    header, found = tensor_file.read(path)
    assert (header["by"], found) == (won[0], won * 10_000)
