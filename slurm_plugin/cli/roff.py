"""A manual page in roff, with the few macros of man(7) that it needs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

_WIDTH = 78


class Manual:
    """A page that is written from top to bottom."""

    def __init__(self, name: str, section: int, source: str, date: str) -> None:
        """Begin a page, for example `hetsched` in section 1."""
        self._lines = [f'.TH {_quoted(name.upper())} {section} "{date}" {_quoted(source)}']

    def __str__(self) -> str:
        """Return the page."""
        return "\n".join(self._lines) + "\n"

    def section(self, heading: str) -> None:
        """Begin a section."""
        self._lines.append(f".SH {_quoted(heading.upper())}")

    def subsection(self, heading: str) -> None:
        """Begin a subsection."""
        self._lines.append(f".SS {_quoted(heading)}")

    def text(self, *paragraphs: str) -> None:
        """Write paragraphs; what stands in backquotes is to be typed."""
        for at, paragraph in enumerate(paragraphs):
            if at:
                self._paragraph()
            self._lines += _running(paragraph)

    def items(self, items: Iterable[tuple[str, str]]) -> None:
        """Write terms, each with what it means."""
        for term, meaning in items:
            self._lines += [".TP", rf"\fB{_escaped(term)}\fR", *_running(meaning)]

    def example(self, text: str) -> None:
        """Write lines as they are to be typed."""
        self._paragraph()
        self._lines += [".in +4n", ".nf"]
        self._lines += [_guarded(_escaped(line)) if line else ".sp" for line in text.splitlines()]
        self._lines += [".fi", ".in"]

    def _paragraph(self) -> None:
        if not self._lines[-1].startswith((".SH", ".SS")):
            self._lines.append(".PP")


def _running(text: str) -> list[str]:
    """Return text to be filled, as lines of no more than 80 characters where words allow it."""
    parts = " ".join(text.split()).split("`")
    shown = (
        rf"\fB{_escaped(part)}\fR" if at % 2 else _escaped(part) for at, part in enumerate(parts)
    )
    lines = textwrap.wrap("".join(shown), _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [_guarded(line) for line in lines]


def _escaped(text: str) -> str:
    r"""Return text without meaning to roff, in ASCII; a minus can be copied from the page."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("\N{NO-BREAK SPACE}", r"\~")
    return re.sub(r"[^\x20-\x7e]", lambda one: rf"\[u{ord(one[0]):04X}]", text)


def _guarded(line: str) -> str:
    """Return a line that is no request, whatever it begins with."""
    return rf"\&{line}" if line.startswith((".", "'")) else line


def _quoted(text: str) -> str:
    return '"{}"'.format(_escaped(text).replace('"', r"\(dq"))
