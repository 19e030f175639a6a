"""The page on replays in Python shows its example as it is, and what it prints."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "python.md").read_text()
EXAMPLE = DOCS / "python_example.py"


def block(language: str) -> str:
    """The one block of this language on the page."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(text)


def test_the_page_shows_the_example_without_its_docstring() -> None:
    assert EXAMPLE.read_text().split("\n\n", 1)[1] == block("python")


def test_the_example_prints_what_the_page_says() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=True
    )
    assert done.stdout == block("text")


def test_every_call_that_the_page_names_is_there() -> None:
    calls = re.findall(r"`(\w+)\([^`]*\)` in `([\w.]+)`", PAGE)
    assert len(calls) == 4
    for name, module in calls:
        assert callable(getattr(importlib.import_module(module), name))
