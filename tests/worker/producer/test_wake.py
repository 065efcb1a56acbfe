"""A worker never misses a notification while it sleeps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from django_pgqueue.worker.producer import idle
from django_pgqueue.worker.producer import producer as producer_module
from django_pgqueue.worker.producer.claimer import Claimer
from tests.app import worker_tasks as tasks
from tests.support.workers import RunningWorker, fresh, make_producer, until

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_notification_that_comes_during_a_statement_is_heard_before_the_sleep(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read off the socket together with the answer, so nothing is left there that could wake anybody.

    The worker is alone with its notifications here: no second looks, no poll within the test.
    """
    settings.PGQUEUE = {"POLL_INTERVAL": 60}
    monkeypatch.setattr(idle, "LOOKS", ())
    monkeypatch.setattr(producer_module, "LONGEST_SLEEP", 60.0)
    asleep = Event()
    committed: list[Job] = []
    look = Claimer.search

    def enqueue_elsewhere() -> Job:
        try:
            return enqueue(tasks.noop)
        finally:
            connection.close()

    def search(claimer: Claimer, *given: Any, **options: Any) -> tuple[bool, float | None]:
        answer = look(claimer, *given, **options)
        if sleeper._idle.announced and not committed:
            # The look has found no jobs. Now the job is committed, and the next statement receives the
            # notification.
            with ThreadPoolExecutor(1) as elsewhere:
                committed.append(elsewhere.submit(enqueue_elsewhere).result())
            given[0].run(("SELECT pg_sleep(0)", None))
            asleep.set()
        return answer

    monkeypatch.setattr(Claimer, "search", search)
    sleeper = make_producer()
    worker = RunningWorker(sleeper)
    try:
        assert asleep.wait(20)
        until(lambda: fresh(committed[0]).status == Job.Status.DONE, what="the job to be done")
    finally:
        worker.stop()
