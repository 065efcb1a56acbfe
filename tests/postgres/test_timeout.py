"""The time limit of statements, and limits within it: what fails costs the others nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, ProgrammingError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from django_pgqueue.models import Queue
from django_pgqueue.postgres import fetch_value
from django_pgqueue.postgres.ask import ask_all
from django_pgqueue.postgres.timeout import TimeLimitReached, time_limit, within
from tests.support.factories import QueueFactory
from tests.support.waiting import until

pytestmark = pytest.mark.django_db


def limit() -> str:
    return str(fetch_value("default", "SHOW statement_timeout"))


def sleep() -> Any:
    return fetch_value("default", "SELECT pg_sleep(10)")


def test_each_block_has_its_own_limit() -> None:
    with time_limit("default", 5):
        assert limit() == "5s"
        assert within("default", 2, limit) == "2s"
        assert limit() == "5s"
        assert within("default", 9, limit) == "5s"  # the block around it is narrower
        with time_limit("default", 2):
            assert within("default", 1, limit) == "1s"
            assert limit() == "2s"
    assert limit() == "0"


def test_a_narrower_limit_of_the_server_is_kept() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = '3s'")
    with time_limit("default", 5):
        assert limit() == "3s"
        assert within("default", 4, limit) == "3s"
        assert within("default", 2, limit) == "2s"
    assert limit() == "3s"


def test_figures_of_one_limit_cost_a_statement_each() -> None:
    with time_limit("default", 5), CaptureQueriesContext(connection) as captured:
        for _ in range(4):
            within("default", 2, limit)
    assert len(captured) == 5


def test_what_takes_too_long_costs_the_others_nothing() -> None:
    with time_limit("default", 5):
        assert within("default", 0.01, sleep) is None
        assert within("default", 2, limit) == "2s"
        with pytest.raises(TimeLimitReached), time_limit("default", 0.01):
            sleep()
        assert limit() == "5s"
        with pytest.raises(ProgrammingError), time_limit("default", 1):
            fetch_value("default", "SELECT nonsense")
        assert limit() == "5s"


def test_a_savepoint_of_django_takes_the_limit_back_with_it() -> None:
    with time_limit("default", 5):
        with time_limit("default", 2):
            with transaction.atomic():
                assert within("default", 1, limit) == "1s"
                transaction.set_rollback(True)
            assert limit() == "2s"
        assert limit() == "5s"


def test_a_savepoint_of_django_around_a_block_is_not_lost() -> None:
    with time_limit("default", 5):
        with transaction.atomic():
            assert within("default", 0.01, sleep) is None
            assert limit() == "5s"
        assert limit() == "5s"


def test_changes_are_rolled_back_with_the_first_block_unless_they_are_kept() -> None:
    with time_limit("default", 5), time_limit("default", 2):
        QueueFactory.create(name="lost")
    with time_limit("default", 5, keep=True):
        QueueFactory.create(name="kept")
        assert within("default", 0.01, sleep) is None
    assert [queue.pk for queue in Queue.objects.all()] == ["kept"]
    assert limit() == "0"


def test_the_limit_of_a_page_that_fails_is_over() -> None:
    with pytest.raises(OperationalError), time_limit("default", 5), time_limit("default", 2):
        raise OperationalError
    assert limit() == "0"
    assert connection.execute_wrappers == []


@pytest.mark.django_db(transaction=True)
def test_nothing_is_left_on_a_connection_in_autocommit() -> None:
    with time_limit("default", 2):
        assert limit() == "2s"
    assert limit() == "0"


# --- Several databases are asked side by side, and one that does not answer costs the others nothing


BOTH = ["default", "other"]


@pytest.mark.django_db(databases=BOTH, transaction=True)
def test_reading_changes_nothing_and_what_is_kept_is_committed() -> None:
    ask_all(BOTH, lambda alias: Queue.objects.using(alias).create(name="read"))
    ask_all(BOTH, lambda alias: Queue.objects.using(alias).create(name="kept"), keep=True)
    assert {alias: [*Queue.objects.using(alias).values_list("pk", flat=True)] for alias in BOTH} == {
        "default": ["kept"],
        "other": ["kept"],
    }


@pytest.mark.django_db(databases=BOTH, transaction=True)
def test_the_threads_speak_the_language_of_the_caller_and_leave_no_connection() -> None:
    def sessions(alias: str) -> int:
        query = "SELECT count(*) FROM pg_stat_activity WHERE usename IS NOT NULL AND datname = ANY (%s)"
        return int(fetch_value(alias, query, names))

    names = [connections[alias].settings_dict["NAME"] for alias in BOTH]
    before = sessions("default")
    with translation.override("de"):
        assert set(ask_all(BOTH, lambda _: translation.get_language()).given.values()) == {"de"}
    ask_all(BOTH, sessions)
    for alias in BOTH:
        connections[alias].close()
    until(lambda: sessions("default") <= before)


@pytest.mark.django_db(databases=BOTH, transaction=True)
def test_an_error_of_the_code_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        ask_all(BOTH, lambda _: 1 // 0)


@pytest.mark.django_db(databases=BOTH, transaction=True)
def test_within_a_transaction_its_rows_are_seen() -> None:
    with transaction.atomic(using="other"):
        Queue.objects.using("other").create(name="mail")
        found = ask_all(BOTH, lambda alias: Queue.objects.using(alias).count())
        assert found.given == {"default": 0, "other": 1}
