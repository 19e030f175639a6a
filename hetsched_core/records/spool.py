"""What a running job tells the scheduler, `hetsched-spool/1` (docs/formats/spool.md): JSON lines.

A spool file belongs to the user whose job wrote it, so every line is hostile until it has passed
`SpoolValidator`. Nothing that stands in one can raise an exception: a line is accepted as one of
the dataclasses below, whose annotations are its checks, or rejected with a reason.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, cast, get_type_hints

from hetsched_core.types.requirement import MAX_GPU_COUNT
from hetsched_core.values.json import refuse_constant

SCHEMA = "hetsched-spool/1"

MAX_LINE_BYTES = 4096
"""Longest line, its line break included."""

MAX_FILE_BYTES = 16 << 20
"""What comes after this many bytes of one file is rejected."""

MAX_SERIES = 64
"""Most values in a list."""


class Reject(StrEnum):
    """Why a line was rejected."""

    FILE_TOO_LONG = "file too long"
    LINE_TOO_LONG = "line too long"
    NOT_JSON = "not JSON"
    UNKNOWN_TYPE = "unknown type"
    UNKNOWN_KEY = "unknown key"
    MISSING_KEY = "missing key"
    WRONG_KIND = "wrong kind of value"
    OUT_OF_RANGE = "out of range"
    WRONG_IDENTITY = "wrong identity"
    WRONG_NONCE = "wrong nonce"
    WRONG_ORDER = "wrong order"
    NOT_THE_SITE = "not the site's"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A line that was not accepted. `detail` is short and printable ASCII."""

    reason: Reject
    detail: str


class _LineError(Exception):
    def __init__(self, reason: Reject, detail: str) -> None:
        self.rejection = Rejection(reason, detail)


# Checks -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number:
    """A number from `low` to `high`."""

    low: float
    high: float

    def read(self, key: str, value: object) -> Any:
        """Return the value if it passes."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _LineError(Reject.WRONG_KIND, f"{key} {_short(value)} is not a number")
        if not self.low <= value <= self.high:
            raise _out_of_range(key, value, self.low, self.high)
        return float(value)


class Whole(Number):
    """A whole number from `low` to `high`."""

    __slots__ = ()

    def read(self, key: str, value: object) -> int:
        """Return the value if it passes."""
        if isinstance(value, float):
            raise _LineError(Reject.WRONG_KIND, f"{key} {_short(value)} is not a whole number")
        Number.read(self, key, value)
        return cast(int, value)


class Series(Number):
    """A list of at most `MAX_SERIES` numbers, each from `low` to `high`."""

    __slots__ = ()

    def read(self, key: str, value: object) -> tuple[float, ...]:
        """Return the values if all pass."""
        if not isinstance(value, list):
            raise _LineError(Reject.WRONG_KIND, f"{key} {_short(value)} is not a list")
        if len(value) > MAX_SERIES:
            raise _LineError(Reject.OUT_OF_RANGE, f"{key} holds {len(value)} > {MAX_SERIES} values")
        return tuple(Number.read(self, key, item) for item in value)


@dataclass(frozen=True, slots=True)
class Text:
    """A text of which all matches `pattern`."""

    pattern: str

    def read(self, key: str, value: object) -> str:
        """Return the value if it passes."""
        if not isinstance(value, str):
            raise _LineError(Reject.WRONG_KIND, f"{key} {_short(value)} is not text")
        if not re.fullmatch(self.pattern, value):
            raise _LineError(Reject.OUT_OF_RANGE, f"{key} {_short(value)} is not {self.pattern}")
        return value


_JOB = r"[0-9A-Za-z_+-]{1,64}"
_INDEX = Whole(0, 9_999_999)

JobId = Annotated[str, Text(_JOB)]
Index = Annotated[int, _INDEX]
Name = Annotated[str, Text(r"[!-~]{1,64}")]
Nonce = Annotated[str, Text(r"[0-9A-Za-z_-]{8,64}")]
Gpus = Annotated[int, Whole(1, MAX_GPU_COUNT)]
Elapsed = Annotated[float, Number(0, 1e9)]
Part = Annotated[float, Number(0, 86_400)]
Parts = Annotated[tuple[float, ...], Series(0, 86_400)]
Samples = Annotated[float, Number(0, 1e18)]


# Lines --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpoolStart:
    """The first line: which run writes. `at_s` is seconds UTC; later `t_s` count from it."""

    schema: Annotated[str, Text(re.escape(SCHEMA))]
    job: JobId
    run: Index
    rank: Index
    world_size: Gpus
    nonce: Nonce
    host: Name
    pid: Annotated[int, Whole(1, 2**31 - 1)]
    at_s: Annotated[float, Number(0, 1e11)]


@dataclass(frozen=True, slots=True)
class Profile:
    """What profiling mode measured: the basic times of an iteration (Hops sections 3.2, 3.5).

    Seconds of one iteration on this rank: T_f, T_b and T_u as means over `iterations`, T_d and T_w
    of single iterations side by side. `batch_size` is per GPU, `parameters` the model's number of
    them, `pattern` 1 or 2 as in Hops formula (1).
    """

    t_s: Elapsed
    gpu_type: Name
    gpus: Gpus
    nodes: Gpus
    batch_size: Annotated[int, Whole(1, 10**9)]
    iterations: Annotated[int, Whole(1, 10**6)]
    parameters: Annotated[int, Whole(0, 10**15)]
    pattern: Annotated[int, Whole(1, 2)]
    forward_s: Part
    backward_s: Part
    update_s: Part
    data_s: Parts
    wait_s: Parts


@dataclass(frozen=True, slots=True)
class AllReduce:
    """How long some GPUs of a run take to average so many parameters (Hops section 3.3).

    `seconds` is of one all-reduce of single-precision values, the median of `iterations` of them,
    by `gpus` GPUs on `nodes` nodes. Over gloo it is CPUs that average.
    """

    t_s: Elapsed
    backend: Annotated[str, Text("nccl|gloo")]
    gpus: Annotated[int, Whole(2, MAX_GPU_COUNT)]
    nodes: Gpus
    parameters: Annotated[int, Whole(1, 10**15)]
    iterations: Annotated[int, Whole(1, 10**6)]
    seconds: Annotated[float, Number(1e-9, 86_400)]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the whole job has come, over all its runs, and how fast it is now.

    `data_s` and `wait_s` are T_d and T_w of some iterations since the last such line, side by side.
    """

    t_s: Elapsed
    samples: Samples
    samples_per_s: Annotated[float, Number(0, 1e12)]
    data_s: Parts
    wait_s: Parts


@dataclass(frozen=True, slots=True)
class Loss:
    """The training loss after a training round, an iteration of all workers (Hare)."""

    t_s: Elapsed
    training_round: Annotated[int, Whole(0, 10**15)]
    loss: Annotated[float, Number(-1e30, 1e30)]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint is safely on disk: the samples it holds and the seconds training stood still."""

    t_s: Elapsed
    samples: Samples
    stopped_s: Part


@dataclass(frozen=True, slots=True)
class End:
    """The last line: how this run ended. After `stopped` the job wants to be resumed."""

    t_s: Elapsed
    samples: Samples
    how: Annotated[str, Text("completed|stopped|failed")]


SpoolLine = SpoolStart | Profile | AllReduce | Progress | Loss | Checkpoint | End

LINE_TYPES: dict[str, type[SpoolLine]] = {
    "start": SpoolStart,
    "profile": Profile,
    "all_reduce": AllReduce,
    "progress": Progress,
    "loss": Loss,
    "checkpoint": Checkpoint,
    "end": End,
}


def checks(line_type: type[SpoolLine]) -> dict[str, Number | Text]:
    """Return the keys of a type of line, in order, and what each value must pass."""
    hints = get_type_hints(line_type, include_extras=True)
    return {key: hint.__metadata__[0] for key, hint in hints.items()}


_CHECKS = {name: checks(line_type) for name, line_type in LINE_TYPES.items()}


# Files --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpoolName:
    """What the name of a spool file, `<job>.<run>.<rank>.jsonl`, says of its writer."""

    job: str
    run: int
    rank: int

    @classmethod
    def parse(cls, name: str) -> SpoolName | None:
        """Read a file name (without its folder); None if it is not one of a spool file."""
        match = re.fullmatch(
            rf"({_JOB})\.(0|[1-9][0-9]{{0,6}})\.(0|[1-9][0-9]{{0,6}})\.jsonl", name
        )
        return cls(match[1], int(match[2]), int(match[3])) if match else None

    def __str__(self) -> str:
        """Return the file name."""
        return f"{self.job}.{self.run}.{self.rank}.jsonl"


class SpoolValidator:
    """Accepts or rejects the lines of one spool file, in order.

    The first line decides: if it is not the start line of just this job, run, rank and nonce, every
    line is rejected. A later line that is rejected is left out, and the next one judged.
    """

    def __init__(self, name: SpoolName, nonce: str) -> None:
        """Expect the lines of `name`, whose job was given `nonce` when it was submitted."""
        self._name = name
        self._nonce = nonce
        self._bytes = 0
        self._refused = False
        self._last: dict[str, float] = {}
        self._start: SpoolStart | None = None
        self._ended = False

    def take(self, text: bytes) -> SpoolLine | Rejection:
        """Judge the next line, with or without its line break."""
        try:
            self._bytes += len(text)
            line = self._line(text)
        except _LineError as error:
            self._refused |= self._start is None
            return error.rejection
        if isinstance(line, SpoolStart):
            self._start = line
        self._ended = isinstance(line, End)
        self._last |= _growing(line)
        return line

    def _line(self, text: bytes) -> SpoolLine:
        if self._refused:
            raise _LineError(Reject.WRONG_ORDER, "the file has no valid start line")
        if self._bytes > MAX_FILE_BYTES:
            raise _LineError(Reject.FILE_TOO_LONG, f"over {MAX_FILE_BYTES} bytes")
        if len(text) > MAX_LINE_BYTES:
            raise _LineError(Reject.LINE_TOO_LONG, f"{len(text)} > {MAX_LINE_BYTES} bytes")
        line = _typed(_parse(text))
        if isinstance(line, SpoolStart):
            self._check_start(line)
        elif self._start is None:
            raise _LineError(Reject.WRONG_ORDER, "the first line is no start line")
        if self._ended:
            raise _LineError(Reject.WRONG_ORDER, "a line after the end line")
        for key, value in _growing(line).items():
            if value < self._last.get(key, value):
                raise _LineError(Reject.WRONG_ORDER, f"{key} fell to {value!r}")
        return line

    def _check_start(self, line: SpoolStart) -> None:
        if self._start is not None:
            raise _LineError(Reject.WRONG_ORDER, "a second start line")
        if SpoolName(line.job, line.run, line.rank) != self._name:
            raise _LineError(Reject.WRONG_IDENTITY, "job, run or rank is not that of the file name")
        if line.nonce != self._nonce:
            raise _LineError(Reject.WRONG_NONCE, "the nonce is not that of the job")
        if line.rank >= line.world_size:
            raise _out_of_range("rank", line.rank, 0, line.world_size - 1)


def _growing(line: SpoolLine) -> dict[str, float]:
    """What must not fall from one line of a file to the next."""
    match line:
        case SpoolStart():
            return {}
        case Progress() | End():
            return {"t_s": line.t_s, "samples": line.samples}
        case Checkpoint():
            # Training goes on while a checkpoint is written: its samples lag behind the progress.
            return {"t_s": line.t_s, "samples of a checkpoint": line.samples}
        case Loss():
            return {"t_s": line.t_s, "training_round": line.training_round}
        case Profile() | AllReduce():
            return {"t_s": line.t_s}


def _parse(text: bytes) -> dict[str, Any]:
    try:
        line = _DECODER.decode(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _LineError(Reject.NOT_JSON, f"{type(error).__name__} in {_short(text)}") from None
    if not isinstance(line, dict):
        raise _LineError(Reject.NOT_JSON, f"{_short(line)} is no object")
    return line


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    line = dict(pairs)
    if len(line) < len(pairs):
        raise _LineError(Reject.NOT_JSON, "a key stands twice")
    return line


# One for all lines: `json.loads` with hooks makes one anew for each.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=refuse_constant)


def _typed(line: dict[str, Any]) -> SpoolLine:
    type_ = line.pop("type", None)
    if not isinstance(type_, str) or type_ not in LINE_TYPES:
        raise _LineError(Reject.UNKNOWN_TYPE, f"type {_short(type_)}")
    expected = _CHECKS[type_]
    for key in line:
        if key not in expected:
            raise _LineError(Reject.UNKNOWN_KEY, f"{_short(key)} in a {type_} line")
    for key in expected:
        if key not in line:
            raise _LineError(Reject.MISSING_KEY, f"{key} in a {type_} line")
    values: dict[str, Any] = {key: check.read(key, line[key]) for key, check in expected.items()}
    typed = LINE_TYPES[type_](**values)
    if isinstance(typed, Profile | Progress) and len(typed.data_s) != len(typed.wait_s):
        raise _LineError(Reject.OUT_OF_RANGE, "data_s and wait_s differ in length")
    if isinstance(typed, Profile) and not 1 <= len(typed.data_s) <= typed.iterations:
        raise _out_of_range("number of data_s", len(typed.data_s), 1, typed.iterations)
    if isinstance(typed, Profile | AllReduce) and typed.nodes > typed.gpus:
        raise _out_of_range("nodes", typed.nodes, 1, typed.gpus)
    return typed


def _out_of_range(key: str, value: float, low: float, high: float) -> _LineError:
    return _LineError(Reject.OUT_OF_RANGE, f"{key} {_short(value)} is not within {low} to {high}")


def _short(value: object) -> str:
    # Never the whole of a container: it may be nested as deep as the parser could just bear.
    return type(value).__name__ if isinstance(value, list | dict) else ascii(value)[:40]
