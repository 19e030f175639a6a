"""The sentences of the report: true of the numbers, and honest where these tell nothing."""

from dataclasses import replace

import numpy as np
import pytest

from hetsched_core.measures.logged import Closeness
from hetsched_core.measures.metrics import Measures, measure
from hetsched_core.report.findings import against_log, cautions, findings, peak
from hetsched_core.report.gains import gains
from hetsched_core.report.history import History, LoggedHistory
from hetsched_core.report.units import SPACE
from hetsched_core.traces.jobs import Assumption
from hetsched_core.types import LoggedRun
from tests.hetsched_core.report.runs import MONDAY_S, SPEEDS, run_log, usual, usual_log
from tests.hetsched_core.worlds import submission


def told(histories: list[History], *seeds: dict[str, Measures]) -> list[str]:
    gained = [gains(histories[0], other) for other in histories[1:]]
    sentences = findings(seeds, histories, [one for one in gained if one is not None])
    return [sentence.replace(SPACE, " ") for sentence in sentences]


def measured(*policies: str) -> dict[str, Measures]:
    return {policy: measure(usual_log(policy), SPEEDS) for policy in policies}


def warned(history: History, seeds: int = 1, **settings: object) -> str:
    found = cautions([measured("fifo")] * seeds, history, settings, ())
    return "\n".join(f"{one.text} {one.command}" for one in found)


def test_a_policy_is_compared_with_the_first_in_words() -> None:
    seed = measured("fifo", "las")
    seed["fifo"] = replace(seed["fifo"], avg_jct_s=7200.0, avg_wait_s=3600.0)
    seed["las"] = replace(seed["las"], avg_jct_s=3600.0, avg_wait_s=60.0)
    histories = usual("fifo", "las")
    (sentence,) = told(histories, seed)
    assert sentence.startswith(
        "Under las a job takes 1.00 h on average from submission to end, against 2.00 h under "
        "fifo (−50 %). It waits for 1.0 min of that, against 60.0 min."
    )
    gained = gains(*histories)
    assert gained is not None
    assert f"{gained.total.sooner} end sooner and {gained.total.later} later" in sentence
    stops = seed["las"].restarts
    assert f"Running jobs are stopped {stops:,} times" in sentence
    assert stops > seed["fifo"].restarts == 0
    # Of a change of speed alone that is told.
    seed = {name: replace(one, avg_wait_s=0.0) for name, one in seed.items()}
    (sentence,) = told(histories, seed)
    assert "It hardly waits under either" in sentence


def test_policies_of_which_the_same_is_to_be_said_share_a_sentence() -> None:
    fifo, las = usual("fifo", "las")
    seed = measured("fifo", "las")
    alike = {"twin": "las", "sjf": "fifo", "b": "fifo"}
    seed |= {name: seed[like] for name, like in alike.items()}
    others = [replace({"fifo": fifo, "las": las}[alike[name]], policy=name) for name in alike]
    changing, staying = told([fifo, las, *others], seed)
    assert changing.startswith("Under las and twin a job takes ")
    assert staying.startswith("Under sjf and b jobs take as long as under fifo, ")


def test_groups_that_lose_are_named() -> None:
    fifo, las = usual("fifo", "las")
    slower = replace(las, jobs=replace(las.jobs, jct_s=2 * fifo.jobs.jct_s))
    seed = measured("fifo", "las")
    (sentence,) = told([fifo, slower], seed)
    assert "On average longer: S: below 1 GPU hour (+100 %); M: 1 to 10 GPU hours" in sentence
    assert "other groups" in sentence


def test_a_difference_that_seeds_alone_make_is_called_none() -> None:
    seed = measured("fifo", "las")
    seeds = [
        {"fifo": replace(seed["fifo"], avg_jct_s=100.0), "las": replace(seed["las"], avg_jct_s=to)}
        for to in (80.0, 115.0)
    ]
    (sentence,) = told(usual("fifo", "las"), *seeds)
    assert "take it for none" in sentence
    assert "(first seed)" in sentence


def test_where_nobody_waits_the_report_says_that_it_tells_nothing() -> None:
    jobs = [submission(f"j{at}", 100.0, (2,), submit_s=MONDAY_S + at) for at in range(3)]
    log = run_log("fifo", jobs)
    first, _ = told([History.of("fifo", log)], {"fifo": measure(log, SPEEDS)})
    assert first.startswith("No job waits for more than a minute in the replay: ")
    assert "no more than 6 of 10 GPUs are held" in first
    assert not any("cannot tell" in sentence for sentence in told(usual("fifo"), measured("fifo")))


def test_the_peak_is_the_most_gpus_held_at_once() -> None:
    # One job gives its GPUs back at the moment at which the next takes them.
    log = run_log("fifo", [submission(name, 20_000.0, (8,), submit_s=MONDAY_S) for name in "ab"])
    assert peak(History.of("fifo", log)) == 8


def test_one_policy_alone_is_described_and_one_without_completed_jobs_too() -> None:
    (sentence,) = told(usual("fifo"), measured("fifo"))
    assert sentence.startswith("Under fifo a job takes ")
    none = replace(measured("fifo")["fifo"], avg_jct_s=None, avg_wait_s=None)
    assert told(usual("fifo"), {"fifo": none}) == ["No job completes under fifo."]
    seed = {"fifo": none, "las": measured("las")["las"]}
    sentences = told(usual("fifo", "las"), seed)
    assert sentences[0].startswith("Under las jobs complete, and under fifo none: nothing to ")


def test_jobs_that_the_log_cuts_short_are_warned_of() -> None:
    running = f"18 of 65 jobs: {Assumption.RUNNING}."
    (fifo,) = usual("fifo")
    found = cautions([measured("fifo")], fifo, {}, (f"3 of 65 jobs: {Assumption.FAILED}.", running))
    assert [one.text for one in found if "of 65 jobs" in one.text] == [
        f"{running} What they did later is missing, and their true run times."
    ]


def test_the_limits_of_the_comparison_are_named() -> None:
    (fifo,) = usual("fifo")
    text = warned(fifo, cluster="cluster.toml", placement_blind=False)
    assert "40 jobs are few" in text
    assert "empty cluster" in text
    for absent in ("--rules", "--placement-blind", "inferred", "last tenth"):
        assert absent not in text
    drawn = replace(fifo, jobs=replace(fifo.jobs, drawn=np.arange(40) < 7))
    assert "What 7 of 40 jobs compute is not in the input" in warned(drawn)
    assert "--seeds 5" in warned(drawn)
    assert "--seeds 5" not in warned(drawn, seeds=2)
    assert "--placement-blind" in warned(fifo, placement_blind=True)
    assert "inferred from the log" in warned(fifo, cluster=None)


@pytest.mark.parametrize("inferred", [True, False])
def test_a_log_of_what_was_there_in_the_end_is_told_from_one_of_a_month(inferred: bool) -> None:
    (fifo,) = usual("fifo")
    submit_s = MONDAY_S + np.append([0.0] * 19, 1e6 - np.arange(21.0)[::-1])
    jobs = replace(fifo.jobs, submit_s=submit_s, inferred=np.full(40, inferred))
    text = warned(replace(fifo, jobs=jobs))
    assert ("21 of 40 jobs were submitted in the last tenth of the time" in text) is inferred
    assert ("sacct --allusers" in text) is inferred
    even = replace(jobs, submit_s=MONDAY_S + np.arange(40.0), inferred=np.full(40, True))
    assert "last tenth" not in warned(replace(fifo, jobs=even))


FOUND = Closeness(
    jobs=100,
    close_share=0.4,
    waited=70,
    waited_close=10,
    p50_error_s=600.0,
    p90_error_s=7200.0,
    avg_logged_wait_s=5400.0,
    avg_wait_s=3600.0,
    wait_rank_correlation=0.5,
)


def log(gpus: int) -> LoggedHistory:
    """One job waits while another holds GPUs."""
    runs = {"runs": LoggedRun(0.0, 100.0, gpus), "waits": LoggedRun(100.0, 200.0, 1)}
    jobs = [replace(submission(job, samples=1.0), logged=(run,)) for job, run in runs.items()]
    found = LoggedHistory.of(jobs)
    assert found is not None
    return found


def test_the_replay_of_slurm_is_the_one_that_is_told_of() -> None:
    first, *_ = against_log({"las": replace(FOUND, jobs=1), "slurm": FOUND}, log(1), 8)
    assert first.replace(SPACE, " ") == (
        "How close the replay comes to the log: jobs wait 90.0 min on average before they start"
        " in the log, and 60.0 min under slurm. Within 5 minutes of their logged start 40 of "
        "100 jobs start, 30 of them because they hardly wait in either; of the 70 others 10. "
        "Half of all starts are off by at most 10.0 min, nine of ten by at most 2.00 h. The "
        "rank correlation of the waits is 0.50: 1 if jobs that wait longer in the log wait "
        "longer in the replay, 0 if that is left to chance."
    )
    assert "under las" in against_log({"las": FOUND}, log(1), 8)[0]


def test_where_hardly_a_job_waits_there_is_little_to_say() -> None:
    quiet = replace(FOUND, waited=0, waited_close=0, close_share=1.0, avg_logged_wait_s=1.0)
    (only,) = against_log({"slurm": quiet}, log(1), 8)
    assert only.endswith("none waits for longer than that in either.")


@pytest.mark.parametrize(
    ("held", "says"), [(1, "1.0 of 8 GPUs on average. The others"), (8, "for want of GPUs")]
)
def test_gpus_that_the_log_leaves_free_while_jobs_wait_are_told(held: int, says: str) -> None:
    _, why = against_log({"slurm": FOUND}, log(held), 8)
    assert says in why
