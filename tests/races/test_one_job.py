"""``pgqueue run-here`` and a worker that claims the same job at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import pytest
from django.db import connections

from django_pgqueue import enqueue
from django_pgqueue.worker.one_process import CannotRun, run_job
from tests.app import debugged_tasks as tasks
from tests.support.sessions import Connect
from tests.support.waiting import DEADLINE, until
from tests.support.workers import fresh

pytestmark = pytest.mark.django_db(transaction=True)

_CLAIM = """
    UPDATE pgqueue_job_live SET status = 'running', attempts = 1, worker = 1, lease = 1, started_at = now(),
        last_attempted_at = now() WHERE id = %s
"""
_WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


@pytest.fixture
def ran() -> Iterator[list[str]]:
    """Notes each run of the task."""
    runs: list[str] = []
    tasks.BODIES["note"] = lambda: runs.append("here")
    yield runs
    tasks.BODIES.clear()


def test_a_job_that_a_worker_claims_at_this_moment_is_not_run_here(connect: Connect, ran: list[str]) -> None:
    """Without the lock, the claim waits for the worker's, and then claims the running job again."""
    job = enqueue(tasks.run_body, "note")
    worker, server, ends = connect(), connect(autocommit=True), list[BaseException | None]()
    worker.execute(_CLAIM, [job.pk])

    def run_here() -> None:
        try:
            run_job(job.pk, "default")
            ends.append(None)
        except CannotRun as refused:
            ends.append(refused)
        finally:
            connections.close_all()

    thread = Thread(target=run_here)
    thread.start()
    until(lambda: ends or server.execute(_WAITS).fetchone() != (0,))
    worker.commit()
    thread.join(DEADLINE)
    assert "another transaction has locked it" in str(ends[0])
    assert (ran, fresh(job).status, fresh(job).attempts) == ([], "running", 1)
