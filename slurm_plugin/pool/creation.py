"""Making a folder a pool, or having one that has ended go on."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

from hetsched_core.errors import InputError
from hetsched_core.records.files import replacing
from hetsched_core.values.records import unstructure
from job_wrappers.pool.asked import SCHEMA
from slurm_plugin.pool.folder import FOLDERS, Pool
from slurm_plugin.pool.lock import scheduled
from slurm_plugin.pool.records import PoolRecord
from slurm_plugin.pool.state import PoolState


def create(path: Path, policy: str, parameters: Mapping[str, str]) -> Pool:
    """Make a folder a pool, for its user alone; one that is a pool goes on under this policy.

    Raises:
        InputError: it cannot be made, it holds other files, or it runs.
    """
    try:
        if scheduled(path) or _served(path):
            raise InputError(_runs(path))
        if not (path / "pool.json").exists() and path.is_dir():
            _check_ours(path)
            path.chmod(0o700)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in FOLDERS:
            (path / name).mkdir(mode=0o700, exist_ok=True)
        for name in ("stop", "stop-when-done"):
            (path / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make a pool of {path}: {error.strerror}; name a folder that you may write to"
        ) from None
    with replacing(path / "pool.json") as file:
        json.dump(unstructure(PoolRecord(SCHEMA, policy, dict(parameters))), file)
    return Pool(path)


def _served(path: Path) -> bool:
    """Whether members of a pool show themselves: they may be at their last tasks."""
    if not (path / "pool.json").exists() or not (path / "members").is_dir():
        return False
    return bool(PoolState(Pool(path), time.time).find_members())


def _runs(path: Path) -> str:
    if Pool(path).stopped:
        return (
            f"{path} is a pool that is ending: its GPUs finish their tasks; create it again once "
            f"`hetsched pool status {path}` says that it has ended"
        )
    return (
        f"{path} is a pool that runs; `hetsched pool stop {path}` ends it, after which it can go "
        "on under another policy"
    )


def _check_ours(path: Path) -> None:
    """Refuse a folder that is there and neither was a pool nor is one that was half made."""
    entries = {entry.name: entry for entry in path.iterdir()}
    if entries.keys() >= {*FOLDERS}:
        return
    made = [name for name in FOLDERS if name in entries and not any(entries[name].iterdir())]
    others = sorted(entries.keys() - {*made})
    if others:
        raise InputError(
            f"{path} holds other files, such as {others[0]!r}, and a pool is a folder of its own: "
            f"name a new one, such as {path / 'pool'}"
        )
