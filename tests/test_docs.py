"""The documentation: links lead somewhere, commands exist, words are explained."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import click
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from hetsched_core import types
from hetsched_core.cli.group import hetsched

PROJECT = Path(__file__).parents[1]
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")])


def tokens(page: Path) -> Iterator[Token]:
    """All tokens of a page, those inside paragraphs included."""
    for token in MarkdownIt().enable("table").parse(page.read_text()):
        yield token
        yield from token.children or ()


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may name, as GitHub forms it."""
    heads = re.findall(r"^#+ +(.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every line ``hetsched ...`` in the code blocks of a page."""
    for token in tokens(page):
        if token.type not in ("fence", "code_block"):
            continue
        for line in token.content.replace("\\\n", " ").splitlines():
            line = line.strip().removeprefix("$ ")
            if line.startswith("hetsched "):
                first = re.split(r"[|>;&]", line)[0]
                yield shlex.split(first, comments=True)[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for token in tokens(page):
        target = str(token.attrGet("href") or token.attrGet("src") or "")
        if not target or re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name}: {target} leads nowhere"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{page.name}: {target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_command_shown_exists_and_takes_the_options_shown(page: Path) -> None:
    for words in commands(page):
        command: click.Command = hetsched
        context = click.Context(command)
        rest = iter(words)
        for word in rest:
            if word.startswith("-") or not isinstance(command, click.Group):
                break
            found = command.get_command(context, word)
            assert found is not None, f"{page.name}: hetsched {shlex.join(words)}: no {word!r}"
            command, context = found, click.Context(found, parent=context)
        known = {name for option in command.get_params(context) for name in option.opts}
        known |= {name for option in command.get_params(context) for name in option.secondary_opts}
        known |= set(context.help_option_names)
        for word in words:
            if word.startswith("--"):
                option = word.partition("=")[0]
                assert option in known, f"{page.name}: hetsched {shlex.join(words)}: no {option}"


def test_the_readme_shows_a_command() -> None:
    assert list(commands(PROJECT / "README.md"))


def test_every_public_type_is_in_the_glossary() -> None:
    names = [name for name in types.__all__ if name[0].isupper() and not name.isupper()]
    glossary = (PROJECT / "docs/glossary.md").read_text()
    missing = [name for name in names if not re.search(rf"\b{name}\b", glossary)]
    assert names
    assert not missing, f"docs/glossary.md does not explain {', '.join(missing)}"
