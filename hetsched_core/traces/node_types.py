"""Of which type the GPUs are that a log leaves untyped, told from the name of their node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct.fields import FieldError, expand_nodes

UNKNOWN_TYPE = "untyped"
"""The GPU type of a node of which neither a log nor Slurm's own output tells the type."""

_GLOB = re.compile(r"[A-Za-z0-9_.*-]+")
_GPU_TYPE = re.compile(r"[^\s,:=()\[\]'\"]+")


def normal_gpu_type(text: str) -> str:
    """Return a GPU type as hetsched spells it: Slurm's own name in lower case.

    Raises:
        InputError: It is empty, or holds what Slurm cannot have in a name.
    """
    if not _GPU_TYPE.fullmatch(text):
        raise InputError(f"{text!r} is no GPU type; types are Slurm's names, such as a100 or l40s")
    return text.lower()


@dataclass(frozen=True, slots=True)
class NodeTypes:
    """(pattern, GPU type) pairs; the first pattern that a node's name matches counts.

    A pattern is a node list such as `gpu-[1-12]`, or a name in which `*` stands for any text.
    """

    rules: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, rules: Mapping[str, str]) -> NodeTypes:
        """Check patterns and types.

        Raises:
            InputError: A pattern is neither form, or a type is no name.
        """
        for pattern in rules:
            if "*" in pattern:
                valid = bool(_GLOB.fullmatch(pattern))
            else:
                try:
                    valid = bool(expand_nodes(pattern))
                except FieldError:
                    valid = False
            if not valid:
                raise InputError(
                    f"{pattern!r} is no pattern of node names; write a node list such as "
                    "gpu-[1-12], or a name with * for any text such as a100gpu*"
                )
        return cls(tuple((pattern, normal_gpu_type(name)) for pattern, name in rules.items()))

    def type_on(self, node: str) -> str | None:
        """Return the GPU type of the first pattern that a node's name matches; None for none."""
        for pattern, gpu_type in self.rules:
            if fnmatchcase(node, pattern) if "*" in pattern else node in expand_nodes(pattern):
                return gpu_type
        return None
