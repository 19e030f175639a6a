"""What a pool's scheduler knows of one member."""

from collections import deque

from job_wrappers.pool.asked import SCHEMA
from slurm_plugin.pool.records import Member
from slurm_plugin.pool.station import Station, Task

MEMBER = Member(SCHEMA, "a0", "n0", "", "cpu", "v100", 1, 0.0)


def test_a_task_of_an_older_order_costs_those_before_it_in_the_new_one_nothing() -> None:
    urgent = [("urgent", 0, number) for number in range(3)]
    old: Task = ("long", 7, 0)
    station = Station(MEMBER, todo=deque([*urgent, old, ("long", 8, 0)]))
    station.begin(old, 1.0)
    assert list(station.todo) == [*urgent, ("long", 8, 0)]
    assert station.running == old
