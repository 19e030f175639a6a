"""Names that the tables refer to by number: profiles, GPU types, nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hetsched_core.errors import InputError, unknown
from hetsched_core.store.database import Transaction, columns_of, texts
from hetsched_core.store.records import SITE, ProfileKey

Ids = NDArray[np.int32]

NO_NODE = 0
"""The id that stands for "not known which node"."""


def ids_of(transaction: Transaction, table: str, names: Iterable[str]) -> Mapping[str, int]:
    """Return the id of each name in the table `gpu_type` or `node`, new ones included."""
    distinct = list(dict.fromkeys(names))
    if not distinct:
        return {}
    wanted = {"name": texts(distinct)}
    transaction.run(
        f"INSERT INTO {table} (name) "
        f"SELECT name FROM wanted WHERE name NOT IN (SELECT name FROM {table})",
        wanted=wanted,
    )
    found = transaction.columns(
        f"SELECT name, id FROM {table} JOIN wanted USING (name)", wanted=wanted
    )
    return dict(zip(found["name"].tolist(), found["id"].tolist(), strict=True))


def profile_ids(transaction: Transaction, keys: Iterable[ProfileKey]) -> Mapping[ProfileKey, int]:
    """Return the id of each profile, new ones included; those of the site are public at once."""
    distinct = list(dict.fromkeys(keys))
    if not distinct:
        return {}
    known = _profiles(transaction, distinct)
    new = [key for key in distinct if key not in known]
    if not new:
        return known
    public = [key.owner == SITE for key in new]
    for key in (key for key, is_public in zip(new, public, strict=True) if is_public):
        _refuse_second(transaction, key)
    transaction.run(
        "INSERT INTO profile (owner, name, published) SELECT owner, name, published FROM new",
        new=columns_of(
            {"owner": str, "name": str, "published": bool},
            [(key.owner, key.name, is_public) for key, is_public in zip(new, public, strict=True)],
        ),
    )
    return _profiles(transaction, distinct)


def readable_ids(transaction: Transaction, keys: Sequence[ProfileKey]) -> tuple[Ids, Ids]:
    """Return for each key the ids under which its owner may read: its own, and the published one.

    Returns:
        (K,) its own profile and (K,) the published one of that name; -1 where there is none.
    """
    own = _profiles(transaction, keys) if keys else {}
    rows = transaction.rows("SELECT name, id FROM profile WHERE published")
    published = {str(name): int(id_) for name, id_ in rows}
    return (
        np.array([own.get(key, -1) for key in keys], dtype=np.int32),
        np.array([published.get(key.name, -1) for key in keys], dtype=np.int32),
    )


def known_gpu_type_ids(transaction: Transaction, names: Sequence[str]) -> Ids:
    """Return (T,) the id of each GPU type; -1 for one that no measurement has named."""
    found = {str(name): int(id_) for name, id_ in transaction.rows("SELECT name, id FROM gpu_type")}
    return np.array([found.get(name, -1) for name in names], dtype=np.int32)


def publish(transaction: Transaction, profile: ProfileKey) -> None:
    """Let everybody read a profile.

    Raises:
        UnknownNameError: there is no such profile.
        InputError: another profile of this name is published, or it is the site's.
    """
    _require(transaction, profile)
    _refuse_second(transaction, profile)
    _set_published(transaction, profile, True)


def withdraw(transaction: Transaction, profile: ProfileKey) -> None:
    """Let its owner alone read a profile.

    Raises:
        UnknownNameError: there is no such profile.
        InputError: it is the site's.
    """
    _require(transaction, profile)
    _set_published(transaction, profile, False)


def _require(transaction: Transaction, profile: ProfileKey) -> None:
    """Refuse a profile that is not there, or that is the site's."""
    owner, name = profile.owner, profile.name
    if owner == SITE:
        raise InputError(f"profile {name!r} belongs to the site, so everybody may read it")
    if profile not in _profiles(transaction, [profile]):
        rows = transaction.rows("SELECT name FROM profile WHERE owner = ?", owner)
        raise unknown(f"profile of {owner}", name, (str(name) for (name,) in rows))


def _set_published(transaction: Transaction, profile: ProfileKey, published: bool) -> None:
    transaction.run(
        "UPDATE profile SET published = ? WHERE owner = ? AND name = ?",
        published,
        profile.owner,
        profile.name,
    )


def _refuse_second(transaction: Transaction, key: ProfileKey) -> None:
    """One name means one published profile, so that a lookup has one answer."""
    rows = transaction.rows(
        "SELECT owner FROM profile WHERE published AND name = ? AND owner <> ?", key.name, key.owner
    )
    for (owner,) in rows:
        raise InputError(
            f"a profile {key.name!r} is published already, {_whose(owner)}; withdraw it first or "
            "choose another name"
        )


def _whose(owner: str) -> str:
    return f"that of {owner}" if owner else "by the site"


def _profiles(transaction: Transaction, keys: Sequence[ProfileKey]) -> dict[ProfileKey, int]:
    found = transaction.columns(
        "SELECT owner, name, id FROM profile JOIN wanted USING (owner, name)",
        wanted=columns_of({"owner": str, "name": str}, [(key.owner, key.name) for key in keys]),
    )
    ids = zip(found["owner"], found["name"], found["id"].tolist(), strict=True)
    return {ProfileKey(name, owner): id_ for owner, name, id_ in ids}
