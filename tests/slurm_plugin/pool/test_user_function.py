"""What the text of a user's file tells of the function that is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from slurm_plugin.pool.user_function import check_function


def checked(folder: Path, text: str, *given: str, function: str = "make") -> None:
    (folder / "jobs.py").write_text(text)
    check_function(f"{folder / 'jobs.py'}:{function}", given)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def make(rate:\n", r"jobs\.py, line 1: .*; mend it, and submit again"),
        ("import os\ndef other(): ...\n", "no function 'make' at its top level; it has: other"),
        ("class A:\n    def make(self, rate): ...\n", "at its top level; it has: none"),
        ("def make(): ...\n", "unknown argument of .*make 'rate': there is none to choose"),
        ("def make(rates): ...\n", "'rate': did you mean 'rates'[?] valid: rates"),
        ("def make(rate, width): ...\n", "needs 'width'; give it with --set width=VALUE"),
        ("def make(rate, *, width): ...\n", "needs 'width'; give it"),
        ("def make(width, **others): ...\n", "needs 'width'; give it"),
        ("def make(width, /, rate): ...\n", "takes 'width' by position only"),
    ],
)
def test_what_could_not_be_called_is_refused(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=why):
        checked(tmp_path, text, "rate")


@pytest.mark.parametrize(
    "text",
    [
        "def make(rate): ...\n",
        "def make(rate, width=1, *, depth=2): ...\n",
        "def make(**others): ...\n",
        "import functools\n@functools.cache\ndef make(): ...\n",
        "from models import make\n",
        "from models import *\n",
        "make = lambda rate: None\n",
        "if True:\n    def make(rate): ...\nelse:\n    def make(): ...\n",
        "try:\n    from a import make\nexcept ImportError:\n    def make(): ...\n",
        "globals()['make'] = print\n",
        "def begin():\n    global make\n    make = print\nbegin()\n",
        "for make in [print]: pass\n",
        "def __getattr__(name): ...\n",
        "raise SystemExit('this file is not to be imported')\ndef make(rate): ...\n",
    ],
)
def test_what_can_be_called_or_cannot_be_known_is_let_pass(text: str, tmp_path: Path) -> None:
    checked(tmp_path, text, "rate")


def test_a_function_of_a_package_is_not_looked_for() -> None:
    check_function("no.such.package:make", ["rate"])
