"""The report: its numbers are those of the result, it needs nothing else, and text stays text."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.measures import accounts
from hetsched_core.report import clock, estimates, figures, findings, gains, rows, svg
from hetsched_core.report.page import Report, to_html, write_report
from hetsched_core.report.units import durations
from hetsched_core.types import EndState, RequirementSet, Submission
from tests.hetsched_core.report.parsed import Page
from tests.hetsched_core.report.runs import (
    MONDAY_S,
    jobs,
    logged_jobs,
    report_of,
    run_log,
    usual_log,
)
from tests.hetsched_core.worlds import submission

DOCS = Path(__file__).parents[3] / "docs/formats/report.md"


@pytest.fixture(scope="module")
def usual_report() -> Report:
    return report_of({"fifo": usual_log("fifo"), "las": usual_log("las")})


@pytest.fixture(scope="module")
def page(usual_report: Report) -> Page:
    return Page(to_html(usual_report))


def test_every_measure_in_the_page_is_that_of_the_result(page: Page, usual_report: Report) -> None:
    fifo, las = usual_report.result.policies.values()
    keys = [key.removeprefix("m-") for key in page.values]
    assert {"avg_jct_s", "p99_jct_s", "avg_wait_s", "gpu_utilisation", "makespan_s"} <= set(keys)
    for key in keys:
        assert page.values[f"m-{key}"] == [getattr(fifo, key), getattr(las, key)], key
    row = page.rows("measures")["Completion time, mean"]
    assert (row[1], row[2]) == ("h", f"{(fifo.avg_jct_s or 0) / 3600:.2f}")
    assert row[3].startswith(f"{(las.avg_jct_s or 0) / 3600:.2f}−")


def test_the_table_of_gains_is_that_of_the_histories(page: Page, usual_report: Report) -> None:
    found = gains.gains(*usual_report.histories)
    assert found is not None
    rows = page.rows("gains")
    for grouping in found.groupings:
        assert grouping.title in rows
        for group in grouping.groups:
            numbers = [int(rows[group.label][at]) for at in (1, 6, 7)]
            assert numbers == [group.jobs, group.sooner, group.later]


def test_every_part_is_there_and_every_link_leads_to_it(page: Page) -> None:
    ids = page.ids()
    parts = {"findings", "comparison", "figures", "gains", "accounts", "measures", "assumptions"}
    parts |= {"verdict", "input", "widths"}
    drawings = {"f-jct", "f-latency-ratio", "f-gpus", "f-throughput", "f-queue", "f-use", "f-nodes"}
    assert parts | drawings <= set(ids)
    assert len(ids) == len(set(ids))
    for tag, given in page.elements:
        if tag in ("a", "use"):
            target = given.get("href") or given["xlink:href"]
            assert target.startswith("#")
            assert target[1:] in ids
    assert sum(tag == "svg" and "role" in given for tag, given in page.elements) == 8


def test_the_page_loads_nothing_and_runs_nothing(page: Page, usual_report: Report) -> None:
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "link", "iframe", "object", "embed", "base", "img", "form"}
    for _, given in page.elements:
        for name, value in given.items():
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
                assert value.startswith(("#", "data:image/png;base64,"))
    text = to_html(usual_report)
    assert not re.search(r"@import|url\((?!#)", text)
    assert "http:" not in text
    assert "https:" not in text


def test_what_users_wrote_is_shown_and_never_becomes_markup() -> None:
    nasty = "<script>alert('{}')</script>"
    submissions = jobs(user=nasty)
    command = "hetsched replay '<script>' --report DIR"
    report = report_of(
        {"<b>fifo": run_log("fifo", submissions), "las": run_log("las", submissions)},
        assumptions=("1 of 40 jobs: <script>x</script>.",),
        command=command,
    )
    shown = Page(to_html(report))
    assert not {"script", "b"} & {tag for tag, _ in shown.elements}
    assert nasty.format(3) in shown.text
    assert "<script>x</script>" in shown.text
    assert command in shown.text
    assert "<b>fifo" in shown.text


def test_the_same_input_gives_the_same_bytes(tmp_path: Path, usual_report: Report) -> None:
    first = write_report(usual_report, tmp_path).read_bytes()
    again = report_of({name: run_log(name, jobs()) for name in ("fifo", "las")})
    # Clocks differ from run to run.
    slow = {name: replace(m, wall_s=9.0) for name, m in again.result.policies.items()}
    again = replace(again, result=replace(again.result, policies=slow))
    assert write_report(again, tmp_path).read_bytes() == first


def test_several_seeds_show_means_intervals_and_how_they_are_meant(usual_report: Report) -> None:
    fifo, las = usual_report.result.policies.values()
    other = replace(las, avg_jct_s=(las.avg_jct_s or 0.0) * 1.1)
    seeds = {1: {"fifo": fifo, "las": other}, 2: {"fifo": fifo, "las": other}}
    report = replace(usual_report, result=replace(usual_report.result, other_seeds=seeds))
    shown = Page(to_html(report))
    mean = ((las.avg_jct_s or 0.0) + 2 * (other.avg_jct_s or 0.0)) / 3
    assert shown.values["m-avg_jct_s"] == pytest.approx([fifo.avg_jct_s, mean])
    row = shown.rows("measures")["Completion time, mean"]
    assert "±" not in row[2]
    assert "±" in row[3]
    words = " ".join(shown.text.split())
    assert "Means over 3 seeds (0 to 2); ± is half the width of the 95 % confidence" in words
    assert "Student’s t, 2 degrees of freedom" in words
    assert "fifo: the same for every seed, since nothing is drawn" in words
    assert "All figures are of seed 0 alone." in words


def test_what_a_policy_was_told_and_a_real_scheduler_is_not_stands_out(page: Page) -> None:
    assert "It was told" not in page.text
    srtf = Page(to_html(report_of({"fifo": usual_log("fifo"), "srtf": usual_log("srtf")})))
    assert "It was told how much work each job is" in srtf.text


@pytest.mark.parametrize(
    "one",
    [
        submission("never runs", 100.0, (64,), submit_s=MONDAY_S),
        submission("fails", 100.0, submit_s=MONDAY_S, ends_as=EndState.FAILED),
        submission("alone at time 0", 100.0),
        submission("cancelled at once", 100.0, submit_s=MONDAY_S, cancel_s=MONDAY_S),
    ],
    ids=lambda one: one.job.id,
)
def test_a_run_of_which_hardly_anything_is_left_still_makes_a_page(one: Submission) -> None:
    logs = {policy: run_log(policy, [one]) for policy in ("fifo", "las")}
    shown = Page(to_html(report_of(logs)))
    assert "1 job under fifo, las" in shown.text
    assert "Before you rely on it" in shown.text
    # Of latency ratios that are all next to nothing no figure is made.
    assert sum(tag == "svg" and "role" in given for tag, given in shown.elements) == 5
    assert "nothing to draw" in shown.text


def test_a_log_stands_beside_the_policies_and_how_close_they_come_to_it() -> None:
    report = report_of({"slurm": usual_log("slurm"), "las": usual_log("las")}, site=logged_jobs())
    page = Page(to_html(report))
    result = report.result
    assert result.logged is not None
    assert page.rows("measures")["Wait, mean"][2] == f"{result.logged.avg_wait_s / 3600:.2f}"
    # The log is no policy: it is neither the best nor compared.
    assert page.values["m-avg_wait_s"] == [one.avg_wait_s for one in result.policies.values()]
    slurm = result.closeness["slurm"]
    row = page.rows("closeness")["slurm"]
    assert row[4] == f"{slurm.waited_close} of {slurm.waited}"
    assert tuple(row[5:7]) == durations(slurm.avg_logged_wait_s, slurm.avg_wait_s)
    assert {"log", "f-waits"} <= set(page.ids())
    assert "How close the replay comes to the log: jobs wait 0.33" in page.text


def test_what_each_user_had_and_was_due_is_shown_under_each_policy(
    page: Page, usual_report: Report
) -> None:
    words = ["", "shares", "jobs", "GPU h had", "GPU h due", "wait", "slowdown"]
    tables = [table for table in page.tables if table[0] == words]
    first, *_ = order = [row[0] for row in tables[0][2:]]
    for table, measured in zip(tables, usual_report.result.accounts.values(), strict=True):
        # All are of one account, which has no row.
        assert table[1] == ["users"]
        assert [row[0] for row in table[2:]] == order
        (one,) = (row for row in measured if row.user == first)
        (shown,) = (row for row in table if row[0] == first)
        assert shown[1:5] == [
            "1",
            str(one.jobs),
            f"{one.had_gpu_s / 3600:.1f}",
            f"{one.due_gpu_s / 3600:.1f}",
        ]
    assert page.text.count("“") == page.text.count("”")


def test_what_became_of_the_jobs_of_each_number_of_gpus_is_shown_under_each_policy(
    page: Page, usual_report: Report
) -> None:
    (table,) = (table for table in page.tables if table[0][:2] == ["GPUs", "jobs done"])
    widths = usual_report.result.widths
    shown = iter(table[1:])
    for policy, measured in widths.items():
        assert next(shown) == [policy]
        for one in measured:
            gpus, done, *times = next(shown)
            assert (gpus, done) == (str(one.gpus), f"{one.completed}/{one.jobs}")
            hours = [float(text.split()[0]) for text in times if text.endswith("h")]
            told = (one.avg_jct_s, one.p99_jct_s, one.avg_wait_s, one.p99_wait_s)
            assert hours == pytest.approx([s / 3600 for s in told if s is not None], rel=0.02)
    assert next(shown, None) is None


def test_jobs_of_one_width_have_no_table_of_widths() -> None:
    two = RequirementSet((2,))
    alike = [replace(one, job=replace(one.job, requirements=two)) for one in jobs()]
    page = Page(to_html(report_of({"fifo": run_log("fifo", alike)})))
    assert "widths" not in page.ids()


def test_users_beyond_the_largest_are_counted() -> None:
    many = [replace(one, job=replace(one.job, user=f"u{at}")) for at, one in enumerate(jobs())]
    page = Page(to_html(report_of({"fifo": run_log("fifo", many)})))
    assert "users, the 12 that had most under fifo (28 more in the result file)" in page.text
    assert "Drawn are the 7 of 40 users that had most." in page.text


def test_a_user_alone_shares_with_nobody() -> None:
    page = Page(to_html(report_of({"fifo": run_log("fifo", jobs(user="ann"))})))
    assert not {"accounts", "f-use", "m-jain_slowdown", "m-worst_share_error"} & set(page.ids())


def test_policies_that_make_the_same_of_every_job_share_a_table_of_gains() -> None:
    las = usual_log("las")
    page = Page(to_html(report_of({"fifo": usual_log("fifo"), "las": las, "twin": las})))
    assert "las, twin in place of fifo" in page.text
    assert page.text.count("in place of fifo") == 1


@pytest.mark.parametrize(
    ("settings", "marked"),
    [
        ({"cluster": None}, {"--cluster"}),
        (
            {"estimates": "learned", "node_spread": "longhorn-resnet"},
            {"--estimates learned", "--node-spread longhorn-resnet"},
        ),
        ({"estimates": "truth", "node_spread": None}, {"--estimates truth"}),
    ],
)
def test_settings_are_among_what_was_assumed(
    usual_report: Report, settings: dict[str, object], marked: set[str]
) -> None:
    given = replace(usual_report.result.input, settings=settings)
    text = to_html(replace(usual_report, result=replace(usual_report.result, input=given)))
    assert all(f"<code>{words}</code>" in text for words in marked)
    assert ("--node-spread" in text) is any("--node-spread" in words for words in marked)


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, usual_report: Report) -> None:
    with pytest.raises(InputError, match=r"cannot write .*absent/report\.html"):
        write_report(usual_report, tmp_path / "absent")


def test_the_documentation_names_the_bounds_as_they_are() -> None:
    text = DOCS.read_text()
    for words in (
        f"{figures.MAX_POINTS} points a line",
        f"{clock.BINS} bins; each step",
        f"up to {figures.MAX_BARS:,} bars for each policy and {figures.MAX_LANES} GPUs",
        f"in at most {figures.MAX_ROWS} rows",
        f"the {rows.MOST_ACCOUNTS} accounts and {rows.MOST_ACCOUNTS} users that had most",
        f"up to {svg.POLICY_COLOURS} accounts",
        f"at {accounts.POINTS} instants",
        f"the {gains.MAX_USERS} whose jobs change most",
        f"a {100 * estimates.CONFIDENCE:.0f} % confidence interval",
        f"more than {100 * gains.LEAST_SHARE:.0f} % and more than one minute",
        f"as many as {100 * findings.QUIET_SHARE:.0f} % of the jobs wait",
    ):
        assert words in text
    assert gains.LEAST_S == 60.0
