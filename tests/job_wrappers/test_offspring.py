"""What others leave to a process that adopts: it ends and is waited for, and nothing else is."""

from __future__ import annotations

import subprocess

from tests.job_wrappers.worlds import JOB_PYTHON, environment

ADOPTS = """
import os, subprocess, time
from job_wrappers import offspring

def zombies():
    look = ["ps", "-o", "stat=,args=", "--ppid", str(os.getpid())]
    said = subprocess.run(look, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return sum(line.startswith("Z") for line in said)

offspring.adopt()
"""


def said(script: str) -> str:
    """Return what a process says that runs a script, after those lines."""
    words = [JOB_PYTHON, "-c", ADOPTS + script]
    return subprocess.run(
        words, env=environment(), stdout=subprocess.PIPE, text=True, check=True, timeout=60
    ).stdout


def test_strays_are_waited_for_however_they_end_and_own_children_are_not() -> None:
    script = """
strays = offspring.Strays()
own = subprocess.Popen(["sh", "-c", "exit 7"])
# One ends by itself, one is ended with what it has started.
subprocess.run(["sh", "-c", "sleep 0 & sh -c 'sleep 3600; true' &"])
while zombies() < 2:
    time.sleep(0.01)
strays.end({own.pid})
print(zombies(), sorted(offspring.children(os.getpid())), own.wait())
"""
    assert said(script) == "1 [] 7\n"


def test_a_daemon_that_has_ended_is_waited_for_and_no_child_that_another_may_wait_for() -> None:
    script = """
own = [subprocess.Popen(["sh", "-c", "exit 7"], start_new_session=new) for new in (False, True)]
subprocess.run(["sh", "-c", "sleep 0 &"], start_new_session=True)
while zombies() < 3:
    time.sleep(0.01)
offspring.reap_adopted()
print(zombies(), [each.wait() for each in own])
"""
    assert said(script) == "2 [7, 7]\n"


def test_a_stray_that_may_not_be_ended_stays_and_is_waited_for_once() -> None:
    script = """
strays = offspring.Strays()
subprocess.run(["sh", "-c", "sleep 3600 & sh -c 'sleep 3600; true' &"])
one, *others = sorted(offspring.children(os.getpid()))
kill, looks, look = os.kill, [], offspring._processes

def refused(pid, number):
    # As for a process of another user, which no test has for sure.
    if pid == one:
        raise PermissionError
    kill(pid, number)

def counted():
    looks.append(None)
    return look()

os.kill, offspring._processes = refused, counted
strays.end([])
before = len(looks)
strays.end([])
print(len(others), len(looks) - before, offspring.children(os.getpid()) == {one})
kill(one, 9)
"""
    assert said(script) == "1 1 True\n"
