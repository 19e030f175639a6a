"""Compiling: once, cached, announced; and the rules that keep the cache honest."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hetsched_core.kernels import Floats, FloatsOut, kernel, scalar

KERNELS = Path(__file__).parents[3] / "hetsched_core/kernels"
MAY_IMPORT = {"__future__", "math", "numpy", "numpy.typing", "typing", "hetsched_core.kernels"}

CALL = """
import numpy as np
from hetsched_core import kernels
from hetsched_core.kernels import iteration
{further}
models = np.zeros((1, iteration.COLUMNS))
models[0, [iteration.BATCH, iteration.FORWARD, iteration.FIRST_MODE]] = 64, 0.5, 1.0
one, out = np.ones(1, dtype=np.int64), np.empty(1)
for _ in range(2):
    iteration.samples_per_s_per_gpu(models, one - 1, one, one, 0.2, out)
print(out[0])
"""


SECOND = """
from hetsched_core.kernels import FloatsOut, kernel
@kernel()
def second(out: FloatsOut) -> None:
    out[0] = 1.0
second(np.zeros(1))
"""


@scalar
def twice(value: float) -> float:
    return 2 * value


@kernel()
def scaled(values: Floats, factor: float, out: FloatsOut) -> None:
    """Multiply."""
    for i in range(len(values)):
        out[i] = twice(values[i]) * factor


def run(folder: Path, further: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CALL.format(further=further)],
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def test_the_first_compile_is_announced_once_and_later_runs_load_what_it_left(
    tmp_path: Path,
) -> None:
    first, second = run(tmp_path), run(tmp_path)
    assert first.stdout == second.stdout == "128.0\n"
    assert first.stderr.count("\n") == 1
    assert "compiling" in first.stderr
    assert second.stderr == ""


def test_each_further_kernel_is_told_in_a_line(tmp_path: Path) -> None:
    told = run(tmp_path, further=SECOND).stderr.splitlines()
    assert len(told) == 2
    assert "compiling numeric kernels" in told[0]
    assert told[1] == "hetsched: compiling one more kernel, samples_per_s_per_gpu"


def test_a_kernel_runs_where_nothing_can_be_cached(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert run(tmp_path / "file").stdout == "128.0\n"


def test_others_can_change_nothing_of_what_is_kept_and_what_they_could_change_is_not_run(
    tmp_path: Path,
) -> None:
    cache = tmp_path / "cache"
    before = os.umask(0)
    try:
        run(cache)
    finally:
        os.umask(before)
    made = [cache, *cache.rglob("*")]
    assert any(path.suffix == ".nbi" for path in made)
    assert not any(path.stat().st_mode & 0o022 for path in made)
    index = next(path for path in made if path.suffix == ".nbi")
    for path in (index, index.parent, cache, tmp_path):
        path.chmod(path.stat().st_mode | 0o002)
        told = run(cache)
        assert f"others can write {path}," in told.stderr
        assert "compiling" in told.stderr
        assert told.stdout == "128.0\n"
        path.chmod(path.stat().st_mode & ~0o002)
    assert run(cache).stderr == ""


def test_a_kernel_takes_read_only_and_writable_arrays_with_one_signature() -> None:
    out = np.empty(3)
    values = np.arange(3.0)
    scaled(values, 3.0, out)
    assert out.tolist() == [0.0, 6.0, 12.0]
    values.flags.writeable = False
    scaled(values, 0.5, out)
    assert out.tolist() == [0.0, 1.0, 2.0]
    assert scaled.__doc__ == "Multiply."
    scaled.py_func(values, 2.0, out)
    assert out.tolist() == [0.0, 4.0, 8.0]


@pytest.mark.parametrize(
    "values",
    [np.arange(3), np.arange(6.0)[::2], np.ones((3, 1))],
    ids=["whole numbers", "every other element", "two dimensions"],
)
def test_a_kernel_refuses_arrays_it_was_not_compiled_for(values: Floats) -> None:
    with pytest.raises(TypeError, match="No matching definition"):
        scaled(values, 1.0, np.empty(3))


def test_kernels_use_nothing_of_other_files_that_the_cache_would_not_see_change() -> None:
    files = [path for path in KERNELS.glob("*.py") if path.name != "__init__.py"]
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {str(node.module)}
            else:
                continue
            assert names <= MAY_IMPORT, f"{path.name} imports {names - MAY_IMPORT}"


def test_the_package_of_speeds_does_not_load_numba() -> None:
    code = "import sys, hetsched_core.throughput; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
