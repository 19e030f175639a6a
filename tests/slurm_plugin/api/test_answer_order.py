"""Who is answered next."""

import threading
import time

import pytest

from hetsched_core.errors import InputError
from slurm_plugin.api.answer_order import Turns


class Crowd:
    """Users that wait for a turn, each in a thread, and note when they had it."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.order: list[str] = []
        self._threads: list[threading.Thread] = []

    def comes(self, user: str) -> None:
        """Return once it stands in line."""
        before = len(self.turns)
        thread = threading.Thread(target=self._waits, args=(user,))
        self._threads.append(thread)
        thread.start()
        while len(self.turns) == before:
            time.sleep(0.001)

    def is_served(self) -> list[str]:
        for thread in self._threads:
            thread.join()
        return self.order

    def _waits(self, user: str) -> None:
        with self.turns.turn(user, 60):
            self.order.append(user)


def test_users_come_in_turn_however_many_questions_one_has() -> None:
    crowd = Crowd()
    with crowd.turns.turn("eve", 60):
        for user in ("eve", "eve", "eve", "ann", "bob", "ann"):
            crowd.comes(user)
    assert crowd.is_served() == ["ann", "bob", "eve", "ann", "eve", "eve"]
    assert len(crowd.turns) == 0


def test_one_that_waits_too_long_is_told_and_stands_in_nobodys_way() -> None:
    crowd = Crowd()
    with crowd.turns.turn("eve", 60):
        for user in ("eve", "ann"):
            with pytest.raises(InputError, match="too many questions"), crowd.turns.turn(user, 0.0):
                pass
        crowd.comes("bob")
    assert crowd.is_served() == ["bob"]


def test_a_turn_ends_with_the_question_that_fails() -> None:
    turns = Turns()
    with pytest.raises(ZeroDivisionError), turns.turn("eve", 60):
        raise ZeroDivisionError
    with turns.turn("ann", 0.0):
        assert len(turns) == 1
