"""Nothing of a user's ever reaches a shell: no file of ours starts one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = [
    path
    for folder in ("hetsched_core", "slurm_plugin", "job_wrappers")
    for path in sorted((ROOT / folder).rglob("*.py"))
]

SHELLS = {"sh", "bash", "dash", "zsh", "/bin/sh", "/bin/bash"}
ALWAYS_SHELL = {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"}
EVALUATES = {"eval", "exec"}
STARTS = {"run", "Popen", "call", "check_call", "check_output"}


OWN = {
    "hetsched_core/types/making.py": ["exec"],
    "job_wrappers/guardian.py": ["/bin/sh"],
}
"""What is our own source alone: the __init__ of our dataclasses, and a fixed script whose only
words from outside are a number of seconds and numbers of processes."""


def offences(source: str) -> Iterator[str]:
    """Yield what in a Python file could make a shell, or Python, run a text."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        plain = node.func.id if isinstance(node.func, ast.Name) else ""
        owner = ""
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            owner = node.func.value.id
        for keyword in node.keywords:
            if keyword.arg == "shell" and getattr(keyword.value, "value", True) is not False:
                yield f"line {node.lineno}: shell="
        if name in ALWAYS_SHELL and owner in {"os", "subprocess", "asyncio"}:
            yield f"line {node.lineno}: {owner}.{name}"
        if plain in EVALUATES:
            yield f"line {node.lineno}: {plain}"
        if owner == "subprocess" and name in STARTS and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant | ast.JoinedStr):
                yield f"line {node.lineno}: a command that is one text"
            words = first.elts if isinstance(first, ast.List | ast.Tuple) else []
            if words and isinstance(words[0], ast.Constant) and words[0].value in SHELLS:
                yield f"line {node.lineno}: {words[0].value}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_hands_text_to_a_shell(path: Path) -> None:
    found = [words.partition(": ")[2] for words in offences(path.read_text())]
    assert found == OWN.get(str(path.relative_to(ROOT)), [])


@pytest.mark.parametrize(
    "source",
    [
        "subprocess.run(words, shell=True)",
        "subprocess.run(words, shell=flag)",
        "os.system(text)",
        "os.popen(text)",
        "subprocess.getoutput(text)",
        "subprocess.run(f'scancel {job}')",
        "subprocess.Popen(['sh', '-c', text])",
        "subprocess.check_output(('bash', '-c', text))",
        "eval(text)",
        "exec(text)",
    ],
)
def test_what_would_is_found(source: str) -> None:
    assert len(list(offences(source))) == 1


def test_a_list_of_words_is_none() -> None:
    assert list(offences("subprocess.run(['scancel', job], shell=False)")) == []
    assert list(offences("connection.execute(sql); text.system(); process.run(words)")) == []
