"""Pages that trace a paper: the code and the tests that their tables name exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
TRACED = ("docs/policies/hops.md",)
CODE, TESTS = PROJECT / "hetsched_core", PROJECT / "tests/hetsched_core"


def named(page: str) -> Iterator[tuple[Path, str]]:
    """What the columns `code` and `test` name: where to look for it, and `path` or `path::name`."""
    columns: list[str] = []
    for line in (PROJECT / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line[:1] == "|" else []
        columns = columns if columns and cells else cells
        for column, cell in zip(columns, cells, strict=len(columns) > 0):
            if column in ("code", "test"):
                yield from (
                    (CODE if column == "code" else TESTS, each)
                    for each in re.findall(r"`([^`]+)`", cell)
                )


def definitions(file: Path) -> set[str]:
    """The functions, methods, classes and constants of a file."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize("page", TRACED)
def test_every_file_and_function_that_a_page_names_exists(page: str) -> None:
    everything = list(named(page))
    assert len(everything) > 50
    for folder, each in everything:
        path, _, name = each.partition("::")
        file = next((root / path for root in (folder, PROJECT) if (root / path).exists()), None)
        assert file is not None, f"{page} names {path}, which does not exist"
        assert not name or name in definitions(file), f"{page} names {each}, which does not exist"


@pytest.mark.parametrize("page", TRACED)
def test_every_line_names_code_and_a_test_function(page: str) -> None:
    """A path alone would stay right whatever became of the test."""
    tests = [each for folder, each in named(page) if folder == TESTS]
    assert tests
    assert not [each for each in tests if "::test_" not in each]
