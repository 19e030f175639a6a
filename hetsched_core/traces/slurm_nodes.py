"""Nodes as `scontrol show nodes` and `sinfo` print them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hetsched_core.errors import InputError
from hetsched_core.traces.node_types import normal_gpu_type
from hetsched_core.traces.sacct.allocation import GpuCounts
from hetsched_core.traces.sacct.fields import (
    FieldError,
    expand_nodes,
    parse_gres,
    parse_number,
    parse_tres,
)

_NULL = "(null)"


@dataclass(frozen=True, slots=True)
class SlurmNodeRecord:
    """A node in Slurm's own output; what the output does not tell is None.

    Slurm takes nodes of low `weight` first.
    """

    name: str
    gpus: GpuCounts | None = None
    cpus: int | None = None
    memory_mb: int | None = None
    weight: int | None = None


# scontrol -----------------------------------------------------------------------------------------

_FIELD = re.compile(r"(?:^|\s)([A-Za-z]+)=(\S*)")


def scontrol_records(text: str, key: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line and the fields of each record: over several lines, or in one (scontrol -o).

    Of a field that stands there twice it is the first: a comment or reason further on may hold
    anything. `key` is the first field of every record.
    """
    starts = [match.start() for match in re.finditer(rf"^[ \t]*{key}=", text, re.MULTILINE)]
    for start, end in pairwise([*starts, len(text)]):
        said = dict(reversed(_FIELD.findall(text[start:end])))
        yield text.count("\n", 0, start) + 1, said


def read_scontrol(text: str, source: str = "scontrol") -> tuple[SlurmNodeRecord, ...]:
    """Read the output of `scontrol show nodes`, with or without `-o`, or a part of its fields.

    GPUs are read from Gres, and where that is missing from CfgTRES, which names types only where
    the site accounts for them.

    Raises:
        InputError: There is no node in it, or a field of a node cannot be read.
    """
    nodes: dict[str, SlurmNodeRecord] = {}
    for line, fields in scontrol_records(text, "NodeName"):
        try:
            node = _scontrol_node(fields)
        except InputError as error:
            raise InputError(f"{source}: node of line {line}: {error}") from None
        nodes[node.name] = node
    if not nodes:
        raise InputError(
            f"{source}: no line begins with NodeName=; expected the output of: scontrol show nodes"
        )
    return tuple(nodes.values())


def _scontrol_node(fields: Mapping[str, str]) -> SlurmNodeRecord:
    """Read the fields of one node."""
    gres, tres = fields.get("Gres", ""), parse_tres(fields.get("CfgTRES", ""))
    gpus: GpuCounts | None = None
    if gres not in ("", _NULL):
        gpus = parse_node_gres(gres)
    elif "CfgTRES" in fields:
        gpus = _normal(tres.gpus)
    elif gres == _NULL:
        gpus = ()
    cpus = tres.cpus or parse_number(fields.get("CPUTot", ""))
    memory = tres.memory_mb or parse_number(fields.get("RealMemory", ""))
    weight = parse_number(fields.get("Weight", ""))
    if not fields["NodeName"]:
        raise InputError("NodeName is empty")
    memory, weight = (None if each is None else int(each) for each in (memory, weight))
    return SlurmNodeRecord(fields["NodeName"], gpus, cpus, memory, weight)


def parse_node_gres(text: str) -> GpuCounts:
    """Read the GPUs of one node from `gpu:a100:4(S:0-1),gpu:v100:2,mps:400` or `(null)`.

    Raises:
        InputError: A count of GPUs in it is none, or a type is no name.
    """
    # What stands in parentheses (sockets, indices) holds commas and colons too.
    return _normal(parse_gres(re.sub(r"\([^)]*\)", "", text)))


def _normal(gpus: GpuCounts) -> GpuCounts:
    return tuple((name and normal_gpu_type(name), count) for name, count in gpus)


# sinfo --------------------------------------------------------------------------------------------

_NODE_COLUMNS = ("NODELIST", "HOSTNAMES")
_NUMBER = re.compile(r"[0-9]+\+?")


def read_sinfo(text: str, source: str = "sinfo") -> tuple[SlurmNodeRecord, ...]:
    """Read the output of sinfo, such as `sinfo -N -o "%N %G %c %m"`, delimited by blanks or `|`.

    Columns are told from the header. Without one the last column of node lists counts, the column
    that shows `gpu:`, and, where two columns are numbers, these as CPUs and memory. `64+`, which
    sinfo shows for nodes that differ, is read as 64.

    Raises:
        InputError: No column lists nodes, or a value in one of these columns cannot be read.
    """
    lines = [(at, line) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
    delimiter = "|" if any("|" in line for _, line in lines) else None
    rows = [(at, [cell.strip() for cell in line.split(delimiter)]) for at, line in lines]
    if rows and any(name in rows[0][1] for name in _NODE_COLUMNS):
        columns: _Columns | None = _named_columns(rows.pop(0)[1])
    else:
        columns = _guessed_columns([cells for _, cells in rows])
    if columns is None:
        raise InputError(
            f"{source}: no column lists nodes; expected the output of: "
            "sinfo --Node --format '%N %G %c %m'"
        )
    nodes: dict[str, SlurmNodeRecord] = {}
    for at, cells in rows:
        try:
            for node in columns.read(cells):
                # A node stands in one line for each of its partitions.
                nodes.setdefault(node.name, node)
        except InputError as error:
            raise InputError(f"{source}, line {at}: {error}") from None
    return tuple(nodes.values())


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where in a line of sinfo a thing stands; None where it is not shown."""

    nodes: int
    gres: int | None
    cpus: int | None
    memory: int | None

    def read(self, cells: Sequence[str]) -> Iterator[SlurmNodeRecord]:
        def cell(at: int | None) -> str:
            return "" if at is None or at >= len(cells) else cells[at]

        gres = cell(self.gres)
        gpus = parse_node_gres(gres) if gres else None
        cpus = parse_number(cell(self.cpus).removesuffix("+"))
        memory_mb = parse_number(cell(self.memory).removesuffix("+"))
        for name in expand_nodes(cell(self.nodes)):
            yield SlurmNodeRecord(name, gpus, cpus, memory_mb)


def _named_columns(header: Sequence[str]) -> _Columns:
    at = {name: column for column, name in reversed(list(enumerate(header)))}
    nodes = next(at[name] for name in _NODE_COLUMNS if name in at)
    return _Columns(nodes, at.get("GRES"), at.get("CPUS"), at.get("MEMORY"))


def _guessed_columns(rows: Sequence[Sequence[str]]) -> _Columns | None:
    columns = [(at, cells) for at, cells in enumerate(zip(*rows, strict=False))]
    numbers = [at for at, cells in columns if all(map(_NUMBER.fullmatch, cells))]
    nodes = [at for at, cells in columns if at not in numbers and all(map(_lists_nodes, cells))]
    gres = [at for at, cells in columns if any("gpu:" in cell for cell in cells)]
    if not nodes:
        return None
    cpus, memory = numbers if len(numbers) == 2 else (None, None)
    # sinfo's own order has the partition, whose name may look like a node's, before the nodes.
    return _Columns(nodes[-1], gres[0] if gres else None, cpus, memory)


def _lists_nodes(cell: str) -> bool:
    """Whether a cell may be a list of nodes: states and most partitions have no digit."""
    try:
        return any(map(str.isdigit, cell)) and bool(expand_nodes(cell))
    except FieldError:
        return False
