"""Holding nodes by one reservation and placing jobs into it, on a real Slurm."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hetsched_core.types import NodeCondition
from slurm_plugin.backend import (
    Drop,
    Enter,
    Hold,
    JobState,
    Leave,
    RefusedError,
    Requeue,
    Resources,
    SlurmJob,
    apply_changes,
    open_backend,
)
from slurm_plugin.testbed.processes import wait_until
from tests.slurm_plugin.backend.holding import (
    NAME,
    NODES,
    PATIENCE_S,
    USER,
    As,
    Site,
    power_saved,
    waits,
)
from tests.slurm_plugin.clusters import has_saved
from tests.slurm_plugin.jobs import end_all, pending
from tests.slurm_plugin.submit.asking import as_user

both = pytest.mark.parametrize(
    "backend",
    [
        pytest.param("commands", marks=pytest.mark.slurm),
        pytest.param("pyslurm", marks=pytest.mark.pyslurm),
    ],
    indirect=True,
)
pytestmark = pytest.mark.slurm


@both
def test_a_plain_job_waits_and_runs_where_an_operator_places_it_by_one_update(site: Site) -> None:
    job = site.submit("--gpus=1", "--time=1-00:00:00")
    before = site.await_waiting(job)
    assert (before.begin_s, before.reservation, before.pinned) == (before.submit_s, "", ())
    (kept,) = site.operator.read().reservations
    assert (kept.name, kept.nodes, kept.users) == (NAME, NODES, "-daemon")
    assert kept.flags >= {"FLEX", "OVERLAP", "NO_HOLD_JOBS_AFTER_END"}
    assert kept.start_s <= time.time() < kept.end_s
    site.enter(job, "n1")
    seen = site.await_running(job)
    assert (seen.nodes, seen.reservation, seen.time_limit_s) == (("n1",), NAME, 86400.0)
    # Its time limit of a day is longer than the reservation, and its wait is counted from its
    # submission.
    assert seen.begin_s == before.begin_s
    nodes = {node.name: node for node in site.operator.read().nodes}
    assert nodes["n1"].condition.value == "up"


def running_of(site: Site, array: str) -> dict[int, SlurmJob]:
    jobs = (job for job in site.jobs().values() if job.array == array)
    return {job.element: job for job in jobs if job.state is JobState.RUNNING}


def test_one_element_of_an_array_is_placed_and_its_throttle_holds(site: Site) -> None:
    array = site.submit("--array=0-9%2", "--gpus=1")
    (waiting,) = (job for job in site.jobs().values() if job.array == array)
    assert (waiting.throttle, waiting.unsplit) == (2, tuple(range(10)))
    for element in (7, 3):
        site.enter(f"{array}_{element}", "n1")
    seen = {each: site.await_running(f"{array}_{each}") for each in (7, 3)}
    assert {job.nodes for job in seen.values()} == {("n1",)}
    site.enter(f"{array}_5", "n1")
    site.await_job(f"{array}_5", lambda job: "JobArrayTaskLimit" in job.reason)
    assert set(running_of(site, array)) == {3, 7}
    site.testbed.command("scancel", f"{array}_7")
    site.await_running(f"{array}_5")


@both
def test_a_requeued_job_is_taken_out_while_it_completes_and_can_be_placed_again(site: Site) -> None:
    job = site.submit("--gpus=2", "--cpus-per-task=2")
    own = site.await_waiting(job).resources
    wide = own.placed(1, "gres/gpu:4", 1)
    site.enter(job, "n1", resources=wide)
    placed = site.await_running(job)
    assert (placed.nodes, placed.gpus, placed.cpus) == (("n1",), 4, 2)
    site.operator.apply(Requeue(job))
    leave = Leave(job, resources=own.changed_from(placed.resources))
    site.operator.apply(leave)
    left = site.await_job(job, pending)
    assert (left.reservation, left.pinned) == ("", ())
    assert same(left.resources, own)
    # What keeps it back for a while now is over when it is placed as due.
    assert (left.begin_s or 0.0) > time.time()
    two = left.resources.placed(2, "gres/gpu:1", 2)
    site.operator.apply(Enter(job, NAME, ("n0", "n2"), leave, two, due=True))
    again = site.await_running(job)
    assert (again.nodes, again.gpus) == (("n0", "n2"), 2)


def same(one: Resources, other: Resources) -> bool:
    """Whether two ask alike; Slurm brings the most nodes down to the number of GPUs."""
    assert one.nodes is not None
    assert other.nodes is not None
    return replace(one, nodes=None) == replace(other, nodes=None) and one.nodes[0] == other.nodes[0]


REQUESTS = (
    ("--gpus=2",),
    ("--gres=gpu:2",),
    ("--nodes=2", "--gpus-per-node=2"),
    ("--ntasks=2", "--gpus-per-task=1"),
    ("--gpus=8", "--cpus-per-gpu=2", "--mem-per-gpu=1G"),
    ("--nodes=1", "--gpus-per-socket=1", "--sockets-per-node=2"),
    ("--nodes=1-3", "--ntasks=3", "--ntasks-per-node=1", "--gres=gpu:1"),
    ("--nodes=2", "--ntasks=4", "--tres-per-task=gres/gpu:1", "--cpus-per-task=3"),
    ("--gres=gpu:v100:2", "--cpus-per-task=3", "--mem=2G"),
)


@both
def test_however_a_job_asks_it_runs_as_it_is_placed_and_gets_its_own_back(site: Site) -> None:
    # Slurm 24.11 goes on counting CPUs for the GPUs that a job came with, unless it is told how
    # many, as the daemon does.
    counts = site.testbed.installed.version >= (25, 0)
    asked = [each for each in REQUESTS if counts or "--cpus-per-gpu=2" not in each]
    jobs = {site.submit(*options): options for options in asked}
    wait_until(lambda: all(waits(site.jobs()[job]) for job in jobs), "all wait", PATIENCE_S)
    own = {job: site.jobs()[job].resources for job in jobs}
    reference = open_backend("commands").read().jobs
    assert own == {job: reference[job].resources for job in jobs}
    # Nodes that cannot be had all at once: each is looked at while it waits.
    site.testbed.command("scontrol", "update", "node=n1", "state=drain", "reason=test")
    try:
        for job in jobs:
            site.enter(job, "n1", resources=own[job].placed(1, "gres/gpu:v100:1", 1))
        seen = site.jobs()
        for job, options in jobs.items():
            changed = seen[job].resources
            assert (changed.per_node, changed.tasks) == ("gres/gpu:v100:1", 1), options
            assert (changed.per_job, changed.per_socket, changed.per_task) == ("", "", ""), options
            assert seen[job].pinned == ("n1",)
        for job in [*jobs][:3]:
            site.operator.apply(Leave(job, resources=own[job].changed_from(seen[job].resources)))
        seen = site.jobs()
        assert all(same(seen[job].resources, own[job]) for job in [*jobs][:3])
        assert all(not seen[job].pinned for job in [*jobs][:3])
    finally:
        site.testbed.command("scontrol", "update", "node=n1", "state=resume")
    for job in [*jobs][3:]:
        placed = site.await_running(job)
        assert (placed.nodes, placed.gpus) == (("n1",), 1), jobs[job]


@both
def test_all_that_is_said_of_jobs_is_read_alike_by_both_backends(site: Site) -> None:
    placed = site.submit("--gpus=2", "--time=10")
    jobs = [
        site.submit(*each)
        for each in (
            (
                *("--partition=short,gpu", "--exclusive", "--gres=gpu:1", "--constraint=ib&nvme"),
                *("--exclude=n0", "--nodelist=n4", "--licenses=cad:1", "--deadline=now+2hours"),
                *("--time=5", "--nodes=1-3", "--ntasks-per-node=2", "--mincpus=3"),
            ),
            ("--hold", "--exclusive=user", "--reservation=hetsched"),
            ("--array=3-9%2", "--gpus=2", "--cpus-per-gpu=2", "--mem-per-gpu=1G"),
            ("--gpus=1", ":", "--gpus=1"),
        )
    ]
    wait_until(lambda: waits(site.jobs()[jobs[2]]), "Slurm has looked at them", PATIENCE_S)
    own = site.await_waiting(placed).resources
    site.enter(placed, "n0", "n3", resources=own.placed(2, "gres/gpu:1", 2))
    assert site.await_running(placed).nodes == ("n0", "n3")
    read, commands = site.operator.read(), open_backend("commands")

    def alike() -> bool:
        nonlocal read
        read, reference = site.operator.read(), commands.read()
        return (read.nodes, read.reservations) == (reference.nodes, reference.reservations) and all(
            read.jobs[job] == reference.jobs[job] for job in (placed, *jobs)
        )

    # Slurm changes what it shows of nodes while we look.
    wait_until(alike, "both read the same", PATIENCE_S)
    first, second, third, fourth = (read.jobs[job] for job in jobs)
    assert first.partitions == ("short", "gpu")
    assert (first.exclusive, first.constraint) == ("node", "ib&nvme")
    assert (first.excluded, first.pinned) == (("n0",), ("n4",))
    assert (first.resources.nodes, first.tasks_per_node, first.cpus_least) == ((1, 3), 2, 3)
    assert first.priority > 0
    assert first.reason.startswith("ReqNodeNotAvail, ")
    assert (second.exclusive, second.reservation, second.priority) == ("user", NAME, 0)
    assert second.held
    assert (third.throttle, third.asked.cpus_per_gpu, third.asked.memory_mb_per_gpu) == (2, 2, 1024)
    assert fourth.het_job == jobs[3]
    nodes = {node.name: node for node in read.nodes}
    for fake in site.testbed.layout.nodes:
        assert nodes[fake.name].features == frozenset(fake.features)


def test_when_nobody_renews_slurm_starts_whoever_waits_also_after_its_controller_was_killed(
    site: Site,
) -> None:
    # A slurmctld that is killed before it has saved all that it has does not start again.
    site.testbed.stop_controller()
    site.testbed.start_controller()
    array = site.submit("--array=0-199", "--gpus=4")
    site.await_waiting(array)
    runs = site.run_on("n1", "--gpus=4")
    site.hold(15)
    held_s = time.time()
    (before,) = site.operator.read().reservations
    # What slurmctld is told in its last seconds it forgets: a renewal, too.
    wait_until(lambda: has_saved(site.testbed, "resv", held_s), "it is saved", PATIENCE_S)
    site.testbed.kill_controller()
    site.testbed.start_controller()
    (after,) = site.operator.read().reservations
    assert (after.end_s, after.nodes, after.users) == (before.end_s, NODES, "-daemon")
    # Slurm looks at all that wait every 30 s. Beside the one that was placed, which runs on, there
    # is room for seven.
    wait_until(lambda: len(running_of(site, array)) == 7, "all GPUs are taken", 60)
    assert min(job.start_s or 0.0 for job in running_of(site, array).values()) >= after.end_s
    assert site.jobs()[runs].restarts == 0


@pytest.mark.parametrize(("into", "says"), [("closed", "ccess denied"), ("nowhere", "eservation")])
def test_a_reservation_with_a_list_of_who_may_or_that_is_not_there_takes_nothing_in(
    site: Site, into: str, says: str
) -> None:
    create = ("create", "reservation", "ReservationName=closed", "Users=root", "Nodes=n0")
    site.testbed.command("scontrol", *create, "StartTime=now", "EndTime=now+600", "Flags=OVERLAP")
    job = site.submit("--gpus=1")
    own = site.await_waiting(job)
    enter = Enter(job, into, ("n0",), Leave(job), own.resources.placed(1, "gres/gpu:2", 1))
    outcome = apply_changes(site.operator, [enter], time.sleep)
    ((_, words),) = outcome.refused
    assert says in words
    seen = site.jobs()[job]
    assert (seen.reservation, seen.pinned, seen.state) == ("", (), JobState.PENDING)


@both
def test_a_placement_that_is_refused_in_part_is_taken_back(site: Site) -> None:
    job = site.submit("--gpus=2")
    own = site.await_waiting(job).resources
    # Two texts that contradict each other: the nodes are taken, the GPUs are not.
    enter = Enter(job, NAME, ("n0",), Leave(job, resources=own), Resources(per_node="gres/gpu:1"))
    with pytest.raises(RefusedError):
        site.operator.apply(enter)
    assert site.jobs()[job].pinned == ("n0",)
    assert apply_changes(site.operator, [enter], time.sleep).refused
    left = site.jobs()[job]
    assert (left.reservation, left.pinned) == ("", ())
    assert same(left.resources, own)


def test_those_of_the_lowest_priority_start_first_beside_forty(site: Site) -> None:
    jobs = [site.submit("--gpus=4", f"--nice={at}") for at in range(40)]
    site.await_waiting(jobs[-1])
    began = time.time()
    for job, node in zip(jobs[-3:], ("n0", "n1", "n3"), strict=True):
        site.enter(job, node)
    for job in jobs[-3:]:
        site.await_running(job)
    seen = site.jobs()
    assert sorted(seen[job].priority for job in jobs)[:3] == sorted(
        seen[job].priority for job in jobs[-3:]
    )
    assert time.time() - began < 20
    assert all(seen[job].state is JobState.PENDING for job in jobs[:-3])


def test_what_reaches_into_maintenance_waits_and_what_does_not_runs(site: Site) -> None:
    create = ("create", "reservation", "ReservationName=works", "Users=root", "Nodes=n2")
    site.testbed.command(
        *("scontrol", *create, "StartTime=now+5minutes", "EndTime=now+1hour", "Flags=MAINT,OVERLAP")
    )
    (works,) = (kept for kept in site.operator.read().reservations if kept.name == "works")
    assert (works.nodes, works.users) == (("n2",), "root")
    assert "MAINT" in works.flags
    assert works.start_s > time.time()
    site.run_on("n2", "--gpus=1", "--time=2")
    long = site.submit("--gpus=1", "--time=1-0")
    site.enter(long, "n2")
    seen = site.await_job(long, lambda job: "eserv" in job.reason)
    assert seen.state is JobState.PENDING


@both
def test_a_node_of_the_hold_goes_to_a_users_reservation_under_what_runs_on_it(site: Site) -> None:
    runs = site.run_on("n1", "--gpus=1")
    theirs = ("reservation=course", "nodes=n1", f"users={USER}", "flags=ignore_jobs")
    site.testbed.command("scontrol", "create", *theirs, "starttime=now", "duration=60")
    course = site.submit("--gpus=1", "--reservation=course")
    # Slurm starts nothing where two reservations meet.
    site.await_waiting(course)
    site.hold(nodes=("n0", "n2", "n3", "n4", "n5"))
    assert site.await_running(course).nodes == ("n1",)
    assert site.jobs()[runs].state is JobState.RUNNING
    site.await_waiting(site.submit("--gpus=1"))


@both
def test_a_user_s_own_way_into_the_reservation_is_seen_and_shut(site: Site) -> None:
    job = site.submit("--gpus=1", f"--reservation={NAME}", "--hold")
    assert site.jobs()[job].reservation == NAME
    site.operator.apply(Leave(job))
    assert as_user(site.testbed, USER, "scontrol", "release", job).returncode == 0
    assert site.await_waiting(job).reservation == ""


def test_a_reservation_of_gpus_alone_takes_all_cores_too(site: Site) -> None:
    site.drop()
    create = ("create", "reservation", "ReservationName=gpus", "Users=-daemon", "Nodes=n[0-3]")
    gpus = ("TRESPerNode=gres/gpu:4", "StartTime=now", "EndTime=now+600", "Flags=FLEX,OVERLAP")
    site.testbed.command("scontrol", *create, *gpus)
    job = site.submit("--ntasks=1", "--mem=100", "--nodelist=n1")
    site.await_job(job, lambda seen: seen.reason == "Resources")
    assert not any(node.cpus_used for node in site.operator.read().nodes)


@pytest.fixture
def saving(site: Site) -> Iterator[Site]:
    """A held site that turns idle nodes off."""
    with power_saved(site.testbed):
        yield site
        end_all(site.testbed)


def test_a_node_that_is_powered_down_is_powered_up_for_what_is_placed_on_it(saving: Site) -> None:
    tell = saving.testbed.command

    def is_off() -> bool:
        return "POWERED_DOWN" in tell("scontrol", "show", "node", "n5")

    tell("scontrol", "update", "node=n5", "state=power_down")
    wait_until(is_off, "a node that is off", PATIENCE_S)
    nodes = {node.name: node for node in saving.operator.read().nodes}
    assert nodes["n5"].condition is NodeCondition.UP
    job = saving.run_on("n5", "--gpus=1")
    wait_until(lambda: not is_off(), "a node that is on", PATIENCE_S)
    state = ("squeue", "--noheader", f"--jobs={job}", "--format=%T")
    wait_until(lambda: "RUNNING" in tell(*state), "it runs there", PATIENCE_S)


def test_a_job_whose_licences_are_gone_waits_with_slurm_s_word(site: Site) -> None:
    for _ in range(2):
        site.run_on("n1", "--gpus=1", "--licenses=cad:1")
    job = site.submit("--gpus=1", "--licenses=cad:1")
    site.await_waiting(job)
    site.enter(job, "n1")
    seen = site.await_job(job, lambda job: job.reason == "Licenses")
    assert seen.state is JobState.PENDING


@both
def test_a_job_of_two_partitions_runs_in_the_one_that_is_put_first_and_keeps_both(
    site: Site,
) -> None:
    job = site.submit("--gpus=1", "--partition=gpu,short")
    assert site.await_waiting(job).partitions == ("gpu", "short")
    leave = Leave(job, partitions=("gpu", "short"))
    site.operator.apply(Enter(job, NAME, ("n1",), leave, partitions=("short", "gpu")))
    seen = site.await_running(job)
    assert (seen.nodes, seen.partition) == (("n1",), "short")
    site.operator.apply(Requeue(job))
    site.operator.apply(leave)
    site.await_job(job, pending)
    assert site.jobs()[job].partitions == ("gpu", "short")
    site.operator.apply(Enter(job, NAME, ("n0",), leave, due=True))
    again = site.await_running(job)
    assert (again.nodes, again.partition) == (("n0",), "gpu")


def test_a_job_without_gpus_is_let_in_anywhere(site: Site) -> None:
    job = site.submit("--ntasks=2", "--cpus-per-task=4", "--constraint=nvme")
    site.await_waiting(job)
    site.enter(job)
    seen = site.await_running(job)
    (node,) = seen.nodes
    assert node in ("n3", "n4", "n5")
    assert seen.cpus == 8


@both
def test_a_hold_is_renewed_changed_ended_under_running_jobs_and_brought_back(site: Site) -> None:
    def held() -> tuple[str, ...]:
        found = (kept for kept in site.operator.read().reservations if kept.end_s > time.time())
        return next((kept.nodes for kept in found), ())

    job = site.run_on("n1", "--gpus=1")
    for nodes in (NODES, ("n0", "n1"), ("n2",), NODES):
        for _ in range(2):
            site.hold(600, nodes)
        assert held() == nodes
    (before,) = site.operator.read().reservations
    site.hold(1200)
    (after,) = site.operator.read().reservations
    assert 500 < after.end_s - before.end_s < 700
    site.testbed.command("scontrol", "update", f"reservation={NAME}", "flags+=MAINT")
    assert "MAINT" in site.operator.read().reservations[0].flags
    site.hold()
    (again,) = site.operator.read().reservations
    assert (again.flags, again.nodes) == (before.flags, before.nodes)
    site.drop()
    wait_until(lambda: held() == (), "it has ended", PATIENCE_S)
    assert site.jobs()[job].state is JobState.RUNNING
    site.hold()
    assert held() == NODES
    waiting = site.submit("--gpus=1")
    site.await_waiting(waiting)
    site.testbed.command("scancel", job)
    site.await_job(job, lambda seen: seen.state is JobState.ENDED)
    for _ in range(2):
        site.drop()
    assert site.operator.read().reservations == ()


@both
def test_a_hold_begins_at_once_in_the_hour_that_a_time_zone_has_twice(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.gmtime()
    # Summer time, an hour ahead of UTC, ends in twenty minutes: now comes again.
    hour, minute = divmod(60 * now.tm_hour + now.tm_min + 80, 60)
    monkeypatch.setenv("TZ", f"AAA0BBB-1,0/0,{now.tm_yday - 1}/{hour}:{minute}")
    site.drop()
    site.hold()
    (held,) = site.operator.read().reservations
    assert abs(held.start_s - time.time()) < 60
    assert 500 < held.end_s - time.time() < 700
    job = site.submit("--gpus=1")
    site.await_waiting(job)
    site.operator.apply(Enter(job, NAME, ("n1",), Leave(job), due=True))
    site.await_running(job)


def test_a_hold_outlasts_a_reconfiguration_and_without_it_a_user_s_requeued_job_runs_again(
    site: Site,
) -> None:
    job = site.submit("--gpus=1")
    placed = site.run_on("n1", "--gpus=1")
    before = site.operator.read().reservations
    site.testbed.command("scontrol", "reconfigure")
    assert site.operator.read().reservations == before
    site.await_waiting(job)
    assert site.jobs()[placed].state is JobState.RUNNING
    site.enter(job, "n1")
    site.await_running(job)
    site.drop()
    assert as_user(site.testbed, USER, "scontrol", "requeue", job).returncode == 0
    assert not site.await_job(job, pending).held
    site.testbed.command("scontrol", "update", f"JobId={job}", "StartTime=now")
    again = site.await_running(job)
    assert (again.nodes, again.restarts) == (("n1",), 1)


def test_one_who_is_no_operator_holds_nothing(site: Site) -> None:
    for change in (Hold("mine", ("n0",), 60), Drop(NAME)):
        with pytest.raises(RefusedError, match="Invalid user id"):
            As(site.operator.backend, USER).apply(change)
    (kept,) = site.operator.read().reservations
    assert kept.end_s > time.time()


@both
def test_a_reservation_whose_name_is_no_utf_8_stops_nothing(site: Site) -> None:
    name = "reservationname=x\udcff"
    words = ("users=root", "starttime=now+60", "duration=1", "nodes=n2")
    site.testbed.command("scontrol", "create", "reservation", name, *words)
    try:
        assert ("n2",) in [kept.nodes for kept in site.operator.read().reservations]
    finally:
        site.testbed.command("scontrol", "delete", name)


@both
def test_whether_a_waiting_job_shares_nodes_follows_its_partition(site: Site) -> None:
    job = site.submit("--gpus=1", "--partition=short")
    assert site.await_waiting(job).exclusive == ""
    for sharing, exclusive in (("EXCLUSIVE", "node"), ("NO", "")):
        site.testbed.command("scontrol", "update", "partition=short", f"OverSubscribe={sharing}")
        site.operator.site()
        assert site.jobs()[job].exclusive == exclusive
