"""The elements of one list in a JSON document that is too large to be held in memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator

from hetsched_core.errors import HetschedError

MAX_ELEMENT = 1 << 26
"""Longest element, in characters: a job with more steps than Slurm's default limit fits."""

_CHUNK = 1 << 18
_SPACE = re.compile(r"[ \t\r\n]*")
# A word or an escape that ends early is shorter: false, -Infinity, \ud83d\ude00.
_CUT_WORD = 16
_UNFINISHED = re.compile(r"-|\.|[eE][-+]?|u[0-9a-fA-F]{0,4}")
# What may follow a number before it shows that it goes on: 1e-
_CUT_NUMBER = 2


class BrokenJsonError(HetschedError):
    """The text is no JSON, or not an object; `cut_off` where it only ends too early."""

    def __init__(self, message: str, cut_off: bool) -> None:
        super().__init__(message)
        self.cut_off = cut_off


def iterate_list(read: Callable[[int], bytes], key: str) -> Iterator[object]:
    """Yield the elements of the list under `key` of the outermost object, one at a time.

    Nothing is yielded where there is no such list. What follows the list is not read.

    Args:
        read: Returns up to so many of the next bytes, none at the end.
        key: The key.

    Raises:
        BrokenJsonError: What comes before the end of the list is no JSON.
    """
    text = _Text(read)
    text.expect("{")
    if text.skip("}"):
        return
    while True:
        name = text.value()
        text.expect(":")
        if name == key and text.skip("["):
            break
        text.value()
        if text.skip("}"):
            return
        text.expect(",")
    if text.skip("]"):
        return
    while True:
        yield text.value()
        if text.skip("]"):
            return
        text.expect(",")


class _Text:
    """A text of which only a part is in memory."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
        self._decoder = json.JSONDecoder(strict=False)
        self._text = ""
        self._at = 0
        self._ended = False

    def skip(self, token: str) -> bool:
        """Pass over a character if it comes next."""
        if self._next() != token:
            return False
        self._at += 1
        return True

    def expect(self, token: str) -> None:
        """Pass over a character that must come next."""
        if not self.skip(token):
            found = self._next()
            raise BrokenJsonError(f"expected {token!r}, found {found or 'the end'!r}", not found)

    def value(self) -> object:
        """Return the value that comes next."""
        self._next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    raise BrokenJsonError(error.msg, self._is_cut_off(error)) from None
                if error.pos < len(self._text) - _CUT_WORD and not _is_open_string(error):
                    raise BrokenJsonError(error.msg, cut_off=False) from None
                if len(self._text) - self._at > MAX_ELEMENT:
                    raise BrokenJsonError(
                        f"one element has more than {MAX_ELEMENT} characters", cut_off=False
                    ) from None
            except RecursionError:
                raise BrokenJsonError("nested too deep for a record", cut_off=False) from None
            except ValueError as error:
                raise BrokenJsonError(str(error), cut_off=False) from None
            else:
                # Only what follows shows that a number is complete.
                if end < len(self._text) - _CUT_NUMBER or self._ended:
                    self._at = end
                    return value
            self._fill()

    def _is_cut_off(self, error: json.JSONDecodeError) -> bool:
        """Whether only the end is missing, and what is there could have gone on as JSON."""
        rest = self._text[error.pos :]
        return (
            _is_open_string(error)
            or _UNFINISHED.fullmatch(rest) is not None
            or any(word.startswith(rest) for word in ("true", "false", "null"))
        )

    def _next(self) -> str:
        """Return the next character that is no space; an empty text at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            if space is not None:
                self._at = space.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._fill()

    def _fill(self) -> None:
        """Get at least as much again, so that a long value is not tried too often."""
        held = len(self._text) - self._at
        data = self._read(max(_CHUNK, held))
        self._ended = not data
        self._text = self._text[self._at :] + self._decode(data, final=not data)
        self._at = 0


def _is_open_string(error: json.JSONDecodeError) -> bool:
    return error.msg.startswith("Unterminated string")
