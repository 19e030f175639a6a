"""Accounting is asked for beside the loop, which waits for it once."""

from __future__ import annotations

import threading
import time

import pytest

from slurm_plugin.backend import accounting
from slurm_plugin.backend.accounting import Accounting, AccountingReader
from slurm_plugin.backend.limits import GpuLimits
from slurm_plugin.testbed.processes import wait_until


def test_a_slow_answer_is_not_waited_for_and_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (Accounting(GpuLimits(of_partition={"gpu": each}), None) for each in "ab")
    answers, may_answer = iter([first, second]), threading.Event()
    may_answer.set()

    def asked(_: str) -> Accounting:
        assert may_answer.wait(30)
        return next(answers, second)

    monkeypatch.setattr(accounting, "read_accounting", asked)
    reader = AccountingReader()
    # The first one is waited for, and the next is under way.
    assert reader.latest("") is first
    wait_until(lambda: reader.latest("") is second, "the next answer", 10)
    may_answer.clear()
    begun_s = time.monotonic()
    for _ in range(5):
        assert reader.latest("") is second
    assert time.monotonic() - begun_s < 5
    may_answer.set()
