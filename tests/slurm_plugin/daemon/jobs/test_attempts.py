"""Who is tried of those that Slurm does not start."""

from __future__ import annotations

from slurm_plugin.daemon.jobs.attempts import IN_VAIN, Attempts, Kind

ODD = [Kind("eve", (f"-t {minutes}",)) for minutes in range(20)]
HERE, ELSEWHERE = ("n0", "n1"), ("n5",)
PLAIN, OTHERS = Kind("eve", ("plain",)), Kind("ann", ("-t 0",))


def tried(attempts: Attempts, kinds: list[Kind], now: float) -> list[Kind]:
    return [kind for kind in kinds if attempts.may_try(kind, str(kind), now)]


def test_what_a_user_asks_for_in_vain_may_be_in_jobs_that_differ_in_all_else() -> None:
    attempts = Attempts()
    for kind in ODD[: IN_VAIN - 1]:
        attempts.failed(kind, HERE, 0.0)
    assert tried(attempts, [*ODD, PLAIN], 1.0) == [*ODD, PLAIN]
    attempts.failed(ODD[5], HERE, 1.0)
    failed = [ODD[0], ODD[1], ODD[5]]
    assert tried(attempts, [*failed, OTHERS], 2.0) == [ODD[0], OTHERS]
    # The same one goes on being tried; then it is another's turn.
    assert tried(attempts, [*failed, OTHERS], 3.0) == [ODD[0], OTHERS]
    assert tried(attempts, failed[::-1], 70.0) == [ODD[5]]


def test_one_job_that_never_starts_keeps_none_of_its_user_s_others_waiting() -> None:
    attempts = Attempts()
    for number in range(3 * IN_VAIN):
        attempts.failed(ODD[number % 2], HERE, 0.0)
    assert tried(attempts, [*ODD[2:], PLAIN], 1.0) == [*ODD[2:], PLAIN]
    assert attempts.may_try(ODD[0], "1", 1.0)
    assert not attempts.may_try(ODD[0], "2", 1.0)


def test_a_user_s_jobs_of_new_kinds_wait_for_a_minute_each_and_not_behind_what_has_failed() -> None:
    attempts = Attempts()
    for kind in ODD[: 2 * IN_VAIN]:
        attempts.failed(kind, HERE, 0.0)
    failed, new = ODD[: 2 * IN_VAIN], [ODD[-1], PLAIN]
    assert tried(attempts, failed + new, 1.0) == [ODD[0], ODD[-1]]
    attempts.failed(ODD[-1], HERE, 6.0)
    assert tried(attempts, ODD, 50.0) == [ODD[0]]
    assert tried(attempts, failed + new, 62.0) == [ODD[0], PLAIN]
    attempts.started(PLAIN, HERE, 9.0)
    assert tried(attempts, failed + new, 63.0) == failed + new


def test_what_slurm_starts_of_a_user_is_tried_whatever_becomes_of_its_other_jobs() -> None:
    attempts = Attempts()
    for kind in ODD[:IN_VAIN]:
        attempts.failed(kind, HERE, 0.0)
    attempts.started(PLAIN, HERE, 9.0)
    assert tried(attempts, [*ODD, PLAIN], 1.0) == [*ODD, PLAIN]
    for kind in ODD[IN_VAIN : 2 * IN_VAIN]:
        attempts.failed(kind, HERE, 1.0)
    for _ in range(3):
        # It runs on, and says nothing new of the others.
        attempts.started(PLAIN, HERE, 9.0)
    failed = ODD[IN_VAIN : 2 * IN_VAIN]
    assert tried(attempts, [*failed, PLAIN], 2.0) == [ODD[IN_VAIN], PLAIN]


def test_what_was_started_before_any_failed_is_as_all_others_of_its_user() -> None:
    attempts = Attempts()
    attempts.failed(OTHERS, HERE, 0.0)
    attempts.started(PLAIN, ELSEWHERE, 1.0)
    for kind in ODD[:IN_VAIN]:
        attempts.failed(kind, HERE, 2.0)
    assert tried(attempts, [ODD[-1], PLAIN], 3.0) == [ODD[-1]]


def test_one_that_fails_after_it_was_started_is_as_all_others_of_its_user() -> None:
    attempts = Attempts()
    for kind in ODD[:IN_VAIN]:
        attempts.failed(kind, HERE, 0.0)
    attempts.started(PLAIN, HERE, 9.0)
    for kind in (PLAIN, *ODD[6:8]):
        attempts.failed(kind, HERE, 1.0)
    assert tried(attempts, [PLAIN, *ODD[6:]], 2.0) == [PLAIN, ODD[8]]
    assert tried(attempts, [*ODD[6:][::-1], PLAIN], 2.0) == [ODD[8], PLAIN]


def test_after_a_while_all_are_as_others_again() -> None:
    attempts = Attempts()
    for kind in ODD[:IN_VAIN]:
        attempts.failed(kind, HERE, 0.0)
    attempts.forget(1801.0)
    assert not attempts
    assert tried(attempts, ODD, 1801.0) == ODD


def test_where_a_kind_starts_on_other_nodes_it_is_kept_off_those_on_which_it_does_not() -> None:
    attempts = Attempts()
    for _ in range(IN_VAIN):
        attempts.failed(PLAIN, HERE, 0.0)
    assert attempts.may_try(PLAIN, "1", 1.0)
    assert not attempts.may_try(PLAIN, "2", 1.0)
    assert attempts.bad_nodes(PLAIN, "2", 1.0) == frozenset()
    # Another kind says nothing of it.
    attempts.started(ODD[0], ELSEWHERE, 9.0)
    assert not attempts.may_try(PLAIN, "2", 1.0)
    # One that runs since before says nothing of now.
    attempts.started(PLAIN, ELSEWHERE, -9.0)
    assert not attempts.may_try(PLAIN, "2", 1.0)
    attempts.started(PLAIN, ELSEWHERE, 9.0)
    assert attempts.may_try(PLAIN, "2", 1.0)
    assert attempts.bad_nodes(PLAIN, "2", 59.0) == {*HERE}
    # They may have been mended since: one is tried there, another one a minute later.
    assert attempts.bad_nodes(PLAIN, "2", 61.0) == frozenset()
    assert attempts.bad_nodes(PLAIN, "3", 62.0) == {*HERE}
    assert attempts.bad_nodes(PLAIN, "2", 119.0) == frozenset()
    assert attempts.bad_nodes(PLAIN, "3", 121.0) == frozenset()
    assert attempts.bad_nodes(PLAIN, "2", 122.0) == {*HERE}
    attempts.failed(PLAIN, HERE[:1], 150.0)
    assert attempts.bad_nodes(PLAIN, "2", 209.0) == {*HERE}
    assert attempts.bad_nodes(PLAIN, "4", 650.0) == frozenset()
    assert attempts.bad_nodes(PLAIN, "5", 650.0) == {*HERE[:1]}
    attempts.started(PLAIN, HERE[:1], 9.0)
    assert attempts.bad_nodes(PLAIN, "5", 1.0) == frozenset()


def test_what_is_not_for_the_nodes_is_over_with_the_next_start_wherever_that_is() -> None:
    attempts = Attempts()
    for _ in range(IN_VAIN):
        attempts.failed(PLAIN, (), 5.0)
    # One that runs since before says nothing of now.
    attempts.started(PLAIN, HERE, 4.0)
    assert attempts.may_try(PLAIN, "1", 6.0)
    assert not attempts.may_try(PLAIN, "2", 6.0)
    attempts.started(PLAIN, ELSEWHERE, 7.0)
    assert attempts.may_try(PLAIN, "2", 7.0)
    assert attempts.bad_nodes(PLAIN, "2", 7.0) == frozenset()


def test_what_was_for_a_partition_is_over_for_all_kinds_of_a_user_with_the_next_start() -> None:
    attempts = Attempts()
    # One has failed on nodes before, on which nothing starts yet.
    attempts.failed(OTHERS, HERE, 0.0)
    attempts.failed(ODD[-1], HERE, 1.0)
    for kind in ODD[:IN_VAIN]:
        attempts.failed(kind, (), 5.0)
    assert tried(attempts, [PLAIN, *ODD[6:9]], 6.0) == [PLAIN]
    attempts.started(PLAIN, ELSEWHERE, 7.0)
    assert tried(attempts, [PLAIN, *ODD[6:9]], 8.0) == [PLAIN, *ODD[6:9]]


def test_what_starts_of_one_kind_says_nothing_of_others_that_do_not() -> None:
    attempts = Attempts()
    for kind in ODD[:IN_VAIN]:
        attempts.failed(kind, HERE, 0.0)
    attempts.started(PLAIN, ELSEWHERE, 9.0)
    assert tried(attempts, ODD[:2], 1.0) == [ODD[0]]
    attempts.started(PLAIN, HERE[:1], 9.0)
    assert tried(attempts, ODD[:2], 1.0) == ODD[:2]


def test_the_next_one_waits_longer_each_time_and_at_most_ten_minutes() -> None:
    attempts, now, waits = Attempts(), 0.0, []
    for _ in range(IN_VAIN):
        attempts.failed(PLAIN, HERE, now)
    for number in range(6):
        assert attempts.may_try(PLAIN, f"{number}", now)
        attempts.failed(PLAIN, HERE, now)
        since, now = now, now + 1.0
        while not attempts.may_try(PLAIN, f"{number + 1}", now):
            now += 1.0
        waits.append(now - since)
    assert waits == [120.0, 240.0, 480.0, 600.0, 600.0, 600.0]
