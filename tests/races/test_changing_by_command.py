"""``pgqueue cancel`` and ``retry`` while a worker has one of the jobs."""

from __future__ import annotations

from threading import Thread

import pytest
from django.db import connection

from django_pgqueue.management.subcommands.changing import change_each
from django_pgqueue.models import Job
from django_pgqueue.models.changes import retry
from tests.management.test_subcommands import run
from tests.support.jobs import add, claim, finish, statuses, value
from tests.support.sessions import Connect
from tests.support.waiting import until

_WAITS = """
    SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
"""

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_job_that_is_claimed_meanwhile_is_left_alone(connect: Connect) -> None:
    """Only those that wait are to be cancelled. The row is locked and looked at again, so that the job that
    runs by now is not asked to stop.
    """
    worker, one = connect(), connect(autocommit=True)
    claimed, waiting = add(one, 2)
    assert [row.id for row in claim(worker, 1)] == [claimed]
    printed: list[str] = []

    def cancel() -> None:
        printed.append(run("cancel", "--status", "pending", "--queue", "default", "--yes"))
        connection.close()

    command = Thread(target=cancel, daemon=True)
    command.start()
    until(lambda: value(one, _WAITS) == 1)
    worker.commit()
    command.join(30)
    (words,) = printed
    assert words.startswith(
        "1 job was cancelled, or asked to stop. 1 job was left alone: it was in another state by then"
    )
    assert statuses(one) == {claimed: "running", waiting: "cancelled"}
    assert value(one, "SELECT cancel_requested_at FROM pgqueue_job WHERE id = %s", claimed) is None


def test_a_job_that_is_done_meanwhile_does_not_run_a_second_time(connect: Connect) -> None:
    """It waited for another attempt when its id was looked up."""
    one = connect(autocommit=True)
    (job,) = add(one)
    seen = Job.objects.get(pk=job)
    claim(one, 1)
    assert finish(one, [job]) == [job]
    assert list(change_each(retry, [seen])) == [(seen, False)]
    assert statuses(one) == {job: "done"}
