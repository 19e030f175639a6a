"""Decisions on record, `hetsched-decision/1` (docs/formats/decision.md): a snapshot and its plan.

What stands in one is all that the policy was told, so that it can be asked again, offline, and give
the same answer. Only what changed since the last decision is encoded anew.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from immutables import Map

from hetsched_core.errors import InputError
from hetsched_core.policy import Policy, check_plan, make_policy, plan_by, salvaged, settings_of
from hetsched_core.types import (
    Cluster,
    Diagnostics,
    EndedJob,
    EndedJobs,
    Entry,
    JobView,
    Node,
    NodeView,
    Placed,
    Plan,
    ProfilePlacement,
    Replan,
    Reservation,
    Round,
    Shape,
    Snapshot,
    Speeds,
    SpeedTable,
    TaskSequence,
    Trigger,
    Waiting,
    Window,
)
from hetsched_core.types.site import Limit, ShareTree, Site
from hetsched_core.values.json import plain, strict_json
from hetsched_core.values.records import from_json, table_from_json, table_to_json, to_json, to_text

SCHEMA = "hetsched-decision/1"

MOST_CHARACTERS = 8 << 20
"""A longer record is kept without the snapshot, and says so."""

_MOST_BYTES = 512 << 20
_LEVEL = 1


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A decision as it was made."""

    policy: str
    parameters: Mapping[str, str]
    snapshot: Snapshot
    plan: Plan

    def again(self) -> Plan:
        """Ask the policy once more, and return its plan, or the valid rest of it.

        Raises:
            InputError: the policy is not there any more, or has other parameters now.
        """
        policy = make_policy(self.policy, self.parameters)
        plan, model = plan_by(policy, self.snapshot), policy.info.model
        violations = check_plan(self.snapshot, plan, model)
        return salvaged(self.snapshot, plan, violations, model) if violations else plan


def differences(one: Plan, other: Plan) -> tuple[str, ...]:
    """Return in what two plans differ, as names of jobs and of parts; () if they say the same.

    How they were found does not count, nor what they revise.
    """
    jobs = sorted(
        job
        for job in {*one.entries, *other.entries}
        if one.entries.get(job) != other.entries.get(job)
    )
    parts = ("profiles", "sequences", "reservations", "valid_from_s", "replan", "memory")
    return (
        *(f"job {job}" for job in jobs),
        *(part for part in parts if _value(one, part) != _value(other, part)),
    )


def _value(plan: Plan, part: str) -> object:
    found = getattr(plan, part)
    if part == "memory":
        return plain(found)
    return tuple(found) if part == "reservations" else found


class DecisionWriter:
    """Writes the records of one policy's decisions, one after another."""

    def __init__(self, policy: Policy) -> None:
        """Write for this policy."""
        self._policy = {"name": policy.info.name, "parameters": settings_of(policy)}
        self._jobs: dict[str, tuple[JobView, str]] = {}
        self._entries: dict[str, tuple[Entry, str]] = {}
        self._tables: dict[str, tuple[SpeedTable, str]] = {}
        self._cluster: tuple[Cluster | None, str] = (None, "")
        self._ended: tuple[EndedJobs | None, str] = (None, "[]")
        self._tree: tuple[ShareTree | None, str] = (None, "null")

    def write(self, snapshot: Snapshot, plan: Plan) -> str:
        """Return the record: JSON, the snapshot in it compressed."""
        document: dict[str, object] = {
            "schema": SCHEMA,
            "policy": self._policy,
            **_summary(snapshot, plan),
        }
        packed = base64.b64encode(_compressed(self._whole(snapshot, plan)))
        if len(packed) > MOST_CHARACTERS:
            document["left_out"] = f"the snapshot, of {len(packed)} characters when compressed"
        else:
            document["repeat"] = packed.decode()
        return json.dumps(document, separators=(",", ":"), sort_keys=True)

    def _whole(self, snapshot: Snapshot, plan: Plan) -> Iterator[str]:
        """Yield the JSON piece by piece: as one text it would take several times its length."""
        views, before = snapshot.jobs, snapshot.previous.entries
        profiles = sorted({view.job.profile for view in views.values()})
        tables = {name: snapshot.speeds.table(name) for name in profiles}
        entries = {**before, **plan.entries}
        # What stands in both plans is the same object in most of them, and encoded once.
        old = {job: entry for job, entry in before.items() if entry is not entries[job]}
        self._jobs = _encoded(views, self._jobs, _text_of)
        self._entries = _encoded(entries, self._entries, _text_of)
        self._tables = _encoded(tables, self._tables, table_to_json)
        if self._cluster[0] is not snapshot.cluster:
            cluster = {"name": snapshot.cluster.name, "nodes": to_json(list(snapshot.cluster))}
            self._cluster = snapshot.cluster, to_text(cluster)
        if self._ended[0] is not snapshot.ended:
            self._ended = snapshot.ended, to_text([astuple(job) for job in snapshot.ended.jobs])
        nodes = {name: to_json(view, "node") for name, view in snapshot.nodes.items()}
        yield '{"jobs":'
        yield from _object(self._jobs)
        yield ',"entries":'
        yield from _object(self._entries)
        yield ',"speeds":'
        yield from _object(self._tables)
        parts = {
            "before": to_text({job: to_json(entry) for job, entry in old.items()}),
            "was_in": to_text(sorted(before)),
            "is_in": to_text(sorted(plan.entries)),
            "cluster": self._cluster[1],
            "nodes": to_text(nodes),
            "snapshot": to_text(
                {
                    "now": snapshot.now,
                    "triggers": sorted(snapshot.triggers),
                    "round": to_json(snapshot.round),
                    "effective_s": snapshot.effective_s,
                    "grace_s": snapshot.grace_s,
                    "shapes": sorted(snapshot.shapes),
                    "runs_per_job": snapshot.runs_per_job,
                    "seed": snapshot.seed,
                    "changed": sorted(snapshot.changed),
                    "gone": sorted(snapshot.gone),
                    "nodes_changed": snapshot.nodes_changed,
                    "windows": to_json(list(snapshot.windows)),
                    "asleep": sorted(snapshot.asleep),
                }
            ),
            "ended": self._ended[1],
            "previous": to_text(_plan_to_json(snapshot.previous)),
            "plan": to_text(_plan_to_json(plan)),
        }
        if (site := snapshot.site) is not None:
            if self._tree[0] is not site.tree:
                self._tree = site.tree, to_text(_tree_to_json(site.tree))
            parts["tree"] = self._tree[1]
            parts["used"] = to_text([[*user, amount] for user, amount in sorted(site.used.items())])
            parts["limits"] = to_text({name: to_json(each) for name, each in site.limits.items()})
        yield from (f',"{name}":{text}' for name, text in parts.items())
        yield "}"


def read_decision(document: str) -> RecordedDecision:
    """Read a record.

    Raises:
        InputError: it is none, or its snapshot was left out.
    """
    try:
        record = strict_json(document)
        schema = record.get("schema")
    except (ValueError, RecursionError, AttributeError):
        raise InputError(f"{document[:60]!r} is no record of a decision") from None
    if schema != SCHEMA:
        raise InputError(f"schema is {schema!r}; a record of a decision has {SCHEMA!r}")
    if "repeat" not in record:
        raise InputError(f"it cannot be repeated: {record.get('left_out', 'no snapshot')}")
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(base64.b64decode(record["repeat"]), _MOST_BYTES)
        if unpacking.unconsumed_tail:
            raise InputError(f"its snapshot is longer than {_MOST_BYTES} bytes")
        whole = strict_json(text.decode())
        snapshot, plan = _read(whole)
        policy = record["policy"]
        return RecordedDecision(policy["name"], policy["parameters"], snapshot, plan)
    except (
        zlib.error,
        binascii.Error,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise InputError(f"it cannot be read: {type(error).__name__}: {error}"[:300]) from None


def _read(whole: dict[str, Any]) -> tuple[Snapshot, Plan]:
    cluster = Cluster(
        from_json(whole["cluster"]["nodes"], tuple[Node, ...]), whole["cluster"]["name"]
    )
    entries = {job: _entry(value) for job, value in whole["entries"].items()}
    before = entries | {job: _entry(value) for job, value in whole["before"].items()}
    tables = {name: table_from_json(value) for name, value in whole["speeds"].items()}
    said = whole["snapshot"]
    snapshot = Snapshot(
        now=said["now"],
        triggers=frozenset(map(Trigger, said["triggers"])),
        round=from_json(said["round"], Round),
        cluster=cluster,
        nodes=Map(
            {
                name: from_json({**value, "node": to_json(cluster[name])}, NodeView)
                for name, value in whole["nodes"].items()
            }
        ),
        jobs=Map({job: from_json(value, JobView) for job, value in whole["jobs"].items()}),
        speeds=Speeds(cluster, tables),
        effective_s=said["effective_s"],
        grace_s=said.get("grace_s", 0.0),
        shapes=frozenset(map(Shape, said["shapes"])),
        runs_per_job=said["runs_per_job"],
        seed=said["seed"],
        ended=EndedJobs.of(EndedJob(*job) for job in whole.get("ended", ())),
        previous=_plan(whole["previous"], {job: before[job] for job in whole["was_in"]}),
        changed=frozenset(said["changed"]),
        gone=frozenset(said["gone"]),
        nodes_changed=said["nodes_changed"],
        windows=from_json(said.get("windows", []), tuple[Window, ...]),
        asleep=frozenset(said.get("asleep", [])),
        site=_site(whole) if "tree" in whole else None,
    )
    return snapshot, _plan(whole["plan"], {job: entries[job] for job in whole["is_in"]})


# Parts --------------------------------------------------------------------------------------------


def _summary(snapshot: Snapshot, plan: Plan) -> dict[str, object]:
    """Return which jobs held what, which were placed where, and why the others wait."""
    entries = plan.entries
    return {
        "held": {
            job: [list(piece) for run in view.runs for piece in run.configuration]
            for job, view in snapshot.jobs.items()
            if view.runs
        },
        "placed": {
            job: [list(piece) for each in entry.placements for piece in each.configuration]
            for job, entry in entries.items()
            if isinstance(entry, Placed)
        },
        "waiting": {
            job: entry.reason.code.word
            for job, entry in entries.items()
            if isinstance(entry, Waiting)
        },
        "measured": {p.job: [list(x) for x in p.placement.configuration] for p in plan.profiles},
    }


def _tree_to_json(tree: ShareTree | None) -> dict[str, object] | None:
    if tree is None:
        return None
    return {
        "shares": [[*who, shares] for who, shares in tree.shares.items()],
        "parents": dict(tree.parents),
    }


def _site(whole: dict[str, Any]) -> Site:
    """Read what the site says of a snapshot; one of before it said anything has none."""
    tree = whole["tree"]
    return Site(
        tree
        and ShareTree(
            {(account, user): shares for account, user, shares in tree["shares"]}, tree["parents"]
        ),
        Map({(account, user): amount for account, user, amount in whole["used"]}),
        from_json(whole["limits"], dict[str, Limit]),
    )


def _encoded(
    values: Mapping[str, Any], known: Mapping[str, tuple[Any, str]], encode: Callable[[Any], str]
) -> dict[str, tuple[Any, str]]:
    """Return each value with its JSON, which is taken from `known` where it is the same object."""
    found = {}
    for name, value in values.items():
        before = known.get(name)
        found[name] = before if before and before[0] is value else (value, encode(value))
    return found


def _text_of(value: object) -> str:
    return to_text(to_json(value))


def _object(encoded: Mapping[str, tuple[Any, str]]) -> Iterator[str]:
    """Yield JSON's object of encoded values."""
    yield "{"
    comma = ""
    for name, (_, text) in encoded.items():
        yield f"{comma}{json.dumps(name)}:{text}"
        comma = ","
    yield "}"


def _compressed(pieces: Iterable[str]) -> bytes:
    compressor = zlib.compressobj(_LEVEL)
    begun = [compressor.compress(piece.encode()) for piece in pieces]
    return b"".join([*begun, compressor.flush()])


def _plan_to_json(plan: Plan) -> dict[str, object]:
    """Return a plan without its entries, which it shares with others."""
    return {
        "profiles": to_json(list(plan.profiles)),
        "sequences": to_json(list(plan.sequences)),
        "reservations": to_json(list(plan.reservations)),
        "valid_from_s": to_json(plan.valid_from_s),
        "replan": to_json(plan.replan),
        "diagnostics": to_json(plan.diagnostics),
        "memory": plain(plan.memory),
    }


def _plan(value: dict[str, Any], entries: Mapping[str, Entry]) -> Plan:
    return Plan(
        Map(entries),
        profiles=from_json(value["profiles"], tuple[ProfilePlacement, ...]),
        sequences=from_json(value["sequences"], tuple[TaskSequence, ...]),
        reservations=from_json(value["reservations"], tuple[Reservation, ...]),
        valid_from_s=from_json(value["valid_from_s"], float),
        replan=from_json(value["replan"], Replan),
        diagnostics=from_json(value["diagnostics"], Diagnostics),
        memory=value["memory"],
    )


def _entry(value: dict[str, Any]) -> Entry:
    found: Entry = from_json(value, Placed if "placements" in value else Waiting)
    return found
