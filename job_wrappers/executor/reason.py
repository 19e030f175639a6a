"""Why a training failed, in a line that says where in its user's own files."""

from __future__ import annotations

import site
import sys
import sysconfig
import traceback
from pathlib import Path

from job_wrappers.executor.rounds import StatesGoneError

_MOST = 2000


def reason(error: BaseException) -> str:
    """Return what an error says, after the last place in the user's files that it came through."""
    kind = "" if isinstance(error, StatesGoneError) else f"{type(error).__name__}: "
    return f"{_place(error)}{kind}{error}".strip()[:_MOST]


def _place(error: BaseException) -> str:
    others = _not_the_users()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_absolute() and not any(other in path.parents for other in others):
            return f"{path.name}:{frame.lineno}: "
    return ""


def _not_the_users() -> set[Path]:
    """Return the folders of Python, of what is installed for it, and of this package."""
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {*site.getsitepackages(), site.getusersitepackages()}
    # It may lie elsewhere, on a path of the site's own.
    paths |= {str(Path(m.__file__).parent) for m in [sys.modules.get("torch")] if m and m.__file__}
    return {Path(__file__).parents[1], *map(Path, paths)}
