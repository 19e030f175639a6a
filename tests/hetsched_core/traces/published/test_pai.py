"""PAI's tables: the tasks of a job are one run, on whole GPUs alone."""

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct import LoggedState
from tests.hetsched_core.traces.published.worlds import read, why

TASKS = """j1,ps,1.0,Terminated,100.0,900.0,600.0,10.0,,
j1,worker,2.0,Terminated,110.0,900.0,400.0,20.0,400.0,V100
j1,chief,1.0,Terminated,105.0,905.0,400.0,20.0,100.0,P100
"""
JOBS = "j1,i1,ann,Terminated,40.0,910.0\n"


def task(**changes: str) -> str:
    """A line of one worker on a GPU."""
    cells = {
        "job_name": "j2",
        "task_name": "worker",
        "inst_num": "1.0",
        "status": "Terminated",
        "start_time": "110.0",
        "end_time": "900.0",
        "plan_cpu": "600.0",
        "plan_mem": "29.3",
        "plan_gpu": "100.0",
        "gpu_type": "T4",
    }
    return ",".join((cells | changes).values()) + "\n"


def test_the_tasks_of_a_job_are_one_run_on_the_gpus_of_all_their_instances() -> None:
    log = read(JOBS, TASKS)
    (run,) = log.runs
    assert (run.job_id, run.user, run.name) == ("j1", "ann", "chief")
    assert run.gpus == (("P100", 1), ("V100", 8))
    assert (run.submit_s, run.start_s, run.end_s) == (40.0, 105.0, 905.0)
    # CPUs and memory are those of the parameter server as well; 9 GPUs are on two nodes of 8.
    assert (run.cpus, run.memory_mb, run.n_nodes) == (18, (10 + 40 + 20) * 1024, 2)
    assert (run.state, run.requested_gpus) == (LoggedState.COMPLETED, ())
    assert (log.report.lines, log.report.used, log.report.steps) == (3, 1, 2)


def test_the_order_of_the_tables_does_not_matter_and_headers_do_no_harm() -> None:
    names = "job_name,inst_id,user,status,start_time,end_time\n"
    log = read(names + JOBS, TASKS)
    assert log.runs == read(JOBS, TASKS).runs
    swapped = read(TASKS, JOBS)
    assert swapped.runs == log.runs


def test_a_table_of_jobs_alone_is_an_error_that_names_the_other() -> None:
    with pytest.raises(InputError, match=r"^file 0: .* give pai_task_table.csv as well"):
        read(JOBS)


def test_without_the_table_of_jobs_a_job_is_submitted_when_it_starts_and_that_is_said() -> None:
    log = read(TASKS)
    assert (log.runs[0].submit_s, log.runs[0].user) == (105.0, "")
    assert (
        "1 of 1 jobs of PAI: in no table of jobs: submitted when the first task"
        in log.assumptions[0]
    )


def test_types_of_older_gpus_stand_for_one_that_is_known() -> None:
    log = read(task(gpu_type="MISC"))
    assert log.runs[0].gpus == (("k80", 1),)
    assert [text for text in log.assumptions if "MISC" in text]
    assert read(task(gpu_type="")).runs[0].gpus == ((None, 1),)


@pytest.mark.parametrize(
    ("rows", "state", "elapsed_s"),
    [
        (task(), LoggedState.COMPLETED, 790.0),
        (task(status="Failed"), LoggedState.FAILED, 790.0),
        (task() + task(status="Failed"), LoggedState.FAILED, 790.0),
        (task(status="Running"), LoggedState.CANCELLED, 790.0),
        # Nobody knows how long it ran: more tasks are said to run than could at the trace's end.
        (task(status="Failed", end_time=""), LoggedState.FAILED, None),
        (task(status="Running", end_time="0.0") + task(), LoggedState.CANCELLED, None),
    ],
)
def test_a_job_ends_as_its_tasks_do(rows: str, state: LoggedState, elapsed_s: float | None) -> None:
    run = read(rows + task(job_name="j3", end_time="1000")).runs[0]
    assert (run.state, run.elapsed_s) == (state, elapsed_s)


def test_jobs_without_gpus_and_jobs_that_wait_are_counted_as_such() -> None:
    idle = task(job_name="j3", plan_gpu="", inst_num="")
    report = read(task(status="Waiting", start_time="", end_time="") + idle + idle).report
    assert (report.never_started, report.no_gpu, report.steps, report.used) == (1, 1, 1, 0)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (task(plan_gpu="50.0", inst_num="2.0"), "part of a GPU: asks for 50 % of a GPU in each of"),
        (task(plan_gpu="250.0"), "part of a GPU: asks for 250 % of a GPU in"),
        (task(inst_num=""), "inst_num is ''; expected a whole number"),
        (task(status="Gone"), "unreadable state: 'Gone' is none of Terminated, Failed, Running, "),
        (task(job_name=""), "job_name is empty"),
        (task(plan_cpu="many"), "plan_cpu is 'many'; expected a number"),
        (task(end_time="100"), "ends 10 s before its Start"),
        ("j,k\n", "has 2 cells; expected 10: job_name,"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_reason(row: str, says: str) -> None:
    log = read(task(job_name="sound") + row)
    assert says in why(log)
    assert [run.job_id for run in log.runs] == ["sound"]


def test_a_job_of_which_one_line_cannot_be_used_is_left_out_as_a_whole() -> None:
    log = read(task() + task(task_name="chief", plan_gpu="30") + task())
    assert (log.runs, log.report.steps) == ([], 2)
    assert why(log).startswith("line 2: part of a GPU")
