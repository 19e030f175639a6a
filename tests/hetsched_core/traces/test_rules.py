"""Rules files: what is read, and what is said of one that cannot be."""

import re
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.throughput import builtin_profiles, known_gpus
from hetsched_core.traces.rules import NO_RULE, Rule, Rules, parse_rules, read_rules
from hetsched_core.types import RequirementSet

PROFILES = ("resnet50", "gpt2")
HEAD = 'schema = "hetsched-rules/1"\n'
RULE = HEAD + "[[rules]]\n"
ANY = Rule(profile="any")


def test_a_rules_file_is_read_in_order() -> None:
    text = (
        HEAD
        + """
[[rules]]
job_name = ["train*", "fit?"]
partition = "gpu"
profile = "gpt2"
gpu_types = ["A100", "h100"]
requirements = "1,2,4-8"

[[rules]]
account = "vision"
user = "a*"
profile = "resnet50"
"""
    )
    assert parse_rules(text) == Rules(
        (
            Rule(
                job_name=("train*", "fit?"),
                partition=("gpu",),
                profile="gpt2",
                gpu_types=frozenset({"a100", "h100"}),
                requirements=RequirementSet.parse("1,2,4-8"),
            ),
            Rule(account=("vision",), user=("a*",), profile="resnet50"),
        )
    )


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (Rule(), True),
        (Rule(job_name=("train*",)), True),
        (Rule(job_name=("TRAIN*",)), False),
        (Rule(job_name=("fit*", "*-7")), True),
        (Rule(job_name=("train*",), user=("ben",)), False),
        (Rule(account=("m?",), partition=("[gh]pu",), user=("ann",)), True),
    ],
)
def test_a_job_matches_if_each_of_its_texts_matches_one_pattern(rule: Rule, matches: bool) -> None:
    texts = {"job_name": "train-7", "partition": "gpu", "account": "ml", "user": "ann"}
    assert rule.matches(**texts) is matches
    assert Rules((rule,)).find(**texts) is (rule if matches else NO_RULE)
    # The first that matches counts and no other.
    assert Rules((rule, ANY)).find(**texts) is (rule if matches else ANY)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = ", "not valid TOML"),
        ("", "hetsched-rules/1"),
        (HEAD, "rules is missing; expected one or more [[rules]]"),
        (HEAD + "rules = 3", "rules is 3"),
        ('note = "x"\n' + HEAD + '[[rules]]\nprofile = "gpt2"', "'note'"),
        (
            RULE + 'profile = "gpt2"\n[[rules]]\nprofil = "gpt2"',
            "rules 2: unknown key 'profil': did",
        ),
        (RULE + 'user = "x"', "rules 1: it decides nothing"),
        (RULE + 'profile = "gpt3"', "did you mean 'gpt2'"),
        (RULE + "profile = 5", "profile is 5"),
        (RULE + 'user = [1]\nprofile = "gpt2"', "user is [1]"),
        (RULE + 'requirements = "4-1"', "runs backwards"),
        (RULE + "requirements = 4", "requirements is 4"),
    ],
)
def test_what_is_wrong_with_a_rules_file_is_said_with_its_place(text: str, says: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_rules(text, "site.toml").require(PROFILES, "site.toml")
    assert str(raised.value).startswith("site.toml: ")
    assert says in str(raised.value)


def test_a_rules_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    for name in ("missing", "binary"):
        with pytest.raises(InputError, match=name):
            read_rules(tmp_path / name)


PAGE = (Path(__file__).parents[3] / "docs/formats/rules.md").read_text()


def test_the_example_of_the_documentation_is_a_rules_file() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    rules = parse_rules(example)
    rules.require([profile.name for profile in builtin_profiles()], "the example")
    assert [rule.profile for rule in rules.rules] == ["gpt2-medium-wikitext", "resnet50-imagenet"]


def test_the_documentation_lists_the_built_in_models_and_gpu_types() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (S|M|L|XL) \| .*, ([\d,]+) \|$", PAGE, re.MULTILINE)
    assert [(name, size, int(batch.replace(",", ""))) for name, size, batch in rows] == [
        (p.name, p.size, p.batch_size) for p in builtin_profiles()
    ]
    for gpu in known_gpus():
        assert f"`{gpu.name}`" in PAGE
