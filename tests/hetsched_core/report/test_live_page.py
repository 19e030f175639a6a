"""The page of a running system: its numbers are the state's, and text stays text."""

import re
from dataclasses import replace
from datetime import UTC
from functools import cache

import pytest

from hetsched_core.report.live_page import to_html
from hetsched_core.report.live_state import GpusOverTime, LiveJob, LiveNode, LiveState, Past
from tests.hetsched_core.report.parsed import Page

HOSTILE = "<script>alert(1)</script>\"'&\N{RIGHT-TO-LEFT OVERRIDE}x"
MONDAY_S = 1_790_000_000.0

PAST = Past(
    step_s=60.0,
    keep_s=86_400.0,
    at_s=(MONDAY_S, MONDAY_S + 60, MONDAY_S + 120),
    gpus={
        "a100": GpusOverTime((1, 2, 3), (0, 0, 1), (0, 0, 0), (3, 2, 0)),
        "t4": GpusOverTime((0, 0, 0), (0, 0, 0), (0, 2, 2), (2, 0, 0)),
    },
    running=(1, 1, 2),
    waiting=(4, 5, 6),
    plan_s=(None, 0.02, 3.0),
    nodes={"n0": "48f", "n1": "0xx"},
)
STATE = LiveState(
    at_s=MONDAY_S + 130,
    up_since_s=MONDAY_S - 3600,
    policy="hops",
    mode="enforce",
    away="",
    plan_s=MONDAY_S + 120,
    decisions=1234,
    private_jobs=False,
    nodes=(LiveNode("n0", "a100", "up", 3, 1, 0, 0), LiveNode("n1", "t4", "drained", 0, 0, 2, 0)),
    running_jobs=2,
    waiting_jobs=1500,
    longest_wait_s=7200.0,
    reasons={"no_room": 1400, "unheard_of": 100},
    running=(
        LiveJob(
            job="7",
            user="ann",
            name="bert",
            partition="gpu",
            accepts="1,2",
            since_s=MONDAY_S,
            gpus=2,
            where="n0",
            restarts=3,
        ),
    ),
    waiting=(
        LiveJob(
            job="8",
            user=HOSTILE,
            name=HOSTILE,
            partition=HOSTILE,
            accepts="4",
            since_s=MONDAY_S,
            waited_s=130.0,
            reason="no_room",
            planned_s=MONDAY_S + 430,
        ),
    ),
    past=PAST,
)


def html(state: LiveState | None = STATE, trouble: str = "", refresh_s: int = 60) -> str:
    return to_html(state, trouble, UTC, refresh_s)


@cache
def usual() -> Page:
    return Page(html())


def test_the_numbers_are_those_of_the_state() -> None:
    page = usual()
    types, waiting, running = page.tables
    assert [row[:6] for row in types[1:]] == [
        ["a100", "4", "3", "1", "0", "0"],
        ["t4", "2", "0", "0", "2", "0"],
    ]
    assert waiting[0] == ["job", "user", "name", "partition", "GPUs", "waited", "planned", "why"]
    assert waiting[1][4:] == [
        "4",
        "2.17\N{NO-BREAK SPACE}min",
        "in 5.00\N{NO-BREAK SPACE}min",
        "no_room",
    ]
    assert running[1] == ["7", "ann", "bert", "gpu", "2", "n0", "2.17\N{NO-BREAK SPACE}min", "3"]
    for words in ("4 of 6", "67 %", "1,500", "1,234 made", "2.00\N{NO-BREAK SPACE}h", "1 of 1,500"):
        assert words in page.text, words
    assert "1,400 no_room: too few GPUs are free where it fits" in page.text
    assert "100 unheard_of\n" in page.text
    assert "0 drained" in page.text


def test_what_users_typed_stays_text() -> None:
    page = Page(html(replace(STATE, away=HOSTILE, policy=HOSTILE), trouble=HOSTILE))
    assert not {tag for tag, _ in page.elements} & {"script", "iframe", "object", "form", "base"}
    assert not [name for _, given in page.elements for name in given if name.startswith("on")]
    seen = HOSTILE.replace("\N{RIGHT-TO-LEFT OVERRIDE}", "?")
    assert page.tables[1][1][1:4] == [seen, seen, seen]
    assert page.text.count("<script>") == 6  # title is not text; head, two alerts, three cells


def test_names_of_nodes_and_types_stay_text_in_the_drawings_too() -> None:
    node = replace(STATE.nodes[0], name="<b>", gpu_type="<i>&")
    past = replace(PAST, gpus={"<i>&": PAST.gpus["a100"]}, nodes={"<b>": "48f"})
    page = Page(html(replace(STATE, nodes=(node,), past=past)))
    assert "b" not in {tag for tag, _ in page.elements}
    assert page.text.count("<i>&") == 4  # two headings, a row, a panel
    assert "<b>  <i>&" in page.text


def test_a_long_name_is_cut() -> None:
    job = replace(STATE.running[0], name="x" * 5000)
    assert Page(html(replace(STATE, running=(job,)))).tables[2][1][2] == "x" * 59 + "…"


def test_it_loads_nothing_and_a_browser_is_told_to_allow_nothing() -> None:
    page = usual()
    for tag, given in page.elements:
        for name in ("src", "href", "xlink:href", "action"):
            target = given.get(name, "#")
            assert target.startswith(("#", "data:image/png;base64,")), (tag, target)
    assert not re.findall(r"url\((?!#)", html())
    policies = [
        given["content"]
        for _, given in page.elements
        if given.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    assert len(page.ids()) == len(set(page.ids()))


@pytest.mark.parametrize(("refresh_s", "told"), [(90, ["90"]), (0, [])])
def test_a_browser_comes_back_only_for_what_is_made_again(refresh_s: int, told: list[str]) -> None:
    elements = Page(html(refresh_s=refresh_s)).elements
    assert [g["content"] for _, g in elements if g.get("http-equiv") == "refresh"] == told


def test_what_is_private_or_empty_is_left_out() -> None:
    page = Page(html(replace(STATE, private_jobs=True, running=(), waiting=())))
    assert len(page.tables) == 1
    assert "Jobs are private here" in page.text
    assert "1,500 waiting" in page.text
    waiting = (replace(STATE.waiting[0], planned_s=None),)
    assert "planned" not in Page(html(replace(STATE, waiting=waiting))).tables[1][0]


@pytest.mark.parametrize(
    ("state", "trouble", "words"),
    [
        (None, "no daemon answers at /x", "no daemon answers at /x"),
        (STATE, "no daemon answers at /x", "this is what it told last: no daemon answers at /x"),
        (replace(STATE, away="munge is down"), "", "what it saw last: munge is down"),
        (replace(STATE, mode="shadow"), "", "Shadow mode: the daemon plans and records"),
        (replace(STATE, plan_s=None), "", "no plan yet"),
        (replace(STATE, past=replace(PAST, at_s=(MONDAY_S,))), "", "from the second minute on"),
    ],
)
def test_what_is_not_as_usual_is_said(state: LiveState | None, trouble: str, words: str) -> None:
    assert words in Page(html(state, trouble)).text
    assert words not in usual().text
