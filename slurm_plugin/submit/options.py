"""What a user says of a job: `#HETSCHED` lines of its script, or options of `sbatch`.

hetsched.lua checks the same options at submission, where a site has installed it. It is not
needed: the daemon reads the lines from the script.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from hetsched_core.errors import InputError, unknown
from hetsched_core.types import LearningRateScaling, RequirementSet

MOST_COPIES = 16
MOST_SAMPLES = 1e15
"""No training is larger; a policy that reckons with it must not meet numbers beyond all bounds."""

_MOST_MEMORY_MB = 10 * 1024 * 1024
_MOST_LINES = 1000
_MOST_CHARACTERS = 4096
_SHOWN = 60

_LINE = re.compile(r"#HETSCHED\s+(.*)")
_SIGNAL = re.compile(r"#SBATCH\s(?:.*\s)?--signal[=\s]([\w:@+]+)")
_WORD = re.compile(r"--([A-Za-z0-9-]+)(?:=(.*))?")
_KEY = re.compile(r"[\w.-]+", re.ASCII)
_COUNTS = re.compile(r"[\d,-]+", re.ASCII)
_NUMBER = re.compile(r"[\d.eE+-]+", re.ASCII)
_MEMORY = re.compile(r"(\d{1,9})([MG])", re.ASCII)
_COPIES = re.compile(r"\d{1,2}", re.ASCII)

NAMES = (
    *("gpu-set", "gpu-types", "gpu-mem", "gpu-shapes", "copies", "learning-rate", "lr-scaling"),
    *("profile-key", "total-samples", "no-move", "can-checkpoint"),
)
"""All options, in the order in which they are documented."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user lets a job be given.

    Attributes:
        counts: the GPU counts that it accepts; None where only the submitted shape will do.
        gpu_types: the types that it accepts; None for all.
        least_gpu_memory_mb: what each GPU must have of its own, MiB; 0 for any.
        any_shape: whether it takes uneven counts and several types at once.
        copies: as how many copies it may run; 1 for a job without copies.
        learning_rate: at the default count; None where none is given.
        lr_scaling: how the rate carries over to other counts.
        profile: the profile key, "" for none.
        total_samples: the size of the training; None where it is not told.
        movable: whether it may be stopped at all.
        can_checkpoint: whether it saves its state on SIGTERM.
    """

    counts: RequirementSet | None = None
    gpu_types: frozenset[str] | None = None
    least_gpu_memory_mb: int = 0
    any_shape: bool = False
    copies: int = 1
    learning_rate: float | None = None
    lr_scaling: LearningRateScaling = LearningRateScaling.NONE
    profile: str = ""
    total_samples: float | None = None
    movable: bool = True
    can_checkpoint: bool = False


NO_OPTIONS = Options()
"""Of a job whose user says nothing."""


def script_options(script: str) -> dict[str, str]:
    """Return option -> value of the `#HETSCHED` lines, which end where sbatch's own do.

    Raises:
        InputError: a word there is no option, or an option stands twice.
    """
    found: dict[str, str] = {}
    for line in _header(script):
        match = _LINE.fullmatch(line)
        if match and len(match[1]) > _MOST_CHARACTERS:
            raise InputError(
                f"a #HETSCHED line has {len(match[1])} characters; at most {_MOST_CHARACTERS} are "
                "allowed"
            )
        for word in match[1].split() if match else ():
            option = _WORD.fullmatch(word)
            if option is None:
                raise InputError(
                    f"{word[:_SHOWN]!r} on a #HETSCHED line is no option; write them as "
                    "--gpu-set=2, and nothing else"
                )
            if option[1] not in NAMES:
                raise InputError(unknown("option", option[1][:_SHOWN], NAMES))
            if option[1] in found:
                raise InputError(f"--{option[1]} stands twice on #HETSCHED lines; leave one")
            found[option[1]] = option[2] or ""
    return found


def script_signal(script: str) -> str:
    """Return what `#SBATCH --signal=[{R|B}:]SIGNAL[@SECONDS]` says, "" without one."""
    found = (match[1] for line in _header(script) if (match := _SIGNAL.match(line)))
    return next(found, "")


def _header(script: str) -> Iterator[str]:
    """Yield the lines of a script in which options may stand."""
    lines = script.splitlines()[:_MOST_LINES]
    return takewhile(lambda line: not line.strip() or line.startswith("#"), lines)


def read_options(values: Mapping[str, str]) -> Options:
    """Read options that are given as text, by name.

    Raises:
        InputError: names the option, its value and what is expected.
    """
    return _read(tuple(sorted(values.items())))


@lru_cache(maxsize=4096)
def _read(items: tuple[tuple[str, str], ...]) -> Options:
    """Read options by name: many jobs say the same, and share it."""
    values = dict(items)
    if not values:
        return NO_OPTIONS
    if strange := sorted(values.keys() - set(NAMES)):
        raise InputError(unknown("option", strange[0][:_SHOWN], NAMES))
    if "gpu-set" not in values:
        raise InputError("options without --gpu-set=COUNTS, for example --gpu-set=1,2,4")
    if "lr-scaling" in values and "learning-rate" not in values:
        raise InputError("--lr-scaling without --learning-rate=RATE, the rate that it scales")
    scaling = _choice(values, "lr-scaling", [each.value for each in LearningRateScaling], "none")
    options = Options(
        counts=_counts(values["gpu-set"]),
        gpu_types=_types(values),
        least_gpu_memory_mb=_memory_mb(values),
        any_shape=_choice(values, "gpu-shapes", ["even", "any"], "even") == "any",
        copies=_copies(values),
        learning_rate=_number(values, "learning-rate"),
        lr_scaling=LearningRateScaling(scaling),
        profile=_key(values),
        total_samples=_number(values, "total-samples", MOST_SAMPLES),
        movable=not _flag(values, "no-move"),
        can_checkpoint=_flag(values, "can-checkpoint"),
    )
    if options.copies > 1:
        _check_copies(options)
    return options


def _check_copies(options: Options) -> None:
    if not options.can_checkpoint:
        raise InputError(
            "--copies without --can-checkpoint: a copy is stopped when another job gets its node"
        )
    if not options.movable:
        raise InputError("--copies does not go with --no-move: copies are started and stopped")
    if options.any_shape:
        raise InputError(
            "--copies does not go with --gpu-shapes=any: a copy has all GPUs of one node"
        )


def _refused(name: str, value: str, form: str) -> InputError:
    return InputError(f"--{name}={value[:_SHOWN]}: expected {form}")


def _choice(values: Mapping[str, str], name: str, choices: list[str], default: str) -> str:
    value = values.get(name, default)
    if value not in choices:
        raise _refused(name, value, f"{', '.join(choices[:-1])} or {choices[-1]}")
    return value


def _flag(values: Mapping[str, str], name: str) -> bool:
    if values.get(name):
        raise InputError(f"--{name} takes no value, and got {values[name][:_SHOWN]!r}")
    return name in values


def _number(values: Mapping[str, str], name: str, most: float = math.inf) -> float | None:
    if name not in values:
        return None
    try:
        number = float(values[name]) if _NUMBER.fullmatch(values[name]) else math.nan
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise _refused(name, values[name], "a number above 0")
    if number > most:
        raise _refused(name, values[name], "at most 1e15 samples")
    return number


def _counts(value: str) -> RequirementSet:
    if not _COUNTS.fullmatch(value):
        raise _refused("gpu-set", value, "GPU counts, for example 1,2,4-8")
    try:
        return RequirementSet.parse(value)
    except InputError as error:
        raise InputError(f"--gpu-set={value[:_SHOWN]}: {str(error)[: 4 * _SHOWN]}") from None


def _types(values: Mapping[str, str]) -> frozenset[str] | None:
    if "gpu-types" not in values:
        return None
    names = values["gpu-types"].split(",")
    if not all(map(_KEY.fullmatch, names)):
        raise _refused("gpu-types", values["gpu-types"], "GPU types, for example a100,v100")
    return frozenset(names)


def _key(values: Mapping[str, str]) -> str:
    value = values.get("profile-key")
    if value is not None and not _KEY.fullmatch(value):
        raise _refused("profile-key", value, "letters, digits, '_', '.' and '-'")
    return value or ""


def _memory_mb(values: Mapping[str, str]) -> int:
    if "gpu-mem" not in values:
        return 0
    match = _MEMORY.fullmatch(values["gpu-mem"])
    memory_mb = int(match[1]) * (1024 if match[2] == "G" else 1) if match else 0
    if not 0 < memory_mb <= _MOST_MEMORY_MB:
        form = "the memory of one GPU, for example 40G or 24000M"
        raise _refused("gpu-mem", values["gpu-mem"], form)
    return memory_mb


def _copies(values: Mapping[str, str]) -> int:
    if "copies" not in values:
        return 1
    value = values["copies"]
    count = MOST_COPIES if value == "" else int(value) if _COPIES.fullmatch(value) else 0
    if not 2 <= count <= MOST_COPIES:
        form = f"how many copies there may be, 2 to {MOST_COPIES}, or nothing for {MOST_COPIES}"
        raise _refused("copies", value, form)
    return count
